"""I5: whatever would put other numbers in a block gives another namespace."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scopekv.core.blocks import Namespace
from scopekv.engines.vllm import compat, namespace
from scopekv.engines.vllm.namespace import adapter_digest

Config = Callable[..., Any]


def namespace_of(config: Any, block_size: int, machine: str = "x") -> Namespace:
    return namespace.namespace_of(config, block_size, machine)


def test_equal_engines_have_equal_namespaces(config: Config) -> None:
    assert namespace_of(config(), 32) == namespace_of(config(), 32)
    assert namespace_of(config(), 32).model == "model"  # the folder's name, not its path


@pytest.mark.parametrize(
    "changed",
    [
        {"model": "org/other"}, {"revision": "abc", "model": "org/m"}, {"tokenizer": "org/other"},
        {"dtype": "torch.bfloat16"}, {"cache_dtype": "fp8"}, {"quantization": "awq"},
        {"hf": '{"rope": 2}'}, {"backend": "FLASH_ATTN"}, {"tp": 2}, {"pp": 2},
        {"device": "cuda"}, {"algorithm": "sha256"}, {"dcp": 2}, {"kinds": {"mla": "OTHER"}},
    ],
)  # fmt: skip
def test_every_condition_counts(config: Config, changed: dict[str, Any]) -> None:
    home, other = namespace_of(config(), 32), namespace_of(config(**changed), 32)
    assert home.fingerprint() != other.fingerprint()


def test_ranks_do_not_trade_places(config: Config) -> None:
    one, other = (namespace_of(config(tp=t, pp=p), 32) for t, p in ((1, 2), (2, 1)))
    assert one.fingerprint() != other.fingerprint()


def test_the_machine_counts(config: Config) -> None:
    home, other = (namespace_of(config(), 32, name).fingerprint() for name in "ab")
    assert home != other


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("torch.cpu._is_amx_tile_supported", lambda: "other"),
        ("torch.cpu._is_avx512_supported", lambda: "other"),
        ("platform.machine", lambda: "other"),
        ("scopekv.engines.vllm.compat.vllm_version", lambda: "0.32.99"),
    ],
)
def test_what_vllm_chooses_kernels_by_is_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, name: str, changed: Callable[[], str]
) -> None:
    """A block of a CPU with AMX lies in another order, and no seal would tell (L7)."""
    home = compat.machine()
    assert compat.machine() == home
    monkeypatch.setattr(name, changed)
    assert compat.machine() != home


def test_the_layout_that_the_environment_asks_for_is_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = compat.machine()
    monkeypatch.setenv("VLLM_KV_CACHE_LAYOUT", "HND")
    assert compat.machine() != home


@pytest.mark.parametrize("revision", [None, "main"])
def test_a_branch_of_the_hub_counts_by_its_commit(
    config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, revision: str | None
) -> None:
    """Or an engine with last month's weights would read the blocks of this month's."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repo = tmp_path / "models--org--m"
    (repo / "refs").mkdir(parents=True)
    found = []
    for commit in ("a" * 40, "b" * 40):
        (repo / "snapshots" / commit).mkdir(parents=True)
        (repo / "snapshots" / commit / "config.json").write_text("{}")
        (repo / "refs" / "main").write_text(commit)
        found.append(namespace_of(config(model="org/m", revision=revision), 32).revision)
    assert found == ["a" * 40, "b" * 40]
    pinned = config(model="org/m", revision="a" * 40)
    assert namespace_of(pinned, 32).revision == "a" * 40
    elsewhere = config(model="s3://bucket/m", revision=revision)
    assert namespace_of(elsewhere, 32).revision == (revision or "unpinned")


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
