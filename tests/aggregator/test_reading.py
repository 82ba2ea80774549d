"""How objects are read: what is kept of good ones, and that no garbage can stop anything.

What the values then mean is in test_fold.
"""

import copy
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.aggregator import reading
from sidecar.aggregator.records import Container, Service, Webhook
from tests.aggregator import worlds
from tests.aggregator.worlds import PREFIX, Json, container, entry, folded, pod, report

NOISE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(
        ["Loaded", "Failed", "sglang", "2026-05-01T10:00:00Z", "0001-01-01T00:00:00+23:59"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def spots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every place in a JSON value."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(spot for key, item in inner for spot in spots(item, (*path, key)))]


def spoilt(body: Json, spot: tuple[Any, ...], noise: Any) -> Json:
    """The body with noise in one place; the object itself stays one."""
    if not spot:
        return noise if isinstance(noise, dict) else {}
    copied = copy.deepcopy(body)
    inner = copied
    for key in spot[:-1]:
        inner = inner[key]
    inner[spot[-1]] = noise
    return copied


ADAPTER = worlds.adapter(status=folded([pod()], [report("chat-a", entry())]))
POD = pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}])
REPORT = report("chat-a", entry(), entry("PathNotFound", "not there", name="other"))


@settings(max_examples=300, deadline=None)
@given(data=st.data(), noise=NOISE)
def test_noise_anywhere_in_any_object_stops_nothing(data, noise):
    bodies = {"adapter": ADAPTER, "pod": POD, "report": REPORT}
    which = data.draw(st.sampled_from(sorted(bodies)))
    spot = data.draw(st.sampled_from(spots(bodies[which])))
    bodies[which] = spoilt(bodies[which], spot, noise)
    status = folded([bodies["pod"], pod("chat-b")], [bodies["report"]], adapter=bodies["adapter"])
    assert {one["type"] for one in status["conditions"] if isinstance(one.get("type"), str)} >= {
        "Available",
        "Loaded",
        "Error",
    }
    json.dumps(status)


@given(noise=NOISE)
def test_noise_in_the_place_of_an_object_is_read(noise):
    body = noise if isinstance(noise, dict) else {}
    for read in (reading.adapter, reading.pod, reading.report, reading.service, reading.webhook):
        read(body)


# ---- pods ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "service"),
    [
        (pod(service="chat"), "chat"),
        (pod(service=None, annotations={f"{PREFIX}/service": "talk"}), "talk"),
        (pod(service="chat", annotations={f"{PREFIX}/service": "talk"}), "chat"),
        (pod(service=None), ""),
    ],
    ids=[
        "LLMKube's label says it",
        "without it our annotation does",
        "the label comes first",
        "without both it belongs to none",
    ],
)
def test_whose_pod_it_is(made, service):
    assert reading.pod(made).service == service


@pytest.mark.parametrize(
    ("labels", "annotations", "opted_in"),
    [
        ({}, {f"{PREFIX}/inject": "true"}, True),
        ({}, {f"{PREFIX}/inject": "false"}, False),
        ({}, {f"{PREFIX}/inject": "yes"}, False),
        ({f"{PREFIX}/injected": "false"}, {f"{PREFIX}/inject": "yes"}, True),
        ({}, {}, False),
    ],
    ids=[
        "by annotation",
        "not by false",
        "not by anything else",
        "by the injector's mark",
        "not at all",
    ],
)
def test_which_pods_have_opted_in(labels, annotations, opted_in):
    made = pod(opted_in=False, agent=False, labels=labels, annotations=annotations)
    assert reading.pod(made).opted_in is opted_in


