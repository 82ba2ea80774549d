"""Which path an event of the file system may concern, and so where to watch, and how closely.

Between `paths`, which knows paths, and `watching`, which knows directories. Whether an event means anything is found
by looking.
"""

import asyncio
from collections.abc import Callable

from sidecar.agent.mounts import Place, Spots
from sidecar.agent.watching import Watcher

GATHER = 0.01
"""Seconds in which changes of what to watch are gathered: answers come in bursts."""


class Hints:
    """Calls `look` with a path when something may have happened there. Belongs to the event loop's thread.

    `look`'s second argument says that the surroundings need a look as well: what is watched may be out of date.
    """

    def __init__(self, look: Callable[[str, bool], None]) -> None:
        self._look = look
        self._watcher = Watcher(self._changed, self._unwatched)
        self._spots: dict[str, Spots] = {}
        self._awaited: set[str] = set()
        self._concerned: dict[str, set[str]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def set(self, path: str, spots: Spots, *, awaited: bool) -> None:
        """Say where to watch for a path, and whether something is awaited there. Cheap where nothing is new."""
        if self._spots.get(path) == spots and (path in self._awaited) == awaited:
            return
        self._spots[path] = spots
        (self._awaited.add if awaited else self._awaited.discard)(path)
        self._aim_soon()

    def drop(self, path: str) -> None:
        """Watch for a path no more."""
        if self._spots.pop(path, None) is not None:
            self._awaited.discard(path)
            self._aim_soon()

    def close(self) -> None:
        """Watch nothing."""
        if self._timer is not None:
            self._timer.cancel()
        self._watcher.close()

    def _aim_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER, self._aim)

    def _aim(self) -> None:
        self._timer = None
        self._concerned = {}
        places: set[Place] = set()
        for path, spots in self._spots.items():
            places |= spots.places
            for concern in spots.concerns:
                self._concerned.setdefault(concern, set()).add(path)
        awaited = (self._spots[path].places for path in self._awaited)
        self._watcher.aim(frozenset(places), frozenset().union(*awaited))

    def _changed(self, events: frozenset[str]) -> None:
        keys = events | {event.rpartition("/")[0] or "/" for event in events}
        for path in {path for key in keys for path in self._concerned.get(key, ())}:
            self._look(path, False)

    def _unwatched(self, places: frozenset[Place]) -> None:
        for path, spots in list(self._spots.items()):
            if spots.places & places:
                self._look(path, True)
