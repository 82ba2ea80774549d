"""What is known of an adapter's directory: the values that the probes make and the plan reads.

Pure: nothing here looks at a file or at the clock. `files` makes a `PathView` of what lies on disk, `paths` withholds
it until the directory is quiet, and `plan` turns its state into a reason.
"""

from dataclasses import dataclass
from enum import StrEnum

from sidecar.agent.tensors import TensorFacts


class PathState(StrEnum):
    """How far a directory is from being loaded. Only WHOLE may be handed to the engine."""

    WHOLE = "whole"
    """Complete by its own headers, and quiet."""
    MISSING = "missing"
    """Nothing is there yet."""
    PARTIAL = "partial"
    """Something is there, but not a whole adapter yet; the text says what is missing."""
    SETTLING = "settling"
    """Complete, but changed just now."""
    INVALID = "invalid"
    """The path itself can never work: relative, not normal, a file, ..."""
    NOT_SHARED = "not-shared"
    """Outside of every mount that the agent shares with the engine."""
    UNREADABLE = "unreadable"
    """The file system refuses; the text names the error. It says nothing about what the engine can read."""
    STUCK = "stuck"
    """The file system does not answer. What was known before stays in the view's other fields."""
    BAD = "bad"
    """Readable, at rest, and no adapter that SGLang could load."""


UNSETTLED = frozenset(
    {PathState.MISSING, PathState.PARTIAL, PathState.SETTLING, PathState.UNREADABLE}
)
"""The states that may end at any moment without anyone touching the LoRAAdapter: they are looked at often."""


@dataclass(frozen=True, slots=True)
class AdapterFacts:
    """What adapter_config.json says, as far as SGLang reads it, and what its weights are made of."""

    rank: int
    target_modules: tuple[str, ...]
    """As written; PEFT's shorthands ("all-linear", a pattern) stand alone in a tuple of one."""
    peft_type: str
    use_dora: bool
    lora_alpha: float
    tensors: TensorFacts | None = None
    """None where the weights do not tell: only safetensors have a header that says so."""


@dataclass(frozen=True, slots=True)
class PathView:
    """One look at one path. Equal views mean that nothing worth telling has changed."""

    state: PathState
    text: str = ""
    """One sentence for people where `state` is not enough; no times, nothing that moves by itself."""
    signature: str = ""
    """Changes when a file that counts does (name, size, times, inode, real path); "" where they could not be seen."""
    config: AdapterFacts | None = None
    bytes: int = 0
    """Size of the files that count."""
    local: bool = False
    """Whether the kernel itself keeps the files' times: no network, no FUSE."""
    changed_at: float | None = None
    """Wall clock in seconds since the epoch: the newest mtime or ctime among the files that count."""


@dataclass(frozen=True, slots=True)
class Hashed:
    """A content hash, and the signatures between which it was made.

    The hash speaks of a load only if `before`, `after` and the signature at the load are one.
    """

    before: str
    content: str
    after: str
