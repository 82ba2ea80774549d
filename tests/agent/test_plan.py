"""The plan, rule by rule: worlds, and what is decided in them. Outcomes and reloads have files of their own."""

from dataclasses import replace

import pytest

from sidecar.agent.answers import Answer, Kind
from sidecar.agent.arriving import FOLLOW
from sidecar.agent.outcome import remember
from sidecar.agent.pathview import PathState, PathView
from sidecar.agent.plan import plan
from sidecar.agent.state import (
    EngineView,
    Held,
    Load,
    Memory,
    Outcome,
    Plan,
    Running,
    Tombstone,
    Unload,
    World,
)
from sidecar.api.adapter import LoRAAdapter
from sidecar.api.reasons import EngineState, Reason
from tests.agent.builders import ME, NOON, adapter, engine, info, ok, whole, world


def decide(seen: World, memory: Memory | None = None, now: float = 100.0) -> Plan:
    return plan(seen, memory or Memory(), ME, now)


def held(a: LoRAAdapter, **over: object) -> Held:
    values: dict[str, object] = {
        "uid": a.metadata.uid,
        "key": a.key,
        "handle": a.handle,
        "path": a.spec.path,
        "boot": "boot-1",
        "owned": True,
        "loaded_at": NOON,
        "signature": "s1",
        "content": "c1",
    }
    return Held(**(values | over))  # type: ignore[arg-type]


def remembering(*adapters: LoRAAdapter, **over: object) -> Memory:
    return Memory(held={a.handle: held(a) for a in adapters}, **over)  # type: ignore[arg-type]


def reasons(decided: Plan) -> dict[str, Reason]:
    return {entry.adapter.metadata.name: entry.reason for entry in decided.entries}


def load_of(a: LoRAAdapter, signature: str = "s1") -> Load:
    return Load(a.metadata.uid, a.key, a.handle, a.spec.path, a.pinned, signature, a.retry)


def unload_of(a: LoRAAdapter, path: str | None = None, *, replacing: bool = False) -> Unload:
    return Unload(a.metadata.uid, a.key, a.handle, path or a.spec.path, replacing)


A, B = adapter("a"), adapter("b")
GONE_A = adapter("a", deleting=True)


@pytest.mark.rule(1)
class TestWhatIsWanted:
    def test_a_wanted_adapter_that_the_engine_lacks_is_loaded(self):
        decided = decide(world(A))
        assert decided.actions == (load_of(A),)
        assert reasons(decided) == {"a": Reason.LOADING}

    def test_one_adapter_is_loaded_at_a_time_and_the_first_comes_first(self):
        decided = decide(world(A, B))
        assert decided.actions == (load_of(A),)
        assert reasons(decided) == {"a": Reason.LOADING, "b": Reason.LOADING}

    def test_of_two_adapters_with_one_handle_the_first_is_loaded(self):
        second = adapter("b", handle="a")
        decided = decide(world(A, second))
        assert decided.actions == (load_of(A),)
        assert reasons(decided)["b"] is Reason.NAME_CONFLICT
        assert "ns/a" in decided.entries[1].text

    @pytest.mark.field(23)
    def test_the_served_models_own_name_is_refused(self):
        decided = decide(world(adapter("base")))
        assert decided.actions == ()
        assert reasons(decided) == {"base": Reason.BASE_MODEL_NAME}

    @pytest.mark.field(44)
    @pytest.mark.parametrize("path", ["a/b", "/a/../b", "org/name"])
    def test_a_path_that_could_be_taken_for_a_hub_id_is_never_sent(self, path):
        decided = decide(world(adapter("a", path=path)))
        assert decided.actions == ()
        assert reasons(decided) == {"a": Reason.INVALID_PATH}

    def test_an_adapter_being_deleted_that_was_never_loaded_is_acknowledged(self):
        assert reasons(decide(world(GONE_A))) == {"a": Reason.UNLOADED}

    def test_a_deleted_adapter_whose_handle_has_passed_to_another_is_acknowledged(self):
        successor = adapter("b", handle="a", path="/adapters/a")
        seen = world(GONE_A, successor, engine=engine({"a": "/adapters/a"}))
        decided = decide(seen, remembering(A))
        assert decided.actions == ()
        assert reasons(decided) == {"a": Reason.UNLOADED, "b": Reason.LOADED}


