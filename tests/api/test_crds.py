"""CRDs and models say the same; LoRAAdapter is what LLMKube's contract says, with nothing narrowed.

The models of LoRAAdapter read as strictly as the contract. Those of a report leave the limits of its texts to the
CRD: the writer cuts, and a report that is a little too long must not bring an agent down.
"""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from sidecar.api import adapter, names, report
from sidecar.api.adapter import LoRAAdapter
from sidecar.api.conditions import Condition
from tests.api.schemas import Schema, crd, faults, of_model, pairs, schema

MODELS: dict[str, tuple[type[BaseModel], Schema]] = {
    "the spec of an adapter": (adapter.Spec, schema("loraadapters")["properties"]["spec"]),
    "the status of an adapter": (adapter.Status, schema("loraadapters")["properties"]["status"]),
    "the spec of a report": (report.ReportSpec, schema("lorapodstatuses")["properties"]["spec"]),
    "the status of a report": (
        report.ReportStatus,
        schema("lorapodstatuses")["properties"]["status"],
    ),
}


def places(model: type[BaseModel], theirs: Schema) -> list[tuple[str, Schema, Schema]]:
    return list(pairs(of_model(model), theirs))


@pytest.mark.parametrize(("model", "theirs"), MODELS.values(), ids=MODELS)
def test_the_fields_are_the_same(model: type[BaseModel], theirs: Schema) -> None:
    differ = {
        where: ours.get("properties", {}).keys() ^ other.get("properties", {}).keys()
        for where, ours, other in places(model, theirs)
    }
    assert {where: keys for where, keys in differ.items() if keys} == {}


@pytest.mark.parametrize(("model", "theirs"), MODELS.values(), ids=MODELS)
def test_the_same_fields_are_required(model: type[BaseModel], theirs: Schema) -> None:
    differ = {
        where: set(ours.get("required", [])) ^ set(other.get("required", []))
        for where, ours, other in places(model, theirs)
    }
    assert {where: keys for where, keys in differ.items() if keys} == {}


@pytest.mark.parametrize(("model", "theirs"), MODELS.values(), ids=MODELS)
def test_the_types_are_the_same(model: type[BaseModel], theirs: Schema) -> None:
    for where, ours, other in places(model, theirs):
        assert ours["type"] == other["type"], where
        assert ours.get("format") == (other.get("format") if other["type"] == "string" else None), (
            where
        )


LIMITS = ("minLength", "maxLength", "minimum", "maximum", "maxItems", "pattern")


@pytest.mark.parametrize(("model", "theirs"), MODELS.values(), ids=MODELS)
def test_what_limits_a_model_states_are_those_of_the_crd(
    model: type[BaseModel], theirs: Schema
) -> None:
    for where, ours, other in places(model, theirs):
        stated = {key: ours[key] for key in LIMITS if key in ours}
        assert stated == {key: other.get(key) for key in stated}, where
        if "enum" in other:
            assert ours["enum"] == other["enum"], where


def test_the_models_hold_users_and_writers_of_conditions_to_the_whole_contract() -> None:
    for model, theirs in (
        (adapter.Spec, schema("loraadapters")["properties"]["spec"]),
        (Condition, schema("loraadapters")["properties"]["status"]["properties"]["conditions"]),
    ):
        for where, ours, other in places(model, theirs.get("items", theirs)):
            if (
                where == ".type"
            ):  # its pattern is the API server's to hold: foreign types are read as they are
                continue
            for key in LIMITS:
                assert ours.get(key) == other.get(key), (where, key)


def test_the_states_are_those_that_the_crd_knows() -> None:
    status = schema("lorapodstatuses")["properties"]["status"]["properties"]
    states = status["adapters"]["items"]["properties"]["state"]["enum"]
    assert states == [state.value for state in report.State]
    engine_states = status["engine"]["properties"]["state"]["enum"]
    assert engine_states == [state.value for state in report.EngineState]


def test_the_limits_that_writers_keep_are_those_of_the_crds() -> None:
    status = schema("lorapodstatuses")["properties"]["status"]["properties"]
    lists = [key for key, part in status.items() if "maxItems" in part]
    assert sorted(lists) == ["adapters", "foreign", "suspects", "unloaded"]
    assert {status[key]["maxItems"] for key in lists} == {report.ENTRY_LIMIT}
    assert status["engine"]["properties"]["text"]["maxLength"] == report.TEXT_LIMIT
    for reason in report.Reason:
        assert len(reason) <= status["reason"]["maxLength"]


@pytest.mark.parametrize(
    ("plural", "group", "kind"),
    [
        (names.ADAPTER_PLURAL, names.INFERENCE_GROUP, names.ADAPTER_KIND),
        (names.REPORT_PLURAL, names.PREFIX, names.REPORT_KIND),
    ],
)
def test_the_names_are_those_by_which_we_ask(plural: str, group: str, kind: str) -> None:
    spec = crd(plural)["spec"]
    assert crd(plural)["metadata"]["name"] == f"{plural}.{group}"
    assert (spec["group"], spec["scope"]) == (group, "Namespaced")
    assert (spec["names"]["plural"], spec["names"]["kind"]) == (plural, kind)
    (version,) = spec["versions"]
    assert (version["name"], version["served"], version["storage"]) == (names.VERSION, True, True)


