"""I5: whatever would put other numbers in a block gives another namespace."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scopekv.engines.vllm.namespace import adapter_digest, namespace_of

Config = Callable[..., Any]


def test_equal_engines_have_equal_namespaces(config: Config) -> None:
    assert namespace_of(config(), 32) == namespace_of(config(), 32)
    assert namespace_of(config(), 32).model == "model"  # the folder's name, not its path


@pytest.mark.parametrize(
    "changed",
    [
        {"model": "org/other"}, {"revision": "abc", "model": "org/m"}, {"tokenizer": "org/other"},
        {"dtype": "torch.bfloat16"}, {"cache_dtype": "fp8"}, {"quantization": "awq"},
        {"hf": '{"rope": 2}'}, {"backend": "FLASH_ATTN"}, {"tp": 2}, {"pp": 2},
        {"device": "cuda"}, {"algorithm": "sha256"},
    ],
)  # fmt: skip
def test_every_condition_counts(config: Config, changed: dict[str, Any]) -> None:
    home, other = namespace_of(config(), 32), namespace_of(config(**changed), 32)
    assert home.fingerprint() != other.fingerprint()


def test_ranks_do_not_trade_places(config: Config) -> None:
    one, other = (namespace_of(config(tp=t, pp=p), 32) for t, p in ((1, 2), (2, 1)))
    assert one.fingerprint() != other.fingerprint()


def test_the_block_size_counts(config: Config) -> None:
    home, other = (namespace_of(config(), size).fingerprint() for size in (32, 64))
    assert home != other


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "extra.safetensors"])
def test_a_local_models_content_is_its_revision(config: Config, name: str, tmp_path: Path) -> None:
    home = namespace_of(config(), 32)
    (tmp_path / "model" / name).write_bytes(b"changed")
    assert namespace_of(config(), 32).fingerprint() != home.fingerprint()


def test_a_local_tokenizers_content_counts(config: Config, tmp_path: Path) -> None:
    home = namespace_of(config(), 32)
    (tmp_path / "model" / "tokenizer.json").write_text("{ }")
    other = namespace_of(config(), 32)
    assert (other.revision, other.model) == (home.revision, home.model)
    assert other.tokenizer != home.tokenizer


def lora(path: Path, name: str = "style") -> Any:
    return SimpleNamespace(lora_name=name, lora_path=str(path))


def test_no_adapter_has_no_digest() -> None:
    assert adapter_digest(None) == b""


def test_an_adapter_is_its_content(tmp_path: Path) -> None:
    """Neither its name nor its path: one path may be given new content."""
    for name, content in (("a", b"1"), ("b", b"1"), ("c", b"2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_model.safetensors").write_bytes(content)
    a, b, c = (adapter_digest(lora(tmp_path / name)) for name in "abc")
    assert a == b != c
    assert adapter_digest(lora(tmp_path / "a", "other name")) == a
    file = tmp_path / "a" / "adapter_model.safetensors"
    file.write_bytes(b"2")
    os.utime(file, ns=(1, 1))
    assert adapter_digest(lora(tmp_path / "a")) == c


def test_an_adapter_elsewhere_is_its_name(tmp_path: Path) -> None:
    here, there = (adapter_digest(lora(Path(path))) for path in ("org/a", "org/b"))
    assert len(here) == len(there) == 32
    assert here != there
