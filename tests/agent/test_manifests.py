"""What files say, and which are believed: pure values, with time as a number. The looking is in test_directory."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.agent import manifests
from sidecar.agent.manifests import Content, File, after_look, combine, parse, restless, unreadable


def body(name: str | None = "one", **over: Any) -> dict[str, Any]:
    """Make a manifest; `spec_...` and `meta_...` replace."""
    metadata: dict[str, Any] = {"name": name}
    spec: dict[str, Any] = {
        "inferenceServiceRef": {"name": "llama"},
        "name": name,
        "path": f"/adapters/{name}",
    }
    made = {
        "apiVersion": "inference.llmkube.dev/v1alpha1",
        "kind": "LoRAAdapter",
        "metadata": metadata,
        "spec": spec,
    }
    for key, value in over.items():
        part, _, field = key.partition("_")
        where = {"meta": metadata, "spec": spec}[part] if field else made
        where[field or part] = value
    return made


def text(*bodies: Any) -> bytes:
    return yaml.safe_dump_all(bodies).encode()


def read(*bodies: Any, file: str = "a.yaml") -> Content:
    return parse(text(*bodies), file, "home")


# --- what a file says


def test_a_file_may_hold_several_documents() -> None:
    content = read(body("one"), None, body("two", meta_namespace="team-b"))
    assert list(content.adapters) == ["home/one", "team-b/two"]
    assert (content.invalid, content.whole, content.certain) == ({}, True, True)


def test_what_kubectl_prints_can_be_used_as_it_is() -> None:
    printed = body(
        "one",
        meta_uid="of-the-cluster",
        meta_generation=7,
        meta_creationTimestamp="2026-01-01T00:00:00Z",
        meta_deletionTimestamp="2026-01-02T00:00:00Z",
        meta_managedFields=[{"manager": "kubectl"}],
        status={"loadedPath": "/old"},
    )
    content = read({"apiVersion": "v1", "kind": "List", "items": [printed, body("two")]})
    assert list(content.adapters) == ["home/one", "home/two"]
    one = content.adapters["home/one"]
    assert (one.created, one.deleting, one.status.loaded_path) == (None, False, None)
    assert one.metadata.uid != "of-the-cluster"


def test_json_is_read_as_json() -> None:
    raw = json.dumps(body("one"), indent="\t").encode()
    assert list(parse(raw, "a.json", "home").adapters) == ["home/one"]


def test_annotations_count() -> None:
    marks = {"lora-sidecar.llmkube.dev/pinned": "true", "lora-sidecar.llmkube.dev/retry": "2"}
    adapter = read(body(meta_annotations=marks)).adapters["home/one"]
    assert adapter.pinned
    assert adapter.retry == "2"


def test_the_uid_is_that_of_the_name_and_the_generation_that_of_the_spec() -> None:
    first = read(body("one"), body("two")).adapters
    again = read(body("one", meta_annotations={"a": "b"}), file="b.yaml").adapters["home/one"]
    edited = read(body("one", spec_path="/elsewhere")).adapters["home/one"]
    one, two = first["home/one"].metadata, first["home/two"].metadata
    assert one.uid == again.metadata.uid == edited.metadata.uid != two.uid
    assert one.generation == again.metadata.generation != edited.metadata.generation
    assert 0 < one.generation < 2**53
    # Known values, as the agent compares with what it reported in an earlier life.
    assert one.generation == 249635656701158
    assert one.uid == "88a55e6a-5bfd-5bcc-b816-6747f0aeb39a"


IGNORED = [
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}},
    {"apiVersion": "inference.llmkube.dev/v1alpha1", "kind": "InferenceService"},
    {"apiVersion": "example.com/v1", "kind": "LoRAAdapter"},
]


def test_other_kinds_are_ignored_and_told() -> None:
    content = read(*IGNORED, body("one"))
    assert list(content.adapters) == ["home/one"]
    assert content.invalid == {}
    assert content.others == {
        "v1 ConfigMap",
        "inference.llmkube.dev/v1alpha1 InferenceService",
        "example.com/v1 LoRAAdapter",
    }


NAMED: dict[str, tuple[dict[str, Any], str]] = {
    "no spec": (body(spec=None), "spec"),
    "a name that clients could not quote": (body(spec_name="a b"), "spec.name"),
    "a long name": (body(spec_name="a" * 64), "spec.name"),
    "an empty path": (body(spec_path=""), "spec.path"),
    "a number for a path": (body(spec_path=5), "spec.path"),
    "no service": (body(spec_inferenceServiceRef={}), "spec.inferenceServiceRef.name"),
    "an annotation that is no text": (body(meta_annotations={"a": True}), "annotations"),
    "annotations that are a list": (body(meta_annotations=["a"]), "annotations"),
    "another version": (body(apiVersion="inference.llmkube.dev/v2"), "v2 LoRAAdapter is not"),
    "a kind in another spelling": (body(kind="LoraAdapter"), "LoraAdapter is not"),
}


@pytest.mark.parametrize(("document", "word"), NAMED.values(), ids=NAMED)
def test_an_object_that_cannot_be_read_is_named_and_disturbs_no_other(
    document: dict[str, Any], word: str
) -> None:
    content = read(body("two"), document)
    assert list(content.adapters) == ["home/two"]
    assert list(content.invalid) == ["home/one"]
    assert content.invalid["home/one"].startswith("a.yaml: ")
    assert word in content.invalid["home/one"]
    assert content.whole


NAMELESS: dict[str, Any] = {
    "no name": body(name=None),
    "a name that Kubernetes does not take": body("One"),
    "a name of another type": body(meta_name=5),
    "a namespace that Kubernetes does not take": body(meta_namespace="a/b"),
    "no metadata": body(metadata=None),
    "no kind": {"spec": {}},
    "a kind of another type": body(kind=5),
    "a text": "hello",
    "a list": [body("one")],
}


@pytest.mark.parametrize("document", NAMELESS.values(), ids=NAMELESS)
def test_an_object_without_a_name_is_known_by_its_place(document: Any) -> None:
    content = read(body("two"), document)
    assert list(content.adapters) == ["home/two"]
    assert list(content.invalid) == ["a.yaml#2"]
    assert not content.whole


def test_of_an_adapter_defined_twice_in_a_file_the_first_counts() -> None:
    content = read(body("one"), body("one", spec_path="/other"))
    assert content.adapters["home/one"].spec.path == "/adapters/one"
    assert content.invalid == {"a.yaml#2": "a.yaml: it defines home/one twice"}


BROKEN: dict[str, tuple[str, bytes]] = {
    "YAML that ends in the middle": ("a.yaml", text(body("one")) + b"---\nkind: {"),
    "YAML that makes Python objects": ("a.yaml", b"!!python/object/apply:os.getcwd []"),
    "bytes that are no text": ("a.yaml", b"\xff\xfe\x00\x01"),
    "JSON that ends in the middle": ("a.json", b'{"kind": '),
    "YAML in a JSON file": ("a.json", text(body("one"))),
    "a file too large": ("a.yaml", b"#" * (manifests.SIZE_LIMIT + 1)),
    "endless depth in YAML": ("a.yaml", b"[" * 100_000),
    "endless depth in JSON": ("a.json", b"[" * 100_000),
    "a control character": ("a.yaml", b"kind: \x01"),
}


@pytest.mark.parametrize(("file", "raw"), BROKEN.values(), ids=BROKEN)
def test_a_file_that_cannot_be_read_says_nothing_and_is_named(file: str, raw: bytes) -> None:
    content = parse(raw, file, "home")
    assert content.adapters == {}
    assert list(content.invalid) == [file]
    assert content.invalid[file].startswith(f"{file}: ")
    assert "\n" not in content.invalid[file]
    assert not content.whole


@settings(deadline=None)
@given(st.one_of(st.binary(), st.text().map(str.encode)), st.sampled_from(["a.yaml", "a.json"]))
def test_no_file_is_too_odd_to_be_judged(raw: bytes, file: str) -> None:
    parse(raw, file, "home")


# --- what it said before


def test_a_broken_file_leaves_in_force_what_it_said() -> None:
    before = read(body("one"), body("two"))
    after = unreadable("a.yaml", "it is broken").after(before)
    assert list(after.adapters) == ["home/one", "home/two"]
    assert after.invalid == {"a.yaml": "a.yaml: it is broken"}
    assert after.certain


def test_a_broken_object_stays_as_it_was_while_the_rest_of_its_file_changes() -> None:
    before = read(body("one"), body("two"), body("three"))
    after = read(body("one", spec_path=""), body("two", spec_path="/new")).after(before)
    assert {key: adapter.spec.path for key, adapter in after.adapters.items()} == {
        "home/one": "/adapters/one",
        "home/two": "/new",
    }


def test_an_object_without_a_name_may_be_any_that_the_file_had() -> None:
    after = read(body("two"), body("One")).after(read(body("one"), body("two")))
    assert set(after.adapters) == {"home/one", "home/two"}


def test_what_was_kept_is_kept_through_further_faults_and_gone_when_the_file_says_so() -> None:
    said = read(body("one"))
    for _ in range(3):
        said = unreadable("a.yaml", "it is broken").after(said)
    assert list(said.adapters) == ["home/one"]
    assert read().after(said).adapters == {}


def test_a_file_never_read_whole_is_uncertain_until_it_is() -> None:
    said = unreadable("a.yaml", "it is broken")
    assert not said.certain
    assert not read(body("one"), body("One")).after(said).certain
    assert read(body("one")).after(said).certain


# --- when files are believed

S1, S2 = (1,), (2,)


def look(
    files: dict[str, File], now: float, first: bool = False, /, **seen: tuple[int, ...]
) -> dict[str, File]:
    return after_look(files, seen, now, first=first)


def due(files: dict[str, File], now: float) -> list[str]:
    return [name for name, file in files.items() if file.due(now)]


def test_a_file_is_read_once_it_has_kept_still() -> None:
    files = look({}, 10.0, a=S1)
    assert due(files, 10.0) == []
    files = look(files, 10.1, a=S2)
    assert due(files, 10.25) == []
    files = look(files, 10.3, a=S2)
    assert due(files, 10.3) == ["a"]
    files = {"a": files["a"].with_content(read(body()))}
    assert due(look(files, 99.0, a=S2), 99.0) == []
    assert not restless(files)


def test_a_file_that_could_not_be_read_is_tried_again_at_each_look() -> None:
    files = {"a": look({}, 10.0, a=S1)["a"].with_failure(unreadable("a", "no permission"))}
    assert not restless(files)
    files = look(files, 11.0, a=S1)
    assert restless(files)
    assert due(files, 11.25) == ["a"]


def test_a_missing_file_is_forgotten_only_when_it_stays_away() -> None:
    files = look({}, 10.0, a=S1)
    files = look(files, 11.0)
    assert restless(files)
    files = look(files, 12.9)
    assert list(files) == ["a"]
    assert look(files, 13.0) == {}


def test_a_file_that_comes_back_in_time_was_never_gone() -> None:
    files = look({"a": look({}, 10.0, a=S1)["a"].with_content(read(body()))}, 11.0)
    files = look(files, 12.5, a=S1)
    assert not restless(files)
    files = look(files, 14.0)
    assert list(look(files, 15.9)) == ["a"]


def file(content: Content | None, *, old: bool = False, missing: float | None = None) -> File:
    made = File(S1, 0.0, 0.0, old, missing=missing)
    return made if content is None else made.with_content(content)


def test_of_two_files_that_define_an_adapter_the_first_by_name_counts() -> None:
    files = {
        "b.yaml": file(read(body("one", spec_path="/b"), body("two"), file="b.yaml")),
        "a.yaml": file(read(body("one", spec_path="/a"))),
    }
    said = combine(files, 1.0)
    assert [(a.key, a.spec.path) for a in said.adapters] == [
        ("home/one", "/a"),
        ("home/two", "/adapters/two"),
    ]
    assert said.invalid == {
        "b.yaml#home/one": "b.yaml: home/one is already defined by a.yaml",
    }


def test_a_renamed_file_is_no_conflict() -> None:
    files = {
        "a.yaml": file(read(body("one", spec_path="/old")), missing=0.5),
        "b.yaml": file(read(body("one", spec_path="/new"))),
    }
    said = combine(files, 1.0)
    assert [a.spec.path for a in said.adapters] == ["/new"]
    assert said.invalid == {}


def test_the_list_is_partial_while_a_file_from_before_has_not_been_read_whole() -> None:
    broken = unreadable("a.yaml", "it is broken")
    assert combine({"a.yaml": file(broken, old=True)}, 1.0).partial
    assert combine({"a.yaml": file(None, old=True)}, 1.0).partial
    assert not combine({"a.yaml": file(broken)}, 1.0).partial
    assert not combine({"a.yaml": file(read(body()), old=True)}, 1.0).partial
    assert not combine({}, 1.0).partial


def test_a_file_that_never_keeps_still_is_complained_about_after_a_while() -> None:
    assert combine({"a.yaml": file(None)}, 9.0).invalid == {}
    assert list(combine({"a.yaml": file(None)}, 10.0).invalid) == ["a.yaml"]
