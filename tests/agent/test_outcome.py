"""What outcomes teach: memory before, outcome, memory after."""

import pytest

from sidecar.agent.answers import Answer, Kind
from sidecar.agent.outcome import RACES, pause, remember, unload_key
from sidecar.agent.state import Held, Load, Memory, Outcome, Tombstone, Unload
from sidecar.api.reasons import Reason
from tests.agent.builders import NOON

LOAD = Load("uid-a", "ns/a", "a", "/adapters/a", signature="s1")
UNLOAD = Unload("uid-a", "ns/a", "a", "/adapters/a")
HELD = Held("uid-a", "ns/a", "a", "/adapters/a", "boot-1", owned=True)
SAFE, RISKY = (0, 5, 23), (0, 5, 21)


def after(
    action: Load | Unload,
    answer: Answer,
    memory: Memory | None = None,
    *,
    signature: str = "s1",
    version: tuple[int, ...] = SAFE,
    now: float = 100.0,
) -> Memory:
    outcome = Outcome(action, answer, NOON, "boot-1", signature)
    return remember(memory or Memory(), outcome, now, "pod-0", version)


@pytest.mark.rule(3)
class TestALoadThatWorked:
    def test_is_held_and_ours(self):
        memory = after(LOAD, Answer(Kind.OK, loaded={"a": "/adapters/a"}))
        held = memory.held["a"]
        assert (held.uid, held.owned, held.loaded_at, held.boot) == ("uid-a", True, NOON, "boot-1")

    def test_ends_failure_tombstone_and_doubt(self):
        memory = after(LOAD, Answer(Kind.TRANSIENT, "no"))
        memory = Memory(
            failures=memory.failures,
            tombstones={"a": Tombstone("/adapters/a", "boot-1")},
            doubtful={"a": 1.0},
        )
        memory = after(LOAD, Answer(Kind.OK, loaded={"a": "/adapters/a"}), memory)
        assert (dict(memory.failures), dict(memory.tombstones), dict(memory.doubtful)) == (
            {},
            {},
            {},
        )

    @pytest.mark.field(4)
    def test_that_the_engine_does_not_list_afterwards_is_not_listed(self):
        memory = after(LOAD, Answer(Kind.OK, loaded={"b": "/adapters/b"}))
        assert not memory.held
        assert memory.failures["uid-a"].reason is Reason.NOT_LISTED
        assert memory.failures["uid-a"].permanent

    def test_already_loaded_from_the_wanted_path_is_a_success(self):
        memory = after(LOAD, Answer(Kind.ALREADY_LOADED, loaded={"a": "/adapters/a"}))
        assert memory.held["a"].owned

    @pytest.mark.rule(6)
    def test_under_which_the_files_moved_has_unknown_content(self):
        memory = after(LOAD, Answer(Kind.OK, loaded={"a": "/adapters/a"}), signature="s2")
        assert memory.held["a"].signature == ""


@pytest.mark.rule(7)
class TestALoadThatFailed:
    @pytest.mark.parametrize(
        ("kind", "reason"),
        [
            (Kind.LORA_DISABLED, Reason.LORA_DISABLED),
            (Kind.INCOMPATIBLE, Reason.INCOMPATIBLE),
            (Kind.BAD_ADAPTER, Reason.INVALID_ADAPTER),
            (Kind.REJECTED, Reason.ENGINE_REJECTED),
            (Kind.UNSUPPORTED, Reason.ENGINE_UNSUPPORTED),
        ],
    )
    @pytest.mark.field(5)
    def test_for_good_waits_a_quarter_of_an_hour(self, kind, reason):
        failure = after(LOAD, Answer(kind, "words")).failures["uid-a"]
        assert (failure.reason, failure.permanent, failure.retry_at) == (reason, True, 1000.0)
        assert failure.text == "words"

    def test_for_now_backs_off_up_to_a_minute(self):
        memory, waits = Memory(), []
        for _ in range(9):
            memory = after(LOAD, Answer(Kind.TRANSIENT, "500"), memory)
            waits.append(memory.failures["uid-a"].retry_at - 100.0)
        assert all(0.75 <= wait / min(2.0**n, 60.0) <= 1.0 for n, wait in enumerate(waits))

    def test_without_an_answer_is_in_doubt(self):
        memory = after(LOAD, Answer(Kind.UNKNOWN, "timed out"))
        assert memory.doubtful == {"a": 100.0}

    def test_for_a_wrong_key_is_not_hurried(self):
        failure = after(LOAD, Answer(Kind.UNAUTHORIZED, "the admin key")).failures["uid-a"]
        assert failure.reason is Reason.ENGINE_UNAUTHORIZED
        assert failure.retry_at == 160.0

    def test_in_a_race_is_sent_again_at_once_a_bounded_number_of_times(self):
        memory, lost = Memory(), Answer(Kind.ALREADY_LOADED, loaded={"a": "/adapters/old"})
        for _ in range(RACES):
            memory = after(LOAD, lost, memory)
            assert memory.failures["uid-a"].retry_at == 100.0
        assert after(LOAD, lost, memory).failures["uid-a"].retry_at > 100.0

    def test_without_words_still_says_something(self):
        assert after(LOAD, Answer(Kind.TRANSIENT)).failures["uid-a"].text

    def test_pauses_differ_between_pods(self):
        assert len({pause(3, f"pod-{n}/ns/a") for n in range(20)}) > 10


class TestUnloads:
    @pytest.mark.parametrize("kind", [Kind.OK, Kind.UNKNOWN_NAME])
    @pytest.mark.rule(9)
    def test_that_worked_leave_a_tombstone(self, kind):
        memory = after(UNLOAD, Answer(kind), Memory(held={"a": HELD}))
        assert not memory.held
        assert memory.tombstones["a"] == Tombstone("/adapters/a", "boot-1")

    @pytest.mark.rule(9)
    @pytest.mark.parametrize(
        ("version", "waits"),
        [(SAFE, [5, 10, 20, 40, 80, 160, 300, 300]), (RISKY, [60, 120, 240, 480, 960, 1920, 3600])],
    )
    def test_that_must_be_repeated_come_less_and_less_often(self, version, waits):
        memory = after(UNLOAD, Answer(Kind.OK), version=version)
        for wait in waits:
            memory = after(UNLOAD, Answer(Kind.OK), memory, version=version)
            assert memory.tombstones["a"].retry_at == 100.0 + wait

    def test_of_a_handle_that_meanwhile_holds_another_path_forget_nothing(self):
        other = Held("uid-b", "ns/b", "a", "/adapters/b", "boot-1", owned=True)
        assert after(UNLOAD, Answer(Kind.OK), Memory(held={"a": other})).held == {"a": other}

    def test_that_failed_are_repeated_with_pauses_and_keep_their_words(self):
        memory = after(UNLOAD, Answer(Kind.TRANSIENT, "500"), Memory(held={"a": HELD}))
        failure = memory.failures[unload_key("a")]
        assert (failure.reason, failure.text) == (Reason.UNLOADING, "500")
        assert failure.retry_at > 100.0
        assert memory.held

    def test_without_an_answer_are_in_doubt(self):
        assert after(UNLOAD, Answer(Kind.UNKNOWN)).doubtful == {"a": 100.0}
