"""Threads for work that may never come back: a file system can hang below any call, and nothing can end the thread.

A crew does its work in daemon threads of its own, few at a time. Work that takes longer than `patience` is
*lagging*: its thread is left behind with it, counted, and another one goes on. Work belongs to a group that is likely
to hang together (a mount). Only so many threads are lost to one group, and so many in all; beyond that a group that
already lags waits until one of its threads comes back, and only a group that does not is tried. So a dead mount never
takes a healthy one with it.

All methods belong to the event loop's thread; answers are handed to it.
"""

import asyncio
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

FAST = 4
"""Threads whose work is not lagging: looking at files is mostly waiting, and we have little CPU."""
LAGGING = 8
"""Threads left behind, in all."""
LAGGING_OF_GROUP = 4
"""Threads left behind in one group."""
PATIENCE = 0.5
"""Seconds after which work no longer holds up other work."""
HIRE_AGAIN = 1.0
"""Seconds until the next try where a thread could not be had."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Job:
    group: str
    begin: Callable[[], Callable[[], None]]
    """Does the work, and answers what is to be called on the loop then."""
    timer: asyncio.TimerHandle | None = None
    lagging: bool = False


class Crew:
    """Runs functions in threads and hands their answers to the event loop."""

    def __init__(self, name: str, *, fast: int = FAST, patience: float = PATIENCE) -> None:
        self._name = name
        self._most = fast
        self._patience = patience
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._waiting: dict[str, deque[_Job]] = {}
        self._running: Counter[str] = Counter()
        self._lagging: Counter[str] = Counter()
        self._idle = 0
        """Threads without work; below 0, work without a thread that could not be had."""

    @property
    def lagging(self) -> int:
        """How many threads are left behind at the moment."""
        return self._lagging.total()

    def submit(self, group: str, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Have `work` done as soon as its group may have a thread; `done` gets its answer, on the loop.

        `work` must not raise. It may never come back; `done` is not called then.
        """
        job = _Job(group, lambda: partial(done, work()))
        self._waiting.setdefault(group, deque()).append(job)
        self._start()

    def close(self) -> None:
        """Drop what waits and let the threads end, those at work when they come back, loop or no loop."""
        self._waiting.clear()
        self._most = 0
        for _ in range(self._running.total() + self._idle):
            self._queue.put(None)

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        while self._idle < 0 and self._hire(loop):
            self._idle += 1
        while self._running.total() - self.lagging < self._most and (job := self._next()):
            self._running[job.group] += 1
            job.timer = loop.call_later(self._patience, self._leave_behind, job)
            if self._idle > 0 or not self._hire(loop):
                self._idle -= 1
            self._queue.put(job)

    def _hire(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Begin a thread. Where the container may have no more, the work waits for one that comes free."""
        work = partial(self._work, loop)
        try:
            threading.Thread(target=work, name=self._name, daemon=True).start()
        except RuntimeError:
            loop.call_later(HIRE_AGAIN, self._start)
            return False
        return True

    def _next(self) -> _Job | None:
        """Pick a job of the group that has the fewest threads, among those that may have one."""
        groups = [group for group in self._waiting if self._may_start(group)]
        if not groups:
            return None
        group = min(groups, key=lambda group: self._running[group])
        job = self._waiting[group].popleft()
        if not self._waiting[group]:
            del self._waiting[group]
        return job

    def _may_start(self, group: str) -> bool:
        if not self._lagging[group]:
            return True
        return self._running[group] < LAGGING_OF_GROUP and self.lagging < LAGGING

    def _leave_behind(self, job: _Job) -> None:
        job.lagging = True
        self._lagging[job.group] += 1
        self._start()

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (job := self._queue.get()) is not None:
            finish = job.begin()
            with suppress(RuntimeError):  # the loop is closed, the process ends
                loop.call_soon_threadsafe(self._finish, job, finish)
            del job, finish

    def _finish(self, job: _Job, finish: Callable[[], None]) -> None:
        if job.timer is not None:
            job.timer.cancel()
        self._running[job.group] -= 1
        self._lagging[job.group] -= job.lagging
        self._idle += 1
        if self._idle > self._most > 0:
            self._idle -= 1
            self._queue.put(None)
        finish()
        self._start()
