"""The content hash: what it depends on, how gently it reads, and one at a time."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from sidecar.agent import files, hashing
from sidecar.agent.hashing import CancelledHashError, Hasher, content_hash
from sidecar.agent.mounts import Shared
from sidecar.agent.pathview import Hashed
from tests.agent.directories import safetensors, touch, write
from tests.agent.waiting import until

EVERYTHING = Shared.of(["/"])
AT_ONCE = 1e15


def content(path: Path) -> str:
    return content_hash(str(path), EVERYTHING, pace=AT_ONCE)


@pytest.fixture
async def threads_end() -> AsyncIterator[None]:
    yield
    await until(lambda: not any(t.name == "hash" for t in threading.enumerate()))


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return write(tmp_path / "a")


def test_a_touch_changes_the_signature_and_not_the_hash(adapter: Path) -> None:
    before = content(adapter), files.signature(str(adapter), EVERYTHING)
    touch(adapter / "adapter_model.safetensors")
    assert content(adapter) == before[0]
    assert files.signature(str(adapter), EVERYTHING) != before[1]


def test_a_copy_elsewhere_has_the_same_hash(adapter: Path, tmp_path: Path) -> None:
    assert content(write(tmp_path / "b")) == content(adapter)
    (tmp_path / "link").symlink_to(adapter)
    assert content(tmp_path / "link") == content(adapter)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: (a / "adapter_model.safetensors").write_bytes(safetensors(b"\2" * 64)),
        lambda a: write(a, r=16),
        lambda a: (a / "adapter_model.safetensors").rename(a / "b.safetensors"),
        lambda a: (a / "b.safetensors").write_bytes(safetensors(b"")),
        lambda a: (a / "added_tokens.json").write_text("{}"),
    ],
    ids=["weights", "config", "name", "more weights", "added tokens"],
)
def test_new_content_has_another_hash(adapter: Path, change: Callable[[Path], object]) -> None:
    before = content(adapter)
    change(adapter)
    assert content(adapter) != before


def test_content_moved_from_one_file_to_the_next_has_another_hash(tmp_path: Path) -> None:
    one = write(tmp_path / "1", {"adapter_config.json": b"{}", "a.pt": b"xy", "b.pt": b"z"})
    two = write(tmp_path / "2", {"adapter_config.json": b"{}", "a.pt": b"x", "b.pt": b"yz"})
    assert content(one) != content(two)


def test_files_longer_than_a_block_are_read_to_their_end(tmp_path: Path) -> None:
    long = bytes(hashing.BLOCK * 2 + 1)
    one = write(tmp_path / "1", {"adapter_config.json": b"{}", "a.pt": long})
    two = write(tmp_path / "2", {"adapter_config.json": b"{}", "a.pt": long[:-1] + b"x"})
    assert content(one) != content(two)


def test_a_file_that_grows_meanwhile_is_read_no_further_than_it_was(
    adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (adapter / "adapter_model.safetensors").write_bytes(bytes(hashing.BLOCK + 1))
    before = content(adapter)

    def grows(file: files.File) -> int:
        with Path(file.path).open("ab") as more:
            more.write(b"x")
        return files.open_file(file)

    monkeypatch.setattr(hashing, "open_file", grows)
    assert content(adapter) == before


class Impatient(threading.Event):
    """An event on which nobody waits: it only notes for how long they would have."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        return self.is_set()


def test_it_reads_no_faster_than_its_pace(tmp_path: Path) -> None:
    adapter = write(
        tmp_path / "a",
        {"adapter_config.json": b"{}", "a.pt": bytes(hashing.BLOCK * 3 - 2)},
    )
    cancel = Impatient()
    content_hash(str(adapter), EVERYTHING, cancel=cancel, pace=hashing.BLOCK, clock=lambda: 100.0)
    assert cancel.waits[-1] == pytest.approx(3.0)
    assert cancel.waits == sorted(cancel.waits)


