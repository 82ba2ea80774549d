"""Is this path ready to be loaded? Looks at the adapters' directories, for ever, and wakes the loop when one changes.

A look is taken by `files` in a thread of `crew`, so a file system that hangs costs its own adapters and no others. A
directory that is complete is shown as SETTLING until it is quiet, and looked at again the moment it should be. Looks
are taken at once when a path is first wanted, when a file event hints at it (`hints`), each second while something
is missing or moving, and otherwise now and then. Events only make it quicker: each look sees the whole directory.

What the views mean for an adapter is for `plan` to decide.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from types import MappingProxyType

from sidecar.agent import files
from sidecar.agent.crew import Crew
from sidecar.agent.hashing import Hasher
from sidecar.agent.hints import Hints
from sidecar.agent.mounts import MountTable, Shared, Spots, spots
from sidecar.agent.pathview import UNSETTLED, Hashed, PathState, PathView
from sidecar.agent.settling import STANDARD, Pace, settled

__all__ = ["Pace", "Prober"]

log = logging.getLogger(__name__)

_NO_ANSWER = "the file system does not answer"


@dataclass(slots=True, eq=False)
class _Track:
    """What is known of one path while somebody wants it, or a thread is still at it."""

    path: str
    found: PathView | None = None
    since: float = 0.0
    """When `found.signature` was first seen."""
    quiet: bool = False
    spots: Spots = field(default_factory=Spots)
    looked: float = 0.0
    """When the last look had ended."""
    looking: bool = False
    stuck: bool = False
    again: bool = False
    """Whether something happened since this look began."""
    timer: asyncio.TimerHandle | None = None
    """While looking: when it is too late. Else: the next look."""
    waiters: list[asyncio.Future[PathView]] = field(default_factory=list)
    late_waiters: list[asyncio.Future[PathView]] = field(default_factory=list)
    """Those who came during a look that had begun before."""


class Prober:
    """Keeps a view of each wanted path. Belongs to the event loop's thread.

    `wake` is called whenever a view or a hash has changed. `clock` is monotonic, `wall` counts from the epoch, both in
    seconds.
    """

    def __init__(
        self,
        shared: Shared,
        wake: Callable[[], None],
        *,
        pace: Pace = STANDARD,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._shared = shared
        self._wake = wake
        self._pace = pace
        self._clock = clock
        self._wall = wall
        self._crew = Crew("probe")
        self._hasher = Hasher(shared, wake, clock)
        self._hints = Hints(self._hinted)
        self._wanted: frozenset[str] = frozenset()
        self._tracks: dict[str, _Track] = {}
        self._views: dict[str, PathView] = {}

    @property
    def views(self) -> Mapping[str, PathView]:
        """The view of each wanted path that has been looked at; live."""
        return MappingProxyType(self._views)

    @property
    def hashes(self) -> Mapping[str, Hashed]:
        """The latest content hash of each path for which `hash` was called; live."""
        return self._hasher.hashes

    @property
    def stuck_threads(self) -> int:
        """How many threads hang in a file system at the moment."""
        return self._crew.lagging

    def want(self, paths: Iterable[str]) -> None:
        """Say which paths are wanted from now on. New ones are looked at at once, in this order."""
        ordered = dict.fromkeys(paths)
        wanted = frozenset(ordered)
        if wanted == self._wanted:
            return
        before, self._wanted = self._wanted, wanted
        for path in before - wanted:
            self._forget(self._tracks[path])
        for path in ordered:
            if path not in before:
                self._begin(self._track(path))

    async def look(self, path: str, *, within: float = 0.0) -> PathView:
        """Look at a path now and answer what is there, at the latest after the time-out (then STUCK). Never raises.

        A look that is no older than `within` seconds will do instead.
        """
        track = self._track(path)
        if path in self._views and not track.looking and self._clock() - track.looked < within:
            return self._views[path]
        if track.stuck:
            return self._stuck(track)
        waiter: asyncio.Future[PathView] = asyncio.get_running_loop().create_future()
        (track.late_waiters if track.looking else track.waiters).append(waiter)
        self._begin(track)
        return await waiter

    def hash(self, path: str) -> None:
        """Begin to hash a wanted path in the background, one at a time; the result appears in `hashes`."""
        if path in self._wanted:
            self._hasher.want(path)

    async def run(self) -> None:
        """Look at everything now and then, for ever. What is missing or moving has its own timers."""
        try:
            while True:
                between = self._pace.between(len(self._wanted))
                await asyncio.sleep(between * random.uniform(0.9, 1.1))
                for track in list(self._tracks.values()):
                    if not track.looking:
                        self._begin(track)
        finally:
            self.close()

    def close(self) -> None:
        """Stop looking; no callback comes any more."""
        self.want(())
        for track in self._tracks.values():
            if track.timer is not None:
                track.timer.cancel()
            for waiter in (*track.waiters, *track.late_waiters):
                waiter.cancel()
        self._hints.close()
        self._hasher.close()
        self._crew.close()

    def _track(self, path: str) -> _Track:
        return self._tracks.setdefault(path, _Track(path))

    def _forget(self, track: _Track) -> None:
        self._views.pop(track.path, None)
        self._hasher.drop(track.path)
        self._hints.drop(track.path)
        self._drop_if_idle(track)

    def _drop_if_idle(self, track: _Track) -> None:
        if track.looking or track.path in self._wanted:
            return
        if track.timer is not None:
            track.timer.cancel()
        self._tracks.pop(track.path, None)

    def _begin(self, track: _Track) -> None:
        """Look at a path; where a look is under way, once more after it."""
        if track.looking:
            track.again = True
            if track.stuck:
                self._publish(track, self._stuck(track))
            return
        track.looking = True
        if track.timer is not None:
            track.timer.cancel()
        loop = asyncio.get_running_loop()
        track.timer = loop.call_later(self._pace.timeout, self._late, track)
        last = track.found if track.quiet else None
        work = partial(_look, track.path, self._shared, self._wall, last, track.spots)
        done = partial(self._answered, track)
        self._crew.submit(self._shared.group(track.path), work, done)

    def _late(self, track: _Track) -> None:
        track.stuck = True
        view = self._stuck(track)
        self._publish(track, view)
        _resolve(track.waiters, view)
        _resolve(track.late_waiters, view)

    def _stuck(self, track: _Track) -> PathView:
        known = track.found or PathView(PathState.STUCK)
        return replace(known, state=PathState.STUCK, text=_NO_ANSWER)

    def _answered(self, track: _Track, answer: tuple[PathView, Spots]) -> None:
        found, around = answer
        if track.timer is not None:
            track.timer.cancel()
        track.looking = track.stuck = False
        if track.found is None or track.found.signature != found.signature:
            track.since = self._clock()
        track.found, track.looked = found, self._clock()
        view, wait = settled(found, track.since, self._clock(), self._wall(), self._pace)
        track.quiet = view is found
        track.spots = around
        self._publish(track, view)
        _resolve(track.waiters, view)
        track.waiters, track.late_waiters = track.late_waiters, []
        self._next_look(track, wait)

    def _next_look(self, track: _Track, wait: float | None) -> None:
        if track.waiters or (track.again and track.path in self._wanted):
            track.again = False
            self._begin(track)
        elif track.path not in self._wanted:
            self._drop_if_idle(track)
        elif wait is not None:
            wait = min(wait, self._pace.unsettled * random.uniform(0.9, 1.0))
            track.timer = asyncio.get_running_loop().call_later(wait, self._begin, track)

    def _publish(self, track: _Track, view: PathView) -> None:
        before = self._views.get(track.path)
        if track.path not in self._wanted:
            return
        self._hints.set(track.path, track.spots, awaited=view.state in UNSETTLED)
        if before == view:
            return
        self._views[track.path] = view
        if before is None or before.state is not view.state:
            log.debug("%s is %s: %s", track.path, view.state, view.text)
        self._wake()

    def _hinted(self, path: str, around: bool) -> None:
        track = self._tracks[path]
        track.quiet = track.quiet and not around
        self._begin(track)


def _resolve(waiters: list[asyncio.Future[PathView]], view: PathView) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(view)
    waiters.clear()


def _look(
    path: str,
    shared: Shared,
    wall: Callable[[], float],
    last: PathView | None,
    known: Spots,
) -> tuple[PathView, Spots]:
    """Take one look, in a thread: the view, and where a change may concern it. Never raises."""
    table = cache(MountTable.read)
    try:
        found = files.inspect(path, shared, wall(), last, table)
        if found is last:
            return found, known
        if found.state in (PathState.INVALID, PathState.NOT_SHARED):
            return found, Spots()
        return found, spots(path, table())
    except Exception as error:
        log.exception("the look at %s failed", path)
        return PathView(
            PathState.UNREADABLE, f"it cannot be read ({type(error).__name__})"
        ), Spots()
