"""What the tests of `sidecar.kube` share: a fake API server, a client of it, and an informer with a time of its own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from sidecar.kube.client import Client, Resource
from sidecar.kube.informer import Informer
from tests.fakes.kube import FakeKube

ADAPTERS = Resource("inference.llmkube.dev", "v1alpha1", "loraadapters")


def adapter(name: str, namespace: str = "a", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name}, "spec": {"name": name, **spec}}


class FakeTime:
    """A clock that only sleeping, or a test, moves. Sleeps take no time, up to `budget` of them; then one is for ever.

    That is what makes an endless loop of retries testable: it stops by itself, and `naps` says how long it waited.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.naps: list[float] = []
        self.budget = 50
        self.dice = 0.5
        self._napped = asyncio.Condition()
        self._morning = asyncio.Event()

    def clock(self) -> float:
        return self.now

    def roll(self) -> float:
        return self.dice

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        async with self._napped:
            self._napped.notify_all()
        if len(self.naps) > self.budget:
            await self._morning.wait()
        self.now += seconds
        await asyncio.sleep(0)

    def wake(self) -> None:
        """Ends the sleep that is for ever."""
        self._morning.set()

    async def slept(self, count: int) -> list[float]:
        """Waits for that many sleeps and returns all of them."""
        async with self._napped:
            await self._napped.wait_for(lambda: len(self.naps) >= count)
        return self.naps


class Watcher:
    """A running informer whose values are the specs, with what it told its user."""

    def __init__(self, client: Client, time: FakeTime, **options: Any) -> None:
        self.changes: list[tuple[str, Any, Any]] = []
        self.wakes = 0
        self.time = time
        self._woken = asyncio.Condition()
        options = {"decode": lambda raw: raw["spec"], **options}
        self.informer: Informer[Any] = Informer(
            client,
            ADAPTERS,
            wake=self._wake,
            on_change=lambda *change: self.changes.append(change),
            clock=time.clock,
            sleep=time.sleep,
            dice=time.roll,
            **options,
        )

    def _wake(self) -> None:
        self.wakes += 1
        # A wake-up is a plain call; whoever waits for one here must be told on the loop.
        self._told = asyncio.ensure_future(self._tell())

    async def _tell(self) -> None:
        async with self._woken:
            self._woken.notify_all()

    async def until(self, condition: Callable[[], object]) -> None:
        """Waits until the condition holds, looking at each wake-up only: what is not announced is not seen."""
        async with self._woken:
            await self._woken.wait_for(condition)

    async def watching(self, kube: FakeKube) -> None:
        """Waits until the informer itself has seen that its watch is open; the clock moves by a second for it."""
        await kube.streams()
        self.time.now += 1
        kube.bookmark(ADAPTERS)
        while (self.informer.confirmed_at or 0) < self.time.now:  # noqa: ASYNC110 - a bookmark wakes nobody
            await asyncio.sleep(0)

    async def names(self, *names: str) -> None:
        """Waits until exactly these keys are in the snapshot."""
        await self.until(lambda: set(self.informer.snapshot) == set(names))


@pytest.fixture
async def kube() -> AsyncIterator[FakeKube]:
    async with FakeKube() as server:
        yield server


@pytest.fixture
async def client(kube: FakeKube) -> AsyncIterator[Client]:
    async with kube.client() as opened:
        yield opened


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
async def watch(client: Client, time: FakeTime) -> AsyncIterator[Callable[..., Watcher]]:
    """Starts informers, and ends them with the test."""
    tasks: list[asyncio.Task[Any]] = []

    def start(**options: Any) -> Watcher:
        watcher = Watcher(client, time, **options)
        tasks.append(asyncio.create_task(watcher.informer.run()))
        return watcher

    yield start
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
