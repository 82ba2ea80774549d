"""The sizes of a base model, from its config.json: what an adapter's tensors must fit. Pure.

Only dense text models whose sizes this file states beyond doubt are known. For every other one nothing is, which
speaks against no adapter. Sources: the configurations of transformers, as SGLang 0.5.9 to 0.5.23 read them.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

CONFIG: Final = "config.json"
LIMIT: Final = 1024 * 1024
"""Bytes of a config.json that we parse; real ones have a few thousand."""

_DENSE: Final = frozenset(
    {
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen3ForCausalLM",
        "GemmaForCausalLM",
        "Gemma2ForCausalLM",
    }
)
_EVEN_HEADS: Final = frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"})
"""Those whose heads share the hidden size where no head_dim is written; the others have a default of their own."""


@dataclass(frozen=True, slots=True)
class BaseModel:
    """Sizes by the names that config.json gives them."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int


def read_base(raw: bytes) -> BaseModel | None:
    """Read the bytes of a config.json; None where it does not tell the sizes for certain."""
    try:
        config = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(config, dict) or len(raw) > LIMIT:
        return None
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or len(architectures) != 1:
        return None
    family = architectures[0]
    if not isinstance(family, str) or family not in _DENSE:
        return None
    head_dim = _size(config, "head_dim")
    hidden, heads = _size(config, "hidden_size"), _size(config, "num_attention_heads")
    if "head_dim" not in config and family in _EVEN_HEADS and hidden and heads:
        head_dim = hidden // heads
    sizes = (
        hidden,
        _size(config, "intermediate_size"),
        _size(config, "num_hidden_layers"),
        heads,
        _size(config, "num_key_value_heads"),
        head_dim,
    )
    known = [size for size in sizes if size is not None]
    return BaseModel(*known) if len(known) == len(sizes) else None


def _size(config: dict[str, Any], key: str) -> int | None:
    value = config.get(key)
    return value if type(value) is int and value > 0 else None
