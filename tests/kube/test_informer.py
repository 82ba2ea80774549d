"""The informer with a server that is well: lists, pages, watches, selectors, and what it tells its user.

A server that is not well is the subject of test_informer_faults.py; what is done with an object, of test_store.py.
"""

from collections.abc import Callable

from tests.fakes import kube_faults as faults
from tests.fakes.kube import FakeKube
from tests.kube.conftest import ADAPTERS, FakeTime, Watcher, adapter

Watch = Callable[..., Watcher]
SELECTOR = "spec.inferenceServiceRef.name=svc"


def of_service(name: str, service: str) -> dict[str, object]:
    return adapter(name, inferenceServiceRef={"name": service})


def is_ours(raw: dict[str, dict[str, dict[str, str]]]) -> bool:
    return raw["spec"]["inferenceServiceRef"]["name"] == "svc"


async def test_what_is_there_is_listed_and_what_comes_is_watched(
    kube: FakeKube, watch: Watch
) -> None:
    kube.put(ADAPTERS, adapter("x"))
    watcher = watch()
    assert not watcher.informer.synced
    await watcher.names("a/x")
    assert watcher.informer.synced
    await kube.streams()
    kube.put(ADAPTERS, adapter("y", namespace="b"))
    await watcher.names("a/x", "b/y")
    kube.put(ADAPTERS, adapter("x", path="/new"))
    await watcher.until(lambda: watcher.informer.snapshot["a/x"].get("path") == "/new")
    kube.delete(ADAPTERS, "a", "x")
    await watcher.names("b/y")
    assert watcher.informer.lists == 1
    assert [(key, old is None, new is None) for key, old, new in watcher.changes] == [
        ("a/x", True, False),
        ("b/y", True, False),
        ("a/x", False, False),
        ("a/x", False, True),
    ]


async def test_an_empty_list_is_announced_as_well(kube: FakeKube, watch: Watch) -> None:
    watcher = watch()
    await watcher.until(lambda: watcher.informer.synced)
    assert watcher.informer.snapshot == {}


async def test_a_whole_list_is_one_wake_up(kube: FakeKube, watch: Watch) -> None:
    for number in range(20):
        kube.put(ADAPTERS, adapter(f"x{number}"))
    watcher = watch()
    await kube.streams()
    assert (len(watcher.changes), watcher.wakes) == (20, 1)


async def test_a_change_that_changes_no_value_wakes_nobody(kube: FakeKube, watch: Watch) -> None:
    kube.put(ADAPTERS, adapter("x"))
    watcher = watch()
    await kube.streams()
    kube.put(ADAPTERS, {**adapter("x"), "status": {"podsLoaded": "1/1"}})
    kube.put(ADAPTERS, adapter("y"))
    await watcher.names("a/x", "a/y")
    assert (len(watcher.changes), watcher.wakes) == (2, 2)


async def test_one_namespace_is_asked_for_by_its_path(kube: FakeKube, watch: Watch) -> None:
    kube.put(ADAPTERS, adapter("x", namespace="a"))
    kube.put(ADAPTERS, adapter("y", namespace="b"))
    watcher = watch(namespace="a")
    await watcher.names("a/x")
    assert {seen.path for seen in kube.seen} == {ADAPTERS.path("a")}


async def test_a_long_list_is_read_in_pages_and_never_from_a_cache(
    kube: FakeKube, watch: Watch
) -> None:
    for number in range(5):
        kube.put(ADAPTERS, adapter(f"x{number}"))
    watcher = watch(limit=2, label_selector="a=b")
    await watcher.names(*(f"a/x{number}" for number in range(5)))
    lists = kube.of("list")
    assert [seen.params.get("continue") for seen in lists] == [None, "2", "4"]
    assert all(seen.params["limit"] == "2" for seen in lists)
    assert all(seen.params["labelSelector"] == "a=b" for seen in lists)
    assert all("resourceVersion" not in seen.params for seen in lists)


async def test_a_watch_starts_at_the_list_and_ends_by_the_servers_clock(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    kube.put(ADAPTERS, adapter("x"))
    time.dice = 0.25
    watch()
    (seen,) = await kube.requests(1, "watch")
    assert seen.params == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": kube.memory.version,
        "timeoutSeconds": "300",
    }


