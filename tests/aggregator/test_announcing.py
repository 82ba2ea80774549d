"""Events as they are sent: to whom, how often, and that their failure harms nothing. Fake API server, fake time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry

from sidecar.aggregator import reading
from sidecar.aggregator.announcing import BURST, EVENTS, NOTE_LIMIT, REFILL, REPEAT, Announcer
from sidecar.aggregator.metrics import PREFIX, Metrics
from sidecar.aggregator.news import News
from sidecar.kube.client import Client
from tests.aggregator import worlds
from tests.fakes import kube_faults as faults
from tests.fakes.kube import FakeKube

LOADED = News("Loaded", "Loaded on 1 of 1 pods", warning=False)
BROKEN = News("Incompatible", "r=64", warning=True, pod="chat-a")


class Desk:
    def __init__(self, kube: FakeKube, client: Client) -> None:
        self.kube = kube
        self.now = 1000.0
        self.registry = CollectorRegistry()
        metrics = Metrics(self.registry)
        self.announcer = Announcer(
            client, metrics, "me", clock=lambda: self.now, wall=lambda: worlds.NOW
        )
        self.asked = 0

    def tell(self, *news: News, name: str = "sql") -> None:
        adapter = reading.adapter(worlds.adapter(name, uid=f"uid-{name}"))
        self.announcer.tell(adapter, news, lambda name: reading.pod(worlds.pod(name)))

    async def events(self, sent: int) -> list[dict]:
        """The events on the server once that many have been sent, counted up or failed, in the order of making."""
        async with asyncio.timeout(20):
            while self.count("sent") + self.count("failed") < sent:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        return [seen.body for seen in self.kube.of("create")]

    def count(self, result: str) -> float:
        return self.registry.get_sample_value(f"{PREFIX}_events_total", {"result": result}) or 0.0


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with FakeKube() as kube, kube.client() as client:
        made = Desk(kube, client)
        task = asyncio.create_task(made.announcer.run())
        yield made
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_an_event_regards_the_adapter(desk):
    desk.tell(LOADED)
    (event,) = await desk.events(1)
    assert event["regarding"] == {
        "apiVersion": "inference.llmkube.dev/v1alpha1",
        "kind": "LoRAAdapter",
        "namespace": "ml",
        "name": "sql",
        "uid": "uid-sql",
    }
    assert (event["type"], event["reason"], event["action"]) == ("Normal", "Loaded", "Load")
    assert event["note"] == "Loaded on 1 of 1 pods"
    assert event["eventTime"].endswith("Z")
    assert "related" not in event


async def test_the_failure_of_a_pod_is_told_of_both(desk):
    desk.tell(BROKEN)
    first, second = await desk.events(2)
    assert (first["regarding"]["kind"], first["related"]["uid"]) == ("LoRAAdapter", "uid-chat-a")
    assert (second["regarding"]["kind"], second["related"]["uid"]) == ("Pod", "uid-sql")
    assert (first["note"], second["note"]) == ("chat-a: r=64", "sql: r=64")
    assert first["type"] == "Warning"


async def test_what_repeats_is_counted_up(desk):
    desk.tell(LOADED)
    await desk.events(1)
    desk.tell(LOADED)
    assert len(await desk.events(2)) == 1
    (patch,) = desk.kube.of("patch")
    assert patch.body["series"]["count"] == 2
    desk.now += REPEAT
    desk.tell(LOADED)
    assert len(await desk.events(3)) == 2


async def test_an_event_that_has_expired_is_made_anew(desk):
    desk.tell(LOADED)
    (event,) = await desk.events(1)
    desk.kube.delete(EVENTS, "ml", event["metadata"]["name"])
    desk.tell(LOADED)
    assert len(await desk.events(2)) == 2


async def test_an_adapter_that_flickers_sends_so_many_and_then_one_a_minute(desk):
    for _ in range(BURST + 10):
        desk.tell(LOADED)
    desk.tell(LOADED, name="other")
    await desk.events(BURST + 1)
    assert desk.count("dropped") == 10
    desk.now += REFILL
    desk.tell(LOADED, LOADED)
    await desk.events(BURST + 2)
    assert desk.count("dropped") == 11


async def test_an_event_that_is_refused_is_counted_and_the_next_one_is_sent(desk):
    desk.kube.fail(faults.status(403))
    desk.tell(LOADED)
    await desk.events(1)
    desk.tell(LOADED)
    await desk.events(2)
    assert (desk.count("failed"), desk.count("sent")) == (1, 1)


async def test_long_notes_and_names_are_cut_to_what_the_server_takes(desk):
    desk.tell(News("Loaded", "é" * 2000, warning=False), name="n" * 253)
    (event,) = await desk.events(1)
    assert len(event["note"].encode()) <= NOTE_LIMIT
    assert len(event["metadata"]["name"]) <= 253
