"""Deleting, uninstalling and taking over, with real agents, the real aggregator and the real API server."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sidecar.api.names import FINALIZER, INJECT, INJECTED_LABEL, RELEASED
from tests.flows.engine_control import held
from tests.rig.adapters import make_adapter
from tests.rig.llmkube import FINALIZER as LLMKUBES
from tests.rig.llmkube import Llmkube
from tests.rig.polling import until
from tests.rig.process import Process
from tests.rig.stack import Stack

pytestmark = pytest.mark.cluster

SERVICES = "lora-sidecar-services"
"""The ConfigMap by which the takeover's policy goes."""
LEASE = "lora-sidecar-leaving"
HOME = "/api/v1/namespaces/lora-sidecar"


def loaded(stack: Stack, name: str) -> str:
    status = stack.get_adapter(name).get("status", {})
    return next((c["status"] for c in status.get("conditions", []) if c["type"] == "Loaded"), "")


def finalizers(stack: Stack, name: str) -> list[str]:
    return list(stack.get_adapter(name)["metadata"].get("finalizers", []))


def names_of(stack: Stack) -> list[str]:
    path = f"/apis/inference.llmkube.dev/v1alpha1/namespaces/{stack.namespace}/loraadapters"
    return [item["metadata"]["name"] for item in stack.controlplane.api("GET", path)["items"]]


def with_one(stack: Stack, pods: int = 1) -> Stack:
    make_adapter(stack.adapters / "sql")
    stack.adapter("sql")
    for number in range(pods):
        stack.add_pod(f"chat-{number}")
    until(lambda: loaded(stack, "sql") == "True", "sql is loaded")
    return stack


@pytest.mark.rule(1)
def test_kubectl_delete_returns_when_no_engine_holds_it_any_more(stack: Stack) -> None:
    stack.start_aggregator()
    with_one(stack, pods=2)
    until(lambda: finalizers(stack, "sql") == [FINALIZER], "it is held")
    stack.controlplane.kubectl("-n", stack.namespace, "delete", "lora", "sql", "--timeout=20s")
    assert [held(pod.engine) for pod in stack.pods] == [{}, {}]


def test_a_namespace_goes_with_its_pods_and_adapters(stack: Stack) -> None:
    stack.start_aggregator()
    with_one(stack)
    until(lambda: finalizers(stack, "sql") == [FINALIZER], "it is held")
    stack.controlplane.api("DELETE", f"/api/v1/namespaces/{stack.namespace}")
    stack.remove_pod(stack.pods[0])
    until(lambda: names_of(stack) == [], "no adapter holds the namespace", timeout=20)


# --- uninstalling -----------------------------------------------------------------------------------


@pytest.fixture
def deployment(stack: Stack) -> Iterator[dict[str, Any]]:
    """The Deployment whose replicas the aggregators are."""
    path = "/apis/apps/v1/namespaces/lora-sidecar/deployments"
    labels = {"app": "leaving"}
    pod = {"containers": [{"name": "a", "image": "a"}]}
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "leaving"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    made = stack.controlplane.api("POST", path, body)
    yield made
    stack.controlplane.api("DELETE", f"{path}/leaving")


@pytest.mark.field(109)
def test_release_lets_all_go_while_replicas_work_and_they_hold_nothing_again(
    stack: Stack, deployment: dict[str, Any]
) -> None:
    own = ("--lease", LEASE, "--services", LEASE, "--owner", "leaving")
    in_home = (*own, "--namespace", "lora-sidecar")
    replica = stack.start_aggregator(*in_home)
    with_one(stack)
    for number in range(20):
        stack.adapter(f"more-{number}")
    every = ["sql", *(f"more-{number}" for number in range(20))]
    until(lambda: all(finalizers(stack, n) == [FINALIZER] for n in every), "all are held")
    release = stack.run_aggregator("release", *in_home)
    stack.adapter("late")
    until(lambda: release.exit_code is not None, "the release ends", timeout=60)
    assert release.exit_code == 0, release.tail()
    until(lambda: replica.exit_code is not None, "the replica has lost its Lease")
    assert replica.exit_code != 0
    assert "was taken by" in replica.tail()
    lease = stack.controlplane.api(
        "GET", f"/apis/coordination.k8s.io/v1/namespaces/lora-sidecar/leases/{LEASE}"
    )
    assert lease["metadata"]["annotations"] == {RELEASED: deployment["metadata"]["uid"]}
    assert [o["name"] for o in lease["metadata"]["ownerReferences"]] == ["leaving"]
    kept = stack.controlplane.api("GET", f"{HOME}/configmaps/{LEASE}")
    assert [o["name"] for o in kept["metadata"]["ownerReferences"]] == ["leaving"]
    again = stack.start_aggregator(*in_home)  # as the kubelet does
    until(lambda: "holds the lease" in again.tail(), "a replica works again")
    stack.adapter("later")
    until(lambda: loaded(stack, "later") == "False", "it still tells the truth")
    assert all(finalizers(stack, name) == [] for name in names_of(stack))


