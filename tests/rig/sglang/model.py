"""A tiny random Llama with a byte-level tokenizer, written with nothing but the standard library.

Small enough that SGLang serves it on a CPU, and made so that greedy answers are printable text that never ends by
itself and that each adapter changes: tokens other than printable ASCII have no weight in the head.
"""

import json
import random
from array import array
from collections.abc import Mapping
from pathlib import Path

from tests.rig.adapters import TINY, Tensor, randoms, write_safetensors

SERVED_NAME = "tiny-base"
CONTEXT = 2048
SPECIALS = ("<pad>", "<s>", "</s>")
VOCABULARY = 288
PRINTABLE = range(33, 127)


def make_model(directory: Path) -> Path:
    """Write the model into `directory` (made where it is missing) and return it."""
    directory.mkdir(parents=True, exist_ok=True)
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": TINY.hidden,
        "intermediate_size": TINY.intermediate,
        "num_hidden_layers": TINY.layers,
        "num_attention_heads": TINY.heads,
        "num_key_value_heads": TINY.kv_heads,
        "head_dim": TINY.head,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        **ids,
    }
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": SPECIALS[0],
        "bos_token": SPECIALS[1],
        "eos_token": SPECIALS[2],
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: ",
    }
    vocabulary = _vocabulary()
    _write(directory / "config.json", config)
    _write(directory / "generation_config.json", ids)
    _write(directory / "tokenizer_config.json", tokenizer)
    _write(directory / "tokenizer.json", _tokenizer(vocabulary))
    write_safetensors(directory / "model.safetensors", _weights(vocabulary))
    return directory


def _write(path: Path, data: Mapping[str, object]) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n")


def _vocabulary() -> dict[str, int]:
    """One token for each byte, spelt as in byte-level BPE: bytes without a glyph of their own get one from 256 on."""
    own = [*PRINTABLE, *range(161, 173), *range(174, 256)]
    others = range(256, 256 + 256 - len(own))
    letters = sorted(chr(code) for code in [*own, *others])
    return {token: at for at, token in enumerate([*SPECIALS, *letters])}


def _tokenizer(vocabulary: Mapping[str, int]) -> dict[str, object]:
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    flags = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": at, "content": name, **flags} for at, name in enumerate(SPECIALS)],
        "normalizer": None,
        "pre_tokenizer": {**byte_level, "add_prefix_space": False},
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [],
        },
    }


def _weights(vocabulary: Mapping[str, int]) -> dict[str, Tensor]:
    source = random.Random(1)
    hidden = TINY.hidden
    ones = (hidden,), array("f", [1.0] * hidden)
    shape, head = randoms(source, VOCABULARY, hidden, scale=0.5)
    likely = {vocabulary[chr(code)] for code in PRINTABLE}
    for row in set(range(VOCABULARY)) - likely:
        head[row * hidden : (row + 1) * hidden] = array("f", [0.0] * hidden)
    weights: dict[str, Tensor] = {
        "model.embed_tokens.weight": randoms(source, VOCABULARY, hidden),
        "model.norm.weight": ones,
        "lm_head.weight": (shape, head),
    }
    blocks = {
        "self_attn": ("q_proj", "k_proj", "v_proj", "o_proj"),
        "mlp": ("gate_proj", "up_proj", "down_proj"),
    }
    for layer in range(TINY.layers):
        prefix = f"model.layers.{layer}."
        weights[prefix + "input_layernorm.weight"] = ones
        weights[prefix + "post_attention_layernorm.weight"] = ones
        for block, modules in blocks.items():
            for module in modules:
                weights[f"{prefix}{block}.{module}.weight"] = randoms(
                    source, TINY.out(module), TINY.into(module), scale=0.2
                )
    return weights
