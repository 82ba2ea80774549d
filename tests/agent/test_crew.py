"""Threads that may be lost: what hangs is left behind, counted and bounded, and holds up nothing else."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from sidecar.agent import crew as crew_module
from sidecar.agent.crew import FAST, LAGGING, LAGGING_OF_GROUP, Crew
from tests.agent.waiting import until


class Hang:
    """Work that comes back only when it is released."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.began = 0
        self._lock = threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            self.began += 1
        self.release.wait()
        return "back"


@pytest.fixture
async def crew() -> AsyncIterator[Crew]:
    crew = Crew("test", patience=0.01)
    yield crew
    crew.close()


@pytest.fixture
def hang() -> AsyncIterator[Hang]:
    hang = Hang()
    yield hang
    hang.release.set()


async def test_answers_are_handed_to_the_loop(crew: Crew) -> None:
    answers: list[tuple[int, int]] = []
    for number in range(50):
        crew.submit("/a", lambda n=number: n, lambda n: answers.append((n, threading.get_ident())))
    await until(lambda: len(answers) == 50)
    assert {number for number, _ in answers} == set(range(50))
    assert {thread for _, thread in answers} == {threading.get_ident()}


async def test_work_that_hangs_holds_up_no_other_group(crew: Crew, hang: Hang) -> None:
    done: list[str] = []
    for _ in range(20):
        crew.submit("/dead", hang, done.append)
    crew.submit("/healthy", lambda: "done", done.append)
    await until(lambda: done == ["done"])


async def test_work_that_hangs_holds_up_no_other_of_its_group(crew: Crew, hang: Hang) -> None:
    done: list[str] = []
    crew.submit("/a", hang, done.append)
    crew.submit("/a", lambda: "done", done.append)
    await until(lambda: done == ["done"])
    await until(lambda: crew.lagging == 1)


async def test_only_so_many_threads_are_lost_to_one_group(crew: Crew, hang: Hang) -> None:
    done: list[str] = []
    for _ in range(20):
        crew.submit("/dead", hang, done.append)
    await until(lambda: crew.lagging == LAGGING_OF_GROUP)
    crew.submit("/healthy", lambda: "done", done.append)
    await until(lambda: done)
    assert hang.began == LAGGING_OF_GROUP
    hang.release.set()
    await until(lambda: len(done) == 21)
    assert crew.lagging == 0


async def test_only_so_many_threads_are_lost_in_all_but_a_new_group_is_tried(
    crew: Crew, hang: Hang
) -> None:
    groups = [f"/dead/{number}" for number in range(5)]
    for group in groups:
        for _ in range(6):
            crew.submit(group, hang, lambda answer: None)
    await until(lambda: crew.lagging >= LAGGING)
    done: list[bool] = []
    crew.submit("/healthy", lambda: threading.Event().wait(0.1), done.append)
    await until(lambda: done)  # time enough for all others to be left behind
    assert crew.lagging <= LAGGING + len(groups)


async def test_only_a_few_work_at_a_time(hang: Hang) -> None:
    crew = Crew("test", patience=1000)
    for number in range(20):
        crew.submit(f"/{number}", hang, lambda answer: None)
    await until(lambda: hang.began == FAST)
    hang.release.set()
    await until(lambda: hang.began == 20)
    crew.close()


async def test_threads_are_used_again_and_end_when_they_are_too_many_or_it_closes(
    hang: Hang,
) -> None:
    crew = Crew("crew-of-this-test", patience=0.01)

    def threads() -> int:
        return sum(thread.name == "crew-of-this-test" for thread in threading.enumerate())

    for number in range(8):
        crew.submit(f"/{number}", hang, lambda answer: None)
    await until(lambda: crew.lagging == 8)
    hang.release.set()
    await until(lambda: threads() == FAST)
    done: list[None] = []
    for _ in range(10):
        crew.submit("/a", lambda: None, done.append)
    await until(lambda: len(done) == 10)
    assert threads() == FAST
    hang.release.clear()
    crew.submit("/a", hang, lambda answer: None)
    await until(lambda: hang.began == 9)
    crew.close()
    await until(lambda: threads() == 1)
    hang.release.set()
    await until(lambda: threads() == 0)


def test_a_thread_at_work_ends_although_the_loop_has_ended_before_it() -> None:
    release = threading.Event()
    begun = threading.Event()

    def work() -> None:
        begun.set()
        release.wait()

    async def leave() -> None:
        crew = Crew("crew-without-a-loop")
        crew.submit("/a", work, lambda answer: None)
        await asyncio.to_thread(begun.wait)
        crew.close()

    asyncio.run(leave())
    left = [thread for thread in threading.enumerate() if thread.name == "crew-without-a-loop"]
    release.set()
    for thread in left:
        thread.join(20)
    assert [thread.is_alive() for thread in left] == [False]


async def test_where_no_thread_can_be_had_the_work_waits_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crew = Crew("test", patience=1000)
    refused: list[threading.Thread] = []
    start: Callable[[threading.Thread], None] = threading.Thread.start

    def sometimes(thread: threading.Thread) -> None:
        if len(refused) < 7:  # more often than there are submissions to try again with
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", sometimes)
    monkeypatch.setattr(crew_module, "HIRE_AGAIN", 0.01)
    done: list[int] = []
    for number in range(3):
        crew.submit("/a", lambda n=number: n, done.append)
    await until(lambda: sorted(done) == [0, 1, 2])
    for number in range(3, 9):
        crew.submit("/a", lambda n=number: n, done.append)
    await until(lambda: len(done) == 9)
    crew.close()


async def test_an_answer_that_comes_after_the_loop_has_ended_is_dropped(hang: Hang) -> None:
    ended: list[threading.Thread] = []

    def lose() -> None:
        async def main() -> None:
            Crew("lost", patience=0.01).submit("/a", hang, lambda answer: pytest.fail("came"))
            await until(lambda: hang.began)

        asyncio.run(main())
        ended.extend(thread for thread in threading.enumerate() if thread.name == "lost")

    await asyncio.to_thread(lose)
    hang.release.set()
    assert len(ended) == 1
