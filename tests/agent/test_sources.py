"""The API server as the source of adapters, over real sockets to a fake one; time is the test's.

What informers do about streams, faults and versions is tested in tests/kube; here is which list is asked for, and what
a refusal, an odd object or a silent server does to the answers.
"""

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from sidecar.agent.sources import ADAPTERS, ApiSource, Scope
from tests.fakes import kube_faults as faults
from tests.fakes.kube import FakeKube
from tests.fakes.kube_requests import Seen, Target


class Time:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._numbers), done))
        await done

    def advance(self, seconds: float) -> None:
        self.now += seconds
        while self._sleepers and self._sleepers[0][0] <= self.now:
            _, _, done = heapq.heappop(self._sleepers)
            if not done.done():
                done.set_result(None)


@dataclass
class Rig:
    """A source at work, and what it asks of whom."""

    kube: FakeKube
    source: ApiSource
    time: Time
    wakes: list[float] = field(default_factory=list)
    refused: set[Scope] = field(default_factory=set)

    async def until(self, what: Callable[[], bool], step: float = 0.5) -> None:
        """Let time pass, or stand still with `step` 0, until something is so."""
        async with asyncio.timeout(30):
            while not what():
                await asyncio.sleep(0.002)
                self.time.advance(step)

    async def passes(self, seconds: float, step: float = 0.5) -> None:
        end = self.time.now + seconds
        await self.until(lambda: self.time.now >= end, step)

    def handles(self) -> list[str] | None:
        adapters = self.source.adapters
        return None if adapters is None else sorted(adapter.handle for adapter in adapters)

    def scopes(self, verb: str = "list") -> list[Scope]:
        return [scope(seen) for seen in self.kube.of(verb)]


def scope(seen: Seen) -> Scope:
    return "all" if Target.of(seen.path).namespace is None else "own"


@contextlib.asynccontextmanager
async def rig(
    *, report_scope: Scope | None = None, refused: tuple[Scope, ...] = ()
) -> AsyncIterator[Rig]:
    time = Time()
    async with FakeKube() as kube, kube.client() as client:
        source = ApiSource(
            client,
            "team-a",
            "llama",
            lambda: made.wakes.append(time.now),
            report_scope,
            clock=time,
            sleep=time.sleep,
        )
        made = Rig(kube, source, time, refused=set(refused))
        kube.forbidden = lambda seen: scope(seen) in made.refused
        task = asyncio.create_task(source.run())
        try:
            yield made
        finally:
            task.cancel()
            await asyncio.wait([task])


def put(
    kube: FakeKube, namespace: str, name: str, /, *, service: str = "llama", **spec: Any
) -> None:
    kube.put(
        ADAPTERS,
        {
            "metadata": {"namespace": namespace, "name": name},
            "spec": {
                "inferenceServiceRef": {"name": service, "namespace": "team-a"},
                "name": name,
                "path": f"/adapters/{name}",
                **spec,
            },
        },
    )


async def test_nothing_is_known_before_the_first_complete_list() -> None:
    async with rig() as it:
        it.kube.fail(faults.status(503), times=float("inf"))
        await it.until(lambda: it.source.problem != "")
        assert it.source.adapters is None
        assert it.source.confirmed_at is None
        assert it.source.problem == "LoRAAdapters cannot be read: 503: told to fail"


async def test_adapters_of_the_service_come_from_all_namespaces() -> None:
    async with rig() as it:
        put(it.kube, "team-a", "one")
        put(it.kube, "team-b", "two")
        put(it.kube, "team-a", "other", service="mistral")
        await it.until(lambda: it.source.adapters is not None)
        assert it.handles() == ["one", "two"]
        assert it.source.scope == "all"
        assert it.source.problem == ""
        assert it.wakes


