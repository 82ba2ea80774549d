"""What users run, on a real node: install, opt in, load; engines, pods and our own parts that go and come; uninstall.

The tests of this file are one story and run in its order.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import HOME, Cluster, until_true

ML = "ml"
ANNOTATION = "lora-sidecar.llmkube.dev/inject"


def manifests(cluster: Cluster) -> str:
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    engine = {
        "name": "sglang",
        "image": cluster.engine,
        "command": ["python", "-m", "tests.fakes.sglang"],
        "args": ["--host", "0.0.0.0", "--port", "30000"],
        "ports": [{"name": "http", "containerPort": 30000}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 2},
        "securityContext": restricted,
        "volumeMounts": [{"name": "adapters", "mountPath": "/adapters", "readOnly": True}],
    }
    claim = {"name": "adapters", "persistentVolumeClaim": {"claimName": "adapters"}}
    labels = {"inference.llmkube.dev/service": "chat", "inference.llmkube.dev/runtime": "sglang"}
    pod = {
        "metadata": {"labels": {"app": "chat", **labels}, "annotations": {ANNOTATION: "true"}},
        "spec": {
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "fsGroup": 102,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "terminationGracePeriodSeconds": 5,
            "containers": [engine],
            "volumes": [claim],
        },
    }
    storage = {"storage": "1Gi"}
    objects = [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": ML,
                "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
            },
        },
        {
            "apiVersion": "inference.llmkube.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": "chat", "namespace": ML},
            "spec": {"runtime": "sglang", "modelRef": "tiny"},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "adapters"},
            "spec": {
                "capacity": storage,
                "accessModes": ["ReadOnlyMany"],
                "hostPath": {"path": str(cluster.adapters), "type": "Directory"},
                "storageClassName": "",
                "claimRef": {"namespace": ML, "name": "adapters"},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "adapters", "namespace": ML},
            "spec": {
                "accessModes": ["ReadOnlyMany"],
                "storageClassName": "",
                "volumeName": "adapters",
                "resources": {"requests": storage},
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "chat", "namespace": ML},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "chat"}},
                "template": pod,
            },
        },
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


def lora(name: str) -> str:
    spec = {"inferenceServiceRef": {"name": "chat"}, "name": name, "path": f"/adapters/{name}"}
    metadata = {"name": name, "namespace": ML}
    kind = {"apiVersion": "inference.llmkube.dev/v1alpha1", "kind": "LoRAAdapter"}
    return json.dumps({**kind, "metadata": metadata, "spec": spec})


def said(cluster: Cluster, name: str = "sql") -> tuple[str, str, str]:
    """Loaded's status and reason, and the count of pods."""
    status = cluster.get(ML, "lora", name).get("status", {})
    loaded = [one for one in status.get("conditions", []) if one["type"] == "Loaded"]
    one = loaded[0] if loaded else {"status": "", "reason": ""}
    return one["status"], one["reason"], status.get("podsLoaded", "")


def scale(cluster: Cluster, namespace: str, name: str, replicas: int) -> None:
    cluster.kubectl("-n", namespace, "scale", f"deploy/{name}", f"--replicas={replicas}")


def pods(cluster: Cluster) -> list[str]:
    return cluster.kubectl("-n", ML, "get", "pods", "-l", "app=chat", "-o", "name").split()


def kill_engine(cluster: Cluster) -> None:
    """The engine's process ends by itself, as far as the kubelet can tell."""
    (pod,) = pods(cluster)
    crash = (
        "import urllib.request as u, json;"
        "u.urlopen(u.Request('http://127.0.0.1:30000/_sim', json.dumps({'crash': True}).encode(),"
        " {'Content-Type': 'application/json'}), timeout=5)"
    )
    engine = ("-n", ML, "exec", pod, "-c", "sglang", "--", "python", "-c", crash)
    cluster.kubectl(*engine, check=False)


def test_an_opted_in_pod_gets_its_agent_and_its_adapter(
    cluster: Cluster, adapter: Callable[..., Path]
) -> None:
    adapter("sql")
    cluster.kubectl("apply", "-f", "-", input=manifests(cluster))
    cluster.kubectl("apply", "-f", "-", input=lora("sql"))
    cluster.kubectl("-n", ML, "wait", "--for=condition=Loaded", "lora/sql", "--timeout=120s")
    (pod,) = cluster.get(ML, "pods", "-l", "app=chat")["items"]
    (agent,) = [one for one in pod["spec"]["initContainers"] if one["name"] == "lora-sidecar"]
    assert agent["restartPolicy"] == "Always"
    assert said(cluster) == ("True", "ReconcileSuccess", "1/1")
    described = cluster.kubectl("-n", ML, "describe", "lora", "sql")
    assert pod["metadata"]["name"] in described


def test_helm_says_that_pods_are_injected(cluster: Cluster) -> None:
    assert "Succeeded" in cluster.helm("test", HOME, "--timeout=120s")


@pytest.mark.field(1)
def test_an_engine_that_dies_gets_its_adapters_back_and_only_it_restarts(cluster: Cluster) -> None:
    before = pods(cluster)
    kill_engine(cluster)

    def restarted() -> bool:
        (pod,) = cluster.get(ML, "pods", "-l", "app=chat")["items"]
        (engine,) = pod["status"]["containerStatuses"]
        (agent,) = pod["status"]["initContainerStatuses"]
        return (engine["restartCount"], agent["restartCount"]) == (1, 0)

    until_true(restarted, "the engine's container has restarted")
    until_true(lambda: said(cluster) == ("True", "ReconcileSuccess", "1/1"), "it has it back")
    assert pods(cluster) == before


