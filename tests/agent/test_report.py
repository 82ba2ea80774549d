"""The report: what is said, what is recalled from it, and when it is written."""

import json
from dataclasses import replace

import pytest

from sidecar.agent.plan import plan
from sidecar.agent.report import BEAT, QUIET, URGENT, Says, Written, due, recall, report
from sidecar.agent.state import Held, Memory, Plan, Tombstone, World
from sidecar.api.reasons import EngineState, Reason, State
from sidecar.api.report import SIZE_LIMIT, AdapterEntry, EngineEntry, ReportStatus
from tests.agent.builders import ME, NOON, adapter, engine, world

SAYS = Says("0.1.0", ("*",))
A = adapter("a")
HELD_A = Held("uid-a", "ns/a", "a", "/adapters/a", "boot-1", True, False, NOON, "s1", "c1")


def said_of(seen: World, memory: Memory | None = None) -> tuple[ReportStatus, Plan]:
    decided = plan(seen, memory or Memory(), ME, 100.0)
    return report(SAYS, decided, seen.engine, seen.scope), decided


def test_it_says_what_each_adapter_is_and_how_many_are_loaded():
    seen = world(A, adapter("b"), engine=engine({"a": "/adapters/a"}))
    said, _ = said_of(seen, Memory(held={"a": HELD_A}))
    assert [(e.adapter, e.state, e.reason) for e in said.adapters] == [
        ("ns/a", State.LOADED, Reason.LOADED),
        ("ns/b", State.PENDING, Reason.LOADING),
    ]
    assert said.loaded == "1/2"
    assert said.reason is Reason.LOADING
    assert said.engine
    assert (said.engine.state, said.engine.boot_id, said.engine.version) == (
        EngineState.READY,
        "boot-1",
        "0.5.23",
    )


def test_memory_survives_a_restart_of_the_agent():
    memory = Memory(held={"a": HELD_A}, tombstones={"x": Tombstone("/adapters/x", "boot-1")})
    said, decided = said_of(world(A, engine=engine({"a": "/adapters/a"})), memory)
    wire = json.loads(said.model_dump_json(by_alias=True, exclude_none=True))
    assert recall(ReportStatus.model_validate(wire), 0.0) == Memory(
        held=dict(decided.memory.held), tombstones=dict(decided.memory.tombstones)
    )


def test_what_is_held_for_an_adapter_that_is_gone_is_remembered_as_to_be_unloaded():
    said, _ = said_of(world(engine=engine({"a": "/adapters/a"})), Memory(held={"a": HELD_A}))
    assert [(stone.handle, stone.path) for stone in said.unloaded] == [("a", "/adapters/a")]


def test_what_is_held_from_a_path_that_only_another_adapter_names_is_remembered_as_to_be_unloaded():
    moved, other = adapter("a", path="/new"), adapter("b", handle="a", path="/adapters/a")
    seen = world(other, moved, engine=engine({"a": "/adapters/a"}), partial=True)
    decided = plan(seen, Memory(held={"a": HELD_A}), ME, 100.0)
    kept = {"a": replace(HELD_A, uid="uid-gone", key="ns/gone")}
    decided = replace(decided, memory=replace(decided.memory, held=kept), foreign=())
    said = report(SAYS, decided, seen.engine, "all")
    assert [(stone.handle, stone.path) for stone in said.unloaded] == [("a", "/adapters/a")]


def test_both_paths_that_a_handle_may_have_been_unloaded_with_survive_a_restart_of_the_agent():
    memory = Memory(tombstones={"x": Tombstone("/new", "boot-1", older="/old")})
    said, _ = said_of(world(), memory)
    assert dict(recall(said, 0.0).tombstones) == dict(memory.tombstones)


def test_texts_are_cut_to_one_line_of_256_bytes():
    seen = world(A)
    decided = plan(seen, Memory(), ME, 0.0)
    long = replace(decided.entries[0], text="ä\n" * 500)
    said = report(SAYS, replace(decided, entries=(long,)), seen.engine, "all")
    text = said.adapters[0].text or ""
    assert len(text.encode()) <= 256
    assert "\n" not in text


def test_a_thousand_entries_with_long_paths_stay_within_the_limit():
    many = [adapter(f"a{n}", path="/" + "p" * 4000 + str(n)) for n in range(1100)]
    said, _ = said_of(world(*many))
    assert said.report_truncated
    assert len(json.dumps(said.model_dump(mode="json", by_alias=True))) <= SIZE_LIMIT
    assert said.adapters[0].adapter == "ns/a0"


class TestWhenItIsWritten:
    def of(self, state: State = State.PENDING, up: EngineState = EngineState.READY) -> ReportStatus:
        reason = {State.LOADED: Reason.LOADED}.get(state, Reason.LOADING)
        entry = AdapterEntry(adapter="ns/a", uid="u", state=state, reason=reason)
        return ReportStatus(adapters=(entry,), engine=EngineEntry(state=up))

    def test_the_first_at_once(self):
        assert due(None, self.of(), 5.0, 0.0) == 5.0

    def test_a_change_after_a_quiet_second_at_once(self):
        assert due(Written(self.of(), 1.0), self.of(State.LOADED), 5.0, 0.0) == 5.0

    def test_the_next_change_a_second_after_the_last(self):
        assert due(Written(self.of(), 4.9), self.of(State.LOADED), 5.0, 0.0) == 4.9 + QUIET

    @pytest.mark.parametrize("urgent", ["an adapter leaves Loaded", "the engine's state changes"])
    def test_what_is_urgent_at_most_twice_a_second(self, urgent):
        before = self.of(State.LOADED)
        after = self.of() if "adapter" in urgent else self.of(State.LOADED, EngineState.STARTING)
        assert due(Written(before, 4.9), after, 5.0, 0.0) == 4.9 + URGENT

    def test_nothing_new_waits_for_the_beat(self):
        assert due(Written(self.of(), 5.0), self.of(), 6.0, 0.0) == 5.0 + BEAT
        assert due(Written(self.of(), 5.0), self.of(), 6.0, 1.0) == 5.0 + BEAT * 0.9