def test_an_adapter_has_a_status_of_its_own_and_can_be_selected_by_its_service() -> None:
    (version,) = crd(names.ADAPTER_PLURAL)["spec"]["versions"]
    assert version["subresources"] == {"status": {}}
    assert version["selectableFields"] == [{"jsonPath": names.SERVICE_FIELD}]
    assert crd(names.ADAPTER_PLURAL)["spec"]["names"]["shortNames"] == ["lora"]


def test_a_report_has_no_status_of_its_own() -> None:
    (version,) = crd(names.REPORT_PLURAL)["spec"]["versions"]
    assert "subresources" not in version


def columns(plural: str) -> list[tuple[str, int]]:
    (version,) = crd(plural)["spec"]["versions"]
    return [(c["name"], c.get("priority", 0)) for c in version["additionalPrinterColumns"]]


def test_kubectl_shows_the_columns_that_people_know_and_ours() -> None:
    assert columns(names.ADAPTER_PLURAL) == [
        ("Service", 0),
        ("Adapter", 0),
        ("Loaded", 0),
        ("Pods", 0),
        ("Age", 0),
        ("Reason", 1),
        ("Path", 1),
    ]
    assert [name for name, _ in columns(names.REPORT_PLURAL)] == [
        "Service",
        "Engine",
        "Loaded",
        "Reason",
        "Agent",
        "Age",
    ]


@pytest.mark.parametrize("plural", [names.ADAPTER_PLURAL, names.REPORT_PLURAL])
def test_every_column_shows_a_field_that_exists(plural: str) -> None:
    (version,) = crd(plural)["spec"]["versions"]
    for column in version["additionalPrinterColumns"]:
        part = version["schema"]["openAPIV3Schema"]
        steps = column["jsonPath"].partition("[?")[0].strip(".").split(".")
        if steps[0] == "metadata":
            continue
        for step in steps:
            assert step in part["properties"], column["name"]
            part = part["properties"][step]


# --- the contract of LoRAAdapter


def an_adapter(**over: Any) -> dict[str, Any]:
    spec = {"inferenceServiceRef": {"name": "llama"}, "name": "one", "path": "/adapters/one"}
    return {
        "apiVersion": "inference.llmkube.dev/v1alpha1",
        "kind": "LoRAAdapter",
        "metadata": {"name": "one", "namespace": "team-a"},
        "spec": {key: value for key, value in (spec | over).items() if value is not None},
    }


SERVICES_ELSEWHERE = {"name": "llama", "namespace": "serving"}

ACCEPTED: dict[str, dict[str, Any]] = {
    "the smallest": {},
    "a service in another namespace": {"inferenceServiceRef": SERVICES_ELSEWHERE},
    "a name of one letter": {"name": "A"},
    "a name of 63 letters": {"name": "a" * 63},
    "a name that begins with a digit": {"name": "7b-chat_v1.2"},
    "a name that ends in a dot": {"name": "a."},
    "a path of one letter": {"path": "a"},
    "a relative path": {"path": "org/adapter"},
    "a path with a blank": {"path": " "},
    "a path longer than any file's": {"path": "/" + "a" * 10_000},
    "a service whose name is no DNS label": {"inferenceServiceRef": {"name": "Llama_3"}},
    "an empty service name": {"inferenceServiceRef": {"name": ""}},
    "a field of the future": {"rank": 8},
}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no name": ({"name": None}, "spec"),
    "an empty name": ({"name": ""}, "spec.name"),
    "a name of 64 letters": ({"name": "a" * 64}, "spec.name"),
    "a name that begins with a dot": ({"name": ".a"}, "spec.name"),
    "a name that begins with a dash": ({"name": "-a"}, "spec.name"),
    "a name with a slash": ({"name": "org/a"}, "spec.name"),
    "a name with a colon": ({"name": "base:a"}, "spec.name"),
    "a name with a blank": ({"name": "a b"}, "spec.name"),
    "a name with a line's end": ({"name": "a\n"}, "spec.name"),
    "a name with an umlaut": ({"name": "ä"}, "spec.name"),
    "a number for a name": ({"name": 7}, "spec.name"),
    "no path": ({"path": None}, "spec"),
    "an empty path": ({"path": ""}, "spec.path"),
    "no service": ({"inferenceServiceRef": None}, "spec"),
    "a service without a name": (
        {"inferenceServiceRef": {"namespace": "serving"}},
        "spec.inferenceServiceRef",
    ),
    "a service as a text": ({"inferenceServiceRef": "llama"}, "spec.inferenceServiceRef"),
}


