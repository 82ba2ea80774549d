"""The states of an adapter on one pod and the reasons for them, each declared once with a sentence.

The order of declaration is the order of badness inside a state. Reasons that only a LoRAAdapter as a whole can have
stand in `conditions`. Documentation is generated from here.
"""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """What an adapter is on one pod, worst first."""

    FAILED = "Failed"
    UNLOADING = "Unloading"
    PENDING = "Pending"
    LOADED = "Loaded"
    UNLOADED = "Unloaded"


class Reason(StrEnum):
    """Why an adapter is in its state on one pod."""

    state: State
    sentence: str

    def __new__(cls, name: str, state: State, sentence: str) -> "Reason":
        """Make the member: its value is `name`; `state` and `sentence` stand beside it."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.state = state
        member.sentence = sentence
        return member

    INVALID_PATH = (
        "InvalidPath",
        State.FAILED,
        "The path is not one that may be given to SGLang: it must be absolute, normal and a directory.",
    )
    PATH_NOT_SHARED = (
        "PathNotShared",
        State.FAILED,
        "The path is outside every volume that the agent shares with the engine.",
    )
    PATH_UNREADABLE = (
        "PathUnreadable",
        State.FAILED,
        "The agent may not or cannot read the files, so it cannot tell whether they are whole.",
    )
    INVALID_ADAPTER = (
        "InvalidAdapter",
        State.FAILED,
        "The files are there, but they are not a LoRA adapter that SGLang can read.",
    )
    INCOMPATIBLE = (
        "Incompatible",
        State.FAILED,
        "The adapter does not fit this engine: rank, target modules or shapes.",
    )
    LORA_DISABLED = (
        "LoRADisabled",
        State.FAILED,
        "The engine runs without LoRA: start it with --enable-lora, --max-lora-rank and"
        " --lora-target-modules.",
    )
    ENGINE_UNAUTHORIZED = (
        "EngineUnauthorized",
        State.FAILED,
        "The engine refused the agent's key.",
    )
    ENGINE_UNSUPPORTED = (
        "EngineUnsupported",
        State.FAILED,
        "This engine's set-up cannot load adapters at run time.",
    )
    ENGINE_REJECTED = (
        "EngineRejected",
        State.FAILED,
        "The engine refused to load the adapter, in the words given.",
    )
    NOT_LISTED = (
        "NotListed",
        State.FAILED,
        "The engine said that it loaded the adapter, but does not list it.",
    )
    NAME_CONFLICT = (
        "NameConflict",
        State.FAILED,
        "Another LoRAAdapter has the same name for the same service and comes first.",
    )
    NAME_TAKEN = (
        "NameTaken",
        State.FAILED,
        "The engine holds an adapter of this name from another path, which was not loaded by this"
        " project.",
    )
    BASE_MODEL_NAME = (
        "BaseModelName",
        State.FAILED,
        "The name is that of the served model itself.",
    )
    NAMESPACE_NOT_ALLOWED = (
        "NamespaceNotAllowed",
        State.FAILED,
        "The pod does not take adapters from this namespace.",
    )
    ENGINE_CRASH_SUSPECT = (
        "EngineCrashSuspect",
        State.FAILED,
        "The engine died twice while this adapter was loaded or first used; it is held back.",
    )

    UNLOADING = (
        "Unloading",
        State.UNLOADING,
        "The adapter is being unloaded, which waits for running requests.",
    )
    UNLOAD_STUCK = (
        "UnloadStuck",
        State.UNLOADING,
        "The engine has not answered the unload; SGLang 0.5.1 to 0.5.21 may hang here until"
        " restarted.",
    )
    UNLOAD_REFUSED = (
        "UnloadRefused",
        State.UNLOADING,
        "The adapter stays loaded: this engine cannot unload it safely, or its own arguments"
        " load it.",
    )

    ENGINE_STARTING = (
        "EngineStarting",
        State.PENDING,
        "The engine is not up yet.",
    )
    ENGINE_UNREACHABLE = (
        "EngineUnreachable",
        State.PENDING,
        "The engine is up but does not answer.",
    )
    PATH_NOT_FOUND = (
        "PathNotFound",
        State.PENDING,
        "The directory does not exist yet; it is loaded as soon as it does.",
    )
    PATH_INCOMPLETE = (
        "PathIncomplete",
        State.PENDING,
        "The directory does not hold a whole adapter yet; it is loaded as soon as it does.",
    )
    PATH_SETTLING = (
        "PathSettling",
        State.PENDING,
        "The files have changed just now; they are loaded once they keep still.",
    )
    LOADING = (
        "Loading",
        State.PENDING,
        "The adapter is being loaded, or waits for its turn.",
    )
    RETRYING = (
        "Retrying",
        State.PENDING,
        "The last try failed; it is tried again with growing pauses.",
    )
    CAPACITY_EXCEEDED = (
        "CapacityExceeded",
        State.PENDING,
        "The engine's limit on loaded adapters is reached; it is loaded when a slot frees.",
    )

    LOADED = (
        "Loaded",
        State.LOADED,
        "The engine lists the adapter with this path.",
    )
    ADOPTED = (
        "Adopted",
        State.LOADED,
        "The engine already held the adapter from this path; it is kept.",
    )
    LOADED_UNVERIFIED = (
        "LoadedUnverified",
        State.LOADED,
        "The engine said that it loaded the adapter; its version cannot list what it holds.",
    )

    UNLOADED = (
        "Unloaded",
        State.UNLOADED,
        "The engine does not hold the adapter, which is being deleted.",
    )


class EngineState(StrEnum):
    """What an agent says of its engine."""

    STARTING = "Starting"
    READY = "Ready"
    UNREACHABLE = "Unreachable"
    UNSUPPORTED = "Unsupported"


_STATE_ORDER: Final = {state: position for position, state in enumerate(State)}
_REASON_ORDER: Final = {reason: position for position, reason in enumerate(Reason)}


def badness(reason: Reason) -> tuple[int, int]:
    """Sort key that puts the worst reason first: by state, then as declared."""
    return _STATE_ORDER[reason.state], _REASON_ORDER[reason]


def worst(reasons: Iterable[Reason]) -> Reason | None:
    """Pick the worst reason of many; None where there is none."""
    return min(reasons, key=badness, default=None)


def commonest(reasons: Iterable[Reason]) -> Reason | None:
    """Pick the reason that most have, of equally common ones the worst; None where there is none."""
    counts = Counter(reasons)
    return min(counts, key=lambda reason: (-counts[reason], badness(reason)), default=None)
