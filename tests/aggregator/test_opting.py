"""Which services are opted in outlives the process: a ConfigMap on a fake API server, and the index that fills it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sidecar.aggregator import reading
from sidecar.aggregator.index import LABELLED, Index
from sidecar.aggregator.opting import CONFIG_MAPS, OptIns
from sidecar.kube.client import Client
from tests.aggregator import worlds
from tests.fakes import kube_faults as faults
from tests.fakes.kube import FakeKube

CHAT = {"ml.chat": ""}


class Desk:
    def __init__(self, kube: FakeKube, client: Client) -> None:
        self.kube = kube
        self.client = client
        self.naps: list[float] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self.start()

    def start(self) -> None:
        self.index = Index(lambda: 1000.0)
        self.index.on_service("ml/chat", None, reading.service(worlds.service()))
        self.opt_ins = OptIns(
            self.client, "system", "services", self.index, lambda: None, sleep=self._nap
        )
        runs = (self.opt_ins.run(), self.opt_ins.informer.run())
        self._tasks = [asyncio.create_task(run) for run in runs]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def _nap(self, seconds: float) -> None:
        self.naps.append(seconds)
        await asyncio.sleep(0.01)

    def pod(self, *, opted_in: bool = True, there: bool = True) -> None:
        pod = reading.pod(worlds.pod(opted_in=opted_in)) if there else None
        self.index.on_pod(LABELLED, "ml/chat-a", pod)

    @property
    def data(self) -> dict[str, str] | None:
        held = self.kube.get(CONFIG_MAPS, "system", "services")
        return None if held is None else held.get("data")

    async def until(self, data: dict[str, str] | None) -> None:
        async with asyncio.timeout(20):
            while self.data != data or self.opt_ins.unknown:
                self.opt_ins.tell()
                await asyncio.sleep(0.005)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with FakeKube() as kube, kube.client() as client:
        made = Desk(kube, client)
        yield made
        await made.stop()


async def test_the_first_opted_in_pod_is_written_down_and_leaving_is_too(desk):
    desk.pod()
    await desk.until(CHAT)
    desk.pod(opted_in=False)
    await desk.until({})


async def test_a_service_without_pods_keeps_its_last_word_over_a_restart(desk):
    desk.pod()
    await desk.until(CHAT)
    await desk.stop()
    desk.start()
    async with asyncio.timeout(20):
        while desk.opt_ins.unknown:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert desk.index.view(("ml", "chat")).opted_in
    desk.opt_ins.tell()
    assert desk.data == CHAT


async def test_a_service_that_is_gone_is_forgotten(desk):
    desk.pod()
    await desk.until(CHAT)
    desk.pod(there=False)
    desk.index.on_service("ml/chat", None, None)
    await desk.until({})


async def test_what_pods_say_overrules_what_was_written(desk):
    desk.pod(opted_in=False)
    desk.kube.put(
        CONFIG_MAPS,
        {"metadata": {"namespace": "system", "name": "services"}, "data": CHAT | {"odd": "x"}},
    )
    await desk.until({})
    assert not desk.index.view(("ml", "chat")).opted_in


async def test_one_that_was_deleted_by_hand_is_made_again(desk):
    desk.pod()
    await desk.until(CHAT)
    desk.kube.delete(CONFIG_MAPS, "system", "services")
    await desk.until(CHAT)


async def test_what_stays_is_not_written(desk):
    desk.pod()
    await desk.until(CHAT)
    writes = len(desk.kube.of("patch")) + len(desk.kube.of("create"))
    for _ in range(20):
        desk.opt_ins.tell()
        await asyncio.sleep(0)
    assert len(desk.kube.of("patch")) + len(desk.kube.of("create")) == writes


async def test_a_write_that_fails_is_told_once_and_tried_again(desk, caplog):
    desk.kube.fail(faults.status(503), times=2, verb="create")
    desk.pod()
    await desk.until(CHAT)
    assert desk.naps[:2] == [10.0, 10.0]
    assert [
        record.levelname for record in caplog.records if "cannot be kept" in record.message
    ] == ["WARNING"]


async def test_one_that_may_not_be_read_is_done_without():
    async with FakeKube() as kube, kube.client() as client:
        kube.forbidden = lambda seen: True
        desk = Desk(kube, client)
        assert desk.opt_ins.unknown
        async with asyncio.timeout(20):
            while desk.opt_ins.unknown:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        await desk.stop()
