"""Which adapters a pod should have: tables of what users write."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.api.adapter import LoRAAdapter
from sidecar.api.reasons import Reason
from sidecar.api.wanted import PATH_LIMIT, allows, path_problem, precedence, targeting, wants

DAY = datetime(2026, 1, 1, tzinfo=UTC)


def adapter(key: str = "team-a/one", *, day: int | None = 0, **over: Any) -> LoRAAdapter:
    """Make one that targets team-a/llama; `day` is the age's beginning, None that of a manifest."""
    namespace, name = key.split("/")
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": key}
    if day is not None:
        metadata["creationTimestamp"] = DAY + timedelta(days=day)
    if over.pop("deleting", False):
        metadata["deletionTimestamp"] = DAY
    spec = {
        "inferenceServiceRef": {"name": "llama", "namespace": "team-a"},
        "name": name,
        "path": f"/adapters/{name}",
    }
    return LoRAAdapter.read({"metadata": metadata, "spec": spec | over})


def keys(adapters: list[LoRAAdapter]) -> list[str]:
    return [found.key for found in adapters]


# --- which


@pytest.mark.parametrize(
    ("allowed", "namespace", "answer"),
    [
        (("*",), "team-b", True),
        (("team-a", "*"), "team-b", True),
        (("team-a",), "team-a", True),
        (("team-a",), "team-b", False),
        ((), "team-a", False),
    ],
)
def test_a_pod_takes_adapters_from_the_namespaces_it_allows(
    allowed: tuple[str, ...], namespace: str, answer: bool
) -> None:
    assert allows(allowed, namespace) is answer


def test_adapters_of_this_service_in_this_namespace_are_for_the_pod() -> None:
    other_service = adapter("team-a/two", inferenceServiceRef={"name": "mistral"})
    same_name_elsewhere = adapter("team-b/three", inferenceServiceRef={"name": "llama"})
    default_namespace = adapter("team-a/four", inferenceServiceRef={"name": "llama"})
    from_elsewhere = adapter("team-b/five")
    given_ones = [other_service, same_name_elsewhere, default_namespace, from_elsewhere]
    assert keys(targeting(given_ones, "team-a", "llama", ("*",))) == ["team-a/four", "team-b/five"]
    assert keys(targeting(given_ones, "team-a", "llama", ("team-a",))) == ["team-a/four"]


def test_those_being_deleted_are_still_for_the_pod_but_no_longer_wanted() -> None:
    leaving = adapter(deleting=True)
    assert targeting([leaving], "team-a", "llama", ("*",)) == [leaving]
    assert wants([leaving], None) == []


# --- in which order

ORDER = [
    adapter("team-a/manifest", day=None),
    adapter("team-a/z-oldest", day=0),
    adapter("team-a/a-younger", day=1),
    adapter("team-a/b-younger", day=1),
    adapter("team-b/oldest-of-all", day=-9),
    adapter("team-b/a", day=0),
    adapter("team-c/a", day=0),
]


def test_own_namespace_first_then_the_oldest_then_by_name() -> None:
    for mixed in itertools.islice(itertools.permutations(ORDER), 0, 5040, 97):
        assert targeting(mixed, "team-a", "llama", ("*",)) == ORDER


def test_no_two_adapters_are_equal_in_order() -> None:
    assert len({precedence(each, "team-a") for each in ORDER}) == len(ORDER)


# --- what speaks against one


def judged(*ordered: LoRAAdapter, model: str | None = None) -> dict[str, Reason | None]:
    return {want.adapter.key: want.reason for want in wants(ordered, model)}


def test_of_two_that_want_a_name_the_first_in_order_gets_it() -> None:
    first, second = adapter("team-a/one", name="x"), adapter("team-b/two", name="x")
    assert judged(first, second) == {"team-a/one": None, "team-b/two": Reason.NAME_CONFLICT}
    (_, want) = wants([first, second], None)
    assert want.text == "x is already the name of team-a/one, which comes first"


def test_names_differ_by_case() -> None:
    assert judged(adapter("team-a/one", name="x"), adapter("team-a/two", name="X")) == {
        "team-a/one": None,
        "team-a/two": None,
    }


