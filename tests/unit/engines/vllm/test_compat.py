"""Start-up refusals: versions, hashes and connectors under which scopes would not hold (I6)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scopekv.engines.vllm import compat, plugin
from scopekv.engines.vllm.compat import check_config, check_version
from scopekv.engines.vllm.settings import PluginSettings
from scopekv.errors import ConfigError

Config = Callable[..., Any]


def transfer(name: str | None, path: str | None = None, *parts: dict[str, Any]) -> Any:
    return SimpleNamespace(
        kv_connector=name,
        kv_connector_module_path=path,
        kv_connector_extra_config={"connectors": list(parts)} if parts else {},
    )


@pytest.mark.parametrize("version", ["0.31.0", "0.32.0+cpu", "0.32.1rc1", "0.33.9"])
def test_a_tested_version_starts(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize("version", ["0.30.2", "0.34.0", "1.0.0", "1.32.0", "dev", ""])
def test_an_untested_version_is_refused_by_name(version: str) -> None:
    with pytest.raises(ConfigError, match=r"0\.31 to 0\.33") as refusal:
        check_version(version)
    assert version in str(refusal.value)


@pytest.mark.parametrize("algorithm", ["sha256", "sha256_cbor"])
def test_a_collision_resistant_hash_starts(config: Config, algorithm: str) -> None:
    check_config(config(algorithm=algorithm))


@pytest.mark.parametrize("algorithm", ["xxhash", "xxhash_cbor", "builtin", "md5", ""])
def test_a_weak_hash_is_refused_by_name(config: Config, algorithm: str) -> None:
    with pytest.raises(ConfigError, match=f"algo {algorithm}"):
        check_config(config(algorithm=algorithm))


@pytest.mark.parametrize(
    "allowed",
    [
        None,
        transfer(None),
        transfer("OffloadingConnector"),
        transfer("MultiConnector", None, {"kv_connector": "OffloadingConnector"}),
    ],
)
def test_a_connector_that_keeps_block_hashes_starts(config: Config, allowed: Any) -> None:
    check_config(config(transfer=allowed))


SAFE = {"kv_connector": "OffloadingConnector"}


@pytest.mark.parametrize(
    ("unsafe", "named"),
    [
        (transfer("LMCacheConnectorV1"), "LMCacheConnectorV1"),
        (transfer("LMCacheMPConnector"), "LMCacheMPConnector"),
        (transfer("HF3FSKVConnector"), "HF3FSKVConnector"),
        (transfer("ExampleConnector"), "ExampleConnector"),
        (transfer("NixlConnector"), "NixlConnector"),
        (transfer("Mine", "my.module"), "Mine from my.module"),
        (transfer("OffloadingConnector", "my.module"), "OffloadingConnector from my.module"),
        (transfer("MultiConnector", "my.module"), "MultiConnector from my.module"),
        (transfer("MultiConnector", None, SAFE, {"kv_connector": "NixlConnector"}), "Nixl"),
        (transfer("MultiConnector", None, {"kv_connector": "MultiConnector"}), "MultiConnector"),
        (
            transfer("MultiConnector", None, {**SAFE, "kv_connector_module_path": "my.module"}),
            "OffloadingConnector from my.module",
        ),
        (transfer("MultiConnector", None, {}), "None"),
    ],
)
def test_a_connector_that_drops_scopes_is_refused_by_name(
    config: Config, unsafe: Any, named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        check_config(config(transfer=unsafe))


def test_settings_come_from_the_environment_or_rest() -> None:
    assert PluginSettings.read({}) is None
    assert PluginSettings.read({"SCOPEKV_TICKET_KEYS": ""}) is None
    read = PluginSettings.read({"SCOPEKV_TICKET_KEYS": "/k", "SCOPEKV_WITHOUT_TICKET": "refuse"})
    assert read == PluginSettings(Path("/k"), "default", refuse=True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SCOPEKV_WITHOUT_TICKET", "share"),
        ("SCOPEKV_WITHOUT_TICKET", ""),
        ("SCOPEKV_PINNED_SHARE_MAX", "1.0"),
        ("SCOPEKV_PINNED_SHARE_MAX", "nan"),
        ("SCOPEKV_PINNED_SHARE_MAX", "half"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        PluginSettings.read({"SCOPEKV_TICKET_KEYS": "/k", name: value})


def test_more_than_one_data_parallel_rank_is_refused(config: Config) -> None:
    """vLLM answers our calls for the first rank alone."""
    check_config(config(dp=1))
    with pytest.raises(ConfigError, match="data_parallel_size"):
        check_config(config(dp=2))


@pytest.mark.parametrize("plugins", [None, "", "other"])
def test_half_a_plugin_does_not_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plugins: str | None
) -> None:
    """Without the endpoint half, neither refusals nor the status would be there."""
    monkeypatch.setenv("SCOPEKV_TICKET_KEYS", str(tmp_path / "keys.json"))
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    if plugins is not None:
        monkeypatch.setenv("VLLM_PLUGINS", plugins)
    monkeypatch.setattr(plugin, "installed_guard", lambda: None)
    with pytest.raises(ConfigError, match="VLLM_PLUGINS"):
        plugin.register()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, where this imports it first
def test_a_vllm_whose_seams_are_others_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    compat.check_seams()

    def changed(request: Any, start_token_idx: int, salt: str) -> None: ...

    monkeypatch.setattr("vllm.v1.core.kv_cache_utils.generate_block_hash_extra_keys", changed)
    with pytest.raises(ConfigError, match="not one ScopeKV was made for"):
        compat.check_seams()
