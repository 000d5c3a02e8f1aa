"""A guard as an engine process holds it, and stand-ins for vLLM's configuration."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scopekv.adapters.ed25519 import TicketSigner, write_public_keys
from scopekv.core.blocks import Namespace
from scopekv.core.encoding import encode_tokens
from scopekv.core.scopes import Pseudonym, ScopeId
from scopekv.core.tickets import Grant, Ticket, audience_id, mint, prefix_digests
from scopekv.engines.vllm.plugin import Guard
from scopekv.engines.vllm.settings import PluginSettings

BLOCK_SIZE = 32
HOME = Namespace("m", "r", "t", "float32", "auto", BLOCK_SIZE, "l", "sha256_cbor")
Mint = Callable[..., str]


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    signer = TicketSigner(b"1" * 32)
    write_public_keys(tmp_path / "keys.json", [signer.public_key])
    made = Guard(PluginSettings(tmp_path / "keys.json"))
    made.bind(HOME)
    return made


@pytest.fixture
def ticket() -> Mint:
    """Mint a ticket: `ticket(tokens, [(end, letter), ...], own letter)`."""
    signer, nonces = TicketSigner(b"1" * 32), iter(range(1, 1000))

    def make(
        tokens: Sequence[int],
        closed: Sequence[tuple[int, str]],
        own: str,
        *,
        namespace: Namespace = HOME,
        uses: int = 1,
        epoch: int = 0,
    ) -> str:
        ends = [end for end, _ in closed]
        digests = prefix_digests(encode_tokens(tokens), ends)
        grants = [
            Grant(end, ScopeId(letter.encode() * 16), epoch, digest)
            for (end, letter), digest in zip(closed, digests, strict=True)
        ]
        made = Ticket(
            signer.key_id,
            time.time_ns() // 1_000_000,
            60_000,
            audience_id("default"),
            namespace.fingerprint(),
            Pseudonym(b"p" * 16),
            next(nonces).to_bytes(16, "big"),
            uses,
            (*grants, Grant(None, ScopeId(own.encode() * 16), epoch, b"")),
        )
        return mint(made, signer.sign)

    return make


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., Any]:
    """A stand-in for VllmConfig, with the fields that the plugin reads."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")

    def make(**changed: Any) -> Any:
        given = {
            "model": str(folder), "revision": None, "tokenizer": str(folder),
            "tokenizer_revision": None, "dtype": "torch.float32", "quantization": None,
            "hf": '{"rope": 1}', "cache_dtype": "auto", "algorithm": "sha256_cbor",
            "backend": "CPU_ATTN", "kinds": {}, "tp": 1, "pp": 1, "dcp": 1, "dp": 1,
            "device": "cpu", "transfer": None,
        } | changed  # fmt: skip
        return SimpleNamespace(
            model_config=SimpleNamespace(
                model=given["model"],
                revision=given["revision"],
                tokenizer=given["tokenizer"],
                tokenizer_revision=given["tokenizer_revision"],
                dtype=given["dtype"],
                quantization=given["quantization"],
                hf_config=SimpleNamespace(to_json_string=lambda **_: given["hf"]),
            ),
            cache_config=SimpleNamespace(
                cache_dtype=given["cache_dtype"], prefix_caching_hash_algo=given["algorithm"]
            ),
            attention_config=SimpleNamespace(
                backend=given["backend"], backend_per_kind=given["kinds"]
            ),
            parallel_config=SimpleNamespace(
                tensor_parallel_size=given["tp"],
                pipeline_parallel_size=given["pp"],
                data_parallel_size=given["dp"],
                decode_context_parallel_size=given["dcp"],
            ),
            device_config=SimpleNamespace(device_type=given["device"]),
            kv_transfer_config=given["transfer"],
        )

    return make
