"""The compatibility namespace of a running vLLM: what must be equal for blocks to be equal."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from scopekv.core.blocks import Namespace
from scopekv.core.encoding import encode

_EDGE_BYTES = 1 << 20
_PARALLEL = (
    *("tensor_parallel_size", "pipeline_parallel_size", "prefill_context_parallel_size"),
    *("decode_context_parallel_size", "cp_kv_cache_interleave_size"),
)
_WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")


def namespace_of(vllm_config: Any, block_size: int, machine: str) -> Namespace:
    """Return the namespace of an engine whose blocks have `block_size` tokens.

    `machine`: what shapes blocks besides the settings, see `compat.machine`.
    """
    model, cache = vllm_config.model_config, vllm_config.cache_config
    return Namespace(
        model=_name(model.model),
        revision=_revision(model.model, model.revision, _WEIGHTS),
        tokenizer=_revision(model.tokenizer, model.tokenizer_revision, ("tokenizer.json",)),
        dtype=str(model.dtype),
        kv_dtype=str(cache.cache_dtype),
        block_size=block_size,
        layout=_layout(vllm_config, machine),
        hash_algorithm=str(cache.prefix_caching_hash_algo),
    )


def _name(model: str) -> str:
    """The folder's name for a local model, since its path differs between machines."""
    return Path(model).name if Path(model).exists() else model


def _revision(model: str, revision: str | None, suffixes: tuple[str, ...]) -> str:
    """The hub's commit, or for a local folder a digest of its configuration and weights.

    A branch of the hub moves, so its name says nothing; what is in no cache here counts by name.
    Weights count by name, size and their first and last MiB: a full read of a large model would
    take longer than its load.
    """
    folder = Path(model)
    if not folder.exists():
        return _commit(model, revision) or revision or "unpinned"
    digest = hashlib.sha256()
    for path in sorted([folder] if folder.is_file() else folder.iterdir()):
        if path.name == "config.json" or path.name.endswith(suffixes):
            size = path.stat().st_size
            digest.update(encode("scopekv/file/1", path.name, size, *_edges(path, size)))
    return digest.hexdigest()


def _commit(model: str, revision: str | None) -> str | None:
    """The commit that the hub's cache here has of a model; None where it has none."""
    from huggingface_hub import try_to_load_from_cache

    try:
        found = try_to_load_from_cache(model, "config.json", revision=revision)
    except ValueError:  # no name of the hub's, as of a model in a bucket
        return None
    return Path(found).parent.name if isinstance(found, str) else None


def _edges(path: Path, size: int) -> tuple[bytes, bytes]:
    with path.open("rb") as file:
        head = file.read(_EDGE_BYTES)
        file.seek(max(0, size - _EDGE_BYTES))
        return hashlib.sha256(head).digest(), hashlib.sha256(file.read()).digest()


def _layout(vllm_config: Any, machine: str) -> str:
    """What else shapes the numbers in a block, or where each lies in it.

    Rope and other overrides, quantisation, kernels, how it is spread over ranks.
    """
    model, parallel = vllm_config.model_config, vllm_config.parallel_config
    attention = getattr(vllm_config, "attention_config", None)
    parts = encode(
        "scopekv/layout/1",
        model.hf_config.to_json_string(use_diff=False),
        str(model.quantization),
        str(getattr(attention, "backend", None)),
        str(getattr(attention, "backend_per_kind", None)),
        *(getattr(parallel, name, 1) for name in _PARALLEL),
        str(vllm_config.device_config.device_type),
        machine,
    )
    return hashlib.sha256(parts).hexdigest()


def adapter_digest(lora_request: Any) -> bytes:
    """The digest of a LoRA adapter's files, empty without one.

    A path keeps its name when its content is replaced, so the content counts.
    """
    if lora_request is None:
        return b""
    path = Path(lora_request.lora_path)
    if not path.is_dir():
        return hashlib.sha256(encode("scopekv/adapter/1", str(path))).digest()
    files = [
        (str(entry), stat.st_size, stat.st_mtime_ns, stat.st_ino)
        for entry in sorted(path.iterdir())
        if entry.is_file()
        for stat in (entry.stat(),)
    ]
    return _adapter_content(tuple(files))


@lru_cache(maxsize=256)
def _adapter_content(files: tuple[tuple[str, int, int, int], ...]) -> bytes:
    """Read once per state of the files: a change of size, time or inode reads again."""
    digest = hashlib.sha256(encode("scopekv/adapter/1", "files"))
    for name, *_ in files:
        with Path(name).open("rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
        digest.update(encode("scopekv/file/1", Path(name).name, content))
    return digest.digest()