@pytest.mark.rule(2)
class TestNothingIsUnloadedByIgnorance:
    def test_before_the_first_full_list_nothing_is_done(self):
        seen = World(adapters=None, engine=engine({"a": "/adapters/a"}))
        decided = decide(seen, remembering(A))
        assert decided.actions == ()
        assert decided.memory.held

    def test_an_adapter_missing_from_a_complete_list_is_unloaded(self):
        decided = decide(world(engine=engine({"a": "/adapters/a"})), remembering(A))
        assert decided.actions == (unload_of(A),)

    def test_an_adapter_whose_object_cannot_be_read_is_not_gone(self):
        seen = world(engine=engine({"a": "/adapters/a"}), unreadable=frozenset({"ns/a"}))
        assert decide(seen, remembering(A)).actions == ()

    def test_an_adapter_missing_from_a_list_that_is_not_whole_is_not_gone(self):
        seen = world(engine=engine({"a": "/adapters/a"}), partial=True)
        assert decide(seen, remembering(A)).actions == ()

    def test_what_lies_outside_a_scope_that_shrank_stays_loaded_as_foreign(self):
        outside = adapter("x", namespace="other")
        seen = world(engine=engine({"x": "/adapters/x"}), scope="own")
        decided = decide(seen, remembering(outside))
        assert decided.actions == ()
        assert decided.foreign == ("x",)

    def test_an_adapter_that_nobody_wants_and_we_did_not_load_stays(self):
        decided = decide(world(engine=engine({"x": "/somewhere"})))
        assert decided.actions == ()
        assert decided.foreign == ("x",)

    def test_an_adapter_already_held_from_the_wanted_path_is_adopted(self):
        decided = decide(world(A, engine=engine({"a": "/adapters/a"})))
        assert decided.actions == ()
        assert reasons(decided) == {"a": Reason.ADOPTED}
        assert decided.memory.held["a"].owned is True

    def test_an_adopted_adapter_is_unloaded_when_it_is_deleted(self):
        first = decide(world(A, engine=engine({"a": "/adapters/a"})))
        then = decide(world(GONE_A, engine=engine({"a": "/adapters/a"})), first.memory)
        assert then.actions == (unload_of(A),)

    def test_what_the_engines_own_arguments_load_is_adopted_but_never_unloaded(self):
        own = engine({"a": "/adapters/a"}, startup_adapters={"a": "/adapters/a"})
        first = decide(world(A, engine=own))
        assert reasons(first) == {"a": Reason.ADOPTED}
        then = decide(world(GONE_A, engine=own), first.memory)
        assert then.actions == ()
        assert reasons(then) == {"a": Reason.UNLOAD_REFUSED}

    def test_nothing_adopted_is_unloaded_before_the_engine_has_told_its_arguments(self):
        silent = replace(engine({"a": "/adapters/a"}), info=None)
        first = decide(world(A, engine=silent))
        then = decide(world(GONE_A, engine=silent), first.memory)
        assert then.actions == ()
        assert reasons(then) == {"a": Reason.UNLOADING}

    def test_a_foreign_adapter_under_a_wanted_name_is_left_and_named(self):
        decided = decide(world(A, engine=engine({"a": "/elsewhere"})))
        assert decided.actions == ()
        assert reasons(decided) == {"a": Reason.NAME_TAKEN}
        assert "/elsewhere" in decided.entries[0].text

    @pytest.mark.field(120)
    @pytest.mark.parametrize("state", [PathState.UNREADABLE, PathState.STUCK, PathState.MISSING])
    def test_files_that_cannot_be_seen_any_more_unload_nothing(self, state):
        seen = world(A, engine=engine({"a": "/adapters/a"}))
        seen = replace(seen, paths={"/adapters/a": PathView(state, "EIO")})
        decided = decide(seen, remembering(A))
        assert decided.actions == ()
        assert reasons(decided) == {"a": Reason.LOADED}


@pytest.mark.rule(3)
class TestTheEngineIsAsked:
    def test_loaded_means_listed_with_the_path(self):
        decided = decide(world(A, engine=engine({"a": "/adapters/a"})), remembering(A))
        assert reasons(decided) == {"a": Reason.LOADED}
        assert decided.actions == ()

    def test_an_adapter_that_vanished_from_the_list_is_loaded_again(self):
        decided = decide(world(A, B, engine=engine({"b": "/adapters/b"})), remembering(A, B))
        assert decided.actions == (load_of(A),)

    def test_after_an_unknown_outcome_the_list_is_read_before_anything_is_sent(self):
        memory = Memory(doubtful={"a": 90.0})
        decided = decide(world(A, engine=engine(listed_at=80.0)), memory)
        assert decided.actions == ()
        assert decided.list_now

    def test_a_newer_list_ends_the_doubt(self):
        memory = Memory(doubtful={"a": 90.0})
        decided = decide(world(A, engine=engine({"a": "/adapters/a"}, listed_at=91.0)), memory)
        assert reasons(decided) == {"a": Reason.ADOPTED}
        assert not decided.memory.doubtful

    def test_an_engine_that_cannot_list_is_believed_by_our_own_memory(self):
        old = replace(engine(version="0.5.3"), lists=False)
        decided = decide(world(A, engine=old), remembering(A))
        assert decided.actions == ()
        assert reasons(decided) == {"a": Reason.LOADED_UNVERIFIED}


