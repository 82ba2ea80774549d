"""The prober over real directories and real file events; what hangs or fails is played by a patched look.

Excluded: what makes a directory whole (test_files), and the bounds on threads (test_crew).
"""

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from blockbuster import blockbuster_ctx

from sidecar.agent import files, hints, watching
from sidecar.agent.mounts import MountTable, Shared
from sidecar.agent.paths import Prober
from sidecar.agent.pathview import PathState, PathView
from sidecar.agent.settling import Pace
from tests.agent.directories import config_bytes, later, safetensors, touch, write
from tests.agent.waiting import until

EVERYTHING = Shared.of(["/"])
NEVER = 1000.0

EVENTS_ONLY = Pace(settle=0.01, unsettled=NEVER, few=NEVER, many=NEVER)
"""Looks again only when an event says so."""
POLLING = Pace(settle=0.01, unsettled=0.01, few=0.01, many=0.01)


@pytest.fixture(autouse=True)
def nothing_blocks_the_loop() -> Iterator[None]:
    with blockbuster_ctx("sidecar"):
        yield


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "GATHER", 0.0)
    monkeypatch.setattr(watching, "CALM", {"step": 5, "debounce": 20})
    monkeypatch.setattr(watching, "HOT", {"step": 5, "debounce": 20})
    for name in ("SOON", "GAP", "LATER"):
        monkeypatch.setattr(watching, name, 0.0)


class Probe:
    """A running prober, and every view that it has shown."""

    def __init__(self, pace: Pace, **more: Any) -> None:
        self.prober = Prober(more.pop("shared", EVERYTHING), self._note, pace=pace, **more)
        self.history: dict[str, list[PathView]] = {}
        self.wakes = 0

    def _note(self) -> None:
        self.wakes += 1
        for path, view in self.prober.views.items():
            seen = self.history.setdefault(path, [])
            if not seen or seen[-1] != view:
                seen.append(view)

    def states(self, path: Path | str) -> list[PathState]:
        return [view.state for view in self.history.get(str(path), [])]

    async def shows(self, path: Path | str, state: PathState) -> PathView:
        views = self.prober.views
        await until(lambda: str(path) in views and views[str(path)].state is state)
        return views[str(path)]


EARLIER: set[threading.Thread] = set()
"""Threads that other tests have left at a path that hangs."""


def threads() -> list[str]:
    ours = ("probe", "hash", "file-events")
    new = set(threading.enumerate()) - EARLIER
    return [thread.name for thread in new if thread.name in ours]


@pytest.fixture(autouse=True)
def count_only_threads_of_this_test() -> None:
    EARLIER.clear()
    EARLIER.update(threading.enumerate())


Start = Callable[..., Probe]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with contextlib.AsyncExitStack() as stack:

        def begin(pace: Pace = EVENTS_ONLY, *wanted: Path | str, **more: Any) -> Probe:
            probe = Probe(pace, **more)
            task = asyncio.create_task(probe.prober.run())
            stack.push_async_callback(_end, task)
            probe.prober.want(str(path) for path in wanted)
            return probe

        yield begin
    await until(lambda: not threads())


async def _end(task: asyncio.Task[None]) -> None:
    await asyncio.sleep(0)  # a task that never ran would not close what it runs
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def watched(probe: Probe) -> None:
    """Wait until the watch stands where it should, so that a test of events does not race it."""
    around = probe.prober._hints
    watcher = around._watcher

    def stands() -> bool:
        now = watcher._current
        planned = around._timer or watcher._timer or watcher._next
        looking = any(track.looking for track in probe.prober._tracks.values())
        places, awaited = watcher._aim
        aimed = (now.places, now.hot) == (places, bool(awaited))
        return not planned and not looking and bool(places) and aimed

    await until(stands)


async def signature(path: Path) -> str:
    return await asyncio.to_thread(files.signature, str(path), EVERYTHING)


def old(directory: Path) -> Path:
    """Wait until a directory's files are older than the settle time of these tests."""
    end = max(file.stat().st_ctime for file in directory.iterdir()) + 0.03
    while time.time() < end:
        time.sleep(0.005)
    return directory


