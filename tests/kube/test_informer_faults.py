"""The informer with a server, or a network, that is not well.

The claims of every test: what is known stays known until a complete list or a deletion says otherwise, changes that
were missed are found, and the server is not asked in a hot loop.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable

import pytest

from sidecar.kube import errors
from tests.fakes import kube_faults as faults
from tests.fakes.kube import FakeKube
from tests.kube.conftest import ADAPTERS, FakeTime, Watcher, adapter

Watch = Callable[..., Watcher]
ALWAYS = float("inf")
FULL_LADDER = [0.25, 0.5, 1, 2, 4, 8, 15, 15]
"""The delays after failures, where the dice always show a half: 0.5 s doubling to 30 s, halved."""


# ---- lists -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (faults.forbidden("list", "loraadapters"), errors.Forbidden),
        (faults.status(401), errors.Unauthorized),
        (faults.status(404), errors.NotFound),
        (faults.status(400, "the server is old"), errors.Invalid),
        (faults.status(500), errors.ServerError),
        (faults.page(500, ""), errors.ServerError),
        (faults.page(502), errors.ServerError),
        (faults.page(200), errors.ServerError),
        (faults.page(200, "{}"), errors.ServerError),
        (faults.page(200, '{"metadata": {}, "items": "x"}'), errors.ServerError),
        (faults.page(200, '{"metadata": {}, "items": [7]}'), errors.ServerError),
    ],
)
async def test_what_is_no_list_deletes_nothing_and_is_a_problem(
    kube: FakeKube, watch: Watch, time: FakeTime, answer: faults.Answer, kind: type[Exception]
) -> None:
    kube.put(ADAPTERS, adapter("x"))
    watcher = watch()
    await kube.streams()
    kube.fail(answer, times=ALWAYS)
    kube.end_streams()
    await watcher.until(lambda: isinstance(watcher.informer.problem, kind))
    await time.slept(8)
    assert set(watcher.informer.snapshot) == {"a/x"}
    assert watcher.informer.synced
    assert watcher.informer.lists == 1
    kube.heal()
    await watcher.until(lambda: watcher.informer.problem is None)


async def test_a_first_list_that_is_refused_is_told_at_once(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    kube.forbidden = lambda seen: seen.verb == "list"
    time.budget = 0
    watcher = watch()
    await watcher.until(lambda: watcher.informer.problem)
    assert isinstance(watcher.informer.problem, errors.Forbidden)
    assert watcher.informer.problem.verb == "list"
    assert (watcher.informer.synced, watcher.informer.confirmed_at) == (False, None)


async def test_failures_wait_longer_and_longer(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    kube.fail(faults.status(500), times=ALWAYS)
    watch()
    assert await time.slept(8) == FULL_LADDER


async def test_the_same_problem_is_announced_and_logged_once(
    kube: FakeKube, watch: Watch, time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    kube.fail(faults.status(500), times=ALWAYS)
    watcher = watch()
    await time.slept(8)
    assert watcher.wakes == 1
    assert len(caplog.records) == 1


@pytest.mark.parametrize("code", [429, 500])
async def test_the_server_may_say_how_long_to_wait(
    kube: FakeKube, watch: Watch, time: FakeTime, code: int
) -> None:
    kube.fail(faults.status(code, retry_after=20))
    watcher = watch()
    await watcher.until(lambda: watcher.informer.synced)
    assert time.naps == [22.0]


async def test_an_absurd_wait_is_cut_short(kube: FakeKube, watch: Watch, time: FakeTime) -> None:
    kube.fail(faults.status(429, retry_after=86_400))
    watcher = watch()
    await watcher.until(lambda: watcher.informer.synced)
    assert time.naps == [132.0]


async def test_a_list_whose_pages_expired_begins_anew(kube: FakeKube, watch: Watch) -> None:
    for number in range(4):
        kube.put(ADAPTERS, adapter(f"x{number}"))
    kube.fail(
        faults.status(410, "the provided continue parameter is too old", "Expired"),
        verb="list",
        when=lambda seen: "continue" in seen.params,
    )
    watcher = watch(limit=2)
    await watcher.names(*(f"a/x{number}" for number in range(4)))
    assert [s.params.get("continue") for s in kube.of("list")] == [None, "2", None, "2"]
    assert watcher.informer.problem is None


async def test_half_a_list_deletes_nothing(kube: FakeKube, watch: Watch, time: FakeTime) -> None:
    for number in range(4):
        kube.put(ADAPTERS, adapter(f"x{number}"))
    watcher = watch(limit=2)
    await watcher.until(lambda: watcher.informer.synced)
    await kube.streams()
    kube.fail(faults.status(500), when=lambda seen: "continue" in seen.params, times=ALWAYS)
    kube.end_streams()
    await time.slept(5)
    assert len(watcher.informer.snapshot) == 4


# ---- a server that is away -----------------------------------------------------------------------------------------


async def test_a_server_that_is_away_is_tried_every_two_seconds_at_most(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    await kube.stop()
    watcher = watch()
    assert await time.slept(6) == [0.125, 0.25, 0.5, 1, 1, 1]
    assert isinstance(watcher.informer.problem, errors.Unreachable)


@pytest.mark.parametrize(
    "answer", [faults.page(502), faults.status(503, "still starting", retry_after=5)]
)
async def test_a_server_that_is_starting_is_as_one_that_is_away(
    kube: FakeKube, watch: Watch, time: FakeTime, answer: faults.Answer
) -> None:
    kube.fail(answer, times=ALWAYS)
    watch()
    assert await time.slept(6) == [0.125, 0.25, 0.5, 1, 1, 1]


async def test_a_server_that_lists_but_never_watches_is_not_away(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    kube.fail(faults.page(503), verb="watch", times=ALWAYS)
    watcher = watch()
    assert await time.slept(8) == FULL_LADDER
    assert watcher.informer.lists == 8


async def test_a_server_that_never_answers_is_announced_and_logged_once(
    kube: FakeKube, watch: Watch, time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    watcher = watch(read_timeout=0.02)
    await watcher.watching(kube)
    woken = watcher.wakes
    release = asyncio.Event()
    kube.fail(faults.silence(release, before_headers=True), times=ALWAYS)
    kube.end_streams()
    for roll in (0.1, 0.5, 0.9):  # so that no two watches have the same parameters
        time.dice = roll
        await time.slept(len(time.naps) + 2)
    assert str(watcher.informer.problem) == "no answer in time"
    assert (watcher.wakes - woken, len(caplog.records)) == (1, 1)
    release.set()


async def test_a_server_that_goes_away_again_is_tried_as_quickly_as_the_first_time(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    await kube.stop()
    time.budget = 4
    watcher = watch()
    await time.slept(5)
    first = time.naps[:3]
    await kube.start()
    time.budget = 50
    time.wake()
    await watcher.watching(kube)
    time.naps.clear()
    time.now += 11
    await kube.stop()
    assert (await time.slept(3))[:3] == first == [0.125, 0.25, 0.5]


async def test_a_server_that_comes_back_is_picked_up_and_what_was_missed_is_found(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    kube.put(ADAPTERS, adapter("x"))
    kube.put(ADAPTERS, adapter("y"))
    watcher = watch()
    await watcher.watching(kube)
    time.now += 60
    kube.bookmark(ADAPTERS)
    await kube.stop()
    await watcher.until(lambda: watcher.informer.problem)
    kube.delete(ADAPTERS, "a", "x")
    kube.memory.forget_events()
    await kube.start()
    await watcher.names("a/y")
    assert watcher.informer.lists == 2


@pytest.mark.field(72)
async def test_many_that_lost_a_server_come_back_spread_out(kube: FakeKube, watch: Watch) -> None:
    await kube.stop()
    delays = []
    for seed in range(50):
        time = FakeTime()
        time.roll = random.Random(seed).random  # type: ignore[method-assign]
        watcher = Watcher(kube.client(), time)
        delays.append(watcher.informer._failed(errors.Unreachable("away"), listed=False))
        delays.append(watcher.informer._failed(errors.Gone("too old"), listed=False))
    assert len(set(delays)) == 100
    assert max(delays) - min(delays) > 0.4


# ---- the ends of streams ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(faults.stream(), id="at once"),
        pytest.param(faults.stream(b"<html>\n", b"7\n", b'"x"\n', b"{}\n"), id="with a page"),
        pytest.param(faults.stream(b'{"type": "ADDED", "obj'), id="in half a line"),
        pytest.param(faults.stream(b'{"type"', cut_after=True), id="by a break"),
        pytest.param(
            faults.stream(faults.event("ADDED", {"kind": "Thing"})), id="with what has no name"
        ),
    ],
)
async def test_a_stream_that_says_nothing_is_followed_by_a_list_and_never_in_a_hot_loop(
    kube: FakeKube, watch: Watch, time: FakeTime, answer: faults.Answer
) -> None:
    kube.put(ADAPTERS, adapter("x"))
    kube.fail(answer, verb="watch", times=ALWAYS)
    watcher = watch()
    assert await time.slept(8) == FULL_LADDER
    assert len(kube.of("watch")) == len(kube.of("list")) == 8
    assert set(watcher.informer.snapshot) == {"a/x"}
    assert watcher.informer.problem is None


async def test_a_stream_that_ends_after_each_event_waits_as_well(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    item = kube.put(ADAPTERS, adapter("x"))
    kube.fail(faults.stream(faults.event("MODIFIED", item)), verb="watch", times=ALWAYS)
    watcher = watch()
    assert await time.slept(8) == FULL_LADDER
    assert watcher.informer.lists == 1
    assert len(watcher.changes) == 1


async def test_a_stream_that_lived_is_followed_at_once_and_forgives_failures(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    kube.fail(faults.status(500), times=5)
    watcher = watch()
    await watcher.watching(kube)
    assert time.naps == FULL_LADDER[:5]
    kube.put(ADAPTERS, adapter("x"))
    await watcher.names("a/x")
    time.now += 11
    kube.cut_streams()
    await kube.requests(2, "watch")
    await kube.streams()
    assert len(time.naps) == 5
    kube.end_streams()
    await kube.requests(3, "watch")
    assert time.naps[5:] == FULL_LADDER[:1]


@pytest.mark.field(63)
async def test_a_break_in_the_middle_of_a_line_is_resumed_without_a_second_effect(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    watcher = watch()
    await kube.streams()
    kube.put(ADAPTERS, adapter("x"))
    await watcher.names("a/x")
    half = faults.event("MODIFIED", kube.put(ADAPTERS, adapter("x", path="/new")))[:40]
    kube.memory.oldest = 0
    kube.cut_streams(half)
    await watcher.until(lambda: watcher.informer.snapshot["a/x"].get("path") == "/new")
    await kube.requests(2, "watch")
    assert len(watcher.changes) == 2
    assert watcher.informer.lists == 1
    assert watcher.informer.problem is None


# ---- too old ---------------------------------------------------------------------------------------------------------


@pytest.mark.field(68)
async def test_a_version_that_is_too_old_is_followed_by_a_list_that_finds_deletions(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    kube.put(ADAPTERS, adapter("x"))
    kube.put(ADAPTERS, adapter("y"))
    watcher = watch()
    await watcher.watching(kube)
    time.now += 60
    kube.bookmark(ADAPTERS)
    kube.cut_streams()
    kube.delete(ADAPTERS, "a", "x")
    kube.memory.forget_events()
    await watcher.names("a/y")
    assert watcher.informer.lists == 2
    assert ("a/x", {"name": "x"}, None) in watcher.changes
    assert watcher.informer.problem is None


@pytest.mark.parametrize(
    "answer",
    [
        faults.status(410, "too old resource version", "Expired"),
        faults.stream(faults.event("ERROR", faults.said(410, "too old resource version"))),
        faults.stream(
            faults.event("BOOKMARK", {"metadata": {"resourceVersion": "101"}}),
            faults.event("ERROR", faults.said(410, "too old resource version")),
        ),
    ],
)
async def test_too_old_again_and_again_lists_each_time_but_in_no_hot_loop(
    kube: FakeKube, watch: Watch, time: FakeTime, answer: faults.Answer
) -> None:
    kube.fail(answer, verb="watch", times=ALWAYS)
    watcher = watch()
    assert await time.slept(8) == FULL_LADDER
    assert watcher.informer.lists == 8
    assert watcher.informer.problem is None


async def test_another_error_inside_the_stream_is_a_problem_and_lists_anew(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    kube.fail(
        faults.stream(faults.event("ERROR", faults.said(500, "etcd is unwell", "InternalError"))),
        verb="watch",
    )
    time.budget = 0
    watcher = watch()
    await time.slept(1)
    assert str(watcher.informer.problem) == "500 InternalError: etcd is unwell"


async def test_a_watch_that_is_forbidden_polls_by_listing(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    kube.forbidden = lambda seen: seen.verb == "watch"
    watcher = watch()
    await watcher.until(lambda: watcher.informer.problem)
    kube.put(ADAPTERS, adapter("x"))
    await watcher.names("a/x")
    assert isinstance(watcher.informer.problem, errors.Forbidden)
    assert watcher.informer.problem.verb == "watch"


async def test_a_watch_that_cannot_connect_goes_on_where_it_was(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    kube.fail(faults.status(429, retry_after=1), verb="watch")
    watcher = watch()
    await kube.streams()
    assert watcher.informer.lists == 1
    assert time.naps == [1.1]


# ---- silence ---------------------------------------------------------------------------------------------------------


@pytest.mark.field(59)
@pytest.mark.field(62)
@pytest.mark.field(71)
async def test_a_watch_that_goes_silent_is_given_up_and_what_it_missed_is_found(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    release = asyncio.Event()
    kube.fail(faults.silence(release), verb="watch")
    watcher = watch(read_timeout=0.1)
    await kube.requests(1, "watch")
    kube.put(ADAPTERS, adapter("x"))
    await watcher.names("a/x")
    assert watcher.informer.lists == 2
    assert watcher.informer.problem is None
    release.set()


@pytest.mark.field(60)
async def test_silence_is_seen_as_age_although_nothing_failed_yet(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    watcher = watch()
    await watcher.watching(kube)
    last = time.now
    time.now += 89
    assert watcher.informer.synced
    assert watcher.informer.problem is None
    assert watcher.informer.confirmed_at == last
    kube.put(ADAPTERS, adapter("x"))
    await watcher.names("a/x")
    assert watcher.informer.confirmed_at == time.now


@pytest.mark.field(70)
async def test_hundreds_of_restarted_watches_leave_nothing_behind(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    watcher = watch()
    for _ in range(300):
        await watcher.watching(kube)
        time.now += 11
        kube.end_streams()
        await kube.streams(0)
    await watcher.watching(kube)
    assert len(kube.of("watch")) == 301
    assert len({seen.peer for seen in kube.seen}) == 1
    assert watcher.informer.lists == 1
    assert time.naps == []


async def test_it_ends_when_it_is_told_to_and_lets_the_stream_go(kube: FakeKube) -> None:
    async with kube.client() as client:
        watcher = Watcher(client, FakeTime())
        task = asyncio.create_task(watcher.informer.run())
        await kube.streams(1)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await kube.streams(0)
