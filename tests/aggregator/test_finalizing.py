"""Which finalizers an adapter should have, as a table of situations."""

import pytest

from sidecar.aggregator import reading
from sidecar.aggregator.finalizing import DEADLINE, Policy, wanted
from tests.aggregator import worlds
from tests.aggregator.worlds import OURS, entry, pod, report, seen

THEIRS = "example.com/theirs"
LLMKUBES = "loraadapter.inference.llmkube.dev/finalizer"
HEARD = [pod()], [report("chat-a", entry())]
SILENT = [pod()], []
UNLOADED = [pod()], [report("chat-a", entry("Unloaded"))]
STUCK = [pod()], [report("chat-a", entry("UnloadStuck"))]
REFUSED = [pod()], [report("chat-a", entry("UnloadRefused"))]
UNLOADING = [pod()], [report("chat-a", entry("Unloading"))]
NOBODY = [], []
ONE_OF_TWO = (
    [pod(), pod("chat-b")],
    [report("chat-a", entry("Unloaded")), report("chat-b", entry("Unloading"))],
)


def finalizers(world, before, *, deleting=False, opted_in=True, policy=Policy(), waited=0.0):  # noqa: B008
    pods, reports = world
    adapter = reading.adapter(worlds.adapter(finalizers=before, deleting=deleting))
    view = seen(pods, reports, opted_in=opted_in)
    return wanted(adapter, view, policy, waited)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], OURS),
        (OURS, OURS),
        ([THEIRS], (THEIRS, *OURS)),
        ([*OURS, THEIRS], (*OURS, THEIRS)),
        ([LLMKUBES], (LLMKUBES, *OURS)),
    ],
)
def test_an_adapter_of_an_opted_in_service_has_ours_after_those_of_others(before, after):
    assert finalizers(HEARD, before) == after


@pytest.mark.parametrize("deleting", [False, True])
def test_where_the_service_is_not_opted_in_ours_goes(deleting):
    assert finalizers(HEARD, [*OURS, THEIRS], deleting=deleting, opted_in=False) == (THEIRS,)


@pytest.mark.parametrize("deleting", [False, True])
def test_once_released_ours_goes_everywhere(deleting):
    assert finalizers(HEARD, OURS, deleting=deleting, policy=Policy(released=True)) == ()


@pytest.mark.parametrize("world", [UNLOADED, STUCK, REFUSED, NOBODY, SILENT])
def test_a_deletion_ends_once_no_pod_that_is_heard_still_has_it(world):
    assert finalizers(world, OURS, deleting=True) == ()


@pytest.mark.parametrize("world", [HEARD, UNLOADING, ONE_OF_TWO])
def test_a_deletion_waits_for_each_pod_but_not_for_ever(world):
    assert finalizers(world, OURS, deleting=True, waited=DEADLINE - 1) == OURS
    assert finalizers(world, OURS, deleting=True, waited=DEADLINE) == ()


def test_nothing_is_put_on_what_is_being_deleted():
    assert finalizers(HEARD, [THEIRS], deleting=True) == (THEIRS,)


def test_llmkubes_goes_where_we_take_over_and_only_there():
    over = Policy(takes_over=True)
    assert finalizers(HEARD, [LLMKUBES, THEIRS], policy=over) == (THEIRS, *OURS)
    assert finalizers(HEARD, [LLMKUBES], policy=over, opted_in=False) == (LLMKUBES,)
    assert finalizers(HEARD, [LLMKUBES, *OURS], policy=over, deleting=True) == OURS