async def test_the_next_watch_starts_where_the_last_one_was(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    watcher = watch()
    await watcher.watching(kube)
    kube.put(ADAPTERS, adapter("x"))
    await watcher.names("a/x")
    time.now += 300
    kube.end_streams()
    first, second = await kube.requests(2, "watch")
    assert int(second.params["resourceVersion"]) == int(first.params["resourceVersion"]) + 1
    assert watcher.informer.lists == 1
    assert time.naps == []


async def test_a_bookmark_moves_the_version_and_confirms_but_wakes_nobody(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    watcher = watch()
    await watcher.watching(kube)
    woken = watcher.wakes
    kube.memory.forget_events()
    time.now += 60
    kube.bookmark(ADAPTERS)
    kube.end_streams()
    seen = await kube.requests(2, "watch")
    assert seen[1].params["resourceVersion"] == kube.memory.version
    assert watcher.informer.confirmed_at == time.now
    assert (watcher.wakes, watcher.informer.lists) == (woken, 1)


async def test_an_object_that_cannot_be_decoded_stops_nothing(kube: FakeKube, watch: Watch) -> None:
    kube.put(ADAPTERS, {"metadata": {"namespace": "a", "name": "bad"}})
    watcher = watch()
    await watcher.until(lambda: watcher.informer.synced)
    await kube.streams()
    kube.put(ADAPTERS, adapter("x"))
    await watcher.names("a/x")
    assert watcher.informer.undecodable == {"a/bad": "KeyError: 'spec'"}


async def test_an_object_that_is_pointed_elsewhere_leaves_the_selection(
    kube: FakeKube, watch: Watch
) -> None:
    kube.put(ADAPTERS, of_service("x", "svc"))
    kube.put(ADAPTERS, of_service("y", "other"))
    watcher = watch(field_selector=SELECTOR)
    await watcher.names("a/x")
    await kube.streams()
    kube.put(ADAPTERS, of_service("y", "svc"))
    await watcher.names("a/x", "a/y")
    kube.put(ADAPTERS, of_service("x", "other"))
    await watcher.names("a/y")


async def test_a_server_that_cannot_select_is_asked_for_all_and_filtered_here(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    kube.selectable.clear()
    kube.put(ADAPTERS, of_service("x", "svc"))
    kube.put(ADAPTERS, of_service("y", "other"))
    watcher = watch(field_selector=SELECTOR, accept=is_ours)
    await watcher.names("a/x")
    await kube.streams()
    kube.put(ADAPTERS, of_service("y", "svc"))
    await watcher.names("a/x", "a/y")
    kube.put(ADAPTERS, of_service("x", "other"))
    await watcher.names("a/y")
    assert watcher.informer.problem is None
    assert time.naps == []
    assert "fieldSelector" not in kube.of("watch")[0].params


async def test_the_selector_is_tried_again_each_hour(
    kube: FakeKube, watch: Watch, time: FakeTime
) -> None:
    kube.selectable.clear()
    watcher = watch(field_selector=SELECTOR, accept=is_ours)
    await watcher.watching(kube)
    time.now += 3590
    kube.bookmark(ADAPTERS)
    kube.end_streams()
    await kube.requests(2, "watch")
    assert len(kube.of("list")) == 2
    await watcher.watching(kube)
    kube.selectable.add("spec.inferenceServiceRef.name")
    time.now += 60
    kube.end_streams()
    seen = await kube.requests(3, "watch")
    assert seen[2].params["fieldSelector"] == SELECTOR
    assert len(kube.of("list")) == 3
    assert watcher.informer.problem is None


async def test_a_watch_that_cannot_select_is_filtered_here_as_well(
    kube: FakeKube, watch: Watch
) -> None:
    kube.fail(
        faults.status(400, "field label not supported: spec.inferenceServiceRef.name"), verb="watch"
    )
    watcher = watch(field_selector=SELECTOR, accept=is_ours)
    await kube.streams()
    kube.put(ADAPTERS, of_service("x", "svc"))
    kube.put(ADAPTERS, of_service("y", "other"))
    await watcher.names("a/x")


async def test_without_a_filter_of_its_own_a_server_that_cannot_select_is_a_problem(
    kube: FakeKube, watch: Watch
) -> None:
    kube.selectable.clear()
    watcher = watch(field_selector=SELECTOR)
    await watcher.until(lambda: watcher.informer.problem)
    assert not watcher.informer.synced