@pytest.mark.parametrize(
    ("containers", "annotations", "engine"),
    [
        (["a", "sglang"], {}, "sglang"),
        (["a", "sglang"], {f"{PREFIX}/container": "a"}, "a"),
        (["a", "b"], {f"{PREFIX}/container": "a", f"{PREFIX}/injected-container": "b"}, "b"),
        (["a"], {}, "a"),
        (["a", "lora-sidecar"], {}, "a"),
        (["a", "b"], {}, None),
        (["a", "sglang"], {f"{PREFIX}/container": "gone"}, "sglang"),
    ],
    ids=[
        "LLMKube's name",
        "the user's word",
        "the injector's word comes first",
        "the only one",
        "the only one beside the agent",
        "none, where nothing says which",
        "a name that is not there says nothing",
    ],
)
def test_which_container_is_the_engine(containers, annotations, engine):
    made = pod(annotations=annotations)
    made["spec"]["containers"] = [{"name": name} for name in containers]
    states = [
        container(name, started=f"2026-05-01T10:00:0{n}Z") for n, name in enumerate(containers)
    ]
    made["status"]["containerStatuses"] = states
    expected = None
    if engine is not None:
        second = containers.index(engine)
        expected = Container(True, True, datetime(2026, 5, 1, 10, 0, second, tzinfo=UTC), "")
    assert reading.pod(made).engine == expected


def test_the_agent_is_found_as_a_native_sidecar_and_as_an_ordinary_container():
    native, ordinary = pod(), pod(agent=False)
    ordinary["spec"]["containers"].append({"name": "lora-sidecar"})
    ordinary["status"]["containerStatuses"].append(container("lora-sidecar"))
    for made in (native, ordinary):
        agent = reading.pod(made).agent
        assert agent is not None
        assert agent.running


def test_a_readiness_gate_that_is_not_passed_is_no_lost_node():
    made = pod(
        conditions=[
            {"type": "Ready", "status": "False"},
            {"type": "ContainersReady", "status": "True"},
        ]
    )
    assert reading.pod(made).lost
    made["spec"]["readinessGates"] = [{"conditionType": "example.com/ready"}]
    assert not reading.pod(made).lost


def test_a_condition_whose_type_is_no_text_is_passed_over():
    lost = {"type": "Ready", "status": "Unknown"}
    assert reading.pod(pod(conditions=[{"type": ["Ready"], "status": "True"}, lost])).lost


def test_a_pod_that_only_has_another_version_is_the_same():
    assert reading.pod(pod(version=1)) == reading.pod(pod(version=2))


# ---- the others ----------------------------------------------------------------------------------------


def test_a_service_without_a_runtime_has_that_of_llmkube():
    body = {"metadata": {"name": "chat", "namespace": "ml"}, "spec": {}}
    assert reading.service(body) == Service("ml/chat", "llamacpp")


def test_an_adapter_targets_its_own_namespace_unless_it_names_another():
    assert reading.adapter(worlds.adapter()).service == ("ml", "chat")
    assert reading.adapter(worlds.adapter(namespace="team")).service == ("ml", "chat")


def test_equal_strings_of_many_reports_are_one():
    one, other = (
        reading.report(json.loads(json.dumps(report(name, entry())))) for name in ("a", "b")
    )
    (key,), (same,) = one.entries, other.entries
    assert key is same
    assert one.entries[key].path is other.entries[key].path


def test_a_webhook_tells_since_when_it_is_there_and_whom_it_leaves_out():
    selector = {
        "matchExpressions": [
            {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": ["kube-system", "kube-node-lease"],
            }
        ]
    }
    body = {
        "metadata": {"creationTimestamp": "2026-05-01T10:00:00Z"},
        "webhooks": [{"namespaceSelector": selector}],
    }
    assert reading.webhook(body) == Webhook(
        created=datetime(2026, 5, 1, 10, tzinfo=UTC),
        excluded=frozenset({"kube-system", "kube-node-lease"}),
    )


@pytest.mark.field(102)
@pytest.mark.parametrize("status", [{}, {"schemaVersion": 2, "mood": "fine", "adapters": ["x"]}])
def test_a_report_of_an_older_or_newer_agent_counts_for_what_it_says(status: Json) -> None:
    """An agent says at least this much of an adapter; what it leaves out or says besides does not matter."""
    told = report("chat-a", entry())
    said = told["status"]
    kept = {"adapter", "uid", "generation", "reason", "state"}
    least = [{k: v for k, v in one.items() if k in kept} for one in said["adapters"]]
    engine = {key: said["engine"][key] for key in ("state", "since")}
    adapters = [*least, *status.get("adapters", [])]
    told["status"] = {**status, "beat": 1, "engine": engine, "adapters": adapters}
    assert worlds.says(folded(pods=[pod()], reports=[told])) == ("True", "ReconcileSuccess")
