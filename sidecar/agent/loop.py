"""The agent's one loop: gather, plan, act, report. Thin on purpose; what is decided is decided in `plan`.

Watch events, file events, answers and timers only wake it; each pass looks at the whole world. Calls to the engine run
beside it and wake it when they end.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sidecar.agent.basereader import BaseReader
from sidecar.agent.calling import Caller, Changes, Files
from sidecar.agent.engine import Follower
from sidecar.agent.metrics import Metrics
from sidecar.agent.outcome import remember
from sidecar.agent.plan import plan
from sidecar.agent.readiness import Readiness, after
from sidecar.agent.report import Says, report
from sidecar.agent.reporting import Reporter
from sidecar.agent.sources import Source
from sidecar.agent.state import (
    EngineView,
    Entry,
    Load,
    Me,
    Memory,
    Outcome,
    Plan,
    World,
)
from sidecar.api.adapter import LoRAAdapter
from sidecar.api.report import ReportStatus
from sidecar.api.wanted import Want, targeting, wants

log = logging.getLogger(__name__)

FAULT_PAUSE = 1.0
FIRST_GLANCE = 0.005
"""Seconds for which a pass waits for the first look at new paths, which takes a tenth of that on a local disk."""
FIRST_LOOK = 2.0
"""Seconds that the first pass waits for the engine's first sign."""


@dataclass(frozen=True, slots=True)
class _Mine:
    """The source's adapters that are for this pod, and what is written of them."""

    found: Sequence[LoRAAdapter] | None = None
    base_model: str | None = None
    adapters: tuple[LoRAAdapter, ...] | None = None
    wants: tuple[Want, ...] = ()


