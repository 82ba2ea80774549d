"""The agent's values: what it sees (World), does (Action), learns (Outcome) and remembers (Memory).

Everything here is frozen and free of clocks and sockets. `plan` turns a World and a Memory into a Plan; `loop` fills
the World in and carries the actions out. Monotonic times are seconds as floats, wall times are datetimes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final, Literal, TypeVar

from sidecar.agent.answers import Answer, Kind, ServerInfo
from sidecar.agent.base import BaseModel
from sidecar.agent.pathview import Hashed, PathView
from sidecar.agent.suspects import Case, Suspects
from sidecar.api.adapter import LoRAAdapter
from sidecar.api.reasons import EngineState, Reason, State
from sidecar.api.wanted import Want

K = TypeVar("K")
V = TypeVar("V")

Scope = Literal["all", "own"]

UNNAMED: Final = "unnamed."
"""How the name of an engine process begins that has not said who it is."""

TELLS_NAMES: Final = (0, 5, 1)
"""From this SGLang on, the refusal to unload an unknown handle names those that are loaded."""


def without(mapping: Mapping[K, V], *keys: K) -> Mapping[K, V]:
    """The mapping less some keys."""
    return MappingProxyType({key: value for key, value in mapping.items() if key not in keys})


def with_item(mapping: Mapping[K, V], key: K, value: V) -> Mapping[K, V]:
    """The mapping with one item set."""
    return MappingProxyType({**mapping, key: value})


def _none() -> Mapping[str, V]:
    return MappingProxyType({})


# --- what is seen -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EngineView:
    """The engine at one moment.

    `held` is what it lists, handle to path: None until it has answered once. `listed_at` is the monotonic time of that
    answer. `boot` names the engine process; it is "" while unknown. `settled` says that `/server_info` has answered
    or has been waited for long enough, so that loads may begin.

    Where it cannot list (`lists`), `names` are the handles that it told in another way, at `named_at`; None while it
    has not, or a call since then may have changed them.
    """

    state: EngineState = EngineState.STARTING
    reason: Reason | None = None
    text: str = ""
    since: datetime | None = None
    boot: str = ""
    model: str | None = None
    held: Mapping[str, str] | None = None
    lists: bool = True
    listed_at: float = 0.0
    names: frozenset[str] | None = None
    named_at: float = 0.0
    info: ServerInfo | None = None
    settled: bool = False

    @property
    def version(self) -> tuple[int, ...]:
        """SGLang's version as numbers; () while unknown."""
        return self.info.version_numbers if self.info else ()

    @property
    def tells_names(self) -> bool:
        """Whether it can be asked for the handles that it holds, should it not list them."""
        return self.version >= TELLS_NAMES

    @property
    def seen_at(self) -> float:
        """The time from which what it told of its adapters counts, by whichever way it tells them."""
        return self.listed_at if self.lists or not self.tells_names else self.named_at

    @property
    def startup_handles(self) -> Mapping[str, str]:
        """What the engine's own arguments load: never ours."""
        return self.info.startup_adapters if self.info else {}


@dataclass(frozen=True, slots=True)
class Running:
    """A call to the engine that has not been answered yet."""

    action: "Action"
    started: float


@dataclass(frozen=True, slots=True)
class World:
    """Everything that one pass looks at.

    `adapters` are those that target this pod, in order of precedence, and `wants` what is written of those that are not
    being deleted; None before the first full list. `partial` says
    that some may be missing from it, so that being missing means nothing; `unreadable` are the keys of objects that are
    there and could not be understood. `base` is the base model's sizes, None where they are unknown; `base_awaited`
    says that they may be known in a moment.
    """

    adapters: tuple[LoRAAdapter, ...] | None
    engine: EngineView
    wants: tuple[Want, ...] = ()
    paths: Mapping[str, PathView] = field(default_factory=_none)
    hashes: Mapping[str, Hashed] = field(default_factory=_none)
    base: BaseModel | None = None
    base_awaited: bool = False
    running: tuple[Running, ...] = ()
    scope: Scope = "all"
    partial: bool = False
    unreadable: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Me:
    """Who this agent is, and how it was told to behave.

    `hold` says for how many seconds a pending adapter may keep the pod unready; 0: readiness does not ask for adapters.
    """

    pod: str
    namespace: str
    reload: Literal["auto", "on-change", "never"] = "auto"
    trust_path: bool = False
    preflight: bool = True
    hold: float = 0.0


