"""Stuck unloads across restarts of the agent, unloads that must come before a load, and engines that cannot list."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from sidecar.agent.answers import Answer, Kind
from sidecar.agent.outcome import remember
from sidecar.agent.plan import plan
from sidecar.agent.report import Says, recall, report
from sidecar.agent.state import (
    EngineView,
    Held,
    Load,
    Memory,
    Outcome,
    Plan,
    Running,
    Stuck,
    Unload,
    World,
)
from sidecar.api.reasons import Reason
from tests.agent.builders import ME, NOON, adapter, engine, world
from tests.agent.harness import Agent
from tests.fakes.sglang.options import Options
from tests.fakes.sglang.server import Simulator
from tests.rig.adapters import make_adapter

A, B = adapter("a"), adapter("b")
GONE_A = adapter("a", deleting=True)
HELD_A = Held("uid-a", "ns/a", "a", "/adapters/a", "boot-1", True, False, NOON, "s1", "c1")
UNLOAD_A = Unload("uid-a", "ns/a", "a", "/adapters/a")
LOAD_A = Load("uid-a", "ns/a", "a", "/adapters/a", False, "s1", "")


def decide(seen: World, memory: Memory | None = None, now: float = 100.0) -> Plan:
    return plan(seen, memory or Memory(), ME, now)


def reasons(decided: Plan) -> dict[str, Reason]:
    return {entry.adapter.metadata.name: entry.reason for entry in decided.entries}


def learn(memory: Memory, action: Load | Unload, kind: Kind) -> Memory:
    outcome = Outcome(action, Answer(kind, "said"), NOON, "boot-1")
    return remember(memory, outcome, 100.0, "pod-0", (0, 5, 21))


def after_restart() -> Memory:
    risky = engine(version="0.5.21")
    stuck = world(GONE_A, engine=risky, running=(Running(UNLOAD_A, 0.0),))
    decided = decide(stuck, Memory(held={"a": HELD_A}))
    return recall(report(Says("1", ("*",)), decided, risky, "all"), 0.0)


@pytest.mark.rule(11)
@pytest.mark.field(35)
class TestAStuckUnload:
    def test_it_says_which_versions_have_the_fault_and_what_to_do(self):
        risky = engine(version="0.5.21")
        running = (Running(UNLOAD_A, 0.0),)
        decided = decide(
            world(GONE_A, B, engine=risky, running=running), Memory(held={"a": HELD_A})
        )
        assert "0.5.1 to 0.5.21" in decided.entries[0].text
        assert "restart the engine" in decided.entries[0].text
        assert decided.entries[1].text == "waits for the unload of a, which is stuck"

    def test_after_a_restart_of_the_agent_only_its_probe_is_sent(self):
        decided = decide(world(GONE_A, B, engine=engine(version="0.5.21")), after_restart())
        assert decided.actions == (UNLOAD_A,)
        assert reasons(decided) == {"a": Reason.UNLOAD_STUCK, "b": Reason.LOADING}
        assert "unload of a" in decided.entries[1].text

    @pytest.mark.parametrize("kind", [Kind.OK, Kind.UNKNOWN_NAME])
    def test_the_answer_to_the_probe_ends_it(self, kind):
        memory = learn(after_restart(), UNLOAD_A, kind)
        decided = decide(world(GONE_A, B), memory)
        assert [action.handle for action in decided.actions] == ["b"]
        assert reasons(decided)["a"] is Reason.UNLOADED

    def test_a_new_engine_process_ends_it(self):
        decided = decide(world(B, engine=engine(boot="boot-2")), after_restart())
        assert [action.handle for action in decided.actions] == ["b"]

    def test_it_survives_without_an_adapter_that_stands_for_it(self):
        said = report(Says("1", ("*",)), decide(world(), after_restart()), engine(), "all")
        assert recall(said, 0.0).stuck

    def test_an_incomplete_unload_is_finished_before_the_load(self):
        memory = learn(Memory(), LOAD_A, Kind.INCOMPLETE_UNLOAD)
        assert decide(world(A), memory).actions == (UNLOAD_A,)
        memory = learn(memory, UNLOAD_A, Kind.UNKNOWN_NAME)
        assert decide(world(A), memory).actions == (LOAD_A,)


def old(version: str = "0.5.3", names: set[str] | None = None) -> EngineView:
    told = None if names is None else frozenset(names)
    return replace(engine(version=version), lists=False, names=told, named_at=99.0)


@pytest.mark.rule(3)
class TestAnEngineThatCannotList:
    @pytest.mark.field(33)
    def test_nothing_is_loaded_before_it_has_named_what_it_holds(self):
        assert decide(world(A, engine=old())).actions == ()
        assert decide(world(A, engine=old(names=set()))).actions == (LOAD_A,)

    def test_a_name_that_is_not_ours_is_left_alone(self):
        decided = decide(world(A, engine=old(names={"a"})))
        assert (decided.actions, reasons(decided)) == ((), {"a": Reason.NAME_TAKEN})
        assert decided.foreign == ("a",)

    @pytest.mark.field(1)
    def test_what_it_no_longer_names_is_loaded_again(self):
        held: Mapping[str, Held] = {"a": HELD_A}
        assert decide(world(A, engine=old(names=set())), Memory(held=held)).actions == (LOAD_A,)

    @pytest.mark.parametrize("version", ["0.5.3", "0.4.10"])
    def test_a_load_without_an_answer_is_not_sent_twice_where_it_may_be_there(self, version):
        memory = learn(Memory(), LOAD_A, Kind.UNKNOWN)
        names = {"a"} if version == "0.5.3" else None
        seen = replace(old(version, names), listed_at=101.0, named_at=101.0)
        decided = decide(world(A, engine=seen), memory, 500.0)
        assert (decided.actions, reasons(decided)) == ((), {"a": Reason.LOADED_UNVERIFIED})

    @pytest.mark.field(34)
    async def test_it_is_given_each_adapter_once(self, tmp_path):
        async with (
            Simulator(Options(version="0.5.3", dying=0.0)) as simulator,
            Agent(simulator, tmp_path) as agent,
        ):
            agent.source.set(adapter("a", path=str(make_adapter(tmp_path / "a"))))
            await agent.until_reported(a=Reason.LOADED_UNVERIFIED)
            asked = len(agent.unloads)
            await agent.until(lambda: len(agent.unloads) > asked + 2)
            assert {body["lora_name"] for body in agent.unloads} == {"lora-sidecar-probe"}
            assert len(agent.loads) == 1


@pytest.mark.rule(11)
def test_what_the_engine_lists_again_is_stuck_no_more_and_not_unloaded() -> None:
    mine = adapter("a", path="/adapters/new")
    held = replace(HELD_A, path="/adapters/new")
    left = Stuck("uid-a", "ns/a", "a", "/adapters/a", "boot-1")
    seen = world(mine, engine=engine({"a": "/adapters/new"}))
    decided = decide(seen, Memory(held={"a": held}, stuck=left))
    assert decided.actions == ()
    assert decided.memory.stuck is None
    assert decided.entries[0].reason is Reason.LOADED
