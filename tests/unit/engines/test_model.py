"""The model folder: what is in it, and that it is whole whatever happens while it is made."""

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from scopekv.engines.model import ensure_model, find_gguf, is_whole, model_folder
from scopekv.errors import ConfigError

gguf = pytest.importorskip("gguf", reason="needs the engine-cpu extra")
np = pytest.importorskip("numpy")
regex = pytest.importorskip("regex")

TEXTS = (
    "The capital of France is Paris.",
    "  two  spaces,\ttabs\nand\r\n\r\nlines   ",
    "In 2024 it cost 1,234.50 € (½ of ٣٤٥).",
    "don't we'll I'D they've",
    "naïve façade, Zürich, 東京タワー, Привет, مرحبا, हिन्दी",
    "👩‍👩‍👧 family 🏳️‍🌈",
    "def f(x):\n    return x ** 2  # comment",
    "<|im_start|>user\nHi<|im_end|>\n<|endoftext|><repo_name>x",
    "\u0000\u00ad\u200b\ufeff odd",
    "",
    " ",
)


def pieces(text: str, special: list[str]) -> list[str]:
    """llama.cpp's 'smollm' split: special tokens, then digits one by one, then GPT-2's pattern."""
    gpt2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    found: list[str] = []
    for part in regex.split("(" + "|".join(map(regex.escape, special)) + ")", text):
        if part in special:
            found.append(part)
            continue
        for run in regex.split(r"(\p{N})", part):
            found += regex.findall(gpt2, run)
    return found


def reference_ids(text: str, tokenizer: dict[str, Any]) -> list[int]:
    """Byte-level BPE in the obvious way: merge the best-ranked pair until none is left."""
    vocabulary, special = tokenizer["model"]["vocab"], tokenizer["added_tokens"]
    ranks = {tuple(pair): rank for rank, pair in enumerate(tokenizer["model"]["merges"])}
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in shown}
    rest = (byte for byte in range(256) if byte not in letters)
    letters |= {byte: chr(256 + index) for index, byte in enumerate(rest)}
    ids: list[int] = []
    names = [token["content"] for token in special]
    for piece in pieces(text, names):
        if piece in names:
            ids.append(vocabulary[piece])
            continue
        parts = [letters[byte] for byte in piece.encode()]
        while pairs := [p for p in itertools.pairwise(parts) if p in ranks]:
            best = min(pairs, key=ranks.__getitem__)
            merged: list[str] = []
            while parts:
                width = 2 if tuple(parts[:2]) == best else 1
                merged.append("".join(parts[:width]))
                parts = parts[width:]
            parts = merged
        ids += [vocabulary[part] for part in parts]
    return ids


