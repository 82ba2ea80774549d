"""What the names and shapes in a weights file tell of an adapter, as far as `preflight` asks. Pure.

Only tensors named as PEFT names those of a text model's blocks count; whatever else a file holds (experts, towers for
pictures, embeddings) tells nothing here, and so nothing against the adapter.
"""

import re
from dataclasses import dataclass, field
from typing import Literal

MOST_SHAPES = 256
"""Different shapes that are kept; a real adapter has two for each of up to nine modules."""

_NAME = re.compile(
    r"base_model\.model\.model\.layers\.(\d{1,9})\.(?:self_attn|mlp)\.([a-z_]{1,40})\.lora_([AB])\.weight"
)


@dataclass(frozen=True, slots=True, order=True)
class TensorShape:
    """One of the shapes that a module's tensors have: A is rank x input, B is output x rank."""

    module: str
    side: Literal["A", "B"]
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """The tensors of all weights files of an adapter; no layer or shape that is not really there.

    `complete` says that there are no others: what is missing here is missing in the files.
    """

    shapes: frozenset[TensorShape] = frozenset()
    layers: int = 0
    """One more than the highest layer that has a tensor."""
    complete: bool = True

    def has(self, module: str) -> bool:
        """Whether a module has a tensor in any layer."""
        return any(shape.module == module for shape in self.shapes)


@dataclass(slots=True)
class Collector:
    """Gathers `TensorFacts` while headers are being parsed."""

    _shapes: set[TensorShape] = field(default_factory=set)
    _layers: int = 0
    _complete: bool = True

    def saw(self, name: str, shape: tuple[int, ...]) -> None:
        """Take note of one tensor."""
        found = _NAME.fullmatch(name)
        if found is None or len(shape) != 2:
            return
        self._layers = max(self._layers, int(found[1]) + 1)
        if len(self._shapes) < MOST_SHAPES:
            side: Literal["A", "B"] = "A" if found[3] == "A" else "B"
            self._shapes.add(TensorShape(found[2], side, *shape))
        else:
            self.missed()

    def missed(self) -> None:
        """Take note that there may be tensors which are not seen here."""
        self._complete = False

    def facts(self) -> TensorFacts:
        """What has been seen so far."""
        return TensorFacts(frozenset(self._shapes), self._layers, self._complete)