async def test_a_server_that_cannot_select_gives_the_same_adapters() -> None:
    async with rig() as it:
        it.kube.selectable = set()
        put(it.kube, "team-a", "one")
        put(it.kube, "team-a", "other", service="mistral")
        await it.until(lambda: it.source.adapters is not None)
        assert it.handles() == ["one"]


async def test_changes_are_followed_and_wake() -> None:
    async with rig() as it:
        put(it.kube, "team-a", "one")
        await it.until(lambda: it.handles() == ["one"])
        await it.kube.streams()
        before = len(it.wakes)
        put(it.kube, "team-b", "two")
        await it.until(lambda: it.handles() == ["one", "two"])
        it.kube.delete(ADAPTERS, "team-a", "one")
        await it.until(lambda: it.handles() == ["two"])
        assert len(it.wakes) >= before + 2


ODD: dict[str, dict[str, Any]] = {
    "a name that SGLang could not quote": {"name": "no spaces, please"},
    "a path that is no text": {"path": 7},
    "a namespace that is no text": {"inferenceServiceRef": {"name": "llama", "namespace": ["a"]}},
}


@pytest.mark.parametrize("spec", ODD.values(), ids=ODD)
async def test_an_object_that_cannot_be_read_is_named_and_disturbs_no_other(
    spec: dict[str, Any],
) -> None:
    async with rig() as it:
        put(it.kube, "team-a", "odd", **spec)
        put(it.kube, "team-a", "one")
        await it.until(lambda: it.source.adapters is not None)
        assert it.handles() == ["one"]
        assert list(it.source.invalid) == ["team-a/odd"]
        assert "spec." in it.source.invalid["team-a/odd"]
        assert "no spaces" not in it.source.invalid["team-a/odd"]


async def test_an_object_that_can_no_longer_be_read_stays_as_it_was() -> None:
    async with rig() as it:
        put(it.kube, "team-a", "one")
        await it.until(lambda: it.handles() == ["one"])
        put(it.kube, "team-a", "one", path="")
        await it.until(lambda: list(it.source.invalid) == ["team-a/one"])
        assert it.handles() == ["one"]
        put(it.kube, "team-a", "one", path="/new")
        await it.until(lambda: it.source.invalid == {})
        assert it.source.adapters is not None
        assert [adapter.spec.path for adapter in it.source.adapters] == ["/new"]


async def test_the_last_list_stands_while_the_server_is_away() -> None:
    async with rig() as it:
        put(it.kube, "team-a", "one")
        await it.until(lambda: it.handles() == ["one"])
        await it.kube.stop()
        await it.until(lambda: it.source.problem != "")
        assert it.handles() == ["one"]
        confirmed = it.source.confirmed_at
        await it.passes(7200, step=60)
        assert it.handles() == ["one"]
        assert it.source.confirmed_at == confirmed
        await it.kube.start()
        await it.until(lambda: it.source.problem == "")
        assert it.source.confirmed_at != confirmed


UNLISTED = {
    "the token is refused": faults.status(401, "Unauthorized"),
    "the kind is gone": faults.status(404, "the server could not find the requested resource"),
    "the request is refused": faults.status(400, "told to fail"),
    "the server fails": faults.page(502),
}


@pytest.mark.field(66)
@pytest.mark.parametrize("answer", UNLISTED.values(), ids=UNLISTED)
async def test_an_answer_that_is_no_list_takes_no_adapter_away(answer: faults.Answer) -> None:
    async with rig() as it:
        put(it.kube, "team-a", "one")
        await it.until(lambda: it.handles() == ["one"])
        it.kube.delete(ADAPTERS, "team-a", "one")
        await it.until(lambda: it.handles() == [])
        put(it.kube, "team-a", "two")
        await it.until(lambda: it.handles() == ["two"])
        it.kube.fail(answer, times=float("inf"))
        it.kube.end_streams()
        await it.until(lambda: it.source.problem != "")
        await it.passes(300, step=5)
        assert it.handles() == ["two"]
        assert it.source.scope == "all"


# --- scopes