@pytest.mark.rule(4)
class TestThePathGate:
    @pytest.mark.parametrize(
        ("state", "reason"),
        [
            (PathState.MISSING, Reason.PATH_NOT_FOUND),
            (PathState.PARTIAL, Reason.PATH_INCOMPLETE),
            (PathState.SETTLING, Reason.PATH_SETTLING),
            (PathState.INVALID, Reason.INVALID_PATH),
            (PathState.NOT_SHARED, Reason.PATH_NOT_SHARED),
            (PathState.UNREADABLE, Reason.PATH_UNREADABLE),
            (PathState.STUCK, Reason.PATH_UNREADABLE),
            (PathState.BAD, Reason.INVALID_ADAPTER),
        ],
    )
    def test_only_a_whole_directory_is_sent(self, state, reason):
        seen = replace(
            world(A, B), paths={A.spec.path: PathView(state, "why"), B.spec.path: whole()}
        )
        decided = decide(seen)
        assert decided.actions == (load_of(B),)
        assert reasons(decided)["a"] is reason
        assert decided.entries[0].text == "why"

    def test_a_directory_that_was_not_looked_at_yet_is_not_sent(self):
        decided = decide(replace(world(A), paths={}))
        assert decided.actions == ()
        assert reasons(decided) == {"a": Reason.LOADING}

    def test_with_trusted_paths_no_file_is_looked_at(self):
        decided = plan(replace(world(A), paths={}), Memory(), replace(ME, trust_path=True), 0.0)
        assert decided.actions == (load_of(A, signature=""),)


@pytest.mark.rule(6)
class TestEdits:
    @pytest.mark.field(46)
    def test_an_edited_path_replaces_what_was_loaded_from_the_old_one(self):
        moved = adapter("a", path="/adapters/new")
        decided = decide(world(moved, engine=engine({"a": "/adapters/a"})), remembering(A))
        assert decided.actions == (unload_of(moved, "/adapters/a", replacing=True),)

    def test_the_old_path_stays_loaded_until_the_new_one_is_whole(self):
        moved = adapter("a", path="/adapters/new")
        seen = world(moved, engine=engine({"a": "/adapters/a"}))
        seen = replace(seen, paths={"/adapters/new": PathView(PathState.MISSING, "not there")})
        decided = decide(seen, remembering(A))
        assert decided.actions == ()
        assert reasons(decided) == {"a": Reason.PATH_NOT_FOUND}
        assert "/adapters/a stays loaded" in decided.entries[0].text

    def test_the_new_load_follows_as_soon_as_the_handle_has_left_the_list(self):
        moved = adapter("a", path="/adapters/new")
        running = (Running(unload_of(moved, "/adapters/a", replacing=True), 99.0),)
        decided = decide(world(moved, running=running), remembering(A))
        assert decided.actions == (replace(load_of(moved), follows=True),)

    def test_while_the_handle_is_still_listed_the_load_waits_until_the_unload_has_arrived(self):
        moved = adapter("a", path="/adapters/new")
        running = (Running(unload_of(moved, "/adapters/a", replacing=True), 100.0),)
        seen = world(moved, engine=engine({"a": "/adapters/a"}), running=running)
        decided = decide(seen, remembering(A), 100.0)
        assert decided.actions == ()
        assert decided.wake_at == 100.0 + FOLLOW
        follow_up = replace(load_of(moved), follows=True)
        assert decide(seen, remembering(A), 100.0 + FOLLOW).actions == (follow_up,)

    def test_no_other_change_is_sent_beside_a_replacing_unload(self):
        moved = adapter("a", path="/adapters/new")
        running = (Running(unload_of(moved, "/adapters/a", replacing=True), 100.0),)
        seen = world(moved, B, engine=engine({"a": "/adapters/a"}), running=running)
        assert decide(seen, remembering(A)).actions == ()

    def test_a_race_lost_to_a_clients_request_is_run_again_at_once(self):
        moved = adapter("a", path="/adapters/new")
        memory = Memory(tombstones={"a": Tombstone("/adapters/a", "boot-1")})
        lost = Outcome(
            load_of(moved),
            Answer(Kind.ALREADY_LOADED, loaded={"a": "/adapters/a"}),
            NOON,
            "boot-1",
        )
        memory = remember(memory, lost, 100.0, "pod-0", (0, 5, 23))
        decided = decide(world(moved, engine=engine({"a": "/adapters/a"})), memory)
        assert decided.actions == (unload_of(moved, "/adapters/a", replacing=True),)

    def test_an_edited_handle_unloads_the_old_and_loads_the_new(self):
        renamed = adapter("a", handle="z")
        decided = decide(world(renamed, engine=engine({"a": "/adapters/a"})), remembering(A))
        assert decided.actions == (unload_of(A),)
        after = decide(world(renamed), Memory(tombstones={"a": Tombstone("/adapters/a", "boot-1")}))
        assert after.actions == (load_of(renamed),)


