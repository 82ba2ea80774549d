"""Engine killers: whom a death is blamed on, how a suspect is tried, and what holds one back."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import aiohttp
import pytest

from sidecar.agent.answers import Answer, Kind
from sidecar.agent.outcome import remember
from sidecar.agent.pathview import PathState
from sidecar.agent.plan import plan
from sidecar.agent.report import Says, recall, report
from sidecar.agent.state import (
    Action,
    EngineView,
    Load,
    Memory,
    Outcome,
    Plan,
    Trial,
    World,
)
from sidecar.agent.suspects import BLAME, FIRST_HOLD, LONGEST_HOLD, TRIAL_PAUSE
from sidecar.api.adapter import LoRAAdapter
from sidecar.api.reasons import EngineState, Reason
from tests.agent.builders import ME, NOON, adapter, engine, whole, world
from tests.agent.harness import Agent
from tests.fakes.sglang.server import Simulator

pytestmark = pytest.mark.rule(12)

A, B, C = (adapter(name) for name in "abc")
AWAY = EngineView(state=EngineState.STARTING)


class Life:
    """One agent's plans through the lives of an engine, which dies when told to. `sent` is what it was asked."""

    def __init__(self, *adapters: LoRAAdapter) -> None:
        self.adapters = adapters
        self.now = 100.0
        self.boot = 1
        self.held: dict[str, str] = {}
        self.memory = Memory()
        self.sent: list[tuple[str, str]] = []
        self.files = whole("s1")

    def seen(self, view: EngineView | None = None) -> World:
        listed = engine(dict(self.held), boot=f"boot-{self.boot}", listed_at=self.now)
        paths = {one.spec.path: self.files for one in self.adapters}
        return world(*self.adapters, engine=view or listed, paths=paths)

    def decide(self, view: EngineView | None = None) -> Plan:
        decided = plan(self.seen(view), self.memory, ME, self.now)
        self.memory = decided.memory
        return decided

    def learn(self, action: Action, kind: Kind, boot: int) -> None:
        answer = Answer(kind, loaded=dict(self.held) if isinstance(action, Load) else None)
        outcome = Outcome(action, answer, NOON, f"boot-{boot}", self.files.signature)
        self.memory = remember(self.memory, outcome, self.now, ME.pod, (0, 5, 23))

    def run(self, *, killer: str = "") -> Plan:
        """Pass after pass until nothing is left to do; a load or trial of `killer` kills the engine, and it ends."""
        for _ in range(50):
            decided = self.decide()
            if not decided.actions:
                return decided
            (action,) = decided.actions
            self.sent.append((type(action).__name__, action.handle))
            boot = self.boot
            if isinstance(action, Trial) and action.handle == killer:
                self.die()
                self.learn(action, Kind.UNKNOWN, boot)
                return decided
            if isinstance(action, Load):
                self.held[action.handle] = action.path
            self.learn(action, Kind.OK, boot)
        raise AssertionError(f"no end: {self.sent}")

    def die(self) -> None:
        self.held.clear()
        self.boot += 1

    def after(self, seconds: float) -> "Life":
        self.now += seconds
        return self

    def calls(self) -> list[tuple[str, str]]:
        """What was asked since the last time."""
        calls, self.sent = self.sent, []
        return calls

    def reasons(self) -> dict[str, Reason]:
        return {entry.adapter.handle: entry.reason for entry in self.decide().entries}


def loaded(*adapters: LoRAAdapter) -> Life:
    life = Life(*adapters)
    life.run()
    life.calls()
    return life


def twice_killed(*adapters: LoRAAdapter) -> Life:
    """The engine died while `c` was tried, twice; its third process runs."""
    life = loaded(*adapters)
    life.die()
    life.run(killer="c")
    life.run(killer="c")
    life.run()
    life.calls()
    return life


def test_after_a_death_soon_after_the_loads_each_is_loaded_and_tried_by_itself():
    life = loaded(A, B)
    life.after(BLAME - 1).die()
    life.run()
    assert life.calls() == [("Load", "a"), ("Trial", "a"), ("Load", "b"), ("Trial", "b")]
    assert life.reasons() == {"a": Reason.LOADED, "b": Reason.LOADED}


def test_a_death_long_after_the_loads_suspects_nobody():
    life = loaded(A, B)
    life.after(BLAME).die()
    life.run()
    assert life.calls() == [("Load", "a"), ("Load", "b")]