@pytest.mark.field(2)
def test_each_pod_of_a_scale_up_gets_them_and_none_of_those_that_go_counts(
    cluster: Cluster,
) -> None:
    scale(cluster, ML, "chat", 3)
    until_true(lambda: said(cluster) == ("True", "ReconcileSuccess", "3/3"), "three have it")
    scale(cluster, ML, "chat", 1)
    until_true(lambda: said(cluster)[2] == "1/1", "one counts")
    until_true(lambda: len(cluster.get(ML, "lorapods")["items"]) == 1, "one report is left")


def test_a_rollout_ends_with_everything_loaded(cluster: Cluster) -> None:
    before = pods(cluster)
    cluster.kubectl("-n", ML, "rollout", "restart", "deploy/chat")
    cluster.kubectl("-n", ML, "rollout", "status", "deploy/chat", "--timeout=120s")
    until_true(lambda: len(pods(cluster)) == 1 and pods(cluster) != before, "the new pod is alone")
    until_true(lambda: said(cluster) == ("True", "ReconcileSuccess", "1/1"), "it has it")


def test_files_that_come_late_are_waited_for(
    cluster: Cluster, adapter: Callable[..., Path]
) -> None:
    cluster.kubectl("apply", "-f", "-", input=lora("late"))
    until_true(lambda: said(cluster, "late")[:2] == ("False", "PathNotFound"), "they are missed")
    adapter("late", seed=2)
    cluster.kubectl("-n", ML, "wait", "--for=condition=Loaded", "lora/late", "--timeout=60s")


@pytest.mark.field(74)
def test_without_an_injector_only_pods_that_opted_in_wait(cluster: Cluster) -> None:
    scale(cluster, HOME, "lora-sidecar-injector", 0)
    until_true(
        lambda: (
            not cluster.get(HOME, "endpointslices", "-l", _OF_INJECTOR)["items"][0]["endpoints"]
        ),
        "no injector answers",
    )
    cluster.kubectl("-n", ML, "delete", "pod", "-l", "app=chat", "--wait=false")
    until_true(lambda: said(cluster)[1] == "NoPods", "the pod is gone")
    other = (
        "run",
        "other",
        f"--image={cluster.engine}",
        "--restart=Never",
        "--command",
        "--",
        "true",
    )
    cluster.kubectl("-n", "default", *other)
    scale(cluster, HOME, "lora-sidecar-injector", 2)
    until_true(
        lambda: said(cluster) == ("True", "ReconcileSuccess", "1/1"), "it is made, and loaded"
    )
    cluster.kubectl("-n", "default", "delete", "pod", "other", "--grace-period=1")


_OF_INJECTOR = "kubernetes.io/service-name=lora-sidecar-injector"


def test_without_an_aggregator_engines_still_get_their_adapters(cluster: Cluster) -> None:
    scale(cluster, HOME, "lora-sidecar-aggregator", 0)
    until_true(
        lambda: (
            not cluster.get(HOME, "pods", "-l", "app.kubernetes.io/component=aggregator")["items"]
        ),
        "no aggregator runs",
    )
    kill_engine(cluster)

    def loaded() -> bool:
        (report,) = cluster.get(ML, "lorapods")["items"]
        (pod,) = cluster.get(ML, "pods", "-l", "app=chat")["items"]
        restarts = pod["status"]["containerStatuses"][0]["restartCount"]
        return restarts == 1 and report["status"].get("loaded") == "2/2"

    until_true(loaded, "the agent has loaded both again")
    scale(cluster, HOME, "lora-sidecar-aggregator", 2)
    until_true(lambda: said(cluster) == ("True", "ReconcileSuccess", "1/1"), "and that is told")


def test_a_deleted_adapter_is_gone_when_kubectl_returns(cluster: Cluster) -> None:
    cluster.kubectl("-n", ML, "delete", "lora", "late", "--timeout=30s")
    (report,) = cluster.get(ML, "lorapods")["items"]
    assert "late" not in [
        one["name"] for one in report["status"]["adapters"] if one["state"] == "Loaded"
    ]


@pytest.mark.field(79)
@pytest.mark.field(109)
def test_uninstalling_leaves_nothing_that_holds_on(cluster: Cluster) -> None:
    cluster.helm("uninstall", HOME, "--timeout=180s")
    assert "finalizers" not in cluster.get(ML, "lora", "sql")["metadata"]
    kinds = "mutatingwebhookconfiguration,validatingadmissionpolicy,clusterrole,clusterrolebinding"
    left = cluster.kubectl("get", kinds, "-o", "name").split()
    assert [one for one in left if "lora-sidecar" in one] == []
    own = ("-n", HOME, "get", "deploy,pod,job,lease,configmap,secret,service", "-o", "name")
    until_true(
        lambda: cluster.kubectl(*own).split() == ["configmap/kube-root-ca.crt"],
        "all of ours is gone",
    )
    cluster.kubectl("delete", "namespace", ML, "--timeout=90s")
