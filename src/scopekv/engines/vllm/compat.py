"""The one file that knows vLLM's versions: which are supported, and what their seams look like."""

from __future__ import annotations

import importlib
import inspect
import os
import platform
import re
from typing import Any

from scopekv.errors import ConfigError

# First and last minor version with these seams: 0.32 in the test run, its neighbours by trial.
SUPPORTED = ((0, 31), (0, 33))
SAFE_HASHES = ("sha256", "sha256_cbor")
OWN_CONNECTOR = "ScopedConnector from scopekv.engines.vllm.offloading.connector"
TIERS_VERSION = (0, 32)  # the one whose offloading seams the tiers were run with
SAFE_CONNECTORS = ("OffloadingConnector", OWN_CONNECTOR)  # keyed by the engine's block hashes


def vllm_version() -> str:
    import vllm

    return str(vllm.__version__)


def machine() -> str:
    """What a block's bytes depend on besides settings: vLLM goes by it in choosing kernels.

    Two that differ do not read each other's blocks. On CPUs the order of a block's numbers goes by
    the instruction set (0.32: `cpu_attn._get_attn_isa`), on GPUs the backend by its capability.
    """
    import torch
    from vllm.platforms import current_platform

    found = [vllm_version(), platform.machine(), os.environ.get("VLLM_KV_CACHE_LAYOUT", "")]
    if current_platform.is_cpu():
        found += [str(torch.cpu._is_amx_tile_supported()), str(torch.cpu._is_avx512_supported())]
    else:
        found.append(str(current_platform.get_device_capability()))
    return "|".join(found)


def check_version(version: str) -> None:
    """Refuse to start on a version that may have other seams."""
    minor = _minor(version)
    if not SUPPORTED[0] <= minor <= SUPPORTED[1]:
        raise ConfigError(
            f"ScopeKV is made for vLLM {_dotted(SUPPORTED[0])} to {_dotted(SUPPORTED[1])}; this is "
            f"{version}. Install one of those, or start without the plugin "
            "(VLLM_PLUGINS without scopekv): the gateway then isolates whole prompts."
        )


def check_seams() -> None:
    """Refuse to start where vLLM's functions no longer take what the plugin gives them."""
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.engine.core import EngineCore

    expected = {
        kv_cache_utils.generate_block_hash_extra_keys: (
            "request",
            "start_token_idx",
            "end_token_idx",
            "start_mm_idx",
        ),
        EngineCore.collective_rpc: ("self", "method", "timeout", "args", "kwargs"),
    }
    for function, names in expected.items():
        found = tuple(inspect.signature(function).parameters)
        if found[: len(names)] != names:
            raise ConfigError(
                f"vLLM's {function.__name__} takes {', '.join(found)}, not {', '.join(names)}: "
                f"this build of {vllm_version()} is not one ScopeKV was made for."
            )


def hashing_modules() -> list[Any]:
    """Every module that has its own name for the function that makes block keys."""
    names = ("core.kv_cache_utils", "core.block_pool", "simple_kv_offload.manager")
    modules = []
    for name in names:
        try:
            module = importlib.import_module(f"vllm.v1.{name}")
        except ModuleNotFoundError:  # simple_kv_offload is not in every tested version
            continue
        if hasattr(module, "generate_block_hash_extra_keys"):
            modules.append(module)
    return modules


def check_config(vllm_config: Any) -> None:
    """Refuse settings under which sharing cannot be kept to its scope. Raises `ConfigError`."""
    algorithm = vllm_config.cache_config.prefix_caching_hash_algo
    if algorithm not in SAFE_HASHES:
        raise ConfigError(
            f"--prefix-caching-hash-algo {algorithm} can be made to collide, and a collision is "
            f"a leak. Use sha256_cbor."
        )
    if vllm_config.parallel_config.data_parallel_size > 1:
        raise ConfigError(
            "data_parallel_size is above 1: ScopeKV sees the first rank only. Start one server per "
            "rank and name each under [[instances]] of the gateway."
        )
    names = _connectors(vllm_config.kv_transfer_config)
    if OWN_CONNECTOR in names and _minor(vllm_version()) != TIERS_VERSION:
        raise ConfigError(
            f"ScopeKV's tiers are made for vLLM {_dotted(TIERS_VERSION)}; this is "
            f"{vllm_version()}. Start without --kv-transfer-config, or install that version."
        )
    for name in names:
        if name not in SAFE_CONNECTORS:
            raise ConfigError(
                f"KV connector {name} does not key what it stores by vLLM's block hashes, so it "
                f"would drop scopes. Remove it, or use one of: {', '.join(SAFE_CONNECTORS)}."
            )


def foreign_connectors(vllm_config: Any) -> list[str]:
    """Configured connectors that are not ScopeKV's own: their copies nobody here can purge."""
    return [n for n in _connectors(vllm_config.kv_transfer_config) if n != OWN_CONNECTOR]


def _connectors(transfer: Any) -> list[str]:
    """Names of the configured connectors; the parts of a MultiConnector count each."""
    if transfer is None or transfer.kv_connector is None:
        return []
    if transfer.kv_connector == "MultiConnector" and not transfer.kv_connector_module_path:
        parts = transfer.kv_connector_extra_config.get("connectors", [])
        return [
            f"{part.get('kv_connector')} from {part['kv_connector_module_path']}"
            if part.get("kv_connector_module_path")
            else str(part.get("kv_connector"))
            for part in parts
        ]
    if transfer.kv_connector_module_path:
        return [f"{transfer.kv_connector} from {transfer.kv_connector_module_path}"]
    return [str(transfer.kv_connector)]


def _minor(version: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