def test_the_time_of_death_counts_and_not_how_long_the_next_start_took():
    life = loaded(A)
    life.after(BLAME - 1).decide(AWAY)
    life.die()
    life.after(3600).run()
    assert life.calls() == [("Load", "a"), ("Trial", "a")]


def test_suspects_come_after_all_others():
    life = loaded(A, B)
    life.die()
    life.adapters = (A, B, C)
    life.run()
    assert life.calls()[0] == ("Load", "c")


def test_a_cleared_adapter_is_not_suspected_again_until_it_changes():
    life = loaded(A)
    life.die()
    life.run()
    life.calls()
    life.die()
    life.run()
    assert life.calls() == [("Load", "a")]
    life.files = whole("s2")
    life.die()
    life.run()
    life.calls()
    life.die()
    life.run()
    assert life.calls() == [("Load", "a"), ("Trial", "a")]


def test_what_others_loaded_is_never_suspected():
    life = Life(A, B)
    life.held = {"a": A.spec.path}
    startup = engine(dict(life.held), startup_adapters=dict(life.held))
    assert life.decide(startup).memory.held["a"].owned is False
    life.run()
    life.die()
    life.run()
    assert life.calls() == [("Load", "b"), ("Load", "a"), ("Load", "b"), ("Trial", "b")]


def test_a_trial_that_told_nothing_is_repeated_at_once_in_the_next_process():
    life = loaded(A)
    life.die()
    (load,) = life.decide().actions
    life.held["a"] = A.spec.path
    life.learn(load, Kind.OK, life.boot)
    (trial,) = life.decide().actions
    life.learn(trial, Kind.UNKNOWN_NAME, life.boot)
    assert life.decide().actions == ()
    life.die()
    life.run()
    assert life.calls() == [("Load", "a"), ("Trial", "a")]


def test_one_death_during_its_own_trial_does_not_hold_an_adapter_back():
    life = loaded(A, C)
    life.die()
    life.run(killer="c")
    life.calls()
    life.run()
    assert life.calls() == [("Load", "a"), ("Load", "c"), ("Trial", "c")]
    assert life.reasons() == {"a": Reason.LOADED, "c": Reason.LOADED}


def test_the_second_holds_it_back_and_saves_the_others():
    life = twice_killed(A, B, C)
    assert life.reasons() == {
        "a": Reason.LOADED,
        "b": Reason.LOADED,
        "c": Reason.ENGINE_CRASH_SUSPECT,
    }
    text = life.decide().entries[2].text
    assert "2 times" in text
    assert "lora-sidecar.llmkube.dev/retry" in text


def test_deaths_while_others_were_tried_do_not_count_against_it():
    life = loaded(A, C)
    for _ in range(4):
        life.die()
        life.run(killer="a")
    life.run()
    assert life.reasons() == {"a": Reason.ENGINE_CRASH_SUSPECT, "c": Reason.LOADED}


def test_a_death_during_its_own_load_counts_too():
    life = Life(C)
    for _ in range(2):
        (load,) = life.decide().actions
        life.learn(load, Kind.UNKNOWN, life.boot)
        life.after(1.0).die()
    assert life.decide().actions == ()
    assert life.reasons() == {"c": Reason.ENGINE_CRASH_SUSPECT}


def test_a_lost_answer_of_an_engine_that_lives_on_counts_for_nothing():
    life = Life(C)
    for _ in range(3):
        (load,) = life.decide().actions
        life.learn(load, Kind.UNKNOWN, life.boot)
        life.after(11.0).decide()
        life.after(61.0)
    life.die()
    life.run()
    assert life.calls() == [("Load", "c")]


def test_a_list_of_a_dying_engine_does_not_clear():
    life = loaded(C)
    life.die()
    life.run()
    life.memory = replace(life.memory, suspects=replace(life.memory.suspects, by_uid={}))
    for _ in range(2):
        life.die()
        decided = life.decide()
        while not isinstance(decided.actions[0], Trial):
            life.held["c"] = C.spec.path
            life.learn(decided.actions[0], Kind.OK, life.boot)
            decided = life.decide()
        life.learn(decided.actions[0], Kind.UNKNOWN, life.boot)
        life.after(5.0).decide()
    life.die()
    assert life.reasons() == {"c": Reason.ENGINE_CRASH_SUSPECT}


def test_each_further_death_holds_it_back_for_twice_as_long_up_to_an_hour():
    life = twice_killed(A, C)
    holds = []
    for _ in range(6):
        decided = life.decide()
        assert decided.wake_at is not None
        holds.append(round(decided.wake_at - life.now))
        life.after(holds[-1]).run(killer="c")
        life.run()
    assert holds == [FIRST_HOLD, 600, 1200, 2400, LONGEST_HOLD, LONGEST_HOLD]


