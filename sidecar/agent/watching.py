"""File events, as a hint only: they make the agent look sooner, and nothing depends on them.

One inotify instance in one thread watches all places, not recursively. There are 128 instances for a user on a whole
node, and network file systems have no events, so any failure is told once and polling goes on. What inotify is known
to miss is met thus: a directory that is removed and made again goes silent, so a removal, or another inode under the
name, means a new watch; what happened before the watch stood is looked for as soon as it does.
"""

import asyncio
import errno
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import watchfiles

from sidecar.agent.mounts import Place

Watch = Callable[..., Iterator[set[tuple[Any, str]]]]
"""What watchfiles.watch is to us: blocks, and answers sets of events, each a Change and a path."""

log = logging.getLogger(__name__)

HOT = {"step": 20, "debounce": 100}
"""Milliseconds. An event is told after 30 to 40 ms, for half a per cent of a core (measured with watchfiles 1.3)."""
CALM = {"step": 250, "debounce": 500}
"""Milliseconds: 0.04 per cent of a core, for when nothing is awaited."""

SOON = 0.02
"""Seconds from a change of places to the new watch while something is awaited in a place that is not watched yet."""
GAP = 0.25
"""Seconds between two such watches. Each holds the interpreter up for 4 to 25 ms with a hundred places (measured)."""
LATER = 1.0
"""Seconds for which places have not changed, before a new watch that nobody waits for: adapters come in bursts."""
LATEST = 10.0
"""Seconds after which it is made even if they go on changing."""
RETRY = 60.0
"""Seconds after a failure to the next try, unless the places change before."""


class _Generation:
    """One watch, from its thread's beginning to its end. It is its own stop event: watchfiles asks it at each step."""

    def __init__(self, places: frozenset[Place], *, hot: bool) -> None:
        self.places = places
        self.hot = hot
        self.pace = HOT if hot else CALM
        self.stopped = False
        self.asked = False
        self._stands: Callable[[], None] = lambda: None

    def begin(self, watch: Watch, owner: "Watcher") -> None:
        loop = asyncio.get_running_loop()

        def tell(what: Callable[..., None], *args: object) -> None:
            with suppress(RuntimeError):  # the loop is closed, the process ends
                loop.call_soon_threadsafe(what, self, *args)

        self._stands = lambda: tell(owner.on_stand)
        work = partial(self._run, watch, tell, owner)
        threading.Thread(target=work, name="file-events", daemon=True).start()

    def is_set(self) -> bool:
        """Whether to stop. The first question is the sign that the watch stands."""
        if not self.asked:
            self.asked = True
            self._stands()
        return self.stopped

    def _run(self, watch: Watch, tell: Callable[..., None], owner: "Watcher") -> None:
        paths = sorted(place.path for place in self.places)
        try:
            for changes in watch(
                *paths,
                watch_filter=None,
                recursive=False,
                stop_event=self,
                rust_timeout=60_000,
                **self.pace,
            ):
                tell(owner.on_change, frozenset(changes))
        except Exception as error:  # noqa: BLE001 - whatever it is, only speed is lost
            tell(owner.on_failure, error)


class Watcher:
    """Keeps one watch on a changing set of places. Belongs to the event loop's thread.

    `changed` gets the paths of events. `look` gets places whose watch has just begun, or failed: what happened there
    until now may have been missed.
    """

    def __init__(
        self,
        changed: Callable[[frozenset[str]], None],
        look: Callable[[frozenset[Place]], None],
        watch: Watch = watchfiles.watch,
    ) -> None:
        self._changed = changed
        self._look = look
        self._watch = watch
        self._aim: tuple[frozenset[Place], frozenset[Place]] = (frozenset(), frozenset())
        self._current = _Generation(frozenset(), hot=False)
        self._next: _Generation | None = None
        self._retiring: list[_Generation] = []
        self._timer: asyncio.TimerHandle | None = None
        self._turned_at = float("-inf")
        self._changed_at: float | None = None
        self._warned = False

    def aim(self, places: frozenset[Place], awaited: frozenset[Place]) -> None:
        """Say what to watch from now on, and where among that something is awaited. Cheap where nothing is new."""
        if (places, awaited) != self._aim:
            self._aim = (places, awaited)
            self._plan()

    def close(self) -> None:
        """End the watch; its thread ends a step later."""
        self._unplan()
        self._aim = (frozenset(), frozenset())
        self._turn()
        for generation in list(self._retiring):
            self._retire(generation)

    def on_stand(self, generation: _Generation) -> None:
        """Take over from the generation before. It has yet to tell what it has seen, so it goes a little later."""
        if generation is self._next:
            before, self._current, self._next = self._current, generation, None
            self._retiring.append(before)
            delay = (before.pace["debounce"] + 2 * before.pace["step"]) / 1000
            asyncio.get_running_loop().call_later(delay, self._retire, before)
            self._look(generation.places - before.places)

    def on_change(self, generation: _Generation, changes: frozenset[tuple[int, str]]) -> None:
        """Pass events on. A place that was removed is watched no more, even if it is there again."""
        if generation.stopped:
            return
        removed = {path for kind, path in changes if kind == watchfiles.Change.deleted}
        lost = {place for place in generation.places if place.path in removed}
        if lost and generation is self._current:
            generation.places -= lost
            self._plan()
        self._changed(frozenset(path for _, path in changes))

    def on_failure(self, generation: _Generation, error: Exception) -> None:
        """Go on without, and try again later."""
        if generation.stopped:
            return
        generation.stopped = True
        if generation is self._current:
            self._current = _Generation(frozenset(), hot=False)
        else:
            self._next = None
        vanished = isinstance(error, FileNotFoundError)
        if not vanished and not self._warned:
            self._warned = True
            log.warning("file events are not to be had, polling goes on: %s", _explain(error))
        self._turn_at(asyncio.get_running_loop().time() + (LATER if vanished else RETRY))
        self._look(generation.places)

    def _plan(self) -> None:
        """Plan the next watch: soon, if the present one is no help to what is awaited, else when it is calm."""
        places, awaited = self._aim
        newest = self._next or self._current
        if (newest.places, newest.hot) == (places, bool(awaited)):
            self._unplan()
            return
        now = asyncio.get_running_loop().time()
        if self._changed_at is None:
            self._changed_at = now
        if awaited and not (newest.hot and awaited <= newest.places):
            self._turn_at(max(self._changed_at + SOON, self._turned_at + GAP))
        else:
            self._turn_at(min(now + LATER, self._changed_at + LATEST))

    def _turn_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._turn)

    def _unplan(self) -> None:
        self._changed_at = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _turn(self) -> None:
        self._unplan()
        self._turned_at = asyncio.get_running_loop().time()
        if self._next is not None:
            self._next.stopped = True
            self._next = None
        places, awaited = self._aim
        if places:
            self._next = _Generation(places, hot=bool(awaited))
            self._next.begin(self._watch, self)
        else:
            self._current.stopped = True
            self._current = _Generation(frozenset(), hot=False)

    def _retire(self, generation: _Generation) -> None:
        generation.stopped = True
        if generation in self._retiring:
            self._retiring.remove(generation)


def _explain(error: Exception) -> str:
    """Name the limit behind the two errors that are misread most: neither is about open files or disk space."""
    text = str(error)
    if "os error 24" in text or getattr(error, "errno", None) == errno.EMFILE:
        return (
            f"{text} (fs.inotify.max_user_instances, for all containers of this user on the node)"
        )
    if "watch limit" in text or getattr(error, "errno", None) == errno.ENOSPC:
        return f"{text} (fs.inotify.max_user_watches)"
    return text or type(error).__name__
