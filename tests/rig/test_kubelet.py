import pytest

from tests.rig.apiclient import ApiError
from tests.rig.kubelet import pod_manifest
from tests.rig.polling import until

pytestmark = pytest.mark.cluster

REPORTS = "/apis/lora-sidecar.llmkube.dev/v1alpha1/namespaces/{}/lorapodstatuses"


def who_is(controlplane, token: str) -> dict:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    return controlplane.client(token).api("POST", path, review)["status"]["userInfo"]


def is_gone(controlplane, path: str) -> bool:
    return controlplane.client().raw("GET", path)[0] == 404


def test_a_pod_comes_up_ready_on_the_node(namespace, kubelet):
    pod = kubelet.create_pod(namespace, pod_manifest("up", "chat"))

    shown = kubelet.get(pod)
    assert shown["spec"]["nodeName"] == kubelet.node
    assert shown["status"]["phase"] == "Running"
    assert shown["status"]["podIP"] == pod.ip
    ready = {c["type"]: c["status"] for c in shown["status"]["conditions"]}
    assert ready["Ready"] == ready["ContainersReady"] == "True"
    assert kubelet.container(pod, "lora-sidecar")["ready"]


def test_a_restarted_container_is_told_from_one_that_goes_on(namespace, kubelet):
    pod = kubelet.create_pod(namespace, "restarts")
    first = kubelet.container(pod, "sglang")

    kubelet.restart_container(pod, "sglang", ready=False)

    again = kubelet.container(pod, "sglang")
    assert again["restartCount"] == first["restartCount"] + 1
    assert not again["ready"]


def test_a_container_starts_when_the_test_says_it_did(namespace, kubelet):
    pod = kubelet.create_pod(namespace, "started", start=False)

    kubelet.start(pod, started_at=1_700_000_000)

    running = kubelet.container(pod, "sglang")["state"]["running"]
    assert running["startedAt"] == "2023-11-14T22:13:20Z"


def test_a_pods_token_names_its_pod_and_node(controlplane, namespace, kubelet):
    pod = kubelet.create_pod(namespace, "token")

    extra = who_is(controlplane, kubelet.issue_token(pod))["extra"]

    assert extra["authentication.kubernetes.io/pod-name"] == [pod.name]
    assert extra["authentication.kubernetes.io/pod-uid"] == [pod.uid]
    assert extra["authentication.kubernetes.io/node-name"] == [kubelet.node]


def test_a_token_for_others_is_no_token_for_the_api_server(controlplane, namespace, kubelet):
    pod = kubelet.create_pod(namespace, "audience")

    with pytest.raises(ApiError, match="401"):
        who_is(controlplane, kubelet.issue_token(pod, audiences=["somebody-else"]))


def test_the_volume_holds_what_a_client_needs_and_rotates(
    controlplane, namespace, kubelet, tmp_path
):
    pod = kubelet.create_pod(namespace, "volume")
    folder = kubelet.project(pod, tmp_path)
    first = (folder / "token").read_text()

    kubelet.rotate(pod)

    second = (folder / "token").read_text()
    assert second != first
    assert (folder / "namespace").read_text() == namespace
    assert (folder / "ca.crt").read_bytes() == controlplane.ca_file.read_bytes()
    me = f"system:serviceaccount:{namespace}:default"
    assert {who_is(controlplane, token)["username"] for token in (first, second)} == {me}


def test_a_deleted_pod_is_terminating_until_it_is_finished(controlplane, namespace, kubelet):
    pod = kubelet.create_pod(namespace, "ends")

    kubelet.delete(pod)
    assert "deletionTimestamp" in kubelet.get(pod)["metadata"]
    assert kubelet.container(pod, "sglang")["state"].keys() == {"running"}

    kubelet.finish(pod)
    assert is_gone(controlplane, pod.path)


def test_what_a_pod_owns_goes_with_it(controlplane, namespace, kubelet):
    pod = kubelet.create_pod(namespace, "owner")
    path = REPORTS.format(namespace)
    report = {
        "apiVersion": "lora-sidecar.llmkube.dev/v1alpha1",
        "kind": "LoRAPodStatus",
        "metadata": {
            "name": pod.name,
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
            ],
        },
        "spec": {"podName": pod.name, "podUID": pod.uid, "node": pod.node, "service": "chat"},
    }
    controlplane.api("POST", path, report)

    kubelet.remove(pod)

    until(lambda: is_gone(controlplane, f"{path}/{pod.name}"), "the report is collected")