@pytest.mark.parametrize("change", ["its files", "its path", "its handle", "the retry annotation"])
def test_a_change_of_it_forgets_what_was_held_against_it(change: str):
    life = twice_killed(A, C)
    edited = {
        "its files": C,
        "its path": adapter("c", path="/other"),
        "its handle": adapter("c", handle="d"),
        "the retry annotation": adapter("c", retry="now"),
    }
    life.adapters = (A, edited[change])
    if change == "its files":
        life.files = replace(life.files, signature="s2")
    assert life.reasons()[edited[change].handle] is Reason.LOADING


def test_files_that_are_away_for_a_while_forget_nothing():
    life = twice_killed(A, C)
    files, life.files = life.files, replace(life.files, state=PathState.MISSING, signature="")
    assert life.reasons()["c"] is Reason.PATH_NOT_FOUND
    life.files = files
    assert life.reasons()["c"] is Reason.ENGINE_CRASH_SUSPECT


def test_a_deleted_suspect_is_forgotten_and_an_unseen_one_is_not():
    life = twice_killed(A, C)
    unseen = replace(life.seen(), adapters=(A,), wants=life.seen().wants[:1], partial=True)
    assert plan(unseen, life.memory, ME, life.now).memory.suspects.of("uid-c")
    life.adapters = (A,)
    assert life.decide().memory.suspects.of("uid-c") is None


@pytest.mark.parametrize(
    ("kind", "cleared"),
    [
        (Kind.OK, True),
        (Kind.REJECTED, True),
        (Kind.UNAUTHORIZED, True),
        (Kind.UNKNOWN, False),
        (Kind.REFUSED, False),
        (Kind.UNKNOWN_NAME, False),
    ],
)
def test_whatever_the_engine_lives_to_answer_clears(kind: Kind, cleared: bool):
    life = loaded(A)
    life.die()
    for _ in range(2):
        (action,) = life.decide().actions
        if isinstance(action, Load):
            life.held["a"] = action.path
        life.learn(action, Kind.OK if isinstance(action, Load) else kind, life.boot)
    decided = life.after(TRIAL_PAUSE).decide()
    assert [type(action) for action in decided.actions] == ([] if cleared else [Trial])
    assert decided.entries[0].reason is Reason.LOADED


def test_what_is_held_back_stays_so_over_a_restart_of_the_agent():
    life = twice_killed(A, C)
    said = report(Says("1", ("*",)), life.decide(), life.seen().engine, "all")
    life.memory = recall(said, life.now)
    assert life.reasons() == {"a": Reason.LOADED, "c": Reason.ENGINE_CRASH_SUSPECT}
    assert life.decide().wake_at == life.now + FIRST_HOLD


# --- with a simulated engine, which dies as the real one does ----------------------------------


@asynccontextmanager
async def _kubelet(simulator: Simulator) -> AsyncIterator[None]:
    """Start the engine again whenever it has died."""

    async def restart() -> None:
        while True:
            await simulator.died.wait()
            await simulator.start()

    task = asyncio.create_task(restart())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_an_adapter_that_kills_the_engine_is_found_out_and_the_others_serve(
    simulator: Simulator, make: Callable[..., str], tmp_path
):
    good = [adapter(name, path=make(name)) for name in "ab"]
    kills = adapter("kills", path=make("kills", hidden=96))
    async with Agent(simulator, tmp_path) as agent, _kubelet(simulator):
        agent.source.set(kills, *good)
        await agent.until_reported(kills=Reason.LOADED, a=Reason.LOADED, b=Reason.LOADED)
        await _first_use(simulator, "kills")
        await agent.until_reported(
            kills=Reason.ENGINE_CRASH_SUSPECT, a=Reason.LOADED, b=Reason.LOADED
        )
        assert simulator.boots == 4  # the client's death, two trials, and the one that lives
        assert agent.held().keys() == {"a", "b"}
        asked = [load["lora_name"] for load in agent.loads]
        assert asked[3:6] == ["a", "b", "kills"]
        assert asked[6:] == ["a", "b", "kills", "a", "b"]


async def _first_use(simulator: Simulator, handle: str) -> None:
    body = {"input_ids": [1], "lora_path": handle, "sampling_params": {"max_new_tokens": 1}}
    async with aiohttp.ClientSession() as session:
        with suppress(aiohttp.ClientError):
            await session.post(f"{simulator.url}/generate", json=body)
