from typing import Any

import pytest

from tests.rig import podstatus

SPEC = {
    "initContainers": [
        {"name": "fetch", "image": "fetch"},
        {"name": "lora-sidecar", "image": "agent", "restartPolicy": "Always"},
    ],
    "containers": [{"name": "sglang", "image": "engine"}],
}
T = 1_700_000_000.25


def started(ready: bool = True) -> dict[str, Any]:
    status = podstatus.bound(SPEC, "10.0.0.1", T)
    for name in podstatus.containers(SPEC):
        status = podstatus.with_running(status, name, ready=ready, started_at=None, now=T)
    return status


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in status["conditions"]}


def test_sidecars_last_and_ordinary_init_containers_have_ended():
    status = podstatus.bound(SPEC, "10.0.0.1", T)

    assert podstatus.containers(SPEC) == ["lora-sidecar", "sglang"]
    assert "terminated" in podstatus.container_status(status, "fetch")["state"]
    assert "waiting" in podstatus.container_status(status, "lora-sidecar")["state"]
    assert status["phase"] == "Pending"


def test_a_pod_whose_containers_all_run_is_ready():
    status = started()

    assert status["phase"] == "Running"
    assert conditions(status)["Ready"] == "True"


@pytest.mark.parametrize("name", ["lora-sidecar", "sglang"])
def test_one_container_that_is_not_ready_makes_the_pod_unready(name):
    status = podstatus.with_ended(started(), name, exit_code=0, now=T + 5)

    assert conditions(status)["Ready"] == "False"
    assert conditions(status)["ContainersReady"] == "False"
    assert status["phase"] == "Running"


def test_a_container_that_runs_after_its_end_has_restarted():
    before = podstatus.container_status(started(), "sglang")
    ended = podstatus.with_ended(started(), "sglang", exit_code=137, now=T + 5)
    status = podstatus.with_running(ended, "sglang", ready=False, started_at=None, now=T + 9)
    after = podstatus.container_status(status, "sglang")

    assert after["restartCount"] == before["restartCount"] + 1
    assert after["containerID"] != before["containerID"]
    assert after["state"]["running"]["startedAt"] == podstatus.timestamp(T + 9)
    assert after["lastState"]["terminated"]["exitCode"] == 137
    assert after["lastState"]["terminated"]["startedAt"] == podstatus.timestamp(T)


def test_a_container_that_goes_on_keeps_its_start():
    status = podstatus.with_running(started(), "sglang", ready=False, started_at=None, now=T + 9)
    after = podstatus.container_status(status, "sglang")

    assert after["state"]["running"]["startedAt"] == podstatus.timestamp(T)
    assert after["restartCount"] == 0
    assert not after["ready"]


def test_a_conditions_time_moves_only_with_its_value():
    status = started()

    again = podstatus.with_condition(status, "Ready", "True", "Again", T + 60)
    lost = podstatus.with_condition(again, "Ready", "Unknown", "NodeStatusUnknown", T + 70)

    times = [
        condition["lastTransitionTime"]
        for state in (status, again, lost)
        for condition in state["conditions"]
        if condition["type"] == "Ready"
    ]
    assert times == [podstatus.timestamp(T), podstatus.timestamp(T), podstatus.timestamp(T + 70)]