async def test_a_path_at_rest_is_whole_with_the_first_look(tmp_path: Path, start: Start) -> None:
    adapter = write(tmp_path / "a")
    probe = start(EVENTS_ONLY, adapter, wall=later)
    view = await probe.shows(adapter, PathState.WHOLE)
    assert probe.states(adapter) == [PathState.WHOLE]
    assert view.config is not None
    assert view.signature == await signature(adapter)


async def test_a_hundred_paths_are_all_looked_at(tmp_path: Path, start: Start) -> None:
    adapters = [write(tmp_path / str(number)) for number in range(100)]
    probe = start(EVENTS_ONLY, *adapters, wall=later)
    await until(lambda: len(probe.prober.views) == 100)
    assert {view.state for view in probe.prober.views.values()} == {PathState.WHOLE}


async def test_files_that_changed_just_now_settle_first_and_need_no_event_for_it(
    tmp_path: Path, start: Start
) -> None:
    adapter = write(tmp_path / "a")
    probe = start(replace(EVENTS_ONLY, settle=0.2), adapter)
    await probe.shows(adapter, PathState.WHOLE)
    assert probe.states(adapter) == [PathState.SETTLING, PathState.WHOLE]
    settling, whole = probe.history[str(adapter)]
    assert settling.signature == whole.signature
    assert "0.2 s" in settling.text


async def test_files_from_the_future_settle_by_our_own_clock(tmp_path: Path, start: Start) -> None:
    adapter, now = write(tmp_path / "a"), 100.0
    probe = start(
        replace(EVENTS_ONLY, settle=5.0, unsettled=0.01),
        adapter,
        clock=lambda: now,
        wall=lambda: time.time() - 1000,
    )
    await probe.shows(adapter, PathState.SETTLING)
    now += 4.9
    assert (await probe.prober.look(str(adapter))).state is PathState.SETTLING
    now += 0.1
    assert (await probe.prober.look(str(adapter))).state is PathState.WHOLE


async def test_on_a_network_file_system_even_old_files_must_keep_still_longer(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MountTable, "read", lambda: MountTable({"/": "nfs4"}))
    adapter, now = write(tmp_path / "a"), 100.0
    probe = start(EVENTS_ONLY, adapter, clock=lambda: now, wall=later)
    view = await probe.shows(adapter, PathState.SETTLING)
    assert not view.local
    now += 4.0
    touch(adapter / "adapter_config.json")
    assert (await probe.prober.look(str(adapter))).state is PathState.SETTLING
    now += 4.0
    assert (await probe.prober.look(str(adapter))).state is PathState.SETTLING
    now += 1.0
    assert (await probe.prober.look(str(adapter))).state is PathState.WHOLE


async def test_a_bad_adapter_is_called_bad_only_once_it_is_quiet(
    tmp_path: Path, start: Start
) -> None:
    adapter = write(tmp_path / "a", {"adapter_config.json": b"{}"})
    probe = start(replace(EVENTS_ONLY, settle=0.1), adapter)
    await probe.shows(adapter, PathState.BAD)
    assert probe.states(adapter) == [PathState.SETTLING, PathState.BAD]


async def test_a_directory_renamed_into_place_is_seen_by_its_event(
    tmp_path: Path, start: Start
) -> None:
    made, adapter = write(tmp_path / "tmp" / "a"), tmp_path / "models" / "a"
    adapter.parent.mkdir()
    probe = start(EVENTS_ONLY, adapter)
    await probe.shows(adapter, PathState.MISSING)
    await watched(probe)
    made.rename(adapter)
    await probe.shows(adapter, PathState.WHOLE)


async def test_directories_made_at_one_stroke_are_seen_by_events(
    tmp_path: Path, start: Start
) -> None:
    adapter = tmp_path / "x" / "y" / "a"
    probe = start(EVENTS_ONLY, adapter)
    await watched(probe)
    write(adapter)
    await probe.shows(adapter, PathState.WHOLE)


