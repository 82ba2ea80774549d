"""Conditions: time moves only with status, and nobody else's condition is touched."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.api.conditions import MESSAGE_LIMIT, Condition, Status, with_condition

NOW = datetime(2026, 1, 1, 12, 0, 0, 987654, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


def condition(kind: str = "Loaded", **over: Any) -> Condition:
    made: dict[str, Any] = {
        "type": kind,
        "status": "False",
        "reason": "NoPods",
        "message": "no pod",
        "last_transition_time": NOW,
        "observed_generation": 1,
    }
    return Condition(**(made | over))


def set_loaded(*before: Condition, status: Status = "False", **over: Any) -> tuple[Condition, ...]:
    made: dict[str, Any] = {
        "kind": "Loaded",
        "reason": "NoPods",
        "message": "no pod",
        "generation": 1,
        "now": LATER,
    }
    return with_condition(before, status=status, **(made | over))


def test_a_new_condition_comes_last_and_begins_now() -> None:
    foreign = condition("Ready")
    assert set_loaded(foreign) == (foreign, condition(last_transition_time=LATER))


def test_a_change_of_status_moves_the_time() -> None:
    (after,) = set_loaded(condition(), status="True", reason="ReconcileSuccess")
    assert (after.status, after.last_transition_time) == ("True", LATER)


def test_reason_message_and_generation_change_without_moving_the_time() -> None:
    (after,) = set_loaded(condition(), reason="NotOptedIn", message="else", generation=2)
    assert after == condition(reason="NotOptedIn", message="else", observed_generation=2)


def test_saying_the_same_again_changes_nothing() -> None:
    before = (condition("Available"), condition(), condition("Ready"))
    assert set_loaded(*before) == before


def test_conditions_of_others_keep_their_place_and_content() -> None:
    foreign = condition("example.com/Ready", status="Unknown", observed_generation=None)
    last = condition("Zzz")
    after = set_loaded(foreign, condition(), last, status="True")
    assert after[0] is foreign
    assert after[2] is last
    assert after[1].status == "True"


@settings(deadline=None)
@given(st.lists(st.sampled_from(["True", "False", "Unknown"]), min_size=1))
def test_the_time_is_that_of_the_last_change_of_status(statuses: list[Status]) -> None:
    conditions: tuple[Condition, ...] = ()
    for hour, status in enumerate(statuses):
        now = NOW + timedelta(hours=hour)
        conditions = set_loaded(*conditions, status=status, now=now)
    same = 0
    while same + 1 < len(statuses) and statuses[-same - 2] == statuses[-1]:
        same += 1
    (only,) = conditions
    assert only.last_transition_time == NOW + timedelta(hours=len(statuses) - 1 - same)


def test_on_the_wire_it_is_what_kubernetes_writes() -> None:
    assert condition().wire() == {
        "type": "Loaded",
        "status": "False",
        "reason": "NoPods",
        "message": "no pod",
        "lastTransitionTime": "2026-01-01T12:00:00Z",
        "observedGeneration": 1,
    }
    assert "observedGeneration" not in condition(observed_generation=None).wire()


def test_a_condition_survives_the_wire_but_for_parts_of_a_second() -> None:
    read = Condition.model_validate(condition().wire())
    assert read == condition(last_transition_time=NOW.replace(microsecond=0))


def test_a_message_of_ours_is_within_the_contract() -> None:
    assert condition(message="ä" * MESSAGE_LIMIT).message