def test_it_stops_when_it_is_cancelled(adapter: Path) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(CancelledHashError):
        content_hash(str(adapter), EVERYTHING, cancel=cancel)


def test_the_signatures_around_it_tell_of_a_change_in_between(
    adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changing(*args: object, **kwargs: object) -> str:
        touch(adapter / "adapter_model.safetensors")
        return "0"

    monkeypatch.setattr(hashing, "content_hash", changing)
    result = hashing.hashed(str(adapter), EVERYTHING, threading.Event())
    assert result is not None
    assert result.before != result.after == files.signature(str(adapter), EVERYTHING)


@pytest.mark.parametrize("path", ["relative", "/nowhere"])
def test_what_cannot_be_read_has_no_hash(path: str) -> None:
    assert hashing.hashed(path, EVERYTHING, threading.Event()) in (
        None,
        Hashed("", "", ""),
    )


@pytest.mark.usefixtures("threads_end")
async def test_one_directory_is_hashed_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work, most, lock = 0, 0, threading.Lock()

    def slow(path: str, shared: Shared, cancel: threading.Event) -> Hashed:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        time.sleep(0.01)
        with lock:
            at_work -= 1
        return Hashed("s", path, "s")

    monkeypatch.setattr(hashing, "hashed", slow)
    told: list[None] = []
    hasher = Hasher(EVERYTHING, lambda: told.append(None), time.monotonic)
    paths = [f"/models/{number}" for number in range(5)]
    for path in paths:
        hasher.want(path)
    await until(lambda: len(hasher.hashes) == len(paths))
    hasher.close()
    assert most == 1
    assert len(told) == len(paths)


@pytest.mark.usefixtures("threads_end")
async def test_a_hash_that_failed_is_not_tried_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[str] = []
    tried = asyncio.Event()
    loop = asyncio.get_running_loop()

    def fails(path: str, shared: Shared, cancel: threading.Event) -> None:
        tries.append(path)
        loop.call_soon_threadsafe(tried.set)

    monkeypatch.setattr(hashing, "hashed", fails)
    now = 1000.0
    hasher = Hasher(EVERYTHING, lambda: pytest.fail("there is no hash"), lambda: now)
    hasher.want("/a")
    await tried.wait()
    await until(lambda: not hasher.busy)
    hasher.want("/a")
    assert not hasher.busy
    now += hashing.RETRY
    hasher.want("/a")
    assert hasher.busy
    hasher.close()


@pytest.mark.usefixtures("threads_end")
async def test_a_path_that_is_dropped_is_hashed_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began, ended = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def waits(path: str, shared: Shared, cancel: threading.Event) -> None:
        loop.call_soon_threadsafe(began.set)
        cancel.wait()
        loop.call_soon_threadsafe(ended.set)

    monkeypatch.setattr(hashing, "hashed", waits)
    hasher = Hasher(EVERYTHING, lambda: pytest.fail("there is no hash"), time.monotonic)
    hasher.want("/a")
    await began.wait()
    hasher.drop("/a")
    await ended.wait()
    assert not hasher.busy
    hasher.close()


@pytest.mark.usefixtures("threads_end")
async def test_a_path_dropped_and_wanted_again_gets_no_hash_from_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began = asyncio.Event()
    loop = asyncio.get_running_loop()
    contents = ["before", "after"]

    def hashed(path: str, shared: Shared, cancel: threading.Event) -> Hashed:
        content = contents.pop(0)
        if content == "before":
            loop.call_soon_threadsafe(began.set)
            cancel.wait()
        return Hashed("s", content, "s")

    monkeypatch.setattr(hashing, "hashed", hashed)
    told: list[str] = []
    hasher = Hasher(EVERYTHING, lambda: told.append(hasher.hashes["/a"].content), time.monotonic)
    hasher.want("/a")
    await began.wait()
    hasher.drop("/a")
    hasher.want("/a")
    await until(lambda: not hasher.busy)
    assert told == ["after"]
    hasher.close()