@pytest.mark.field(121)
async def test_a_file_that_grows_block_by_block_is_whole_only_with_the_last(
    tmp_path: Path, start: Start
) -> None:
    adapter = write(tmp_path / "a", {"adapter_config.json": config_bytes()})
    probe = start(EVENTS_ONLY, adapter)
    await watched(probe)
    content = safetensors(bytes(1000))
    for at in range(0, len(content), 300):
        with (adapter / "w.safetensors").open("ab") as file:
            file.write(content[at : at + 300])
        wanted = at // 300 + 1
        size = min(len(content), at + 300) + len(config_bytes())
        await until(lambda size=size: probe.prober.views[str(adapter)].bytes == size)
        assert wanted
    await probe.shows(adapter, PathState.WHOLE)
    whole = [v for v in probe.history[str(adapter)] if v.state is PathState.WHOLE]
    assert len(whole) == 1


async def test_a_directory_removed_and_made_again_is_seen_by_events(
    tmp_path: Path, start: Start
) -> None:
    adapter = write(tmp_path / "a")
    probe = start(EVENTS_ONLY, adapter)
    before = await probe.shows(adapter, PathState.WHOLE)
    await watched(probe)
    for _ in range(2):
        for file in adapter.iterdir():
            file.unlink()
        adapter.rmdir()
        await probe.shows(adapter, PathState.MISSING)
        write(adapter)
        after = await probe.shows(adapter, PathState.WHOLE)
        assert after.signature != before.signature


async def test_a_directory_that_takes_anothers_place_is_seen_and_so_is_what_happens_in_it(
    tmp_path: Path, start: Start
) -> None:
    adapter, new = write(tmp_path / "a"), write(tmp_path / "new", r=16)
    probe = start(EVENTS_ONLY, adapter)
    await probe.shows(adapter, PathState.WHOLE)
    await watched(probe)
    adapter.rename(tmp_path / "old")
    new.rename(adapter)

    def rank() -> int:
        view = probe.prober.views[str(adapter)]
        return view.config.rank if view.state is PathState.WHOLE and view.config else 0

    await until(lambda: rank() == 16)
    await watched(probe)
    write(adapter, r=32)
    await until(lambda: rank() == 32)


async def test_the_swap_of_a_link_is_seen_by_its_event(tmp_path: Path, start: Start) -> None:
    for version in ("1", "2"):
        old(write(tmp_path / "versions" / version / "a"))
    (tmp_path / "current").symlink_to("versions/1")
    adapter = tmp_path / "current" / "a"
    probe = start(EVENTS_ONLY, adapter)
    before = await probe.shows(adapter, PathState.WHOLE)
    await watched(probe)
    (tmp_path / "new").symlink_to("versions/2")
    (tmp_path / "new").rename(tmp_path / "current")
    await until(lambda: probe.prober.views[str(adapter)].signature != before.signature)
    await probe.shows(adapter, PathState.WHOLE)


@pytest.mark.field(118)
async def test_the_swap_of_a_config_maps_data_is_seen_by_its_event(
    tmp_path: Path, start: Start
) -> None:
    adapter = tmp_path / "a"
    for version in ("..1", "..2"):
        write(adapter / version)
    (adapter / "..data").symlink_to("..1")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (adapter / name).symlink_to(f"..data/{name}")
    probe = start(EVENTS_ONLY, adapter)
    before = await probe.shows(adapter, PathState.WHOLE)
    await watched(probe)
    (adapter / "..new").symlink_to("..2")
    (adapter / "..new").rename(adapter / "..data")
    await until(lambda: probe.prober.views[str(adapter)].signature != before.signature)
    await probe.shows(adapter, PathState.WHOLE)


async def test_new_files_at_a_whole_path_settle_again(tmp_path: Path, start: Start) -> None:
    adapter = old(write(tmp_path / "a"))
    probe = start(replace(EVENTS_ONLY, settle=0.02), adapter)
    before = await probe.shows(adapter, PathState.WHOLE)
    await watched(probe)
    touch(adapter / "adapter_model.safetensors")
    await until(lambda: len(probe.states(adapter)) > 1)
    after = await probe.shows(adapter, PathState.WHOLE)
    assert PathState.SETTLING in probe.states(adapter)
    assert after.signature != before.signature


