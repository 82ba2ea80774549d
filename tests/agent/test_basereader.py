"""Where the base model's sizes come from, and what a file system costs that does not answer."""

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sidecar.agent import basereader
from sidecar.agent.base import BaseModel
from sidecar.agent.basereader import BaseReader
from sidecar.agent.mounts import Shared
from tests.rig.adapters import TINY
from tests.rig.sglang.model import make_model

pytestmark = pytest.mark.rule(5)

SIZES = BaseModel(TINY.hidden, TINY.intermediate, TINY.layers, TINY.heads, TINY.kv_heads, TINY.head)


@dataclass
class Reading:
    """A reader of the models below `folder`."""

    reader: BaseReader
    woken: asyncio.Event

    async def of(self, path: Path | str, boot: str = "boot-1") -> BaseModel | None:
        self.woken.clear()
        self.reader.ask(str(path), boot)
        if self.reader.awaited:
            await self.woken.wait()
        assert not self.reader.awaited
        return self.reader.found


@pytest.fixture
async def reading(tmp_path: Path) -> AsyncIterator[Reading]:
    woken = asyncio.Event()
    reader = BaseReader(Shared.of([str(tmp_path / "shared")]), woken.set, patience=0.05)
    yield Reading(reader, woken)
    reader.close()


async def test_the_sizes_of_a_model_in_a_shared_mount_are_read(
    reading: Reading, tmp_path: Path
) -> None:
    assert await reading.of(make_model(tmp_path / "shared/base")) == SIZES


async def test_it_is_read_once_for_each_engine_process(reading: Reading, tmp_path: Path) -> None:
    model = make_model(tmp_path / "shared/base")
    assert await reading.of(model) == SIZES
    (model / "config.json").write_text("{}")
    assert await reading.of(model) == SIZES
    assert await reading.of(model, "boot-2") is None


async def test_nothing_is_read_before_the_engine_has_a_name(
    reading: Reading, tmp_path: Path
) -> None:
    model = make_model(tmp_path / "shared/base")
    assert await reading.of(model, "") is None
    assert await reading.of(model) == SIZES


async def test_a_model_out_of_reach_is_unknown(reading: Reading, tmp_path: Path) -> None:
    elsewhere = make_model(tmp_path / "elsewhere")
    shared = tmp_path / "shared"
    (shared / "linked").mkdir(parents=True)
    (shared / "linked/config.json").symlink_to(elsewhere / "config.json")
    (shared / "folder/config.json").mkdir(parents=True)
    (shared / "large").mkdir()
    config = (elsewhere / "config.json").read_text()
    (shared / "large/config.json").write_text(config + " " * 2_000_000)
    for path in (elsewhere, "org/name", "", f"{shared}/\0", shared, shared / "linked"):
        assert await reading.of(path) is None
    for number, path in enumerate((shared / "folder", shared / "large")):
        assert await reading.of(path, f"boot-{number}") is None


async def test_a_model_of_links_inside_the_mount_is_read_as_the_hubs_cache_keeps_it(
    reading: Reading, tmp_path: Path
) -> None:
    blobs = make_model(tmp_path / "shared/blobs")
    snapshot = tmp_path / "shared/snapshots/1"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to("../../blobs/config.json")
    assert await reading.of(snapshot) == SIZES == await reading.of(blobs, "boot-2")


@pytest.mark.field(120)
async def test_a_file_system_that_hangs_is_not_waited_for_long_and_heard_when_it_wakes(
    reading: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(tmp_path / "shared/base")
    thaw, really = threading.Event(), basereader.read_base
    monkeypatch.setattr(basereader, "read_base", lambda raw: thaw.wait() and really(raw))
    assert await reading.of(model) is None
    reading.woken.clear()
    thaw.set()
    await reading.woken.wait()
    assert reading.reader.found == SIZES


async def test_an_answer_about_an_earlier_process_is_not_taken_for_the_present_one(
    reading: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(tmp_path / "shared/base")
    thaw, really = threading.Event(), basereader.read_base
    monkeypatch.setattr(basereader, "read_base", lambda raw: thaw.wait() and really(raw))
    assert await reading.of(model) is None
    assert await reading.of("org/name", "boot-2") is None
    thaw.set()
    await asyncio.sleep(0.05)
    assert reading.reader.found is None
