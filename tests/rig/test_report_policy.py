"""The policy on reports, against the real API server: who may write what."""

import copy

import pytest

from tests.rig.apiclient import ApiError

pytestmark = pytest.mark.cluster


def path_of(pod, name="") -> str:
    base = f"/apis/lora-sidecar.llmkube.dev/v1alpha1/namespaces/{pod.namespace}/lorapodstatuses"
    return f"{base}/{name}" if name else base


def report_of(pod) -> dict:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
    return {
        "apiVersion": "lora-sidecar.llmkube.dev/v1alpha1",
        "kind": "LoRAPodStatus",
        "metadata": {"name": pod.name, "ownerReferences": [owner]},
        "spec": {"podName": pod.name, "podUID": pod.uid, "node": pod.node, "service": "chat"},
    }


@pytest.fixture(scope="module")
def pod(kubelet, namespace):
    return kubelet.create_pod(namespace, "mine")


@pytest.fixture(scope="module")
def other(kubelet, namespace):
    return kubelet.create_pod(namespace, "other")


@pytest.fixture(scope="module")
def agent(controlplane, kubelet, pod):
    """A client with the token of the pod `mine`."""
    return controlplane.client(kubelet.issue_token(pod))


@pytest.fixture
def written(controlplane, pod, agent):
    """The pod's report, written by its agent."""
    made = agent.api("POST", path_of(pod), report_of(pod))
    yield made
    controlplane.api("DELETE", path_of(pod, pod.name))


def refused(call, *args) -> str:
    with pytest.raises(ApiError, match="403") as error:
        call(*args)
    assert "ValidatingAdmissionPolicy 'lora-sidecar-reports'" in error.value.text
    return error.value.text


def test_a_pod_writes_its_own_report_and_writes_it_again(agent, pod, written):
    change = {"status": {"beat": 2}}

    again = agent.api("PATCH", path_of(pod, pod.name), change)

    assert again["status"] == {"beat": 2}


def test_a_patch_that_means_another_object_of_the_name_is_refused(agent, pod, written):
    change = {"metadata": {"uid": "of-another"}, "status": {"beat": 2}}

    with pytest.raises(ApiError, match="422"):
        agent.api("PATCH", path_of(pod, pod.name), change)

    own = {"metadata": {"uid": written["metadata"]["uid"]}, "status": {"beat": 2}}
    assert agent.api("PATCH", path_of(pod, pod.name), own)["status"] == {"beat": 2}


def second_owner(report):
    owner = report["metadata"]["ownerReferences"][0]
    report["metadata"]["ownerReferences"].append(owner | {"name": "x", "uid": "x"})


def no_owner(report):
    del report["metadata"]["ownerReferences"]


def earlier_pod_as_owner(report):
    report["metadata"]["ownerReferences"][0]["uid"] = "0"


def blocking_owner(report):
    report["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = True


def finalizer(report):
    report["metadata"]["finalizers"] = ["lora-sidecar.llmkube.dev/x"]


def wrong_node(report):
    report["spec"]["node"] = "elsewhere"


def no_node(report):
    del report["spec"]["node"]


def wrong_uid(report):
    report["spec"]["podUID"] = "0"


def wrong_name(report):
    report["spec"]["podName"] = "other"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (second_owner, "owned by its pod"),
        (no_owner, "owned by its pod"),
        (earlier_pod_as_owner, "owned by its pod"),
        (blocking_owner, "owned by its pod"),
        (finalizer, "no finalizers"),
        (wrong_node, "spec.node"),
        (no_node, "spec.node"),
        (wrong_uid, "spec.podUID"),
        (wrong_name, "spec.podName"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_report_that_is_not_true_of_its_pod_is_refused(agent, pod, spoil, says):
    report = copy.deepcopy(report_of(pod))
    spoil(report)

    assert says in refused(agent.api, "POST", path_of(pod), report)


def test_another_pods_report_can_be_neither_made_nor_changed(controlplane, agent, other):
    report = report_of(other)
    assert "may only write the report named mine" in refused(
        agent.api, "POST", path_of(other), report
    )

    controlplane.api("POST", path_of(other), report)
    change = {"status": {"beat": 7}}
    refused(agent.api, "PATCH", path_of(other, other.name), change)


def test_another_namespace_is_out_of_bounds_also_under_the_pods_own_name(agent, pod):
    path = path_of(pod).replace(pod.namespace, "default")

    assert "the pod's own namespace" in refused(agent.api, "POST", path, report_of(pod))


def test_whose_report_it_is_cannot_change(agent, pod, written):
    change = {"spec": {"service": "another"}}

    with pytest.raises(ApiError, match="cannot change"):
        agent.api("PATCH", path_of(pod, pod.name), change)


def test_a_finalizer_cannot_be_added_later(agent, pod, written):
    change = {"metadata": {"finalizers": ["lora-sidecar.llmkube.dev/x"]}}

    refused(agent.api, "PATCH", path_of(pod, pod.name), change)


def test_a_token_of_no_pod_writes_nothing(controlplane, pod):
    unbound = controlplane.client(controlplane.service_account_token(pod.namespace, "default"))

    assert "not bound to a pod" in refused(unbound.api, "POST", path_of(pod), report_of(pod))


@pytest.mark.field(112)
def test_a_pod_can_neither_delete_reports_nor_write_an_adapters_status(agent, pod, written):
    adapters = f"/apis/inference.llmkube.dev/v1alpha1/namespaces/{pod.namespace}/loraadapters"

    for method, path in (("DELETE", path_of(pod, pod.name)), ("PATCH", f"{adapters}/a/status")):
        with pytest.raises(ApiError, match=r"cannot (delete|patch) resource"):
            agent.api(method, path, {})


@pytest.mark.field(112)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/namespaces/{}/secrets"),
        ("GET", "/api/v1/namespaces/{}/configmaps"),
        ("GET", "/api/v1/namespaces/{}/pods"),
        ("GET", "/apis/lora-sidecar.llmkube.dev/v1alpha1/namespaces/{}/lorapodstatuses"),
        ("POST", "/apis/events.k8s.io/v1/namespaces/{}/events"),
        ("PATCH", "/apis/inference.llmkube.dev/v1alpha1/namespaces/{}/loraadapters/a"),
        ("GET", "/apis/inference.llmkube.dev/v1alpha1/namespaces/{}/inferenceservices"),
    ],
)
def test_nothing_else_is_open_to_a_pod(agent, pod, method, path):
    with pytest.raises(ApiError, match=r"cannot (list|create|patch) resource"):
        agent.api(method, path.format(pod.namespace), {} if method != "GET" else None)


def test_a_pod_reads_the_adapters_of_all_namespaces(agent):
    assert "items" in agent.api("GET", "/apis/inference.llmkube.dev/v1alpha1/loraadapters")
