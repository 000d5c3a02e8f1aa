"""Case I6: connectors whose keys come from tokens alone are refused, by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from scopekv.engines.vllm.compat import (
    OWN_CONNECTOR,
    SAFE_CONNECTORS,
    SAFE_HASHES,
    check_config,
    check_version,
)
from scopekv.errors import ConfigError


def config(
    connector: str | None = None,
    module: str | None = None,
    extra: dict[str, Any] | None = None,
    algorithm: str = "sha256_cbor",
) -> SimpleNamespace:
    """The parts of vLLM's configuration that are looked at."""
    transfer = SimpleNamespace(
        kv_connector=connector,
        kv_connector_module_path=module,
        kv_connector_extra_config=extra or {},
    )
    cache = SimpleNamespace(prefix_caching_hash_algo=algorithm)
    return SimpleNamespace(
        cache_config=cache,
        kv_transfer_config=transfer if connector else None,
        parallel_config=SimpleNamespace(data_parallel_size=1),
    )


UNSAFE = ["LMCacheConnectorV1", "LMCacheMPConnector", "HF3FSKVConnector", "ExampleConnector",
          "NixlConnector", "MooncakeConnector", "something-new"]  # fmt: skip


@pytest.mark.parametrize("name", UNSAFE)
def test_i6_an_unsafe_connector_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        check_config(config(name))
    parts = {"connectors": [{"kv_connector": SAFE_CONNECTORS[0]}, {"kv_connector": name}]}
    with pytest.raises(ConfigError, match=name):
        check_config(config("MultiConnector", extra=parts))


def test_i6_a_safe_name_from_an_unknown_module_is_not_safe() -> None:
    with pytest.raises(ConfigError, match=r"my\.module"):
        check_config(config(SAFE_CONNECTORS[0], module="my.module"))
    part = {"kv_connector": SAFE_CONNECTORS[0], "kv_connector_module_path": "my.module"}
    with pytest.raises(ConfigError, match=r"my\.module"):
        check_config(config("MultiConnector", extra={"connectors": [part]}))


def test_i6_the_positive_control() -> None:
    for algorithm in SAFE_HASHES:
        check_config(config(algorithm=algorithm))
    for name in set(SAFE_CONNECTORS) - {OWN_CONNECTOR}:
        check_config(config(name))


@pytest.mark.slow  # asks vLLM for its version, and its import takes 4 s
def test_i6_the_positive_control_of_our_own_connector() -> None:
    check_config(config(OWN_CONNECTOR))


@pytest.mark.parametrize("algorithm", ["xxhash", "xxhash_cbor", "builtin", ""])
def test_a_hash_that_can_be_made_to_collide_is_refused(algorithm: str) -> None:
    with pytest.raises(ConfigError, match="sha256_cbor"):
        check_config(config(algorithm=algorithm))


@pytest.mark.parametrize("version", ["0.30.9", "0.34.0", "1.0.0", "dev", ""])
def test_an_untested_version_is_refused(version: str) -> None:
    with pytest.raises(ConfigError, match=r"0\.31"):
        check_version(version)
    for good in ("0.31.0", "0.32.0+cpu", "0.33.1rc1"):
        check_version(good)
