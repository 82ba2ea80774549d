"""A directory as the source of adapters: real files, looked at when the test says so, but for the last tests."""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from sidecar.agent import directory
from sidecar.agent.directory import ManifestSource
from tests.agent.test_manifests import body, text


class Looks:
    """A source whose looks and time are the test's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 100.0
        self.wakes = 0
        self.source = ManifestSource(folder, self._wake, "home", clock=lambda: self.now)

    def _wake(self) -> None:
        self.wakes += 1

    def write(self, name: str, *bodies: object) -> None:
        (self.folder / name).write_bytes(text(*bodies))

    async def look(self, after: float = 1.0) -> list[str] | None:
        self.now += after
        await self.source.look()
        return self.keys()

    async def settled(self) -> list[str] | None:
        """Look often enough for everything to be read and forgotten."""
        for _ in range(5):
            await self.look()
        return self.keys()

    def keys(self) -> list[str] | None:
        adapters = self.source.adapters
        return None if adapters is None else [adapter.key for adapter in adapters]


@pytest.fixture
def looks(tmp_path: Path) -> Looks:
    return Looks(tmp_path / "adapters")


@pytest.fixture
def made(looks: Looks) -> Looks:
    looks.folder.mkdir()
    return looks


async def test_nothing_is_known_before_files_have_kept_still_for_a_moment(made: Looks) -> None:
    made.write("a.yaml", body("one"))
    assert await made.look() is None
    assert await made.look(0.1) is None
    assert await made.look(0.15) == ["home/one"]
    assert made.source.confirmed_at == made.now
    assert (made.source.scope, made.source.partial, made.source.problem) == ("all", False, "")


async def test_an_empty_directory_is_a_complete_list(made: Looks) -> None:
    assert await made.settled() == []


async def test_a_directory_that_is_not_there_is_no_list(looks: Looks) -> None:
    assert await looks.settled() is None
    assert str(looks.folder) in looks.source.problem
    assert looks.source.confirmed_at is None
    looks.folder.mkdir()
    looks.write("a.yaml", body("one"))
    assert await looks.settled() == ["home/one"]
    assert looks.source.problem == ""


async def test_a_directory_that_goes_away_takes_no_adapter_with_it(made: Looks) -> None:
    made.write("a.yaml", body("one"))
    await made.settled()
    seen = made.source.confirmed_at
    made.folder.rename(made.folder.with_name("away"))
    assert await made.settled() == ["home/one"]
    assert made.source.problem != ""
    assert made.source.confirmed_at == seen


async def test_edits_and_deletions_are_followed_and_wake_once_each(made: Looks) -> None:
    made.write("a.yaml", body("one"))
    await made.settled()
    made.wakes = 0
    assert await made.settled() == ["home/one"]
    assert made.wakes == 0
    made.write("a.yaml", body("one"), body("two"))
    assert await made.settled() == ["home/one", "home/two"]
    assert made.wakes == 1
    (made.folder / "a.yaml").unlink()
    assert await made.settled() == []
    assert made.wakes == 2


async def test_only_visible_manifests_that_are_files_are_read(made: Looks) -> None:
    for number, name in enumerate(("a.yaml", "b.yml", "c.yaml.bak", "d.txt", ".e.yaml", "f.yaml~")):
        made.write(name, body(f"one-{number}"))
    (made.folder / "g.yaml").mkdir()
    os.mkfifo(made.folder / "h.yaml")
    assert await made.settled() == ["home/one-0", "home/one-1"]
    assert made.source.invalid == {}


async def test_a_file_is_not_read_while_it_is_being_written(made: Looks) -> None:
    made.write("a.yaml", body("one"), body("two"))
    await made.settled()
    for end in range(4):
        made.write("a.yaml", body("one"), *[body("two")] * (end % 2))
        assert await made.look(0.1) == ["home/one", "home/two"]
    assert made.source.invalid == {}


async def test_a_file_that_changes_between_look_and_read_is_left_for_the_next_look(
    made: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.write("a.yaml", body("one"), body("two"))
    await made.settled()
    made.write("a.yaml", body("one"), body("two"), body("three"))
    real = Path.open

    def races(path: Path, *args: Any) -> Any:
        monkeypatch.setattr(Path, "open", real)
        made.write("a.yaml", body("one"))  # the beginning of what is being written now
        return real(path, *args)

    await made.look()
    monkeypatch.setattr(Path, "open", races)
    assert await made.look() == ["home/one", "home/two"]
    made.write("a.yaml", body("one"), body("two"), body("three"))
    assert await made.settled() == ["home/one", "home/two", "home/three"]


async def test_an_editor_that_saves_by_renaming_takes_nothing_away(made: Looks) -> None:
    made.write("a.yaml", body("one"))
    await made.settled()
    made.wakes = 0
    (made.folder / "a.yaml").rename(made.folder / "a.yaml~")
    assert await made.look(0.05) == ["home/one"]
    made.write("a.yaml", body("one"))
    assert await made.settled() == ["home/one"]
    assert made.wakes == 0


async def test_a_broken_edit_is_named_once_and_leaves_what_was_said(
    made: Looks, caplog: pytest.LogCaptureFixture
) -> None:
    made.write("a.yaml", body("one"))
    made.write("b.yaml", body("two"))
    await made.settled()
    (made.folder / "a.yaml").write_text("kind: {")
    (made.folder / "b.yaml").unlink()
    assert await made.settled() == ["home/one"]
    assert list(made.source.invalid) == ["a.yaml"]
    assert not made.source.partial
    assert [r.getMessage().split(":")[0] for r in caplog.records] == ["a.yaml"]
    made.write("a.yaml", body("one", spec_path="/new"))
    await made.settled()
    assert made.source.invalid == {}


async def test_a_file_broken_from_the_start_makes_the_list_partial(made: Looks) -> None:
    made.write("a.yaml", body("one"))
    (made.folder / "b.yaml").write_text("kind: {")
    assert await made.settled() == ["home/one"]
    assert made.source.partial
    made.write("b.yaml", body("two"))
    assert await made.settled() == ["home/one", "home/two"]
    assert not made.source.partial


async def test_a_link_that_leads_nowhere_is_named_and_read_once_it_leads_somewhere(
    made: Looks,
) -> None:
    (made.folder / "a.yaml").symlink_to("target")
    assert await made.settled() == []
    assert list(made.source.invalid) == ["a.yaml"]
    assert made.source.partial
    made.write("target", body("one"))
    assert await made.settled() == ["home/one"]
    assert made.source.invalid == {}


async def test_a_swapped_configmap_is_followed(made: Looks) -> None:
    for number in (1, 2):
        version = made.folder / f"..{number}"
        version.mkdir()
        (version / "a.yaml").write_bytes(text(body("one", spec_path=f"/{number}")))
    data = made.folder / "..data"
    data.symlink_to("..1")
    (made.folder / "a.yaml").symlink_to("..data/a.yaml")
    await made.settled()
    swap = made.folder / "..tmp"
    swap.symlink_to("..2")
    swap.rename(data)
    await made.settled()
    assert made.source.adapters is not None
    assert [adapter.spec.path for adapter in made.source.adapters] == ["/2"]


async def test_a_file_that_fails_to_be_read_is_tried_again(
    made: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.write("a.yaml", body("one"))
    await made.settled()
    made.write("a.yaml", body("two"))
    real = Path.open

    def fails(path: Path, *args: object) -> object:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "open", fails)
    assert await made.settled() == ["home/one"]
    assert made.source.invalid == {"a.yaml": "a.yaml: it cannot be read: Input/output error"}
    monkeypatch.setattr(Path, "open", real)
    assert await made.settled() == ["home/two"]


async def test_other_kinds_are_warned_of_once(
    made: Looks, caplog: pytest.LogCaptureFixture
) -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap"}
    made.write("a.yaml", other, other, body("one"))
    await made.settled()
    made.write("a.yaml", other, body("two"))
    assert await made.settled() == ["home/two"]
    assert len(caplog.records) == 1
    assert "a.yaml: v1 ConfigMap is ignored" in caplog.text


# --- the looking itself


@contextlib.asynccontextmanager
async def running(
    folder: Path, *, poll: float = 0.02
) -> AsyncIterator[tuple[ManifestSource, asyncio.Event]]:
    woken = asyncio.Event()
    source = ManifestSource(folder, woken.set, poll=poll)
    task = asyncio.create_task(source.run())
    try:
        yield source, woken
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(what: Callable[[], bool], woken: asyncio.Event) -> None:
    async with asyncio.timeout(60):
        while not what():
            await woken.wait()
            woken.clear()


def names_of(source: ManifestSource) -> list[str]:
    return [adapter.handle for adapter in source.adapters or ()]


async def test_it_looks_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_hints(*_: object, **__: object) -> AsyncIterator[object]:
        raise OSError(24, "Too many open files")
        yield

    monkeypatch.setattr(directory, "awatch", no_hints)
    async with running(tmp_path) as (source, woken):
        await until(lambda: source.adapters == (), woken)
        (tmp_path / "a.yaml").write_bytes(text(body("one")))
        await until(lambda: names_of(source) == ["one"], woken)
        (tmp_path / "a.yaml").unlink()
        await until(lambda: names_of(source) == [], woken)


async def test_hints_of_the_system_make_it_look_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sidecar")
    folder = tmp_path / "adapters"
    folder.mkdir()
    async with running(folder, poll=3600) as (source, woken):
        await until(lambda: source.adapters == (), woken)
        (folder / "a.yaml").write_bytes(text(body("one")))
        await until(lambda: names_of(source) == ["one"], woken)
        assert "no hints" not in caplog.text


async def test_a_directory_that_takes_the_place_of_another_is_listened_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening: asyncio.Queue[object] = asyncio.Queue()
    real = directory.awatch

    def counted(*args: Path, **kwargs: Any) -> Any:
        listening.put_nowait(args)
        return real(*args, **kwargs)

    monkeypatch.setattr(directory, "awatch", counted)
    folder = tmp_path / "adapters"
    folder.mkdir()
    async with running(folder, poll=0.05) as (source, woken):
        await until(lambda: source.adapters == (), woken)
        await listening.get()
        folder.rename(tmp_path / "old")
        new = tmp_path / "new"
        new.mkdir()
        (new / "a.yaml").write_bytes(text(body("one")))
        new.rename(folder)
        await until(lambda: names_of(source) == ["one"], woken)
        await listening.get()


async def test_a_directory_that_does_not_answer_is_told_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    real = directory._listing

    def dead(folder: Path) -> object:
        answers.wait()
        return real(folder)

    monkeypatch.setattr(directory, "_listing", dead)
    monkeypatch.setattr(directory, "PATIENCE", 0.01)
    try:
        async with running(tmp_path) as (source, woken):
            await until(lambda: source.problem == f"{tmp_path} does not answer", woken)
            assert source.adapters is None
            answers.set()
            await until(lambda: source.adapters == () and source.problem == "", woken)
    finally:
        answers.set()
