"""The scratch paper of one pass of `plan`: the world and memory it started from, and what has been decided so far.

It answers questions that arriving and leaving adapters share, and decides nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sidecar.agent.answers import Kind
from sidecar.agent.pathview import PathView
from sidecar.agent.preflight import Limits, Refusal, judge, limits_of
from sidecar.agent.state import (
    Action,
    Entry,
    Failure,
    Held,
    Load,
    Me,
    Memory,
    Running,
    Stuck,
    Tombstone,
    Trial,
    Unload,
    World,
)
from sidecar.api.adapter import LoRAAdapter
from sidecar.api.reasons import EngineState

STUCK_AFTER: Final = 30.0
"""Seconds after which an unload without an answer is called stuck."""

FIRST_UNLOAD: Final = (0, 5, 1)
"""Before this SGLang an unload does not wait for running requests and can crash the server."""


@dataclass(slots=True)
class Scratch:
    """One pass. `good` are the adapters that nothing written speaks against, by uid."""

    world: World
    memory: Memory
    me: Me
    now: float
    good: Mapping[str, LoRAAdapter] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    loads: list[Load] = field(default_factory=list)
    unloads: list[Unload] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    hash: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    held: dict[str, Held] = field(init=False)
    failures: dict[str, Failure] = field(init=False)
    tombstones: dict[str, Tombstone] = field(init=False)
    listed: Mapping[str, str] = field(init=False)
    stuck: Stuck | None = field(init=False)
    wanted_handles: frozenset[str] = field(init=False)
    limits: Limits = field(init=False)

    def __post_init__(self) -> None:
        """Begin with what is remembered."""
        self.held = dict(self.memory.held)
        self.failures = dict(self.memory.failures)
        self.tombstones = dict(self.memory.tombstones)
        self.listed = self._listed()
        self.stuck = self._stuck()
        self.limits = limits_of(self.world.engine.info, self.world.base)
        self.wanted_handles = frozenset(adapter.handle for adapter in self.good.values())

    def _listed(self) -> Mapping[str, str]:
        engine = self.world.engine
        if engine.lists:
            return engine.held or {}
        paths = self._remembered()
        if engine.names is None:
            return paths
        told = {**dict.fromkeys(engine.names, ""), **engine.startup_handles, **paths}
        return {handle: path for handle, path in told.items() if handle in engine.names}

    def _remembered(self) -> dict[str, str]:
        """What the engine may hold by our own doing, where it cannot list it."""
        paths = {handle: held.path for handle, held in self.memory.held.items()}
        boot, alone = self.world.engine.boot, not self.world.engine.tells_names
        for failure in self.memory.failures.values():
            unsure = failure.kind is Kind.UNKNOWN or (alone and failure.kind is Kind.ALREADY_LOADED)
            if unsure and failure.cause and failure.cause[3] == boot:
                paths.setdefault(failure.cause[0], failure.cause[1])
        return paths

    def _stuck(self) -> Stuck | None:
        """The unload that everything waits for: an open one, or one that an earlier life of this agent left."""
        for running in self.world.running:
            action = running.action
            if isinstance(action, Unload) and self.is_stuck(running):
                boot = self.world.engine.boot
                return Stuck(action.uid, action.key, action.handle, action.path, boot)
        left = self.memory.stuck
        if left and self.world.engine.lists and left.handle in self.listed:
            return None  # an unload takes its handle off the list first: what is listed was loaded after its end
        return left

    def waits_for_unload_of(self, handle: str) -> bool:
        """Whether it is this handle's unload that is stuck."""
        return self.stuck is not None and self.stuck.handle == handle

    @property
    def behind(self) -> str:
        """What a change has to wait for; "" where nothing is stuck."""
        return f"waits for the unload of {self.stuck.handle}, which is stuck" if self.stuck else ""

    @property
    def untold(self) -> bool:
        """Whether the engine has yet to name what it holds: a load before that could be a second one, which leaks."""
        engine = self.world.engine
        return not engine.lists and engine.tells_names and engine.names is None

    @property
    def ready(self) -> bool:
        """Whether the engine answers, so that what it lists can be believed."""
        engine = self.world.engine
        return engine.state is EngineState.READY and engine.held is not None

    def refusal(self, view: PathView | None) -> Refusal | None:
        """What in the files of a directory is certain to fail in this engine."""
        if view is None or view.config is None or not self.me.preflight:
            return None
        return judge(view.config, self.limits)

    def calls(self, handle: str) -> list[Running]:
        """The calls open for a handle."""
        return [running for running in self.world.running if running.action.handle == handle]

    def open_actions(self) -> list[Action]:
        """Every call that is open."""
        return [running.action for running in self.world.running]

    def mine(self, uid: str) -> list[Held]:
        """What is held for one LoRAAdapter: more than one while its handle has been edited."""
        return [held for held in self.held.values() if held.uid == uid]

    def wants(self, held: Held) -> bool:
        """Whether the adapter that something is held for still wants just that."""
        adapter = self.good.get(held.uid)
        return adapter is not None and (adapter.handle, adapter.spec.path) == (
            held.handle,
            held.path,
        )

    def is_stuck(self, running: Running) -> bool:
        """Whether a call is an unload that has been open for too long; asks to look again if not yet."""
        if not isinstance(running.action, Unload):
            return False
        if self.now - running.started >= STUCK_AFTER:
            return True
        self.times.append(running.started + STUCK_AFTER)
        return False

    def unload_refused(self) -> str:
        """Why this engine may not be asked to unload; "" where it may."""
        version = self.world.engine.version
        if version and version < FIRST_UNLOAD:
            return "SGLang before 0.5.1 cannot unload safely: restart the engine"
        return ""

    def waiting(self, key: str) -> Failure | None:
        """The failure that still holds a call back; asks to look again when it ends."""
        failure = self.failures.get(key)
        if failure is None or self.now >= failure.retry_at:
            return None
        self.times.append(failure.retry_at)
        return failure
