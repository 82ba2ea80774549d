"""New weights at the same path: what is hashed, what is loaded again, and what is only said (rule 6)."""

import pytest

from sidecar.agent.pathview import Hashed, PathState, PathView
from sidecar.agent.reload import STALE, Verdict, judge
from sidecar.agent.state import Held, Me
from tests.agent.builders import engine, whole

pytestmark = pytest.mark.rule(6)

OLD, NEW = whole("s1"), whole("s2")


def holding(signature: str = "s1", content: str = "c1", *, adopted: bool = False) -> Held:
    return Held(
        "u",
        "ns/a",
        "a",
        "/adapters/a",
        "b",
        owned=True,
        adopted=adopted,
        signature=signature,
        content=content,
    )


def verdict(
    held: Held,
    view: PathView | None,
    hashed: Hashed | None = None,
    *,
    policy: str = "on-change",
    version: str = "0.5.21",
) -> Verdict:
    me = Me("pod", "ns", reload=policy)  # type: ignore[arg-type]
    return judge(held, view, hashed, engine(version=version), me)


def test_files_that_did_not_move_are_left_alone():
    assert verdict(holding(), OLD) == Verdict(holding())


def test_after_a_load_the_content_is_hashed_once():
    assert verdict(holding(content=""), OLD).hash
    learnt = verdict(holding(content=""), OLD, Hashed("s1", "c1", "s1"))
    assert learnt == Verdict(holding())


@pytest.mark.field(48)
def test_a_touch_is_hashed_and_loads_nothing():
    assert verdict(holding(), NEW).hash
    assert verdict(holding(), NEW, Hashed("s2", "c1", "s2")) == Verdict(holding("s2"))


def test_new_content_is_loaded():
    assert verdict(holding(), NEW, Hashed("s2", "c2", "s2")).reload


def test_a_hash_during_which_the_files_moved_says_nothing():
    answer = verdict(holding(), NEW, Hashed("s1", "c2", "s2"))
    assert answer.hash
    assert not answer.reload


def test_a_hash_of_older_files_says_nothing():
    assert verdict(holding(), whole("s3"), Hashed("s2", "c2", "s2")).hash


def test_files_that_moved_under_the_load_are_loaded_once_they_are_quiet():
    assert verdict(holding("", ""), NEW).reload


def test_files_that_moved_before_their_content_was_known_are_loaded_once():
    assert verdict(holding(content=""), NEW).reload


@pytest.mark.parametrize("state", [PathState.SETTLING, PathState.PARTIAL, PathState.STUCK])
def test_nothing_is_decided_while_the_files_move_or_cannot_be_seen(state):
    assert verdict(holding(), PathView(state)) == Verdict(holding())


def test_what_was_adopted_counts_as_loaded_from_the_files_of_that_moment():
    first = verdict(holding("", "", adopted=True), OLD)
    assert first.held.signature == "s1"
    assert first.hash


def test_a_directory_that_is_gone_is_said():
    assert "gone" in verdict(holding(), PathView(PathState.MISSING)).text


def test_auto_reloads_only_where_an_unload_cannot_hang():
    new = Hashed("s2", "c2", "s2")
    assert verdict(holding(), NEW, new, policy="auto", version="0.5.22").reload
    old = verdict(holding(), NEW, new, policy="auto", version="0.5.21")
    assert not old.reload
    assert old.text == STALE


def test_never_looks_at_nothing():
    assert verdict(holding(), NEW, Hashed("s2", "c2", "s2"), policy="never") == Verdict(holding())