@pytest.mark.parametrize("over", ACCEPTED.values(), ids=ACCEPTED)
def test_what_the_contract_allows_is_accepted_and_read(over: dict[str, Any]) -> None:
    body = an_adapter(**over)
    assert faults("loraadapters", body) == []
    read = LoRAAdapter.read(body)
    assert (read.handle, read.spec.path) == (body["spec"]["name"], body["spec"]["path"])


@pytest.mark.field(22)
@pytest.mark.parametrize(("over", "where"), REFUSED.values(), ids=REFUSED)
def test_what_the_contract_forbids_is_refused_and_not_read(
    over: dict[str, Any], where: str
) -> None:
    body = an_adapter(**over)
    assert set(faults("loraadapters", body)) == {where}
    with pytest.raises(ValidationError):
        LoRAAdapter.read(body)


def test_an_adapter_without_a_spec_is_refused() -> None:
    body = {key: value for key, value in an_adapter().items() if key != "spec"}
    assert faults("loraadapters", body) == ["."]
    with pytest.raises(ValidationError):
        LoRAAdapter.read(body)


def test_the_service_is_in_the_adapters_own_namespace_unless_it_says_another() -> None:
    assert LoRAAdapter.read(an_adapter()).service == ("team-a", "llama")
    elsewhere = an_adapter(inferenceServiceRef=SERVICES_ELSEWHERE)
    assert LoRAAdapter.read(elsewhere).service == ("serving", "llama")


def a_condition(**over: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "Loaded",
        "status": "True",
        "reason": "ReconcileSuccess",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return {key: value for key, value in (made | over).items() if value is not None}


GOOD_CONDITIONS: dict[str, dict[str, Any]] = {
    "an empty message": {},
    "each status": {"status": "Unknown"},
    "a type with a prefix": {"type": "example.com/Ready"},
    "a reason of one letter": {"reason": "A"},
    "a reason with all that it may hold": {"reason": "A_b,c:9"},
    "a reason of 1,024 letters": {"reason": "A" * 1024},
    "a message of 32,768 letters": {"message": "ä" * 32768},
    "a type of 316 letters": {"type": "A" * 316},
    "generation 0": {"observedGeneration": 0},
    "a large generation": {"observedGeneration": 2**62},
    "a time with an offset": {"lastTransitionTime": "2026-01-01T00:00:00+02:00"},
}

BAD_CONDITIONS: dict[str, dict[str, Any]] = {
    "another status": {"status": "Maybe"},
    "no reason": {"reason": None},
    "an empty reason": {"reason": ""},
    "a reason that begins with a digit": {"reason": "9A"},
    "a reason that ends in a colon": {"reason": "A:"},
    "a reason with a blank": {"reason": "Not Loaded"},
    "a reason of 1,025 letters": {"reason": "A" * 1025},
    "no message": {"message": None},
    "a message of 32,769 letters": {"message": "a" * 32769},
    "no time": {"lastTransitionTime": None},
    "a time without a zone": {"lastTransitionTime": "2026-01-01T00:00:00"},
    "no type": {"type": None},
    "a type of 317 letters": {"type": "A" * 317},
    "a negative generation": {"observedGeneration": -1},
}


@pytest.mark.parametrize("over", GOOD_CONDITIONS.values(), ids=GOOD_CONDITIONS)
def test_a_condition_of_the_contract_is_accepted_and_read(over: dict[str, Any]) -> None:
    body = an_adapter() | {"status": {"conditions": [a_condition(**over)]}}
    assert faults("loraadapters", body) == []
    (read,) = LoRAAdapter.read(body).status.conditions
    assert faults("loraadapters", an_adapter() | {"status": {"conditions": [read.wire()]}}) == []


@pytest.mark.parametrize("over", BAD_CONDITIONS.values(), ids=BAD_CONDITIONS)
def test_any_other_condition_is_refused_and_not_made(over: dict[str, Any]) -> None:
    body = an_adapter() | {"status": {"conditions": [a_condition(**over)]}}
    assert faults("loraadapters", body) != []
    with pytest.raises(ValidationError):
        Condition.model_validate(a_condition(**over))


def test_there_is_one_condition_of_each_type() -> None:
    conditions = schema("loraadapters")["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


def test_all_that_we_add_to_the_status_is_optional() -> None:
    assert faults("loraadapters", an_adapter() | {"status": {}}) == []
    status = schema("loraadapters")["properties"]["status"]
    assert "required" not in status
    assert set(status["properties"]) - {"conditions", "lastLoadedAt", "loadedPath"} == {
        "observedGeneration",
        "podsLoaded",
        "pods",
        "podsOmitted",
    }


def test_describe_shows_a_pods_name_before_anything_else_of_it() -> None:
    # kubectl sorts the keys of a list's items and puts nothing between two items.
    pods = schema("loraadapters")["properties"]["status"]["properties"]["pods"]
    assert min(pods["items"]["properties"]) == "pod"
    assert pods["maxItems"] == 50
