"""Writes against the fake API server, and the merge patches they send."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.kube import errors
from sidecar.kube.apply import create, difference, merge_patch
from sidecar.kube.client import Client
from tests.fakes.kube import FakeKube
from tests.fakes.kube_memory import merged
from tests.kube.conftest import ADAPTERS, adapter


@pytest.mark.parametrize(
    ("current", "wanted", "patch"),
    [
        pytest.param({"a": 1}, {"a": 1}, None, id="equal objects need no patch"),
        pytest.param({}, {"a": 1}, {"a": 1}, id="a missing field is set"),
        pytest.param({"a": 1}, {}, {"a": None}, id="a field too many is removed"),
        pytest.param({"a": 1}, {"a": "1"}, {"a": "1"}, id="a changed field is set"),
        pytest.param(
            {"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a": {"c": 3}}, id="inside objects"
        ),
        pytest.param({"a": {"b": 1}}, {"a": {}}, {"a": {"b": None}}, id="the last field inside"),
        pytest.param({"a": [1, 2]}, {"a": [1]}, {"a": [1]}, id="a list is sent whole"),
        pytest.param({"a": [{"b": 1}]}, {"a": [{"b": 1}]}, None, id="an equal list is not sent"),
        pytest.param({"a": {"b": 1}}, {"a": [1]}, {"a": [1]}, id="an object becomes a list"),
        pytest.param({"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}, id="a scalar becomes an object"),
        pytest.param({}, {"a": {}}, {"a": {}}, id="an empty object is something"),
        pytest.param({"a": None}, {}, None, id="null is absent"),
        pytest.param({}, {"a": None}, None, id="absent is null"),
    ],
)
def test_the_patch_names_what_differs(
    current: dict[str, Any], wanted: dict[str, Any], patch: dict[str, Any] | None
) -> None:
    assert difference(current, wanted) == patch


JSON = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), JSON, max_size=4)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(OBJECTS, OBJECTS)
def test_patching_makes_the_wanted_object_and_then_nothing_differs(
    current: dict[str, Any], wanted: dict[str, Any]
) -> None:
    assert merged(current, difference(current, wanted) or {}) == wanted
    assert difference(wanted, wanted) is None


async def test_an_object_is_created_in_its_namespace(kube: FakeKube, client: Client) -> None:
    stored = await create(client, ADAPTERS, "a", adapter("x"), manager="tester")
    assert stored["metadata"]["uid"]
    assert kube.get(ADAPTERS, "a", "x") == stored
    assert kube.seen[0].params == {"fieldManager": "tester"}


async def test_a_name_that_is_taken_is_a_conflict(kube: FakeKube, client: Client) -> None:
    kube.put(ADAPTERS, adapter("x"))
    with pytest.raises(errors.Conflict) as caught:
        await create(client, ADAPTERS, "a", adapter("x"))
    assert caught.value.already_exists


@pytest.mark.parametrize("patch", [None, {}])
async def test_nothing_to_change_is_not_sent(
    kube: FakeKube, client: Client, patch: dict[str, Any] | None
) -> None:
    assert await merge_patch(client, ADAPTERS, "a", "x", patch, resource_version="1") is None
    assert kube.seen == []


async def test_a_patch_goes_to_the_subresource_as_a_merge_patch(
    kube: FakeKube, client: Client
) -> None:
    kube.statuses.add(ADAPTERS)
    kube.put(ADAPTERS, adapter("x"))
    patch = {"spec": {"name": "ignored"}, "status": {"podsLoaded": "1/1"}}
    stored = await merge_patch(client, ADAPTERS, "a", "x", patch, subresource="status")
    assert stored is not None
    assert (stored["spec"]["name"], stored["status"]) == ("x", {"podsLoaded": "1/1"})
    assert kube.seen[0].headers["Content-Type"] == "application/merge-patch+json"


async def test_a_patch_to_the_version_that_was_read_is_taken(
    kube: FakeKube, client: Client
) -> None:
    version = kube.put(ADAPTERS, adapter("x"))["metadata"]["resourceVersion"]
    patch = {"metadata": {"labels": {"a": "b"}}}
    stored = await merge_patch(client, ADAPTERS, "a", "x", patch, resource_version=version)
    assert stored is not None
    assert stored["metadata"]["labels"] == {"a": "b"}
    assert patch == {"metadata": {"labels": {"a": "b"}}}


async def test_a_patch_to_an_older_version_is_a_conflict(kube: FakeKube, client: Client) -> None:
    version = kube.put(ADAPTERS, adapter("x"))["metadata"]["resourceVersion"]
    kube.put(ADAPTERS, adapter("x", path="/new"))
    with pytest.raises(errors.Conflict) as caught:
        await merge_patch(
            client, ADAPTERS, "a", "x", {"spec": {"path": "/mine"}}, resource_version=version
        )
    assert not caught.value.already_exists
