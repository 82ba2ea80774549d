"""What SGLang reads at an adapter's path, in its order, and its words for what is wrong there.

Where SGLang passes on what Python or a parser says, this does the same work and passes the same on. Source:
`lora/lora_config.py`, `lora/lora.py` and the weight loader of SGLang 0.5.21; the safetensors parser's words as seen.
"""

import glob
import hashlib
import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rig.adapters import TINY, Dims

NOT_A_REPO = (
    "Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{path}'."
    " Use `repo_type` argument if needed."
)
NOT_CACHED = (
    "Cannot find an appropriate cached snapshot folder for the specified revision on the local disk and outgoing"
    " traffic has been disabled. To enable repo look-ups and downloads online, set 'HF_HUB_OFFLINE=0' as environment"
    " variable."
)
HEADER = "Error while deserializing header: "
LARGEST_HEADER = 100_000_000
FUSED = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
}

FIRST = {"k_proj": "q_proj", "v_proj": "q_proj", "up_proj": "gate_proj"}
"""Fused layers are put together beginning with these; what lacks it is found out at the first use."""


@dataclass(frozen=True, slots=True)
class Config:
    """adapter_config.json and added_tokens.json, as far as they are looked at."""

    rank: int
    modules: str | list[str]
    told: Mapping[str, Any]
    added_tokens: int

    @property
    def dora(self) -> bool:
        return bool(self.told.get("use_dora", False))

    def within(self, modules: tuple[str, ...]) -> bool:
        """Whether the server's target modules have room for the adapter's. Fused ones count as one."""
        if isinstance(self.modules, str):
            if self.modules not in ("all", "all-linear"):
                raise ValueError(
                    "Only 'all' or 'all-linear' can be used as the string for target module"
                )
            return True
        return {_fused(name) for name in self.modules} <= {_fused(name) for name in modules}


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights as they were when they were read."""

    digest: str
    shapes: Mapping[str, tuple[int, ...]]
    rank: int

    def fit(self, dims: Dims) -> bool:
        """Whether a forward pass goes well."""
        return all(self._fits(name, shape, dims) for name, shape in self.shapes.items())

    def _fits(self, name: str, shape: tuple[int, ...], dims: Dims) -> bool:
        module, _, side = name.removesuffix(".weight").rpartition(".")
        module = module.rpartition(".")[2]
        first = FIRST.get(module)
        if first and name.replace(module, first) not in self.shapes:
            return False
        if side == "lora_A":
            return shape == (self.rank, dims.into(module))
        return side != "lora_B" or shape == (dims.out(module), self.rank)


def read_config(path: str, vocabulary: int) -> Config:
    """Read the two JSON files. Raises what SGLang turns into a refusal."""
    folder = Path(path)
    if not folder.is_dir():
        words = NOT_A_REPO if path.startswith("/") else NOT_CACHED
        raise ValueError(words.format(path=path))
    told = json.loads((folder / "adapter_config.json").read_text())
    added = folder / "added_tokens.json"
    tokens = json.loads(added.read_text()) if added.exists() else {}
    new = [token for token, ident in tokens.items() if ident >= vocabulary]
    modules, rank, _ = told["target_modules"], told["r"], told["lora_alpha"]
    return Config(rank, modules, told, len(new))


def read_weights(path: str, config: Config) -> Weights:
    """Read the weights that SGLang would take. Raises what SGLang turns into a refusal."""
    if config.told["peft_type"].lower() != "lora":
        raise AssertionError
    for ending in ("safetensors", "bin", "pt"):
        # Neither SGLang nor this escapes what means something to glob.
        files = sorted(glob.glob(f"{path}/*.{ending}"))  # noqa: PTH207
        if files:
            break
    else:
        raise RuntimeError(f"Cannot find any model weights with `{path}`")
    digest, shapes = hashlib.sha256(), {}
    for file in files:
        content = Path(file).read_bytes()
        digest.update(content)
        if ending == "safetensors":
            shapes.update(_shapes(content))
    _put_into_layers(shapes)
    return Weights(digest.hexdigest(), shapes, config.rank)


def _put_into_layers(shapes: Mapping[str, object]) -> None:
    for name in shapes:
        if (found := re.search(r"layers\.(\d+)\.", name)) and int(found[1]) >= TINY.layers:
            raise IndexError(f"index {found[1]} is out of range")
        if "q_proj" in name and name.replace("q_proj", "v_proj") not in shapes:
            raise KeyError(name.replace("q_proj", "v_proj"))


def _shapes(content: bytes) -> dict[str, tuple[int, ...]]:
    if len(content) < 8:
        raise RuntimeError(HEADER + "header too small")
    (length,) = struct.unpack_from("<Q", content)
    if length > LARGEST_HEADER:
        raise RuntimeError(HEADER + "header too large")
    if 8 + length > len(content):
        raise RuntimeError(HEADER + "invalid header length")
    try:
        header = json.loads(content[8 : 8 + length])
    except ValueError as error:
        raise RuntimeError(HEADER + f"invalid JSON in header: {error}") from None
    tensors = {name: told for name, told in header.items() if name != "__metadata__"}
    end = max((told["data_offsets"][1] for told in tensors.values()), default=0)
    if 8 + length + end != len(content):
        raise RuntimeError(HEADER + "incomplete metadata, file not fully covered")
    return {name: tuple(told["shape"]) for name, told in tensors.items()}


def _fused(name: str) -> str:
    base = name.rpartition(".")[2]
    return FUSED.get(base, base)
