"""The vocabulary of one pod: complete, ordered, and each word explained."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.api.conditions import ConditionReason
from sidecar.api.reasons import Reason, State, badness, commonest, worst

WORST_FIRST = [
    "InvalidPath",
    "PathNotShared",
    "PathUnreadable",
    "InvalidAdapter",
    "Incompatible",
    "LoRADisabled",
    "EngineUnauthorized",
    "EngineUnsupported",
    "EngineRejected",
    "NotListed",
    "NameConflict",
    "NameTaken",
    "BaseModelName",
    "NamespaceNotAllowed",
    "EngineCrashSuspect",
    "Unloading",
    "UnloadStuck",
    "UnloadRefused",
    "EngineStarting",
    "EngineUnreachable",
    "PathNotFound",
    "PathIncomplete",
    "PathSettling",
    "Loading",
    "Retrying",
    "CapacityExceeded",
    "Loaded",
    "Adopted",
    "LoadedUnverified",
    "Unloaded",
]

REASONS = st.lists(st.sampled_from(Reason))


def test_the_reasons_are_these_from_worst_to_best() -> None:
    assert [reason.value for reason in sorted(Reason, key=badness)] == WORST_FIRST


def test_a_reason_stands_where_its_badness_puts_it() -> None:
    for state in State:
        declared = [reason for reason in Reason if reason.state is state]
        assert declared == sorted(declared, key=badness)


def test_states_go_from_failed_to_unloaded() -> None:
    assert list(State) == ["Failed", "Unloading", "Pending", "Loaded", "Unloaded"]
    assert {reason.state for reason in Reason} == set(State)


@pytest.mark.parametrize("reason", [*Reason, *ConditionReason])
def test_every_reason_is_a_word_for_conditions_and_has_a_sentence(
    reason: Reason | ConditionReason,
) -> None:
    assert re.fullmatch(r"([A-Z][a-z]*)+(RA)?[A-Za-z]*", reason.value)
    assert re.fullmatch(r"[A-Z].*\.", reason.sentence)
    assert len(reason.sentence) <= 160
    assert "\n" not in reason.sentence


def test_no_word_and_no_sentence_is_used_twice() -> None:
    every = [*Reason, *ConditionReason]
    assert len({reason.value for reason in every}) == len(every)
    assert len({reason.sentence for reason in every}) == len(every)


def test_a_reason_is_found_by_its_word() -> None:
    assert Reason("NotListed") is Reason.NOT_LISTED
    assert Reason.NOT_LISTED == "NotListed"
    assert f"{Reason.NOT_LISTED}" == "NotListed"


PICKED = {
    "none of none": ([], None, None),
    "the only one": ([Reason.LOADED], Reason.LOADED, Reason.LOADED),
    "a failure among many that are well": (
        [Reason.LOADED, Reason.LOADED, Reason.INCOMPATIBLE],
        Reason.INCOMPATIBLE,
        Reason.LOADED,
    ),
    "the worse of two that are equally common": (
        [Reason.LOADING, Reason.UNLOAD_STUCK],
        Reason.UNLOAD_STUCK,
        Reason.UNLOAD_STUCK,
    ),
    "inside a state the one declared first": (
        [Reason.RETRYING, Reason.ENGINE_STARTING],
        Reason.ENGINE_STARTING,
        Reason.ENGINE_STARTING,
    ),
}


@pytest.mark.parametrize(("reasons", "bad", "common"), PICKED.values(), ids=PICKED)
def test_the_worst_and_the_commonest_are_picked(
    reasons: list[Reason], bad: Reason | None, common: Reason | None
) -> None:
    assert worst(reasons) is bad
    assert commonest(reasons) is common


@settings(deadline=None)
@given(REASONS.flatmap(lambda some: st.tuples(st.just(some), st.permutations(some))))
def test_what_is_picked_does_not_depend_on_the_order_of_pods(
    pair: tuple[list[Reason], list[Reason]],
) -> None:
    one, other = pair
    assert worst(one) is worst(other)
    assert commonest(one) is commonest(other)