class Loop:
    """One agent's loop. `clock` is monotonic, `wall` tells the time of day."""

    def __init__(
        self,
        *,
        me: Me,
        service: str,
        says: Says,
        files: Files,
        base: BaseReader,
        engine: Changes,
        follower: Follower,
        reporter: Reporter,
        metrics: Metrics,
        wake: asyncio.Event,
        clock: Callable[[], float],
        wall: Callable[[], datetime],
    ) -> None:
        self._me = me
        self._service = service
        self._says = says
        self._source: Source | None = None
        self._files = files
        self._base = base
        self._follower = follower
        self._reporter = reporter
        self._metrics = metrics
        self._wake = wake
        self._clock = clock
        self._memory = Memory()
        self._caller = Caller(
            engine,
            files,
            follower,
            metrics,
            trust_path=me.trust_path,
            learn=self._learn,
            wake=wake.set,
            clock=clock,
            wall=wall,
        )
        self._mine = _Mine()
        self._last: tuple[object, ...] = ()
        self._entries: tuple[Entry, ...] = ()
        self._readiness = Readiness(clock())
        self._seen: tuple[EngineView, tuple[Entry, ...] | None] = (EngineView(), None)
        self.passes = 0
        self._seen_passes = 0

    def start_from(self, memory: Memory) -> None:
        """Go on with what an earlier life of this agent remembered."""
        self._memory = memory

    async def run(self, source: Source) -> None:
        """Pass after pass over what the source tells, for ever."""
        self._source = source
        try:
            async with asyncio.timeout(FIRST_LOOK):
                await self._follower.looked.wait()
        except TimeoutError:
            log.info("the engine has given no sign yet")
        while True:
            self._wake.clear()
            try:
                if self._news_of_paths():
                    await self._woken_within(FIRST_GLANCE)
                    self._wake.clear()
                wake_at = await self.step()
            except Exception:
                # A fault of ours must not end the agent: it is told, and the next pass follows.
                log.exception("a pass failed")
                wake_at = self._clock() + FAULT_PAUSE
            await self._woken_within(None if wake_at is None else max(0.0, wake_at - self._clock()))

    async def _woken_within(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _news_of_paths(self) -> bool:
        """Whether new paths are being looked at from now on: a plan before the answer would be made twice."""
        before = self._mine
        mine = self._judged(
            self._source.adapters if self._source else None, self._follower.view.model
        )
        return mine.wants != before.wants and not self._me.trust_path

    def is_turning(self) -> bool:
        """Whether passes come when they are called for; asked now and then, for the watchdog."""
        moved, self._seen_passes = self.passes != self._seen_passes, self.passes
        return moved or not self._wake.is_set()

    async def step(self) -> float | None:
        """One pass; answers when to look again (monotonic), None where only an event can change anything."""
        now = self._clock()
        world = self.gather()
        decided = plan(world, self._memory, self._me, now)
        self._memory = decided.memory
        self._act(decided)
        if decided.actions:
            await asyncio.sleep(0)  # the call goes out before anything is said about it
        self._report(decided, world)
        self.passes += 1
        self._seen = (world.engine, None if world.adapters is None else decided.entries)
        self.ready()
        return decided.wake_at

    def ready(self) -> tuple[bool, str]:
        """The answer of `/readyz`: that the agent runs or, where the pod asked for it, that its adapters are there."""
        if not self._me.hold:
            return self.passes > 0, "running" if self.passes else "starting"
        before, self._readiness = (
            self._readiness,
            after(self._readiness, self._me, *self._seen, self._clock()),
        )
        if before.ready != self._readiness.ready:
            log.info("readiness: %s", self._readiness.text)
        return self._readiness.ready, self._readiness.text

    def gather(self) -> World:
        """Look at everything."""
        source, engine = self._source, self._follower.view
        mine = self._judged(source.adapters if source else None, engine.model)
        if engine.info and self._me.preflight:
            self._base.ask(engine.info.model_path, engine.boot)
        return World(
            adapters=mine.adapters,
            wants=mine.wants,
            engine=engine,
            paths=self._files.views,
            hashes=self._files.hashes,
            base=self._base.found,
            base_awaited=self._base.awaited,
            running=self._caller.running,
            scope=source.scope if source else "all",
            partial=source.partial if source else True,
            unreadable=frozenset(source.invalid) if source else frozenset(),
        )

    def _judged(self, found: Sequence[LoRAAdapter] | None, base_model: str | None) -> "_Mine":
        """What is written for this pod. New paths are looked at from here on, while the plan is being made."""
        if found is None:
            return _Mine()
        if (self._mine.found, self._mine.base_model) != (found, base_model):
            mine = targeting(found, self._me.namespace, self._service, self._says.allowed)
            judged = tuple(wants(mine, base_model))
            self._mine = _Mine(found, base_model, tuple(mine), judged)
            if not self._me.trust_path:
                good = (want.adapter.spec.path for want in judged if want.reason is None)
                self._files.want(tuple(good))
        return self._mine

    # --- acting -------------------------------------------------------------------------------

    def _act(self, decided: Plan) -> None:
        if not self._loading(decided):  # a hash can wait, a load should not
            for path in decided.hash:
                self._files.hash(path)
        if decided.list_now:
            self._follower.list_now()
        if decided.identify:
            self._follower.identify()
        for action in decided.actions:
            self._caller.start(action)

    def _loading(self, decided: Plan) -> bool:
        under_way = (running.action for running in self._caller.running)
        return any(isinstance(action, Load) for action in (*decided.actions, *under_way))

    async def close(self) -> None:
        """Let the calls that are open end, and say so; the caller bounds the wait."""
        if await self._caller.close():
            world = self.gather()
            decided = plan(world, self._memory, self._me, self._clock())
            self._memory = decided.memory
            self._report(decided, world)

    def _learn(self, outcome: Outcome) -> None:
        version = self._follower.view.version
        self._memory = remember(self._memory, outcome, self._clock(), self._me.pod, version)

    # --- reporting ----------------------------------------------------------------------------

    def _report(self, decided: Plan, world: World) -> None:
        if world.adapters is None:
            self._metrics.show((), world.engine)
            return
        news = (
            decided.entries,
            decided.memory,
            decided.foreign,
            world.engine,
            world.scope,
            world.unreadable,
        )
        if news == self._last:
            return
        self._last = news
        self._tell_changes(decided.entries)
        self._entries = decided.entries
        self._reporter.say(lambda: report(self._says, decided, world.engine, world.scope))
        self._metrics.show(decided.entries, world.engine)

    def _tell_changes(self, entries: tuple[Entry, ...]) -> None:
        before = {e.adapter.metadata.uid: (e.reason, e.text) for e in self._entries}
        for entry in entries:
            if before.get(entry.adapter.metadata.uid) != (entry.reason, entry.text):
                text = f": {entry.text}" if entry.text else ""
                log.info(
                    "%s (%s): %s%s", entry.adapter.key, entry.adapter.handle, entry.reason, text
                )

    @property
    def said(self) -> ReportStatus | None:
        """What is reported, whether it has been written yet or not."""
        return self._reporter.said

    def state(self) -> dict[str, Any]:
        """What the loop sees, for `/state`."""
        said, source = self.said, self._source
        return {
            "source": {
                "synced": source.adapters is not None,
                "scope": source.scope,
                "problem": source.problem,
                "invalid": dict(source.invalid),
            }
            if source
            else None,
            "report": {
                "problem": self._reporter.problem,
                "writes": self._reporter.writes,
                "status": said.model_dump(mode="json", by_alias=True, exclude_none=True)
                if said
                else None,
            },
            "running": [
                {
                    "call": type(running.action).__name__,
                    "handle": running.action.handle,
                    "path": running.action.path,
                }
                for running in self._caller.running
            ],
            "paths": {
                path: {"state": view.state, "text": view.text}
                for path, view in self._files.views.items()
            },
            "passes": self.passes,
        }
