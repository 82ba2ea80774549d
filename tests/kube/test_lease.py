"""Leader election against the fake API server, in fake time; test_replicas tries it on the real one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

import pytest

from sidecar.kube.client import Client
from sidecar.kube.lease import LEASES, Lease, LostError, Timing
from tests.fakes import kube_faults as faults
from tests.fakes.kube import FakeKube
from tests.kube.conftest import FakeTime

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Work:
    """Work that goes on until it is cancelled or told to end."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.end = asyncio.Event()
        self.cancelled = False

    async def __call__(self) -> None:
        self.began.set()
        try:
            await self.end.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


class Replica:
    def __init__(self, client: Client, identity: str, pause: float) -> None:
        self.time = FakeTime()
        self.time.budget = 0
        self.work = Work()
        self.lease = Lease(
            client,
            "system",
            "leader",
            identity,
            clock=self.time.clock,
            wall=lambda: NOON,
            sleep=self.time.sleep,
            timing=Timing(pause=pause),
        )
        self.task: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        self.task = asyncio.create_task(self.lease.run(self.work))
        return self.task


Start = Callable[..., Replica]


@pytest.fixture
async def replica(client: Client) -> AsyncIterator[Start]:
    async with contextlib.AsyncExitStack() as stack:

        def make(identity: str, pause: float = 2.0) -> Replica:
            one = Replica(client, identity, pause)
            stack.push_async_callback(_end, one)
            return one

        yield make


async def _end(one: Replica) -> None:
    if one.task is not None:
        one.task.cancel()
        await asyncio.wait([one.task])


def spec(kube: FakeKube) -> dict[str, object]:
    found = kube.get(LEASES, "system", "leader")
    assert found is not None
    return dict(found["spec"])


async def test_the_first_takes_it_and_works(kube: FakeKube, replica: Start) -> None:
    a = replica("a")
    a.start()
    await a.work.began.wait()
    assert a.lease.held
    assert spec(kube) == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 0,
        "acquireTime": "2026-01-01T12:00:00.000000Z",
        "renewTime": "2026-01-01T12:00:00.000000Z",
    }


async def test_another_waits_as_long_as_it_is_renewed(kube: FakeKube, replica: Start) -> None:
    a, b = replica("a"), replica("b")
    a.start()
    await a.work.began.wait()
    b.start()
    await b.time.slept(1)
    b.time.now += 1000
    await _renew(kube)
    b.time.wake()
    await kube.requests(3, "get")
    assert not b.work.began.is_set()
    assert b.lease.holder == "a"


async def _renew(kube: FakeKube) -> None:
    held = kube.get(LEASES, "system", "leader")
    assert held is not None
    kube.put(LEASES, {**held, "spec": {**held["spec"], "renewTime": "2026-01-01T12:00:02.000000Z"}})


async def test_one_that_is_renewed_no_more_is_taken_over(kube: FakeKube, replica: Start) -> None:
    held = {"holderIdentity": "dead", "leaseDurationSeconds": 15, "leaseTransitions": 4}
    kube.put(LEASES, {"metadata": {"namespace": "system", "name": "leader"}, "spec": held})
    b = replica("b")
    b.start()
    await b.time.slept(1)
    assert not b.work.began.is_set()
    b.time.now += 15
    b.time.wake()
    await b.work.began.wait()
    assert spec(kube)["holderIdentity"] == "b"
    assert spec(kube)["leaseTransitions"] == 5


async def test_a_clock_that_differs_means_nothing(kube: FakeKube, replica: Start) -> None:
    long_ago = {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "renewTime": "2001-01-01T00:00:00.000000Z",
    }
    kube.put(LEASES, {"metadata": {"namespace": "system", "name": "leader"}, "spec": long_ago})
    b = replica("b")
    b.start()
    await b.time.slept(1)
    assert not b.work.began.is_set()


async def test_the_end_of_the_work_hands_it_back(kube: FakeKube, replica: Start) -> None:
    a, b = replica("a"), replica("b")
    task = a.start()
    await a.work.began.wait()
    a.work.end.set()
    await task
    assert spec(kube)["holderIdentity"] == ""
    b.start()
    await b.work.began.wait()


async def test_a_stop_hands_it_back_too(kube: FakeKube, replica: Start) -> None:
    a = replica("a")
    task = a.start()
    await a.work.began.wait()
    task.cancel()
    await asyncio.wait([task])
    assert a.work.cancelled
    assert spec(kube)["holderIdentity"] == ""


async def test_work_that_fails_tells_why_and_hands_it_back(kube: FakeKube, replica: Start) -> None:
    a = replica("a")

    async def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await a.lease.run(fail)
    assert spec(kube)["holderIdentity"] == ""


async def test_one_that_another_has_taken_ends_the_work(kube: FakeKube, replica: Start) -> None:
    a = replica("a")
    task = a.start()
    await a.work.began.wait()
    held = kube.get(LEASES, "system", "leader")
    assert held is not None
    kube.put(LEASES, {**held, "spec": {**held["spec"], "holderIdentity": "b"}})
    a.time.wake()
    with pytest.raises(LostError, match="taken by b"):
        await task
    assert a.work.cancelled
    assert spec(kube)["holderIdentity"] == "b"


async def test_one_that_cannot_be_renewed_ends_the_work_before_another_may_take_it(
    kube: FakeKube, replica: Start
) -> None:
    a = replica("a", pause=3.0)
    task = a.start()
    await a.work.began.wait()
    began = a.time.now
    kube.fail(faults.status(503), times=float("inf"))
    a.time.wake()
    with pytest.raises(LostError, match="could not be renewed for 10 s"):
        await task
    assert a.time.now - began <= 10
    assert a.work.cancelled


async def test_a_failure_that_passes_is_outlived(kube: FakeKube, replica: Start) -> None:
    a = replica("a")
    a.start()
    await a.work.began.wait()
    kube.fail(faults.status(503), times=3)
    a.time.wake()
    await a.time.slept(7)
    assert a.lease.held


async def test_one_that_was_deleted_or_edited_is_kept(kube: FakeKube, replica: Start) -> None:
    a = replica("a")
    a.start()
    await a.work.began.wait()
    held = kube.get(LEASES, "system", "leader")
    assert held is not None
    kube.put(LEASES, {**held, "metadata": {**held["metadata"], "labels": {"by": "hand"}}})
    a.time.wake()
    await a.time.slept(5)
    edited = kube.get(LEASES, "system", "leader")
    assert edited is not None
    assert edited["metadata"]["labels"] == {"by": "hand"}
    assert a.lease.held


async def test_until_the_api_server_answers_it_waits(kube: FakeKube, replica: Start) -> None:
    a = replica("a")
    kube.fail(faults.status(503), times=3)
    a.time.budget = 5
    a.start()
    await a.work.began.wait()
    assert a.time.naps[:3] == [2.0, 2.0, 2.0]
    assert len(kube.of("get")) == 4
