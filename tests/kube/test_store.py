"""What an informer knows, without any server."""

from typing import Any

import pytest

from sidecar.kube.store import Store, is_object

Change = tuple[str, Any, Any]


def thing(name: str = "x", version: int = 1, uid: str = "u", **spec: Any) -> dict[str, Any]:
    meta = {"namespace": "a", "name": name, "uid": uid, "resourceVersion": str(version)}
    return {"metadata": meta, "spec": spec}


class Decoder:
    """Answers the spec; refuses it where it says `bad`, does not want it where it says `other`."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, raw: dict[str, Any]) -> Any:
        self.calls += 1
        if "bad" in raw["spec"]:
            raise ValueError(raw["spec"]["bad"])
        return None if "other" in raw["spec"] else raw["spec"]


@pytest.fixture
def changes() -> list[Change]:
    return []


@pytest.fixture
def decoder() -> Decoder:
    return Decoder()


@pytest.fixture
def store(decoder: Decoder, changes: list[Change]) -> Store[Any]:
    return Store(decoder, on_change=lambda *change: changes.append(change))


def take(store: Store[Any], *raws: dict[str, Any]) -> bool:
    return store.replace(dict(store.read(raw) for raw in raws))


def test_objects_come_change_and_go(store: Store[Any], changes: list[Change]) -> None:
    assert store.put(thing(v=1))
    assert store.put(thing(version=2, v=2))
    assert store.drop(thing(version=3))
    assert not store.drop(thing(version=3))
    assert changes == [
        ("a/x", None, {"v": 1}),
        ("a/x", {"v": 1}, {"v": 2}),
        ("a/x", {"v": 2}, None),
    ]
    assert store.snapshot == {}


def test_a_cluster_wide_object_is_known_by_its_name_alone(store: Store[Any]) -> None:
    store.put({"metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}, "spec": {}})
    assert set(store.snapshot) == {"n"}


def test_a_list_is_the_truth_also_about_what_it_lacks(
    store: Store[Any], changes: list[Change]
) -> None:
    take(store, thing("stays"), thing("goes", v=1), thing("changes", v=1))
    changes.clear()
    assert take(store, thing("stays"), thing("changes", version=2, v=2), thing("comes"))
    assert changes == [
        ("a/goes", {"v": 1}, None),
        ("a/changes", {"v": 1}, {"v": 2}),
        ("a/comes", None, {}),
    ]


def test_the_same_version_is_not_decoded_twice(store: Store[Any], decoder: Decoder) -> None:
    take(store, thing("a"), thing("b", other=1), thing("c", bad="no"))
    assert not take(store, thing("a"), thing("b", other=1), thing("c", bad="no"))
    assert decoder.calls == 3


def test_a_new_version_with_an_equal_value_is_no_change(
    store: Store[Any], changes: list[Change]
) -> None:
    store.put(thing(v=1))
    before = store.snapshot["a/x"]
    assert not store.put(thing(version=2, v=1))
    assert store.snapshot["a/x"] is before
    assert store.read(thing(version=2, v=1))[1].value is before
    assert len(changes) == 1


def test_an_object_that_is_no_longer_wanted_goes(store: Store[Any]) -> None:
    store.put(thing())
    assert store.put(thing(version=2, other=1))
    assert store.snapshot == {}


def test_one_that_cannot_be_decoded_does_not_stop_the_others(store: Store[Any]) -> None:
    take(store, thing("a", bad="no"), thing("b"))
    assert set(store.snapshot) == {"a/b"}
    assert store.undecodable == {"a/a": "ValueError: no"}


def test_a_new_version_that_cannot_be_decoded_leaves_the_last_good_value(
    store: Store[Any], changes: list[Change]
) -> None:
    store.put(thing(v=1))
    assert not store.put(thing(version=2, bad="no"))
    assert not take(store, thing(version=3, bad="still no"))
    assert store.snapshot == {"a/x": {"v": 1}}
    assert store.undecodable == {"a/x": "ValueError: still no"}
    assert len(changes) == 1


def test_a_repaired_object_is_no_longer_undecodable(store: Store[Any]) -> None:
    store.put(thing(bad="no"))
    assert store.put(thing(version=2, v=2))
    assert store.undecodable == {}


def test_a_deleted_object_is_no_longer_undecodable(store: Store[Any]) -> None:
    store.put(thing(bad="no"))
    store.drop(thing(version=2))
    assert store.undecodable == {}


def test_one_made_anew_under_the_name_does_not_inherit_the_old_value(store: Store[Any]) -> None:
    store.put(thing(v=1))
    assert take(store, thing(uid="another", version=9, bad="no"))
    assert store.snapshot == {}


def test_each_undecodable_version_is_logged_once(
    store: Store[Any], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        take(store, thing(bad="no"))
        store.put(thing(bad="no"))
    assert len(caplog.records) == 1
    store.put(thing(version=2, bad="no"))
    assert len(caplog.records) == 2


def test_a_list_that_was_never_finished_leaves_no_trace(
    store: Store[Any], caplog: pytest.LogCaptureFixture
) -> None:
    store.read(thing(bad="no"))
    assert store.undecodable == {}
    assert caplog.records == []


def test_a_filter_that_raises_is_as_a_decoder_that_does(decoder: Decoder) -> None:
    store = Store(decoder, lambda raw: raw["spec"]["missing"])
    store.put(thing())
    assert store.undecodable == {"a/x": "KeyError: 'missing'"}


def test_what_the_filter_does_not_want_is_not_decoded(decoder: Decoder) -> None:
    store = Store(decoder, lambda raw: raw["spec"] != {})
    assert not store.put(thing())
    assert decoder.calls == 0


def test_readers_cannot_write(store: Store[Any]) -> None:
    with pytest.raises(TypeError):
        store.snapshot["a/x"] = {}  # type: ignore[index]


@pytest.mark.parametrize("raw", [None, "x", [], {}, {"metadata": None}, {"metadata": {"name": 1}}])
def test_what_has_no_name_is_no_object(raw: object) -> None:
    assert not is_object(raw)