async def test_where_all_namespaces_are_refused_the_own_one_is_listed() -> None:
    async with rig(refused=("all",)) as it:
        put(it.kube, "team-a", "one")
        put(it.kube, "team-b", "two")
        await it.until(lambda: it.source.adapters is not None, step=0)
        assert it.handles() == ["one"]
        assert it.source.scope == "own"
        assert it.source.problem == ""


async def test_a_refusal_that_is_news_must_last_a_minute() -> None:
    async with rig(report_scope="all", refused=("all",)) as it:
        put(it.kube, "team-a", "one")
        start = it.time.now
        await it.until(lambda: "own" in it.scopes())
        assert it.time.now - start >= 60
        assert it.scopes().count("all") < 20
        await it.until(lambda: it.source.adapters is not None)
        assert it.source.scope == "own"


async def test_a_refusal_that_was_known_already_is_believed_at_once() -> None:
    async with rig(report_scope="own", refused=("all",)) as it:
        await it.until(lambda: it.source.adapters is not None, step=0)
        assert it.source.scope == "own"


async def test_a_role_that_is_made_anew_within_the_minute_is_as_if_nothing_had_been() -> None:
    async with rig(report_scope="all", refused=("all",)) as it:
        put(it.kube, "team-b", "two")
        await it.until(lambda: it.source.problem != "")
        await it.passes(40)
        assert it.source.adapters is None
        it.refused.clear()
        await it.until(lambda: it.source.adapters is not None)
        assert it.handles() == ["two"]
        assert it.source.scope == "all"
        assert "own" not in it.scopes()


async def test_a_permission_that_shrinks_while_running_narrows_the_scope_after_a_minute() -> None:
    async with rig() as it:
        put(it.kube, "team-a", "one")
        put(it.kube, "team-b", "two")
        await it.until(lambda: it.source.adapters is not None)
        await it.kube.streams()
        it.refused.add("all")
        it.kube.end_streams()
        await it.until(lambda: it.source.problem != "")
        start = it.time.now
        assert "403" in it.source.problem
        while it.source.scope == "all":
            assert it.handles() == ["one", "two"]
            await it.passes(0.5)
        assert it.time.now - start >= 55
        assert it.handles() == ["one"]
        assert it.source.problem == ""
        await it.kube.streams()
        put(it.kube, "team-a", "three")
        await it.until(lambda: it.handles() == ["one", "three"])


async def test_a_permission_that_grows_is_noticed_without_a_restart() -> None:
    async with rig(refused=("all",)) as it:
        put(it.kube, "team-a", "one")
        put(it.kube, "team-b", "two")
        await it.until(lambda: it.source.scope == "own" and it.source.adapters is not None)
        it.refused.clear()
        before = it.scopes()
        await it.until(lambda: it.source.scope == "all", step=5)
        assert it.handles() == ["one", "two"]
        assert it.scopes()[len(before) :].count("all") == 2


async def test_without_any_permission_it_waits_for_one() -> None:
    async with rig(refused=("all", "own")) as it:
        put(it.kube, "team-b", "two")
        await it.passes(600, step=5)
        assert it.source.adapters is None
        assert "403" in it.source.problem
        assert len(it.kube.of("list")) < 250
        it.refused.clear()
        await it.until(lambda: it.source.adapters is not None)
        assert (it.handles(), it.source.scope) == (["two"], "all")


async def test_where_only_watching_is_refused_lists_go_on_by_turns() -> None:
    async with rig() as it:
        it.kube.forbidden = lambda seen: seen.watch
        put(it.kube, "team-a", "one")
        await it.until(lambda: it.handles() == ["one"])
        put(it.kube, "team-b", "two")
        await it.until(lambda: it.handles() == ["one", "two"])
        await it.passes(600, step=5)
        assert it.source.scope == "all"
        assert "own" not in it.scopes()
        assert len(it.kube.of("list")) < 150
