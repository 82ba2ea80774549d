"""When files are quiet, and how often they are looked at."""

import pytest

from sidecar.agent.pathview import PathState, PathView
from sidecar.agent.settling import SLACK, Pace, settle_left, settled


@pytest.mark.parametrize(
    ("count", "seconds"), [(0, 5), (1, 5), (20, 5), (60, 17.5), (100, 30), (1000, 30)]
)
def test_the_more_paths_are_settled_the_seldomer_each_is_looked_at(
    count: int, seconds: float
) -> None:
    assert Pace().between(count) == seconds


@pytest.mark.parametrize(
    ("changed", "local", "left"),
    [
        pytest.param(990.0, True, 0.0, id="old on a disk: quiet at once"),
        pytest.param(998.0, True, 3.0, id="younger on a disk: from its own times"),
        pytest.param(1001.0, True, 5.0, id="from the future: by our own clock"),
        pytest.param(990.0, False, 5.0, id="old, but by another machine's clock"),
        pytest.param(None, True, 0.0, id="no files, nothing to wait for"),
    ],
)
def test_how_long_files_must_keep_still(changed: float | None, local: bool, left: float) -> None:
    view = PathView(PathState.WHOLE, local=local, changed_at=changed)
    assert settle_left(view, since=50.0, now=50.0, wall=1000.0, settle=5.0) == left
    assert settle_left(view, since=50.0, now=52.0, wall=1002.0, settle=5.0) == max(0, left - 2)
    assert settle_left(view, since=50.0, now=55.0, wall=1002.0, settle=5.0) == 0


PACE = Pace(settle=0.5, settle_network=5.0, unsettled=1.0)


@pytest.mark.parametrize("state", [PathState.WHOLE, PathState.BAD])
@pytest.mark.parametrize(("local", "wait"), [(True, 0.5), (False, 5.0)])
def test_a_verdict_is_withheld_until_the_moment_the_files_have_kept_still(
    state: PathState, local: bool, wait: float
) -> None:
    found = PathView(state, "words", signature="s", local=local, changed_at=1000.0)
    view, again = settled(found, 50.0, 50.0, 1000.0, PACE)
    assert (view.state, view.signature) == (PathState.SETTLING, "s")
    assert again == wait + SLACK
    assert settled(found, 50.0, 50.0 + wait, 1000.0 + wait, PACE) == (found, None)


@pytest.mark.parametrize("state", [PathState.MISSING, PathState.PARTIAL, PathState.UNREADABLE])
def test_what_may_change_by_itself_is_shown_at_once_and_looked_at_often(
    state: PathState,
) -> None:
    found = PathView(state, changed_at=1000.0)
    assert settled(found, 50.0, 50.0, 1000.0, PACE) == (found, PACE.unsettled)


@pytest.mark.parametrize("state", [PathState.INVALID, PathState.NOT_SHARED])
def test_what_waits_for_a_person_is_looked_at_seldom(state: PathState) -> None:
    assert settled(PathView(state), 50.0, 50.0, 1000.0, PACE) == (PathView(state), None)