def test_one_that_is_being_deleted_holds_no_name() -> None:
    leaving = adapter("team-a/one", name="x", deleting=True)
    assert judged(leaving, adapter("team-a/two", name="x")) == {"team-a/two": None}


def test_one_with_a_bad_path_holds_its_name_all_the_same() -> None:
    bad = adapter("team-a/one", name="x", path="relative")
    assert judged(bad, adapter("team-a/two", name="x")) == {
        "team-a/one": Reason.INVALID_PATH,
        "team-a/two": Reason.NAME_CONFLICT,
    }


def test_the_served_models_own_name_is_nobodys() -> None:
    one, two = adapter("team-a/one", name="llama"), adapter("team-a/two", name="llama")
    assert judged(one, two, model="llama") == {
        "team-a/one": Reason.BASE_MODEL_NAME,
        "team-a/two": Reason.BASE_MODEL_NAME,
    }
    assert judged(one, model=None) == {"team-a/one": None}


def test_the_order_is_kept() -> None:
    assert [want.adapter for want in wants(ORDER, None)] == ORDER


# --- paths

GOOD_PATHS = {
    "plain": "/adapters/one",
    "with a slash at the end": "/adapters/one/",
    "of one part": "/a",
    "the root": "/",
    "with blanks": "/adapters/my adapter",
    "with dots in a name": "/adapters/..one/v1.2..",
    "hidden": "/adapters/.cache",
    "of other letters": "/適配器/ä",
    "with what a shell would read": "/adapters/$(one)*;'\"",
    "as long as may be": "/" + "a" * (PATH_LIMIT - 1),
}

BAD_PATHS = {
    "relative": ("adapters/one", "not absolute"),
    "a Hub id": ("org/adapter", "not absolute"),
    "a home": ("~/adapter", "not absolute"),
    "a URL": ("s3://bucket/one", "not absolute"),
    "blank": (" ", "not absolute"),
    "a blank first": (" /adapters/one", "not absolute"),
    "the parent": ("/adapters/..", "'..'"),
    "through a parent": ("/adapters/../etc", "'..'"),
    "the parent first": ("/../etc", "'..'"),
    "two slashes first": ("//adapters/one", "normal form '/adapters/one'"),
    "two slashes inside": ("/adapters//one", "normal form '/adapters/one'"),
    "two slashes at the end": ("/adapters/one//", "normal form '/adapters/one'"),
    "slashes only": ("//", "normal form '/'"),
    "a dot inside": ("/adapters/./one", "normal form '/adapters/one'"),
    "a dot at the end": ("/adapters/one/.", "normal form '/adapters/one'"),
    "a line's end": ("/adapters/one\n", "control characters"),
    "an escape": ("/adapters/\x1b[2J", "control characters"),
    "a NUL": ("/adapters/\0", "control characters"),
    "a delete": ("/adapters/\x7f", "control characters"),
    "too long": ("/" + "a" * PATH_LIMIT, "longer than 4095 bytes"),
    "too long in bytes": ("/" + "ä" * 2048, "longer than 4095 bytes"),
}


@pytest.mark.parametrize("path", GOOD_PATHS.values(), ids=GOOD_PATHS)
def test_an_absolute_and_normal_path_may_be_given_to_sglang(path: str) -> None:
    assert path_problem(path) is None
    assert judged(adapter(path=path)) == {"team-a/one": None}


@pytest.mark.parametrize(("path", "words"), BAD_PATHS.values(), ids=BAD_PATHS)
def test_any_other_path_is_said_to_be_wrong(path: str, words: str) -> None:
    problem = path_problem(path)
    assert problem is not None
    assert words in problem
    assert problem.isprintable()
    assert len(problem) < 200
    (want,) = wants([adapter(path=path)], None)
    assert (want.reason, want.text) == (Reason.INVALID_PATH, problem)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["/", ".", "..", "a", "\n", "ä"])).map("".join))
def test_a_path_without_fault_names_one_directory_below_the_root(path: str) -> None:
    if path and path_problem(path) is None:
        parts = path.removesuffix("/").split("/")
        assert parts[0] == ""
        assert not {"", ".", ".."} & set(parts[1:])
