"""LoRAAdapters from a directory of manifests, for SGLang where there is no Kubernetes.

Looks at the directory each second, which is the truth, and at once where the system hints at a change. What the files
mean, and when they are to be believed, is decided in `manifests`; here is the looking, in threads, as a directory may
be remote and not answer. A directory that cannot be read says nothing about adapters.
"""

import asyncio
import contextlib
import logging
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn, TypeVar

from watchfiles import awatch

from sidecar.agent import manifests
from sidecar.agent.manifests import Definitions, File, Signature
from sidecar.agent.state import Scope
from sidecar.api.adapter import LoRAAdapter

logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE: Final = 10.0
"""Seconds after which a directory that does not answer is complained about."""


class ManifestSource:
    """The LoRAAdapters in the YAML and JSON files of a directory; those without a namespace are in `namespace`."""

    def __init__(
        self,
        directory: Path,
        wake: Callable[[], None],
        namespace: str = "default",
        *,
        poll: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._wake = wake
        self._namespace = namespace
        self._poll = poll
        self._clock = clock
        self._files: dict[str, File] = {}
        self._said: Definitions | None = None
        self._began: float | None = None
        self._confirmed_at: float | None = None
        self._problem = ""
        self._others: set[tuple[str, str]] = set()
        self._inode: tuple[int, int] | None = None
        self._replaced = asyncio.Event()
        self._hint = asyncio.Event()

    @property
    def adapters(self) -> Sequence[LoRAAdapter] | None:
        """The adapters of all files, each as it was when last it could be read; None before the first look."""
        return None if self._said is None else self._said.adapters

    @property
    def scope(self) -> Scope:
        """Files have no scope: whatever the directory holds is all there is."""
        return "all"

    @property
    def partial(self) -> bool:
        """Whether a file that was there at the start has not been read whole since."""
        return self._said is not None and self._said.partial

    @property
    def invalid(self) -> Mapping[str, str]:
        """What is wrong with files and objects, by "namespace/name" where that is known, else by file."""
        return {} if self._said is None else self._said.invalid

    @property
    def problem(self) -> str:
        """Why the directory cannot be read, or ""."""
        return self._problem

    @property
    def confirmed_at(self) -> float | None:
        """When the directory was last looked at, in monotonic seconds."""
        return self._confirmed_at

    async def run(self) -> None:
        """Keep looking until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_for_ever())
            group.create_task(self._listen())

    async def look(self) -> None:
        """Look at the directory once, and read the files that are due."""
        try:
            inode, seen = await self._patiently(lambda: _listing(self._directory))
        except OSError as error:
            self._set_problem(f"{self._directory} cannot be read: {error.strerror}")
            return
        self._set_problem("")
        if inode != self._inode:
            self._inode = inode
            self._replaced.set()
        now = self._clock()
        first = self._began is None
        self._files = manifests.after_look(self._files, seen, now, first=first)
        due = {name: file for name, file in self._files.items() if file.due(now)}
        if due:
            self._files |= await self._patiently(
                lambda: _read(self._directory, due, self._namespace)
            )
        self._confirmed_at = now
        if self._began is None:
            self._began = now
        if now - self._began >= manifests.QUIET:
            self._say(manifests.combine(self._files, now))

    async def _look_for_ever(self) -> NoReturn:
        while True:
            self._hint.clear()
            await self.look()
            soon = self._said is None or manifests.restless(self._files)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    min(manifests.QUIET, self._poll) if soon else self._poll
                ):
                    await self._hint.wait()

    async def _listen(self) -> NoReturn:
        """Take hints of changes from the system; each directory that stands under the name is listened to anew."""
        while True:
            await self._replaced.wait()
            self._replaced.clear()
            try:
                async for _ in awatch(
                    self._directory,
                    watch_filter=None,
                    recursive=False,
                    step=100,
                    debounce=200,
                    stop_event=self._replaced,
                ):
                    self._hint.set()
            except Exception as error:  # noqa: BLE001 - whatever it is, only speed is lost
                logger.info("no hints of changes in %s: %s", self._directory, error)

    async def _patiently(self, work: Callable[[], T]) -> T:
        """Work in a thread, however long it takes, but not without a word."""
        task = asyncio.ensure_future(asyncio.to_thread(work))
        while not (await asyncio.wait({task}, timeout=PATIENCE))[0]:
            self._set_problem(f"{self._directory} does not answer")
        return task.result()

    def _set_problem(self, problem: str) -> None:
        if problem == self._problem:
            return
        self._problem = problem
        if problem:
            logger.warning("%s", problem)
        else:
            logger.info("%s can be read again", self._directory)
        self._wake()

    def _say(self, said: Definitions) -> None:
        self._warn_of_others()
        if said == self._said:
            return
        known = self._said.invalid if self._said else {}
        for key, problem in said.invalid.items():
            if known.get(key) != problem:
                logger.warning("%s", problem)
        self._said = said
        self._wake()

    def _warn_of_others(self) -> None:
        for name, file in self._files.items():
            for kind in file.content.others if file.content else ():
                if (name, kind) not in self._others:
                    self._others.add((name, kind))
                    logger.warning("%s: %s is ignored, as it is no LoRAAdapter", name, kind)


def _listing(directory: Path) -> tuple[tuple[int, int], dict[str, Signature]]:
    """Which directory this is, and its manifests. A ConfigMap's are links, so what they lead to is looked at."""
    seen = {}
    for path in directory.iterdir():
        if path.suffix not in manifests.SUFFIXES or path.name.startswith("."):
            continue
        try:
            about = path.stat()
        except OSError:
            seen[path.name] = manifests.NOTHING
        else:
            if stat.S_ISREG(about.st_mode):
                seen[path.name] = _signature(about)
    about = directory.stat()
    return (about.st_dev, about.st_ino), seen


def _signature(about: os.stat_result) -> Signature:
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _read(directory: Path, due: Mapping[str, File], namespace: str) -> dict[str, File]:
    """Answer the files read; one that changed on the way is left for the next look."""
    answer = {}
    for name, file in due.items():
        try:
            with (directory / name).open("rb") as opened:
                raw = opened.read(manifests.SIZE_LIMIT + 1)
                signature = _signature(os.fstat(opened.fileno()))
        except OSError as error:
            problem = f"it cannot be read: {error.strerror}"
            answer[name] = file.with_failure(manifests.unreadable(name, problem))
        else:
            if signature == file.signature:
                answer[name] = file.with_content(manifests.parse(raw, name, namespace))
    return answer