@pytest.fixture
def tiny_gguf(tmp_path: Path) -> Path:
    """A GGUF of the same kind with one layer of width 8 and three tokens."""
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(16)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(3)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["<|end|>", "a", "b"])
    writer.add_token_types([3, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_chat_template("{{ messages }}")
    for add in (writer.add_bos_token_id, writer.add_eos_token_id):
        add(0)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(0)
    values = np.arange(64, dtype=np.float32).reshape(8, 8)
    writer.add_tensor("blk.0.attn_q.weight", values)
    writer.add_tensor("blk.0.attn_k.weight", values[:4])
    writer.add_tensor("token_embd.weight", values[:3])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_folder_holds_the_272_float32_tensors(model_dir: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    with safetensors.safe_open(model_dir / "model.safetensors", framework="numpy") as weights:
        names = set(weights.keys())
        embedding = weights.get_slice("model.embed_tokens.weight")
        assert (embedding.get_dtype(), embedding.get_shape()) == ("F32", [49_152, 576])
        assert weights.get_slice("model.layers.29.self_attn.k_proj.weight").get_shape() == [
            192,
            576,
        ]
    assert len(names) == 272
    config = json.loads((model_dir / "config.json").read_text())
    assert config["rms_norm_eps"] == 1e-05
    assert config["max_position_embeddings"] == 8192
    assert config["num_hidden_layers"] == 30


@pytest.mark.parametrize("text", TEXTS)
def test_the_tokenizer_equals_the_reference_and_gives_the_text_back(
    model_dir: Path, text: str
) -> None:
    path = model_dir / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert ids == reference_ids(text, json.loads(path.read_text()))
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_the_special_tokens_and_the_chat_template_are_there(model_dir: Path) -> None:
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    assert tokenizer.encode("<|im_start|>user\n<|im_end|>").ids == [1, 4093, 198, 2]
    settings = json.loads((model_dir / "tokenizer_config.json").read_text())
    assert settings["eos_token"] == "<|im_end|>"
    assert "<|im_start|>assistant" in settings["chat_template"]


def test_rows_of_q_and_k_come_back_in_transformers_order(tmp_path: Path, tiny_gguf: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    folder = ensure_model(tmp_path, source=tiny_gguf)
    with safetensors.safe_open(folder / "model.safetensors", framework="numpy") as weights:
        rows = {
            name: (weights.get_tensor(f"model.layers.0.self_attn.{name}_proj.weight")[:, 0] / 8)
            for name in ("q", "k")
        }
    assert rows["q"].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert rows["k"].tolist() == [0, 2, 1, 3]


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "manifest"])
def test_a_damaged_folder_is_made_anew(tmp_path: Path, tiny_gguf: Path, damage: str) -> None:
    folder = ensure_model(tmp_path, source=tiny_gguf)
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    if damage == "flip":
        weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    elif damage == "truncate":
        weights.write_bytes(whole[:-1])
    elif damage == "remove":
        (folder / "tokenizer.json").unlink()
    else:
        (folder / "scopekv-manifest.json").write_text("[]")
    assert not is_whole(folder)
    assert ensure_model(tmp_path, source=tiny_gguf) == folder
    assert is_whole(folder)
    assert weights.read_bytes() == whole
    assert sorted(path.name for path in folder.parent.iterdir()) == [
        ".SmolLM2-135M-Instruct.lock",
        "SmolLM2-135M-Instruct",
    ]


def test_a_whole_folder_is_left_alone_and_leftovers_go(tmp_path: Path, tiny_gguf: Path) -> None:
    folder = model_folder(tmp_path)
    leftover = folder.parent / f".{folder.name}.tmp-died"
    leftover.mkdir(parents=True)
    (leftover / "model.safetensors").write_bytes(b"half")
    ensure_model(tmp_path, source=tiny_gguf)
    assert not leftover.exists()
    made = (folder / "config.json").stat()
    ensure_model(tmp_path, source=tiny_gguf)
    assert (folder / "config.json").stat().st_ino == made.st_ino


def test_two_processes_at_once_make_it_once(tmp_path: Path, tiny_gguf: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from scopekv.engines.model import ensure_model;"
        "print(ensure_model(Path(sys.argv[1]), source=Path(sys.argv[2])).stat().st_ino)"
    )
    command = [sys.executable, "-c", program, str(tmp_path), str(tiny_gguf)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert answers[0] == answers[1]
    assert is_whole(model_folder(tmp_path))


def test_a_file_that_is_no_gguf_or_another_model_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"not a model")
    with pytest.raises(ConfigError, match="not a readable GGUF"):
        ensure_model(tmp_path, source=other)
    writer = gguf.GGUFWriter(other, "gemma3")
    writer.add_block_count(1)
    writer.add_tensor("token_embd.weight", np.zeros((2, 2), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ConfigError, match="'gemma3'"):
        ensure_model(tmp_path, source=other)
    assert not model_folder(tmp_path).exists()


def test_a_disk_that_refuses_is_told(tmp_path: Path, tiny_gguf: Path) -> None:
    (tmp_path / "models").write_text("a file where the folder should be")
    with pytest.raises(ConfigError, match="cannot make the model folder"):
        ensure_model(tmp_path, source=tiny_gguf)


def test_an_absent_package_is_told_with_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ConfigError, match=r"scopekv\[engine-cpu\]"):
        find_gguf()