@pytest.mark.rule(7)
class TestFailures:
    def failed(self, kind: Kind, a: LoRAAdapter = A, tries: int = 1) -> Memory:
        memory = Memory()
        for _ in range(tries):
            outcome = Outcome(load_of(a), Answer(kind, "the engine's words"), NOON, "boot-1")
            memory = remember(memory, outcome, 100.0, "pod-0", (0, 5, 23))
        return memory

    def test_a_permanent_failure_is_not_sent_again_for_a_quarter_of_an_hour(self):
        memory = self.failed(Kind.INCOMPATIBLE)
        decided = decide(world(A), memory, 110.0)
        assert decided.actions == ()
        assert reasons(decided) == {"a": Reason.INCOMPATIBLE}
        assert decided.entries[0].text == "the engine's words"
        assert decided.wake_at == 1000.0
        assert decide(world(A), memory, 1000.0).actions == (load_of(A),)

    @pytest.mark.parametrize(
        "seen",
        [
            world(adapter("a", path="/adapters/other")),
            world(adapter("a", retry="now")),
            world(A, paths={A.spec.path: whole("s2")}),
            world(A, engine=engine(boot="boot-2")),
        ],
        ids=["another path", "the retry annotation", "other files", "a new engine process"],
    )
    def test_a_permanent_failure_is_tried_again_after(self, seen):
        decided = decide(seen, self.failed(Kind.INCOMPATIBLE), 101.0)
        assert len(decided.actions) == 1

    def test_a_passing_failure_is_tried_again_after_a_pause(self):
        memory = self.failed(Kind.TRANSIENT)
        decided = decide(world(A), memory, 100.1)
        assert decided.actions == ()
        assert reasons(decided) == {"a": Reason.RETRYING}
        assert decide(world(A), memory, 101.0).actions == (load_of(A),)

    @pytest.mark.field(18)
    def test_one_bad_adapter_does_not_hold_up_another(self):
        assert decide(world(A, B), self.failed(Kind.TRANSIENT), 100.1).actions == (load_of(B),)

    def test_a_failure_is_forgotten_once_the_engine_holds_the_adapter(self):
        decided = decide(
            world(A, engine=engine({"a": "/adapters/a"})), self.failed(Kind.TRANSIENT), 100.1
        )
        assert not decided.memory.failures


