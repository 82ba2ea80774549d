"""The content hash of an adapter: by it new weights are told from files that were merely touched.

It reads everything, so it is slow on purpose: in small blocks, at a pace, dropping what it read from the page cache,
and in a thread that can be told to stop. It never stands in the way of a load.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType

from sidecar.agent.crew import Crew
from sidecar.agent.files import File, find, open_file, signature
from sidecar.agent.mounts import Shared
from sidecar.agent.pathview import Hashed
from sidecar.agent.refusals import LOOKING

BLOCK = 256 * 1024
"""Bytes read at a time."""
PACE = 64 * 1024 * 1024
"""Bytes a second: about a tenth of a core where the processor knows SHA-256."""

PATIENCE = 600.0
"""Seconds after which a hash no longer holds up the next one; at that pace, 38 GiB."""
RETRY = 30.0
"""Seconds in which a hash that failed is not tried again."""


class CancelledHashError(Exception):
    """Nobody wants the hash any more."""


def content_hash(
    path: str,
    shared: Shared,
    *,
    cancel: threading.Event | None = None,
    pace: float = PACE,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Answer the sha256 over names and contents of the files that count, in hexadecimal.

    `pace` is in bytes a second. Blocks for as long as that takes. Raises CancelledHashError soon after `cancel` is
    set, and what `files.find` and `files.open_file` raise.
    """
    digest = hashlib.sha256()
    throttle = _Throttle(cancel or threading.Event(), pace, clock)
    for file in find(path, shared).files:
        _feed(digest.update, file, throttle)
    return digest.hexdigest()


def hashed(path: str, shared: Shared, cancel: threading.Event) -> Hashed | None:
    """Hash a directory between two looks at its signature; None where that was cancelled or failed. Never raises."""
    try:
        before = signature(path, shared)
        content = content_hash(path, shared, cancel=cancel)
    except (*LOOKING, CancelledHashError):
        return None
    return Hashed(before, content, signature(path, shared))


class Hasher:
    """Hashes directories one after the other. Belongs to the event loop's thread.

    `done` is called when there is a new hash. `clock` is monotonic, in seconds.
    """

    def __init__(
        self, shared: Shared, done: Callable[[], None], clock: Callable[[], float]
    ) -> None:
        self._shared = shared
        self._done = done
        self._clock = clock
        self._crew = Crew("hash", fast=1, patience=PATIENCE)
        self._jobs: dict[str, threading.Event] = {}
        self._hashes: dict[str, Hashed] = {}
        self._not_before: dict[str, float] = {}

    @property
    def hashes(self) -> Mapping[str, Hashed]:
        """The latest hash of each path; live."""
        return MappingProxyType(self._hashes)

    @property
    def busy(self) -> bool:
        """Whether anything is being hashed or waits for it."""
        return bool(self._jobs)

    def want(self, path: str) -> None:
        """Begin to hash a path, unless that is under way or has failed just now."""
        if path in self._jobs or self._clock() < self._not_before.get(path, float("-inf")):
            return
        cancel = self._jobs[path] = threading.Event()
        work = partial(hashed, path, self._shared, cancel)
        self._crew.submit(self._shared.group(path), work, partial(self._answered, path, cancel))

    def drop(self, path: str) -> None:
        """Forget a path and stop hashing it."""
        self._hashes.pop(path, None)
        self._not_before.pop(path, None)
        if job := self._jobs.pop(path, None):
            job.set()

    def close(self) -> None:
        """Stop."""
        for path in list(self._jobs):
            self.drop(path)
        self._crew.close()

    def _answered(self, path: str, cancel: threading.Event, result: Hashed | None) -> None:
        if self._jobs.get(path) is not cancel:
            return  # dropped meanwhile
        del self._jobs[path]
        if result is None:
            self._not_before[path] = self._clock() + RETRY
        else:
            self._hashes[path] = result
            self._done()


class _Throttle:
    """Sleeps so that no more than `pace` bytes a second go through, and wakes when cancelled."""

    def __init__(self, cancel: threading.Event, pace: float, clock: Callable[[], float]) -> None:
        self._cancel = cancel
        self._pace = pace
        self._clock = clock
        self._free_at = clock()

    def passed(self, count: int) -> None:
        """Account for bytes that were read."""
        now = self._clock()
        self._free_at = max(self._free_at, now) + count / self._pace
        if self._cancel.wait(max(0.0, self._free_at - now)):
            raise CancelledHashError


def _feed(update: Callable[[bytes | memoryview], None], file: File, throttle: _Throttle) -> None:
    """Feed one file, by name and length first, so that no two directories read the same."""
    name, size = os.fsencode(file.name), file.status.st_size
    update(b"%d:%s:%d:" % (len(name), name, size))
    buffer = memoryview(bytearray(BLOCK))
    fd = open_file(file)
    try:
        done = 0
        while done < size and (count := os.readv(fd, [buffer[: min(BLOCK, size - done)]])):
            update(buffer[:count])
            with suppress(OSError):  # advice: some file systems take none
                os.posix_fadvise(fd, done, count, os.POSIX_FADV_DONTNEED)
            done += count
            throttle.passed(count)
    finally:
        os.close(fd)
