"""From engines to `kubectl`: real agents report, the real aggregator folds, and users read the LoRAAdapter."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.flows.engine_control import held
from tests.rig.adapters import make_adapter
from tests.rig.polling import until
from tests.rig.stack import Stack

pytestmark = pytest.mark.cluster


@pytest.fixture
def service(stack: Stack) -> Iterator[Stack]:
    """The service with an aggregator."""
    stack.start_aggregator()
    yield stack
    assert stack.aggregator
    assert stack.aggregator.exit_code is None, stack.aggregator.tail()


def condition(stack: Stack, name: str, kind: str) -> dict[str, Any]:
    status = stack.get_adapter(name).get("status", {})
    return next((c for c in status.get("conditions", []) if c["type"] == kind), {})


def until_loaded(stack: Stack, name: str, status: str, reason: str, timeout: float = 30) -> None:
    def there() -> bool:
        now = condition(stack, name, "Loaded")
        return (now.get("status"), now.get("reason")) == (status, reason)

    until(there, f"{name} is Loaded={status}, {reason}", timeout=timeout)


def test_users_wait_and_read_with_kubectl(service: Stack):
    pods = [service.add_pod(f"chat-{n}") for n in range(2)]
    service.adapter("sql")
    until_loaded(service, "sql", "False", "PathNotFound")
    make_adapter(service.adapters / "sql")
    kubectl = service.controlplane.kubectl
    there = ("-n", service.namespace)
    kubectl(*there, "wait", "--for=condition=Loaded", "lora/sql", "--timeout=30s")
    adapter = service.get_adapter("sql")
    assert adapter["status"]["podsLoaded"] == "2/2"
    assert adapter["status"]["loadedPath"] == adapter["spec"]["path"]
    assert adapter["status"]["lastLoadedAt"]
    assert adapter["status"]["observedGeneration"] == 1
    assert condition(service, "sql", "Available")["status"] == "True"
    assert condition(service, "sql", "Error")["status"] == "False"
    row = kubectl(*there, "get", "lora", "sql", "--no-headers").split()
    assert row[1:5] == ["chat", "sql", "True", "2/2"]
    described = kubectl(*there, "describe", "lora", "sql")
    assert all(pod.name in described for pod in pods)
    reports = kubectl(*there, "get", "lorapods", "--no-headers").splitlines()
    assert [line.split()[1:4] for line in reports] == [["chat", "Ready", "1/1"]] * 2


def test_an_engine_that_dies_is_missed_and_its_return_is_seen(service: Stack):
    make_adapter(service.adapters / "sql")
    service.adapter("sql")
    pod = service.add_pod("only-0")
    until_loaded(service, "sql", "True", "ReconcileSuccess")
    service.kill_engine(pod)
    until_loaded(service, "sql", "False", "EngineStarting")
    assert service.get_adapter("sql")["status"]["podsLoaded"] == "0/1"
    service.restart_engine(pod)
    until_loaded(service, "sql", "True", "ReconcileSuccess")


@pytest.mark.field(7)
def test_one_bad_pod_is_named_with_its_reason(service: Stack):
    make_adapter(service.adapters / "sql")
    service.adapter("sql")
    service.add_pod("good-0")
    until_loaded(service, "sql", "True", "ReconcileSuccess")
    service.add_pod("odd-0", settings={"shared": "/somewhere/else"})
    until_loaded(service, "sql", "False", "LoadUnsuccessful")
    message = condition(service, "sql", "Loaded")["message"]
    assert "odd-0" in message
    assert "PathNotShared" in message
    assert condition(service, "sql", "Error")["status"] == "True"
    assert service.get_adapter("sql")["status"]["podsLoaded"] == "1/2"


@pytest.mark.field(2)
def test_a_pod_that_goes_is_no_longer_counted(service: Stack):
    make_adapter(service.adapters / "sql")
    service.adapter("sql")
    service.add_pod("stays-0")
    goes = service.add_pod("goes-0")
    until(lambda: service.get_adapter("sql").get("status", {}).get("podsLoaded") == "2/2", "2/2")
    service.remove_pod(goes)
    until(lambda: service.get_adapter("sql")["status"]["podsLoaded"] == "1/1", "1/1")
    until(lambda: not service.report(goes), "the report is collected with its pod")


def test_bad_input_is_told_to_its_author(service: Stack):
    service.add_pod("strict-0")
    service.adapter("hub", path="org/name")
    until(lambda: condition(service, "hub", "Available"), "it is judged")
    available = condition(service, "hub", "Available")
    assert (available["status"], available["reason"]) == ("False", "InvalidSpec")
    assert "org/name" in available["message"]
    described = service.controlplane.kubectl("-n", service.namespace, "describe", "lora", "hub")
    assert "not absolute" in described


@pytest.mark.field(32)
def test_a_service_of_another_runtime_is_said(service: Stack):
    url = f"/apis/inference.llmkube.dev/v1alpha1/namespaces/{service.namespace}/inferenceservices/chat"
    patch = {"spec": {"runtime": "llamacpp"}}
    service.controlplane.api("PATCH", url, patch, "application/merge-patch+json")
    service.add_pod("other-0")
    service.adapter("sql")
    until(
        lambda: condition(service, "sql", "Available").get("reason") == "RuntimeMismatch",
        "the mismatch is told",
    )


def test_an_api_server_restart_leaves_the_truth_standing(service: Stack):
    make_adapter(service.adapters / "sql")
    service.adapter("sql")
    pod = service.add_pod("firm-0")
    until_loaded(service, "sql", "True", "ReconcileSuccess")
    service.controlplane.restart_apiserver()
    make_adapter(service.adapters / "second")
    service.adapter("second")
    until_loaded(service, "second", "True", "ReconcileSuccess", timeout=60)
    until_loaded(service, "sql", "True", "ReconcileSuccess")
    assert set(held(pod.engine)) == {"sql", "second"}


def test_an_aggregator_that_was_away_catches_up(service: Stack):
    make_adapter(service.adapters / "sql")
    service.add_pod("late-0")
    assert service.aggregator
    service.aggregator.stop()
    service.adapter("sql")
    until(lambda: service.reported(service.pods[0]), "the agent has reported")
    assert "status" not in service.get_adapter("sql")
    service.start_aggregator()
    until_loaded(service, "sql", "True", "ReconcileSuccess")
