"""What of a status is worth an event, and that standing still is not."""

from typing import Any

import pytest

from sidecar.aggregator.news import OVERWRITTEN, POD_LIMIT, News, news

OLD: dict[str, Any] = {}


def status(loaded: str, reason: str, *pods: tuple[str, str, str], message: str = "m") -> dict:
    return {
        "conditions": [
            {"type": "Available", "status": "True", "reason": "ReconcileSuccess", "message": "x"},
            {"type": "Loaded", "status": loaded, "reason": reason, "message": message},
        ],
        "podsLoaded": "1/2",
        "pods": [
            {"pod": pod, "state": state, "reason": reason, "text": f"{pod} says why"}
            for pod, state, reason in pods
        ],
    }


TRUE = status("True", "ReconcileSuccess", ("a", "Loaded", "Loaded"))


def told(before: dict, written: dict) -> list[tuple[str, bool]]:
    return [(one.reason, one.warning) for one in news(before, written, corrective=False)]


def test_loading_is_told_with_the_message_of_the_condition():
    assert news(OLD, TRUE, corrective=False) == (News("Loaded", "m", warning=False),)


def test_what_stays_is_not_told_again():
    assert told(TRUE, TRUE) == []
    assert told(TRUE, TRUE | {"podsLoaded": "2/2"}) == []


@pytest.mark.parametrize("reason", ["EngineStarting", "PathNotFound", "Loading"])
def test_what_is_yet_to_come_is_no_news_and_its_end_is(reason):
    pending = status("False", reason)
    assert told(OLD, pending) == []
    assert told(pending, status("False", "Retrying")) == []
    assert told(TRUE, pending) == [(reason, True)]
    assert told(pending, TRUE) == [("Loaded", False)]


def test_a_load_that_fails_is_a_warning_from_the_first_moment():
    assert told(OLD, status("False", "LoadUnsuccessful")) == [("LoadUnsuccessful", True)]


def test_silence_after_loaded_is_a_warning():
    assert told(TRUE, status("Unknown", "NotReported")) == [("NotReported", True)]


def test_what_was_asked_for_is_no_warning():
    assert told(TRUE, status("False", "Unloaded")) == [("Unloaded", False)]
    assert told(TRUE, status("Unknown", "NotOptedIn")) == [("NotOptedIn", False)]
    assert told(TRUE, status("False", "UnloadUnsuccessful")) == [("UnloadUnsuccessful", True)]


@pytest.mark.parametrize(
    ("state", "reason"), [("Failed", "Incompatible"), ("NotInjected", "NotInjected")]
)
def test_a_pod_that_begins_to_fail_is_told_once_by_name_and_words(state, reason):
    failing = status("False", "LoadUnsuccessful", ("b", state, reason))
    *_, last = news(status("False", "LoadUnsuccessful"), failing, corrective=False)
    assert last == News(reason, "b says why", warning=True, pod="b")
    assert told(failing, failing) == []


def test_an_unload_that_is_stuck_is_told_of_its_pod():
    stuck = status("False", "UnloadUnsuccessful", ("b", "Unloading", "UnloadStuck"))
    assert told(status("False", "UnloadUnsuccessful"), stuck) == [("UnloadStuck", True)]


def test_of_many_pods_only_some_get_an_event_of_their_own():
    many = [(f"pod-{n}", "Failed", "Incompatible") for n in range(40)]
    found = news(TRUE, status("False", "LoadUnsuccessful", *many), corrective=False)
    assert [one.pod for one in found] == ["", *(f"pod-{n}" for n in range(POD_LIMIT))]


def test_where_the_crd_keeps_no_pods_nothing_is_taken_for_new():
    pruned = {"conditions": status("False", "LoadUnsuccessful")["conditions"]}
    failing = status("False", "LoadUnsuccessful", ("b", "Failed", "Incompatible"))
    assert told(pruned, failing) == []


def test_another_writer_is_told_and_nothing_of_what_it_wrote():
    overwritten = status("False", "LoadFailed")
    (one,) = news(overwritten, TRUE, corrective=True)
    assert (one.reason, one.warning) == (OVERWRITTEN, True)
    assert "another controller" in one.note
