"""The watch on directories: real events, taking over without a gap, and going on without it.

What an event means for a path is tested in test_paths.
"""

import asyncio
import errno
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import watchfiles

from sidecar.agent import watching
from sidecar.agent.mounts import Place
from sidecar.agent.watching import Watcher
from tests.agent.waiting import until


def places(*paths: Path | str) -> frozenset[Place]:
    return frozenset(Place(str(path), 0, 0) for path in paths)


def aim(watcher: Watcher, where: frozenset[Place], *, hot: bool) -> None:
    watcher.aim(where, where if hot else frozenset())


class Seen:
    def __init__(self) -> None:
        self.events: set[str] = set()
        self.looks: list[frozenset[Place]] = []

    def watcher(self, **more: Any) -> Watcher:
        return Watcher(self.events.update, self.looks.append, **more)


class Script:
    """Stands in for watchfiles.watch: each watch blocks until it is stopped, or fails at once."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.watches: list[tuple[tuple[str, ...], int]] = []
        self.running = 0
        self.emit: list[str] = []
        self.kind = watchfiles.Change.added

    def __call__(
        self, *paths: str, stop_event: Any, step: int, **more: Any
    ) -> Iterator[set[tuple[int, str]]]:
        self.watches.append((paths, step))
        if self.failures:
            raise self.failures.pop(0)
        self.running += 1
        try:
            while not stop_event.is_set():
                if self.emit:
                    yield {(self.kind, self.emit.pop())}
                threading.Event().wait(0.001)
        finally:
            self.running -= 1


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SOON", "GAP", "LATER"):
        monkeypatch.setattr(watching, name, 0.0)


@pytest.fixture
async def seen() -> AsyncIterator[Seen]:
    yield Seen()
    await until(lambda: not any(t.name == "file-events" for t in threading.enumerate()))


async def test_events_of_real_directories_are_passed_on(tmp_path: Path, seen: Seen) -> None:
    (tmp_path / "a").mkdir()
    watcher = seen.watcher()
    aim(watcher, places(tmp_path, tmp_path / "a"), hot=True)
    await until(lambda: seen.looks)
    (tmp_path / "a" / "file").touch()
    (tmp_path / "b").mkdir()
    await until(lambda: seen.events >= {str(tmp_path / "a" / "file"), str(tmp_path / "b")})
    watcher.close()


async def test_once_a_watch_stands_its_new_places_are_to_be_looked_at(seen: Seen) -> None:
    watcher = seen.watcher(watch=Script())
    aim(watcher, places("/a"), hot=True)
    await until(lambda: seen.looks == [places("/a")])
    aim(watcher, places("/a", "/b"), hot=True)
    await until(lambda: seen.looks == [places("/a"), places("/b")])
    watcher.close()


async def test_a_new_watch_takes_over_before_the_old_one_ends(seen: Seen) -> None:
    gate = threading.Event()
    script = Script()

    def gated(*paths: str, **more: Any) -> Iterator[set[tuple[int, str]]]:
        if len(paths) > 1:
            gate.wait()
        return script(*paths, **more)

    watcher = seen.watcher(watch=gated)
    aim(watcher, places("/a"), hot=True)
    await until(lambda: seen.looks)
    aim(watcher, places("/a", "/b"), hot=True)
    script.emit.append("/a/meanwhile")
    await until(lambda: seen.events == {"/a/meanwhile"})
    gate.set()
    await until(lambda: len(seen.looks) == 2)
    await until(lambda: script.running == 1)
    watcher.close()


async def test_what_the_old_watch_saw_at_its_end_is_not_lost(seen: Seen) -> None:
    second_stands = threading.Event()

    def watch(*paths: str, stop_event: Any, **more: Any) -> Iterator[set[tuple[int, str]]]:
        untold = len(paths) == 1
        while not stop_event.is_set():
            if untold and second_stands.is_set():
                untold = False
                yield {(1, "/a/at-the-end")}
            threading.Event().wait(0.001)

    watcher = seen.watcher(watch=watch)
    aim(watcher, places("/a"), hot=True)
    await until(lambda: len(seen.looks) == 1)
    aim(watcher, places("/a", "/b"), hot=True)
    await until(lambda: len(seen.looks) == 2)
    second_stands.set()
    await until(lambda: seen.events == {"/a/at-the-end"})
    watcher.close()


async def test_the_same_aim_makes_no_new_watch(seen: Seen) -> None:
    script = Script()
    watcher = seen.watcher(watch=script)
    for _ in range(3):
        aim(watcher, places("/a"), hot=True)
        await until(lambda: seen.looks)
    assert len(script.watches) == 1
    watcher.close()


async def test_it_asks_often_only_while_something_is_awaited(seen: Seen) -> None:
    script = Script()
    watcher = seen.watcher(watch=script)
    aim(watcher, places("/a"), hot=True)
    await until(lambda: len(script.watches) == 1)
    aim(watcher, places("/a"), hot=False)
    await until(lambda: len(script.watches) == 2)
    assert [step for _, step in script.watches] == [20, 250]
    watcher.close()


async def test_only_places_where_something_is_awaited_are_worth_a_new_watch_at_once(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LATER", "LATEST"):
        monkeypatch.setattr(watching, name, 1000.0)
    script = Script()
    watcher = seen.watcher(watch=script)
    watcher.aim(places("/a"), frozenset())
    watcher.aim(places("/a", "/b"), places("/b"))
    await until(lambda: len(seen.looks) == 1)
    watcher.aim(places("/a", "/b", "/c", "/d"), places("/b"))
    assert watcher._timer is not None
    assert watcher._timer.when() > asyncio.get_running_loop().time() + 500
    watcher.aim(places("/a", "/b", "/c", "/d"), places("/d"))
    await until(lambda: len(seen.looks) == 2)
    assert [paths for paths, _ in script.watches] == [("/a", "/b"), ("/a", "/b", "/c", "/d")]
    watcher.close()


async def test_places_that_go_on_changing_are_watched_in_the_end(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "LATER", 1000.0)
    monkeypatch.setattr(watching, "LATEST", 0.0)
    script = Script()
    watcher = seen.watcher(watch=script)
    watcher.aim(places("/a"), frozenset())
    await until(lambda: script.running == 1)
    watcher.close()


async def test_with_nothing_to_watch_there_is_no_thread(seen: Seen) -> None:
    script = Script()
    watcher = seen.watcher(watch=script)
    aim(watcher, places("/a"), hot=True)
    await until(lambda: script.running == 1)
    aim(watcher, frozenset(), hot=False)
    await until(lambda: script.running == 0)
    watcher.close()


INSTANCES = RuntimeError("Too many open files (os error 24) about []")
WATCHES = OSError("OS file watch limit reached. about []")


@pytest.mark.field(117)
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (INSTANCES, "max_user_instances"),
        (OSError(errno.EMFILE, "Too many open files"), "max_user_instances"),
        (WATCHES, "max_user_watches"),
        (OSError(errno.ENOSPC, "No space left on device"), "max_user_watches"),
        (ValueError("rubbish"), "rubbish"),
    ],
)
async def test_a_failure_is_told_once_in_words_that_name_the_limit(
    seen: Seen, caplog: pytest.LogCaptureFixture, error: Exception, words: str
) -> None:
    script = Script(error, error, error)
    watcher = seen.watcher(watch=script)
    for number in range(3):
        aim(watcher, places(f"/{number}"), hot=True)
        await until(lambda n=number: len(seen.looks) == n + 1)
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert words in warnings[0].getMessage()
    aim(watcher, places("/good"), hot=True)
    await until(lambda: script.running == 1)
    watcher.close()


async def test_after_a_failure_it_tries_again(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "RETRY", 0.01)
    script = Script(INSTANCES, INSTANCES)
    watcher = seen.watcher(watch=script)
    aim(watcher, places("/a"), hot=True)
    await until(lambda: script.running == 1)
    watcher.close()


async def test_after_a_failure_an_aim_that_comes_back_is_tried_again(seen: Seen) -> None:
    script = Script(INSTANCES)
    watcher = seen.watcher(watch=script)
    aim(watcher, places("/a"), hot=True)
    await until(lambda: seen.looks)
    aim(watcher, places("/a", "/b"), hot=True)
    aim(watcher, places("/a"), hot=True)
    await until(lambda: script.running == 1)
    watcher.close()


async def test_a_place_that_has_vanished_is_no_warning_and_leads_to_another_look(
    tmp_path: Path, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    watcher = seen.watcher()
    aim(watcher, places(tmp_path / "gone"), hot=True)
    await until(lambda: seen.looks)
    assert seen.looks[0] == places(tmp_path / "gone")
    watcher.close()
    assert not caplog.records


async def test_a_failure_of_the_new_watch_leaves_the_old_one(seen: Seen) -> None:
    script = Script()
    watcher = seen.watcher(watch=script)
    aim(watcher, places("/a"), hot=True)
    await until(lambda: seen.looks)
    script.failures = [WATCHES]
    aim(watcher, places("/a", "/b"), hot=True)
    await until(lambda: len(seen.looks) == 2)
    script.emit.append("/a/still")
    await until(lambda: seen.events == {"/a/still"})
    watcher.close()


async def test_a_watch_that_breaks_later_is_made_again(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "RETRY", 0.0)
    script = Script()
    broken: list[Callable[[], None]] = []

    def breaks(*paths: str, **more: Any) -> Iterator[set[tuple[int, str]]]:
        if not broken:
            broken.append(lambda: None)
            more["stop_event"].is_set()
            raise INSTANCES
        return script(*paths, **more)

    watcher = seen.watcher(watch=breaks)
    aim(watcher, places("/a"), hot=True)
    await until(lambda: script.running == 1)
    watcher.close()


async def test_a_place_that_was_removed_is_watched_anew_though_it_looks_the_same(
    seen: Seen,
) -> None:
    script = Script()
    watcher = seen.watcher(watch=script)
    aim(watcher, places("/a", "/b"), hot=True)
    await until(lambda: len(seen.looks) == 1)
    script.kind = watchfiles.Change.deleted
    script.emit.append("/b")
    await until(lambda: len(seen.looks) == 2)
    assert seen.looks[1] == places("/b")
    assert [paths for paths, _ in script.watches] == [("/a", "/b")] * 2
    watcher.close()


async def test_after_close_nothing_is_told(seen: Seen) -> None:
    script = Script()
    watcher = seen.watcher(watch=script)
    aim(watcher, places("/a"), hot=True)
    await until(lambda: seen.looks)
    watcher.close()
    script.emit.append("/a/late")
    await until(lambda: script.running == 0)
    await asyncio.sleep(0)
    assert not seen.events
