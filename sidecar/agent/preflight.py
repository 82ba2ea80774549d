"""What in an adapter's files is certain to be refused by this engine or, worse, to kill it at first use. Pure.

SGLang compares rank and module names at a load, and nothing else: an adapter whose shapes do not fit the base model is
loaded with 200, and the first request for it ends the scheduler with all that it serves. Both were seen on SGLang
0.5.9, 0.5.21 and 0.5.23, as was that rows too many for k_proj and v_proj are cut off in silence. What is not known for
certain passes: the engine has the last word.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from sidecar.agent.answers import ServerInfo
from sidecar.agent.base import BaseModel
from sidecar.agent.pathview import AdapterFacts
from sidecar.agent.tensors import TensorFacts, TensorShape
from sidecar.api.reasons import Reason

NORMALISES: Final = (0, 5, 9)
"""From this SGLang on it was seen how module names are compared."""
LAST_SEEN: Final = (0, 5, 23)
"""The last SGLang that was seen to need the partner of a projection; a later one may have learned to do without."""

_FUSED: Final = MappingProxyType(
    {
        "q_proj": "qkv_proj",
        "k_proj": "qkv_proj",
        "v_proj": "qkv_proj",
        "gate_proj": "gate_up_proj",
        "up_proj": "gate_up_proj",
        "qkv_proj": "qkv_proj",
        "gate_up_proj": "gate_up_proj",
        "o_proj": "o_proj",
        "down_proj": "down_proj",
        "embed_tokens": "embed_tokens",
        "lm_head": "lm_head",
    }
)
"""Module names, and under which SGLang compares them: it serves these layers fused, so q_proj alone allows v_proj."""


_NEEDS: Final = (
    ("q_proj", "v_proj"),
    ("k_proj", "q_proj"),
    ("v_proj", "q_proj"),
    ("up_proj", "gate_proj"),
)
"""What has weights, and what must have some then."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one engine process takes; None is unknown."""

    max_lora_rank: int | None = None
    target_modules: frozenset[str] | None = None
    """As SGLang compares them."""
    told_modules: tuple[str, ...] = ()
    """As they were written."""
    base: BaseModel | None = None
    needs_partners: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an adapter is not handed over."""

    reason: Reason
    text: str


def limits_of(info: ServerInfo | None, base: BaseModel | None) -> Limits:
    """Read the limits from what the engine says of itself."""
    if info is None:
        return Limits()
    told = info.lora_target_modules
    known = None
    if told and info.version_numbers >= NORMALISES and all(name in _FUSED for name in told):
        known = frozenset(_FUSED[name] for name in told)
    return Limits(
        info.max_lora_rank,
        known,
        told or (),
        None if info.overrides_model else base,
        NORMALISES <= info.version_numbers <= LAST_SEEN,
    )


@lru_cache(maxsize=1024)
def judge(facts: AdapterFacts, limits: Limits) -> Refusal | None:
    """Judge the files of one adapter; None where nothing speaks against them for certain."""
    if facts.peft_type.upper() != "LORA":
        text = f"its peft_type is {facts.peft_type[:40]}, and SGLang serves LORA only"
        return Refusal(Reason.INVALID_ADAPTER, text)
    text = next(_against(facts, limits), "")
    return Refusal(Reason.INCOMPATIBLE, text) if text else None


def _against(facts: AdapterFacts, limits: Limits) -> Iterator[str]:
    if facts.use_dora:
        yield "it is a DoRA adapter (use_dora), which SGLang does not serve"
    most = limits.max_lora_rank
    if most is not None and facts.rank > most:
        yield f"its rank is {facts.rank}, the engine takes at most {most} (--max-lora-rank)"
    yield from _modules(facts, limits)
    if facts.tensors is None:
        return
    base = limits.base
    if base and limits.needs_partners and facts.tensors.complete:
        yield from _partners(facts.tensors)
    if base and facts.tensors.layers > base.num_hidden_layers:
        yield (
            f"it has weights for {facts.tensors.layers} layers, the base model has {base.num_hidden_layers}"
            " (num_hidden_layers)"
        )
    for shape in sorted(facts.tensors.shapes):
        if shape.module in facts.target_modules and shape.module in _FUSED:
            yield from _shape(shape, facts.rank, base)


def _modules(facts: AdapterFacts, limits: Limits) -> Iterator[str]:
    if limits.target_modules is None:
        return
    for name in facts.target_modules:
        if name in _FUSED and _FUSED[name] not in limits.target_modules:
            told = ", ".join(limits.told_modules)
            yield f"it targets {name}, the engine was started for {told} (--lora-target-modules)"


def _partners(tensors: TensorFacts) -> Iterator[str]:
    """Compare with how SGLang fuses projections.

    It begins with q_proj and gate_proj, and asks for v_proj, but not for k_proj and up_proj. Seen on the same versions:
    q_proj without v_proj is refused at the load; what lacks q_proj or gate_proj is loaded, and kills at first use.
    """
    for module, needs in _NEEDS:
        if tensors.has(module) and not tensors.has(needs):
            yield f"it has weights for {module} but none for {needs}, and SGLang serves both as one layer"


def _shape(shape: TensorShape, rank: int, base: BaseModel | None) -> Iterator[str]:
    """Compare one shape with the rank on its one side and with the base model on the other."""
    what = f"the lora_{shape.side} of its {shape.module} has"
    if shape.side == "A":
        own, size, others, kind = shape.rows, shape.columns, "rows", "columns"
    else:
        own, size, others, kind = shape.columns, shape.rows, "columns", "rows"
    if own != rank:
        yield f"{what} {own} {others}, its rank (r) is {rank}"
    fits = _fits(shape, base) if base else None
    if fits and size != fits[0]:
        yield f"{what} {size} {kind}, the base model's {shape.module} {fits[0]} ({fits[1]})"


def _fits(shape: TensorShape, base: BaseModel) -> tuple[int, str] | None:
    """The size that the base model has where this tensor joins it, and what it is made of."""
    into, out = _sizes(base).get(shape.module, (None, None))
    return into if shape.side == "A" else out


_Size = tuple[int, str]


@lru_cache(maxsize=8)
def _sizes(base: BaseModel) -> dict[str, tuple[_Size, _Size]]:
    """Input and output of each projection, with the words of config.json."""
    heads, kv, dim = base.num_attention_heads, base.num_key_value_heads, base.head_dim
    hidden = base.hidden_size, "hidden_size"
    mlp = base.intermediate_size, "intermediate_size"
    query = heads * dim, f"num_attention_heads {heads} x head_dim {dim}"
    shared = kv * dim, f"num_key_value_heads {kv} x head_dim {dim}"
    fused = (heads + 2 * kv) * dim, f"({heads} + 2 x {kv}) heads x head_dim {dim}"
    twice = 2 * base.intermediate_size, "2 x intermediate_size"
    return {
        "q_proj": (hidden, query),
        "k_proj": (hidden, shared),
        "v_proj": (hidden, shared),
        "qkv_proj": (hidden, fused),
        "o_proj": (query, hidden),
        "gate_proj": (hidden, mlp),
        "up_proj": (hidden, mlp),
        "gate_up_proj": (hidden, twice),
        "down_proj": (mlp, hidden),
    }
