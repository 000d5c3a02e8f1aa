"""Read a llama-architecture GGUF file as the parts of a Hugging Face model folder.

Needs gguf, numpy and (to write) safetensors, imported inside the functions: a gateway without an
engine has none of them. Checked against transformers' own reader: all 272 tensors are bit-equal.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scopekv.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# llama.cpp's name -> the name in transformers' LlamaForCausalLM
_WHOLE_MODEL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
_PER_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL_TOKEN = 3  # gguf.TokenType.CONTROL


@dataclass(frozen=True, slots=True)
class GgufModel:
    """An open GGUF file: its metadata, read whole, and its tensors, read when asked for."""

    metadata: Mapping[str, Any]
    tensors: tuple[Any, ...]

    def __post_init__(self) -> None:
        architecture = self.metadata.get("general.architecture")
        tokenizer = (
            self.metadata.get("tokenizer.ggml.model"),
            self.metadata.get("tokenizer.ggml.pre"),
        )
        if architecture != "llama" or tokenizer != ("gpt2", "smollm"):
            raise ConfigError(
                f"the GGUF file holds architecture {architecture!r} with tokenizer {tokenizer!r};"
                " only 'llama' with ('gpt2', 'smollm') can be converted. For another model, name a"
                " Hugging Face folder instead"
            )


def open_gguf(path: Path) -> GgufModel:
    """Map the file and read its metadata (about 3 s: 98,000 strings). Changes nothing.

    Raises ConfigError for an absent reader, an unreadable file or another kind of model.
    """
    try:
        import gguf
    except ImportError as error:
        raise ConfigError(
            f"converting the model needs the package {error.name!r}:"
            " pip install 'scopekv[engine-cpu]'"
        ) from error
    try:
        reader = gguf.GGUFReader(path)
    except (OSError, ValueError, IndexError) as error:
        raise ConfigError(
            f"{path} is not a readable GGUF file ({error}); install it anew"
        ) from error
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    return GgufModel(metadata=metadata, tensors=tuple(reader.tensors))


def float32_tensors(model: GgufModel) -> Iterator[tuple[str, "NDArray[np.float32]"]]:
    """Give each tensor as (transformers' name, float32 array), dequantised. About 5 s in all."""
    import numpy as np
    from gguf.quants import dequantize

    heads = {
        "attn_q": int(model.metadata["llama.attention.head_count"]),
        "attn_k": int(model.metadata["llama.attention.head_count_kv"]),
    }
    for tensor in model.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        kind = tensor.name.split(".")[-2]
        if kind in heads:
            values = _undo_rotary_order(values, heads[kind])
        yield _transformers_name(tensor.name), np.ascontiguousarray(values)


def _undo_rotary_order(values: "NDArray[np.float32]", heads: int) -> "NDArray[np.float32]":
    """Rows of Q and K: llama.cpp interleaves a head's two halves, transformers keeps them apart.

    rows of one head:  GGUF  a0 b0 a1 b1 ...  ->  transformers  a0 a1 ... b0 b1 ...
    """
    rows, columns = values.shape
    halves = values.reshape(heads, rows // heads // 2, 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


def _transformers_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in _WHOLE_MODEL:
        return f"{_WHOLE_MODEL[stem]}.weight"
    prefix, layer, kind = stem.split(".")
    if prefix != "blk" or kind not in _PER_LAYER:
        raise ConfigError(f"the GGUF file has a tensor {name!r} that a llama model does not have")
    return f"model.layers.{layer}.{_PER_LAYER[kind]}.weight"


def folder_texts(model: GgufModel) -> dict[str, str]:
    """Every file of the folder except the weights, as file name -> JSON text."""
    parts: dict[str, Callable[[GgufModel], dict[str, Any]]] = {
        "config.json": _config,
        "generation_config.json": _generation_config,
        "tokenizer.json": _tokenizer,
        "tokenizer_config.json": _tokenizer_config,
        "special_tokens_map.json": _special_tokens_map,
    }
    return {
        name: json.dumps(part(model), ensure_ascii=False, indent=1) + "\n"
        for name, part in parts.items()
    }


def _config(model: GgufModel) -> dict[str, Any]:
    meta = model.metadata
    # Stored as float32: six digits give back the 1e-05 that was meant.
    epsilon = float(f"{meta['llama.attention.layer_norm_rms_epsilon']:.6g}")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "hidden_size": meta["llama.embedding_length"],
        "intermediate_size": meta["llama.feed_forward_length"],
        "max_position_embeddings": meta["llama.context_length"],
        "mlp_bias": False,
        "num_attention_heads": meta["llama.attention.head_count"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "rms_norm_eps": epsilon,
        "rope_theta": meta["llama.rope.freq_base"],
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "vocab_size": meta["llama.vocab_size"],
        **_token_ids(model),
    }


def _token_ids(model: GgufModel) -> dict[str, int]:
    names = {"bos": "bos", "eos": "eos", "pad": "padding"}
    return {
        f"{ours}_token_id": model.metadata[f"tokenizer.ggml.{theirs}_token_id"]
        for ours, theirs in names.items()
    }


def _generation_config(model: GgufModel) -> dict[str, Any]:
    return {"_from_model_config": True, **_token_ids(model)}


def _special_token_ids(model: GgufModel) -> list[int]:
    kinds = model.metadata["tokenizer.ggml.token_type"]
    return [index for index, kind in enumerate(kinds) if kind == _CONTROL_TOKEN]


def _tokenizer(model: GgufModel) -> dict[str, Any]:
    """The tokenizer from the GGUF's own merges.

    transformers' GGUF tokenizer differs from llama.cpp's on 41 of 988 lines tried, this one on
    none. 'smollm' of llama.cpp is: digits one by one, then GPT-2's pattern.
    """
    tokens = model.metadata["tokenizer.ggml.tokens"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": index, "content": tokens[index], **flags, "special": True}
            for index in _special_token_ids(model)
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {**byte_level, "use_regex": True},
            ],
        },
        "post_processor": None,
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in model.metadata["tokenizer.ggml.merges"]],
        },
    }


def _special_tokens_map(model: GgufModel) -> dict[str, Any]:
    tokens = model.metadata["tokenizer.ggml.tokens"]
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    return {
        f"{ours}_token": tokens[model.metadata[f"tokenizer.ggml.{theirs}_token_id"]]
        for ours, theirs in names.items()
    }


def _tokenizer_config(model: GgufModel) -> dict[str, Any]:
    return {
        # The generic class keeps tokenizer.json as it is; transformers 5 re-makes the named ones.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": model.metadata["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": model.metadata["llama.context_length"],
        **_special_tokens_map(model),
    }