async def test_events_beside_an_adapter_cause_no_look_at_it(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, missing = write(tmp_path / "a"), tmp_path / "b"
    probe = start(EVENTS_ONLY, adapter, missing, wall=later)
    await watched(probe)
    await until(lambda: len(probe.prober.views) == 2)
    looks: list[str] = []
    inspect = files.inspect

    def counting(path: str, *args: Any) -> PathView:
        looks.append(path)
        return inspect(path, *args)

    monkeypatch.setattr(files, "inspect", counting)
    (tmp_path / "c").mkdir()
    write(missing)
    await probe.shows(missing, PathState.WHOLE)
    assert str(adapter) not in looks


@pytest.mark.field(115)
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Too many open files (os error 24) about []"),
        OSError("OS file watch limit reached. about []"),
    ],
)
async def test_without_file_events_it_polls_and_warns_once(
    tmp_path: Path,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    def fails(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(watching.Watcher.__init__, "__defaults__", (fails,))
    adapters = [tmp_path / "x" / str(number) for number in range(5)]
    probe = start(POLLING, *adapters)
    for adapter in adapters:
        await probe.shows(adapter, PathState.MISSING)
    for adapter in adapters:
        write(adapter)
        await probe.shows(adapter, PathState.WHOLE)
    touch(adapters[0] / "adapter_config.json")
    touched = await signature(adapters[0])
    await until(lambda: probe.prober.views[str(adapters[0])].signature == touched)
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1


@pytest.mark.field(116)
async def test_network_file_systems_are_polled_and_not_watched(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MountTable, "read", lambda: MountTable({"/": "nfs4"}))
    monkeypatch.setattr(
        watching.Watcher.__init__,
        "__defaults__",
        (lambda *args, **kwargs: pytest.fail("watched"),),
    )
    adapter = tmp_path / "a"
    probe = start(replace(POLLING, settle_network=0.05), adapter)
    await probe.shows(adapter, PathState.MISSING)
    write(adapter)
    await probe.shows(adapter, PathState.WHOLE)
    assert PathState.SETTLING in probe.states(adapter)


class Stall:
    """Makes looks at some paths hang until they are released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.release = threading.Event()
        self.hanging: set[str] = set()
        self.looks: list[str] = []
        self._inspect = files.inspect
        monkeypatch.setattr(files, "inspect", self)

    def __call__(self, path: str, *args: Any) -> PathView:
        self.looks.append(path)
        if path in self.hanging:
            self.release.wait()
        return self._inspect(path, *args)


@pytest.fixture
def stall(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stall]:
    stall = Stall(monkeypatch)
    yield stall
    stall.release.set()


IMPATIENT = replace(POLLING, timeout=0.05)


@pytest.mark.field(120)
async def test_a_path_that_does_not_answer_is_stuck_and_holds_up_no_other(
    tmp_path: Path, start: Start, stall: Stall
) -> None:
    dead, healthy = write(tmp_path / "dead"), write(tmp_path / "healthy")
    stall.hanging = {str(dead)}
    probe = start(IMPATIENT, dead, healthy, wall=later)
    await probe.shows(healthy, PathState.WHOLE)
    view = await probe.shows(dead, PathState.STUCK)
    assert view.text == "the file system does not answer"
    await until(lambda: probe.prober.stuck_threads == 1)


async def test_a_stuck_path_is_not_looked_at_again_until_its_thread_is_back(
    tmp_path: Path, start: Start, stall: Stall
) -> None:
    dead, healthy = write(tmp_path / "dead"), write(tmp_path / "healthy")
    stall.hanging = {str(dead)}
    probe = start(IMPATIENT, dead, healthy, wall=later)
    await probe.shows(dead, PathState.STUCK)
    await until(lambda: stall.looks.count(str(healthy)) > 3)
    assert (await probe.prober.look(str(dead))).state is PathState.STUCK
    assert stall.looks.count(str(dead)) == 1
    stall.release.set()
    await probe.shows(dead, PathState.WHOLE)
    assert probe.prober.stuck_threads == 0


async def test_a_path_that_hangs_later_keeps_what_was_known_of_it(
    tmp_path: Path, start: Start, stall: Stall
) -> None:
    adapter = write(tmp_path / "a")
    probe = start(IMPATIENT, adapter, wall=later)
    before = await probe.shows(adapter, PathState.WHOLE)
    stall.hanging = {str(adapter)}
    after = await probe.shows(adapter, PathState.STUCK)
    assert replace(after, state=before.state, text=before.text) == before


@pytest.mark.field(120)
async def test_many_adapters_on_a_dead_mount_do_not_take_the_others_with_them(
    tmp_path: Path, start: Start, stall: Stall
) -> None:
    dead = [str(tmp_path / "nfs" / str(number)) for number in range(30)]
    healthy = [write(tmp_path / "disk" / str(number)) for number in range(3)]
    stall.hanging = set(dead)
    probe = start(replace(IMPATIENT, timeout=1.0), *dead, *healthy, wall=later)
    for path in healthy:
        await probe.shows(path, PathState.WHOLE)
    for path in dead:
        await probe.shows(path, PathState.STUCK)
    stall.release.set()
    for path in dead:
        await probe.shows(path, PathState.MISSING)


async def test_a_stuck_path_that_is_dropped_and_wanted_again_is_still_stuck(
    tmp_path: Path, start: Start, stall: Stall
) -> None:
    dead = write(tmp_path / "dead")
    stall.hanging = {str(dead)}
    probe = start(IMPATIENT, dead)
    await probe.shows(dead, PathState.STUCK)
    probe.prober.want([])
    assert not probe.prober.views
    probe.prober.want([str(dead)])
    assert probe.prober.views[str(dead)].state is PathState.STUCK
    assert stall.looks == [str(dead)]
    stall.release.set()
    await probe.shows(dead, PathState.WHOLE)


async def test_fifos_in_the_place_of_directories_and_files_hang_nothing(
    tmp_path: Path, start: Start
) -> None:
    os.mkfifo(tmp_path / "fifo")
    adapter = tmp_path / "a"
    adapter.mkdir()
    os.mkfifo(adapter / "adapter_config.json")
    probe = start(EVENTS_ONLY, tmp_path / "fifo", adapter, wall=later)
    await probe.shows(tmp_path / "fifo", PathState.INVALID)
    await probe.shows(adapter, PathState.BAD)
    assert probe.prober.stuck_threads == 0


async def test_wanting_the_same_paths_again_looks_at_nothing(
    tmp_path: Path, start: Start, stall: Stall
) -> None:
    adapter = write(tmp_path / "a")
    probe = start(replace(EVENTS_ONLY, few=NEVER), adapter, wall=later)
    await probe.shows(adapter, PathState.WHOLE)
    for _ in range(10):
        probe.prober.want([str(adapter)])
    other = write(tmp_path / "b")
    probe.prober.want([str(other), str(adapter), str(other)])
    await probe.shows(other, PathState.WHOLE)
    assert stall.looks == [str(adapter), str(other)]


async def test_a_path_no_longer_wanted_is_forgotten(tmp_path: Path, start: Start) -> None:
    adapter = write(tmp_path / "a")
    probe = start(EVENTS_ONLY, adapter, wall=later)
    await probe.shows(adapter, PathState.WHOLE)
    probe.prober.want([])
    assert not probe.prober.views
    wakes = probe.wakes
    assert (await probe.prober.look(str(adapter))).state is PathState.WHOLE
    assert not probe.prober.views
    assert probe.wakes == wakes


async def test_a_look_sees_what_happened_after_an_earlier_look_had_begun(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = write(tmp_path / "a")
    gate, began = threading.Event(), asyncio.Event()
    loop, inspect = asyncio.get_running_loop(), files.inspect

    def slow(*args: Any) -> PathView:
        view = inspect(*args)
        loop.call_soon_threadsafe(began.set)
        gate.wait()
        return view

    monkeypatch.setattr(files, "inspect", slow)
    probe = start(EVENTS_ONLY, adapter, wall=later)
    await began.wait()
    (adapter / "adapter_model.safetensors").unlink()
    look = asyncio.create_task(probe.prober.look(str(adapter)))
    await asyncio.sleep(0)
    gate.set()
    assert (await look).state is PathState.PARTIAL


async def test_an_event_during_a_look_leads_to_another(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = write(tmp_path / "a")
    probe = start(EVENTS_ONLY, adapter, wall=later)
    await probe.shows(adapter, PathState.WHOLE)
    await watched(probe)
    gate, looks, inspect = threading.Event(), [], files.inspect

    def slow(*args: Any) -> PathView:
        view = inspect(*args)
        looks.append(view)
        gate.wait()
        return view

    monkeypatch.setattr(files, "inspect", slow)
    touch(adapter / "adapter_config.json")
    await until(lambda: looks)
    touch(adapter / "adapter_config.json")
    await until(lambda: probe.prober._tracks[str(adapter)].again)
    gate.set()
    last = await signature(adapter)
    await until(lambda: probe.prober.views[str(adapter)].signature == last)


async def test_settled_paths_are_polled_too(tmp_path: Path, start: Start) -> None:
    adapter = write(tmp_path / "a")
    probe = start(replace(EVENTS_ONLY, few=0.01), adapter, wall=later)
    before = await probe.shows(adapter, PathState.WHOLE)
    probe.prober._hints.close()
    touch(adapter / "adapter_config.json")
    await until(lambda: probe.prober.views[str(adapter)].signature != before.signature)


async def test_what_is_known_to_be_whole_and_quiet_is_not_opened_again(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = write(tmp_path / "a")
    probe = start(POLLING, adapter, wall=later)
    known = await probe.shows(adapter, PathState.WHOLE)
    lasts: list[PathView | None] = []
    inspect = files.inspect

    def noting(
        path: str, shared: Shared, wall: float, last: PathView | None, table: Any
    ) -> PathView:
        lasts.append(last)
        return inspect(path, shared, wall, last, table)

    monkeypatch.setattr(files, "inspect", noting)
    await until(lambda: known in lasts)


async def test_a_look_that_fails_in_a_way_nobody_thought_of_is_told_and_ends_nothing(
    tmp_path: Path,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    adapter = write(tmp_path / "a")
    inspect = files.inspect
    monkeypatch.setattr(files, "inspect", lambda *args: {}["unthought"])
    probe = start(POLLING, adapter, wall=later)
    view = await probe.shows(adapter, PathState.UNREADABLE)
    assert "KeyError" in view.text
    assert caplog.records
    monkeypatch.setattr(files, "inspect", inspect)
    await probe.shows(adapter, PathState.WHOLE)


async def test_a_hash_appears_between_two_equal_signatures(tmp_path: Path, start: Start) -> None:
    adapter = write(tmp_path / "a")
    probe = start(EVENTS_ONLY, adapter, wall=later)
    view = await probe.shows(adapter, PathState.WHOLE)
    wakes = probe.wakes
    probe.prober.hash(str(adapter))
    probe.prober.hash(str(adapter))
    await until(lambda: str(adapter) in probe.prober.hashes)
    result = probe.prober.hashes[str(adapter)]
    assert result.before == result.after == view.signature
    assert len(result.content) == 64
    assert probe.wakes == wakes + 1
    probe.prober.want([])
    assert not probe.prober.hashes


async def test_a_path_that_nobody_wants_is_not_hashed(tmp_path: Path, start: Start) -> None:
    probe = start(EVENTS_ONLY)
    probe.prober.hash(str(write(tmp_path / "a")))
    assert not probe.prober._hasher.busy


async def test_an_end_leaves_no_thread_and_no_view(tmp_path: Path) -> None:
    probe = Probe(POLLING)
    task = asyncio.create_task(probe.prober.run())
    probe.prober.want([str(write(tmp_path / "a")), str(tmp_path / "missing")])
    await until(lambda: set(threads()) == {"probe", "file-events"})
    await _end(task)
    assert not probe.prober.views
    await until(lambda: not threads())