@pytest.mark.rule(8)
class TestEngineLife:
    @pytest.mark.parametrize(
        ("state", "reason"),
        [
            (EngineState.STARTING, Reason.ENGINE_STARTING),
            (EngineState.UNREACHABLE, Reason.ENGINE_UNREACHABLE),
        ],
    )
    def test_an_engine_that_is_away_is_sent_nothing(self, state, reason):
        away = EngineView(state=state, text="nothing listens on [::1]:30000")
        decided = decide(world(A, engine=away), remembering(B))
        assert decided.actions == ()
        assert reasons(decided) == {"a": reason}

    def test_an_engine_that_has_not_told_what_it_holds_is_sent_nothing(self):
        unlisted = replace(engine(), held=None)
        assert decide(world(A, engine=unlisted)).actions == ()

    def test_a_new_engine_process_is_given_everything_again(self):
        decided = decide(world(A, engine=engine(boot="boot-2")), remembering(A))
        assert decided.actions == (load_of(A),)
        assert decided.memory.held == {}

    def test_the_first_load_waits_until_the_engine_has_said_who_it_is(self):
        decided = decide(world(A, engine=engine(settled=False)))
        assert decided.actions == ()
        assert reasons(decided) == {"a": Reason.LOADING}

    def test_the_loss_of_all_our_adapters_asks_the_engine_who_it_is(self):
        decided = decide(world(A, B), remembering(A, B))
        assert decided.identify
        assert decided.actions == ()
        assert not decide(world(A, B, engine=engine({"a": "/adapters/a"})), remembering(A)).identify

    def test_a_loss_that_the_same_process_confirms_is_an_eviction_and_ends_the_waiting(self):
        full = engine({"x": "/x"}, max_loaded_loras=1)
        lost = decide(world(A, engine=full), remembering(A))
        assert lost.identify
        waiting = decide(world(A, engine=replace(full, settled=False)), lost.memory)
        assert not waiting.identify
        assert waiting.memory.losing
        known = decide(world(A, engine=full), waiting.memory)
        assert (known.identify, known.memory.losing) == (False, False)
        assert reasons(known) == {"a": Reason.CAPACITY_EXCEEDED}
        room = decide(world(A, engine=engine()), known.memory)
        assert room.actions == (load_of(A),)

    def test_while_the_loss_is_being_asked_about_nothing_is_sent(self):
        lost = decide(world(GONE_A, B), remembering(A))
        seen = world(GONE_A, B, engine=engine(settled=False))
        assert decide(seen, lost.memory).actions == ()

    def test_an_adapter_deleted_while_the_engine_is_down_is_acknowledged(self):
        down = EngineView(state=EngineState.STARTING)
        assert reasons(decide(world(GONE_A, engine=down), remembering(A))) == {"a": Reason.UNLOADED}


@pytest.mark.rule(9)
class TestWhatWasUnloadedStaysUnloaded:
    def test_an_adapter_that_a_client_brought_back_is_unloaded_again(self):
        memory = Memory(tombstones={"a": Tombstone("/adapters/a", "boot-1")})
        decided = decide(world(engine=engine({"a": "/adapters/a"})), memory)
        assert decided.actions == (Unload("", "", "a", "/adapters/a"),)
        assert decided.foreign == ()

    def test_it_is_not_unloaded_again_before_its_pause_has_passed(self):
        memory = Memory(tombstones={"a": Tombstone("/adapters/a", "boot-1", 1, 105.0)})
        decided = decide(world(engine=engine({"a": "/adapters/a"})), memory)
        assert decided.actions == ()
        assert decided.wake_at == 105.0

    def test_either_path_of_which_nobody_knows_which_the_engine_took_is_unloaded_again(self):
        memory = Memory(tombstones={"a": Tombstone("/new", "boot-1", older="/old")})
        for path in ("/new", "/old"):
            decided = decide(world(engine=engine({"a": path})), memory)
            assert decided.actions == (Unload("", "", "a", path),)
        by_hand = decide(world(engine=engine({"a": "/by-hand"})), memory)
        assert by_hand.actions == ()

    def test_a_new_engine_process_ends_it(self):
        memory = Memory(tombstones={"a": Tombstone("/adapters/a", "boot-0")})
        assert not decide(world(), memory).memory.tombstones

    def test_wanting_it_again_ends_it(self):
        memory = Memory(tombstones={"a": Tombstone("/adapters/a", "boot-1")})
        decided = decide(world(A, engine=engine({"a": "/adapters/a"})), memory)
        assert decided.actions == ()
        assert not decided.memory.tombstones