def test_release_needs_neither_lease_nor_adapters(stack: Stack) -> None:
    release = stack.run_aggregator("release")
    until(lambda: release.exit_code is not None, "the release ends", timeout=30)
    assert release.exit_code == 0, release.tail()


# --- beside LLMKube ---------------------------------------------------------------------------------


@pytest.fixture
def beside(stack: Stack) -> Iterator[Callable[..., Process]]:
    """Starts an aggregator that keeps the ConfigMap of the policy, which goes afterwards."""
    yield lambda *more: stack.start_aggregator(
        "--services", SERVICES, "--namespace", "lora-sidecar", *more
    )
    assert stack.aggregator
    stack.aggregator.stop()
    stack.controlplane.client().raw("DELETE", f"{HOME}/configmaps/{SERVICES}")


def kept(stack: Stack) -> dict[str, str]:
    status, body = stack.controlplane.client().raw("GET", f"{HOME}/configmaps/{SERVICES}")
    return json.loads(body).get("data", {}) if status == 200 else {}


def test_llmkubes_controller_is_kept_off_and_what_it_held_becomes_ours(
    stack: Stack, beside: Callable[..., Process]
) -> None:
    llmkube = Llmkube(stack.controlplane.client(), stack.namespace)
    stack.adapter("sql")
    assert llmkube.reconcile("sql") == ""
    assert finalizers(stack, "sql") == [LLMKUBES]
    beside()
    with_pods = make_adapter(stack.adapters / "sql")
    stack.add_pod("chat-0")
    until(lambda: loaded(stack, "sql") == "True", "sql is loaded")
    until(lambda: finalizers(stack, "sql") == [FINALIZER], "LLMKube's finalizer is off")
    until(lambda: "kept off" in llmkube.reconcile("sql"), "LLMKube is kept off", timeout=10)
    version = stack.get_adapter("sql")["metadata"]["resourceVersion"]
    for _ in range(5):
        assert "kept off" in llmkube.reconcile("sql")
    assert stack.get_adapter("sql")["metadata"]["resourceVersion"] == version
    assert held(stack.pods[0].engine) == {"sql": str(with_pods)}


def test_a_service_that_did_not_opt_in_is_left_to_llmkube(
    stack: Stack, beside: Callable[..., Process]
) -> None:
    beside()
    with_one(stack)
    until(lambda: f"{stack.namespace}.chat" in kept(stack), "the service is kept")
    stack.adapter("theirs", service="another")
    llmkube = Llmkube(stack.controlplane.client(), stack.namespace)
    assert llmkube.reconcile("theirs") == ""
    assert finalizers(stack, "theirs") == [LLMKUBES]


@pytest.mark.field(105)
def test_a_service_that_opts_out_is_llmkubes_again_and_stays_loaded(
    stack: Stack, beside: Callable[..., Process]
) -> None:
    beside()
    with_one(stack)
    service = f"{stack.namespace}.chat"
    until(lambda: service in kept(stack), "the service is kept")
    engine = stack.pods[0].engine
    path = f"/api/v1/namespaces/{stack.namespace}/pods/{stack.pods[0].name}"
    out = {"metadata": {"annotations": {INJECT: "false"}, "labels": {INJECTED_LABEL: None}}}
    stack.controlplane.api("PATCH", path, out)
    until(lambda: service not in kept(stack), "it is kept no more", timeout=20)
    until(lambda: loaded(stack, "sql") == "Unknown", "the last word is said")
    assert finalizers(stack, "sql") == []
    llmkube = Llmkube(stack.controlplane.client(), stack.namespace)
    until(lambda: llmkube.reconcile("sql") == "", "LLMKube may", timeout=10)
    assert LLMKUBES in finalizers(stack, "sql")
    assert held(engine) == {"sql": str(stack.adapters / "sql")}


def test_without_takeover_the_other_writer_is_told_and_not_fought(stack: Stack) -> None:
    aggregator = stack.start_aggregator("--takeover", "false")
    with_one(stack)
    llmkube = Llmkube(stack.controlplane.client(), stack.namespace)
    for _ in range(3):
        assert llmkube.reconcile("sql") == ""
    path = f"/apis/events.k8s.io/v1/namespaces/{stack.namespace}/events"

    def told() -> list[dict[str, Any]]:
        events = stack.controlplane.api("GET", path)["items"]
        return [event for event in events if event["reason"] == "ConditionsOverwritten"]

    until(told, "an event tells of the other writer", timeout=20)
    assert len(told()) == 1
    assert LLMKUBES in finalizers(stack, "sql")
    assert aggregator.tail(200).count("another writer had changed our conditions") == 1