# --- what is done -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Load:
    """Ask the engine to load an adapter; `follows` where its handle's unload is still open, and every moment counts."""

    uid: str
    key: str
    handle: str
    path: str
    pinned: bool = False
    signature: str = ""
    retry: str = ""
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Unload:
    """Ask the engine to unload a handle; `replacing` where a load of the same handle follows."""

    uid: str
    key: str
    handle: str
    path: str
    replacing: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """Ask the engine for one token through a loaded adapter that may have killed the process before."""

    uid: str
    key: str
    handle: str
    path: str
    case: Case


Action = Load | Unload | Trial


@dataclass(frozen=True, slots=True)
class Entry:
    """What an adapter is on this pod: one line of the report."""

    adapter: LoRAAdapter
    reason: Reason
    text: str = ""

    @property
    def state(self) -> State:
        """Its state, which the reason implies."""
        return self.reason.state


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, what to say, what to remember, and when to look again (monotonic seconds)."""

    actions: tuple[Action, ...]
    entries: tuple[Entry, ...]
    memory: "Memory"
    hash: tuple[str, ...] = ()
    list_now: bool = False
    identify: bool = False
    foreign: tuple[str, ...] = ()
    wake_at: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an action. `after` is the directory's signature once a load had been answered."""

    action: Action
    answer: Answer
    at: datetime
    boot: str
    after: str = ""


# --- what is remembered -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Held:
    """An adapter in the engine that is ours to look after, and the LoRAAdapter (uid, key) that it was loaded for.

    `owned` is False where the engine's own arguments loaded it, and None while that is not known yet. `signature` is
    that of the files that were loaded, "" where they moved under the load; `content` is their hash once known.
    `missed` says that this very engine process no longer lists it.
    """

    uid: str
    key: str
    handle: str
    path: str
    boot: str
    owned: bool | None
    adopted: bool = False
    loaded_at: datetime | None = None
    signature: str = ""
    content: str = ""
    missed: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """A load that failed, and when it may be tried again. `kind` is how SGLang answered it.

    `cause` is what must change for a permanent failure to be worth another try: handle, path, files, engine process
    and retry annotation.
    """

    reason: Reason
    text: str
    permanent: bool
    tries: int
    retry_at: float
    cause: tuple[str, ...]
    kind: Kind = Kind.TRANSIENT


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A handle that we unloaded and that must stay unloaded while its engine process lives.

    `older` is the path that it was unloaded with before, where nobody knows whether a load has replaced it since.
    """

    path: str
    boot: str
    tries: int = 0
    retry_at: float = 0.0
    older: str = ""

    def covers(self, path: str | None) -> bool:
        """Whether what the engine holds under this handle from `path` is what we unloaded."""
        return path == self.path or (bool(path) and path == self.older)


@dataclass(frozen=True, slots=True)
class Stuck:
    """An unload that this engine process has left without an answer for too long: nothing else can change before."""

    uid: str
    key: str
    handle: str
    path: str
    boot: str


@dataclass(frozen=True, slots=True)
class Memory:
    """What the agent knows beyond what it can see.

    `held` and `tombstones` go by handle, `failures` by uid for loads and by `unload_key` for unloads.
    `doubtful` holds handles whose last call was left without an answer, with the time from which a list counts.
    `losing` says that all of ours has vanished at once, and the engine has been asked whether it is another process.
    """

    held: Mapping[str, Held] = field(default_factory=_none)
    failures: Mapping[str, Failure] = field(default_factory=_none)
    tombstones: Mapping[str, Tombstone] = field(default_factory=_none)
    doubtful: Mapping[str, float] = field(default_factory=_none)
    stuck: Stuck | None = None
    losing: bool = False
    suspects: Suspects = field(default_factory=Suspects)
