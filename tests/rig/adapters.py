"""Tiny real LoRA adapters in PEFT's layout, written with nothing but the standard library.

They fit the tiny base model of `tests.rig.sglang.model` (and so does what the simulated engine checks), load in a
real SGLang in milliseconds, and change what it answers. The same seed gives the same bytes. Options make the
adapters that must be refused, or that kill an engine: another rank, other modules, a wrong width, broken files.

    python -m tests.rig.adapters DIR [--seed N] [--rank R] ...
"""

import argparse
import json
import random
import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Weights = Literal["good", "rubbish", "none", "truncated", "empty"]
Tensor = tuple[Sequence[int], "array[float]"]
"""A tensor's shape and its float32 values."""


@dataclass(frozen=True, slots=True)
class Dims:
    """The sizes of the tiny base model: a Llama with grouped-query attention."""

    hidden: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    intermediate: int = 128

    @property
    def head(self) -> int:
        return self.hidden // self.heads

    def out(self, module: str) -> int:
        """How many rows the weight of `module` has."""
        rows = {
            "q_proj": self.heads * self.head,
            "k_proj": self.kv_heads * self.head,
            "v_proj": self.kv_heads * self.head,
            "gate_proj": self.intermediate,
            "up_proj": self.intermediate,
        }
        return rows.get(module, self.hidden)

    def into(self, module: str) -> int:
        """How many columns the weight of `module` has."""
        return self.intermediate if module == "down_proj" else self.hidden


TINY = Dims()
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


def randoms(source: random.Random, *shape: int, scale: float = 1.0) -> Tensor:
    """A tensor of normally distributed values."""
    count = 1
    for size in shape:
        count *= size
    return shape, array("f", (source.gauss(0.0, scale) for _ in range(count)))


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file: the length of the header, the header in JSON, then the values one after another."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (shape, values) in tensors.items():
        end = at + 4 * len(values)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, end]}
        at = end
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    body = b"".join(values.tobytes() for _, values in tensors.values())
    path.write_bytes(struct.pack("<Q", len(head)) + head + body)


def make_adapter(
    directory: Path,
    *,
    seed: int = 1,
    rank: int = 4,
    modules: Iterable[str] = ("q_proj", "v_proj"),
    hidden: int = TINY.hidden,
    layers: int = TINY.layers,
    weights: Weights = "good",
    config: Mapping[str, object] | None = None,
) -> Path:
    """Write an adapter into `directory` (made where it is missing) and return it.

    `hidden` other than the base model's makes an adapter that loads and kills the engine at its first use.
    `config` overrides keys of adapter_config.json; a key whose value is None is left out.
    """
    modules = tuple(modules)
    directory.mkdir(parents=True, exist_ok=True)
    written: dict[str, object] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "tiny-base",
        "r": rank,
        "lora_alpha": 2 * rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "target_modules": list(modules),
        **(config or {}),
    }
    kept = {key: value for key, value in written.items() if value is not None}
    (directory / "adapter_config.json").write_text(json.dumps(kept, indent=2) + "\n")
    _write_weights(
        directory / "adapter_model.safetensors",
        _tensors(seed, rank, modules, hidden, layers),
        weights,
    )
    return directory


def _tensors(
    seed: int, rank: int, modules: Sequence[str], hidden: int, layers: int
) -> dict[str, Tensor]:
    source = random.Random(seed)
    tensors = {}
    for layer in range(layers):
        for module in modules:
            block = "self_attn" if module in ATTENTION else "mlp"
            prefix = f"base_model.model.model.layers.{layer}.{block}.{module}."
            width = TINY.into(module) if hidden == TINY.hidden else hidden
            tensors[prefix + "lora_A.weight"] = randoms(source, rank, width)
            tensors[prefix + "lora_B.weight"] = randoms(source, TINY.out(module), rank)
    return tensors


def _write_weights(path: Path, tensors: Mapping[str, Tensor], weights: Weights) -> None:
    path.unlink(missing_ok=True)
    match weights:
        case "none":
            return
        case "empty":
            path.touch()
        case "rubbish":
            path.write_bytes(b"this is not a safetensors file\n" * 20)
        case "good":
            write_safetensors(path, tensors)
        case "truncated":
            write_safetensors(path, tensors)
            whole = path.read_bytes()
            path.write_bytes(whole[: len(whole) * 2 // 3])


def main(argv: Sequence[str] | None = None) -> None:
    """Write one adapter, as the arguments say, and print where it is."""
    parser = argparse.ArgumentParser(prog="python -m tests.rig.adapters", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--modules", nargs="+", default=["q_proj", "v_proj"])
    parser.add_argument("--hidden", type=int, default=TINY.hidden)
    parser.add_argument("--layers", type=int, default=TINY.layers)
    parser.add_argument(
        "--weights", default="good", choices=["good", "rubbish", "none", "truncated", "empty"]
    )
    args = vars(parser.parse_args(argv))
    print(make_adapter(args.pop("directory"), **args))


if __name__ == "__main__":
    main()