@pytest.mark.rule(7)
class TestLostAnswers:
    def lost(self, action: Load | Unload, memory: Memory) -> Memory:
        answer = Answer(Kind.UNKNOWN, "the connection broke off")
        return remember(memory, Outcome(action, answer, NOON, "boot-1"), 50.0, "pod-0", (0, 5, 23))

    def test_a_load_that_took_effect_all_the_same_is_undone_if_its_adapter_has_gone(self):
        memory = self.lost(load_of(A), Memory())
        decided = decide(world(engine=engine({"a": "/adapters/a"}, listed_at=60.0)), memory)
        assert decided.actions == (Unload("", "", "a", "/adapters/a"),)
        assert decided.foreign == ()

    def test_and_is_ours_if_it_is_still_wanted(self):
        memory = self.lost(load_of(A), Memory())
        decided = decide(world(A, engine=engine({"a": "/adapters/a"}, listed_at=60.0)), memory)
        assert decided.actions == ()
        assert decided.memory.held["a"].owned

    def test_an_unload_that_took_effect_all_the_same_stays_unloaded(self):
        unload = Unload("uid-a", "ns/a", "a", "/adapters/a")
        memory = self.lost(unload, remembering(A))
        gone = decide(world(engine=engine(listed_at=60.0)), memory).memory
        back = decide(world(engine=engine({"a": "/adapters/a"}, listed_at=70.0)), gone)
        assert back.actions == (unload,)

    def test_an_unload_lost_beside_its_following_load_leaves_our_adapter_ours(self):
        moved = adapter("a", path="/new")
        unload = Unload("uid-a", "ns/a", "a", "/adapters/a", replacing=True)
        listed = engine({"a": "/adapters/a"})
        seen = world(moved, engine=listed, running=(Running(unload, 90.0),))
        following = decide(seen, remembering(A))
        assert following.actions == (replace(load_of(moved), follows=True),)
        memory = self.lost(unload, following.memory)
        later = decide(world(moved, engine=replace(listed, listed_at=60.0)), memory)
        assert reasons(later) == {"a": Reason.LOADING}
        assert later.memory.held["a"].path == "/adapters/a"


@pytest.mark.rule(10)
class TestCapacity:
    def test_a_latecomer_waits_for_a_slot(self):
        full = engine({"b": "/adapters/b"}, max_loaded_loras=1)
        decided = decide(world(B, A, engine=full), remembering(B))
        assert decided.actions == ()
        assert reasons(decided) == {"b": Reason.LOADED, "a": Reason.CAPACITY_EXCEEDED}

    def test_an_evicted_adapter_is_not_fought_for(self):
        full = engine({"b": "/adapters/b"}, max_loaded_loras=1)
        decided = decide(world(A, B, engine=full), remembering(A, B))
        assert decided.actions == ()
        assert decided.entries[0].reason is Reason.CAPACITY_EXCEEDED
        assert "evicted" in decided.entries[0].text

    def test_free_slots_go_in_order(self):
        decided = decide(world(A, B, engine=engine(max_loaded_loras=1)))
        assert decided.actions == (load_of(A),)
        assert reasons(decided) == {"a": Reason.LOADING, "b": Reason.CAPACITY_EXCEEDED}


@pytest.mark.rule(11)
class TestUnloading:
    def test_other_changes_wait_for_an_open_unload(self):
        running = (Running(unload_of(A), 99.0),)
        decided = decide(world(GONE_A, B, running=running), remembering(A))
        assert decided.actions == ()
        assert reasons(decided) == {"a": Reason.UNLOADING, "b": Reason.LOADING}

    def test_after_half_a_minute_it_is_called_stuck(self):
        running = (Running(unload_of(A), 60.0),)
        decided = decide(world(GONE_A, running=running), remembering(A), 100.0)
        assert reasons(decided) == {"a": Reason.UNLOAD_STUCK}

    def test_the_plan_looks_again_when_that_time_has_come(self):
        running = (Running(unload_of(A), 90.0),)
        assert decide(world(GONE_A, running=running), remembering(A), 100.0).wake_at == 120.0

    def test_an_engine_that_cannot_unload_safely_is_not_asked_to(self):
        old = engine({"a": "/adapters/a"}, version="0.4.10")
        decided = decide(world(GONE_A, engine=old), remembering(A))
        assert decided.actions == ()
        assert reasons(decided) == {"a": Reason.UNLOAD_REFUSED}

    def test_where_an_unload_may_hang_loads_go_first(self):
        risky = engine({"a": "/adapters/a"}, version="0.5.21")
        assert decide(world(GONE_A, B, engine=risky), remembering(A)).actions == (load_of(B),)
        safe = engine({"a": "/adapters/a"}, version="0.5.22")
        assert decide(world(GONE_A, B, engine=safe), remembering(A)).actions == (unload_of(A),)


@pytest.mark.rule(13)
def test_an_unsupported_engine_is_said_in_one_sentence_and_left_alone():
    off = EngineView(
        state=EngineState.UNSUPPORTED,
        reason=Reason.LORA_DISABLED,
        text="start it with --enable-lora",
    )
    decided = decide(world(A, engine=off))
    assert decided.actions == ()
    assert reasons(decided) == {"a": Reason.LORA_DISABLED}
    assert "--enable-lora" in decided.entries[0].text


def test_builders_info_is_what_the_plan_reads():
    assert info().version_numbers == (0, 5, 23)
    assert ok().ok
