"""Carries out what the plan decided: one call to the engine, open for as long as it takes, and the looks beside it.

What a call's end means is `outcome`'s to say; here it is only turned into an Outcome and handed over.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol

from sidecar.agent.answers import Answer, Kind
from sidecar.agent.engine import Follower
from sidecar.agent.metrics import Metrics
from sidecar.agent.pathview import Hashed, PathState, PathView
from sidecar.agent.state import Action, Load, Outcome, Running, Trial, Unload

log = logging.getLogger(__name__)

GLANCE = 0.5
"""Seconds that a look beside a load may take."""
NOT_SENT = Answer(
    Kind.TRANSIENT, "its files moved, or could not be looked at, just before the load"
)
FRESH = 0.1
"""Seconds for which a look at an adapter's files is good enough to load them by."""


class Changes(Protocol):
    """What changes an engine, or tries what it holds."""

    async def load(self, name: str, path: str, pinned: bool = False) -> Answer:
        """Load an adapter; every end is an answer."""

    async def unload(self, name: str) -> Answer:
        """Unload a handle; every end is an answer."""

    async def generate_one(self, name: str) -> Answer:
        """Generate one token through a handle; every end is an answer."""


class Files(Protocol):
    """What is known of directories."""

    @property
    def views(self) -> Mapping[str, PathView]:
        """The last look at each wanted path."""

    @property
    def hashes(self) -> Mapping[str, Hashed]:
        """The last hash of each path that one was asked for."""

    def want(self, paths: tuple[str, ...]) -> None:
        """Which paths to look at from now on."""

    def hash(self, path: str) -> None:
        """Hash a directory in the background."""

    async def look(self, path: str, *, within: float = 0.0) -> PathView:
        """Look now; a look that is no older than `within` seconds will do instead."""


class Caller:
    """The calls that are open. `learn` is given each outcome, and `wake` is called after it."""

    def __init__(
        self,
        engine: Changes,
        files: Files,
        follower: Follower,
        metrics: Metrics,
        *,
        trust_path: bool,
        learn: Callable[[Outcome], None],
        wake: Callable[[], None],
        clock: Callable[[], float],
        wall: Callable[[], datetime],
    ) -> None:
        self._engine = engine
        self._files = files
        self._follower = follower
        self._metrics = metrics
        self._trust_path = trust_path
        self._learn = learn
        self._wake = wake
        self._clock = clock
        self._wall = wall
        self._running: dict[asyncio.Task[None], Running] = {}

    @property
    def running(self) -> tuple[Running, ...]:
        """What is open now."""
        return tuple(self._running.values())

    def start(self, action: Action) -> None:
        """Begin a call; what comes of it is learnt when it ends."""
        self._follower.changing()
        task = asyncio.create_task(self._call(action))
        self._running[task] = Running(action, self._clock())
        task.add_done_callback(self._ended)
        if isinstance(action, Unload):
            self._wake()  # while an unload is open, the next pass has a time to watch

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and task.exception() is None:
            return  # it has woken the loop itself
        if not task.cancelled():
            log.error("a call to the engine failed inside", exc_info=task.exception())
        self._wake()

    async def _call(self, action: Action) -> None:
        boot = self._follower.view.boot
        if isinstance(action, Load):
            answer, after = await self._load(action)
        elif isinstance(action, Trial):
            answer, after = await self._engine.generate_one(action.handle), ""
        else:
            answer, after = await self._engine.unload(action.handle), ""
        # Before anybody is woken: the next pass is to see the call ended, and not to be made twice.
        if task := asyncio.current_task():
            self._running.pop(task, None)
        self._follower.changed(answer.loaded)
        if answer.kind in (Kind.UNKNOWN, Kind.REFUSED):
            self._follower.list_now()
        log.info("%s", _sentence(action, answer))
        self._metrics.called(action, answer)
        self._learn(Outcome(action, answer, self._wall(), boot, after))
        self._wake()

    async def _load(self, load: Load) -> tuple[Answer, str]:
        """Send a load, and see whether its files kept still: the answer, and their signature after it."""
        if not await self._still(load):
            return NOT_SENT, ""
        answer = await self._engine.load(load.handle, load.path, load.pinned)
        return answer, await self._signature(load) if answer.ok else ""

    async def _still(self, load: Load) -> bool:
        """Whether the files are still those that the plan saw: a poll may be half a minute old."""
        if self._trust_path or load.follows:
            return True
        view = await self._glance(load.path, within=FRESH)
        return view is not None and (view.state, view.signature) == (
            PathState.WHOLE,
            load.signature,
        )

    async def _signature(self, load: Load) -> str:
        if self._trust_path:
            return load.signature
        view = await self._glance(load.path)
        return view.signature if view else ""

    async def _glance(self, path: str, *, within: float = 0.0) -> PathView | None:
        """Look at files, or give up soon: other adapters wait behind this call, and its file system may hang."""
        try:
            async with asyncio.timeout(GLANCE):
                return await self._files.look(path, within=within)
        except TimeoutError:
            return None

    async def close(self) -> bool:
        """Wait until nothing is open; whether anything was."""
        if not self._running:
            return False
        await asyncio.wait(set(self._running))
        return True


def _sentence(action: Action, answer: Answer) -> str:
    verb = type(action).__name__.lower()
    text = f": {answer.text}" if answer.text else ""
    return f"{verb} {action.handle} ({action.path}): {answer.kind}{text}"
