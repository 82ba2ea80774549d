"""Two aggregators on a real API server, under their own permissions: one works, and the other takes over."""

import sys
from pathlib import Path

import pytest

from tests.rig.polling import until
from tests.rig.process import Process

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
LEASE = "/apis/coordination.k8s.io/v1/namespaces/lora-sidecar/leases/of-this-test"
LONG = 30
"""Seconds: a death that nobody announces takes fifteen, a hand-over two."""


@pytest.fixture
def replica(controlplane, tmp_path):
    token = controlplane.service_account_token("lora-sidecar", "lora-sidecar-aggregator")
    kubeconfig = controlplane.kubeconfig_of(token, tmp_path / "kubeconfig")
    running = []

    def start(name: str) -> Process:
        command = [sys.executable, "-m", "sidecar.aggregator", "--kubeconfig", str(kubeconfig)]
        own = ["--lease", "of-this-test", "--services", "of-this-test"]
        process = Process(
            [
                *command,
                *own,
                "--namespace",
                "lora-sidecar",
                "--identity",
                name,
                "--listen-port",
                "0",
            ],
            tmp_path / name,
            environment={"PYTHONPATH": str(ROOT)},
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.stop()


def works(process: Process) -> bool:
    return "holds the lease" in process.tail()


def test_one_of_two_works_and_hands_over_at_its_stop(controlplane, replica):
    first = replica("first")
    until(lambda: works(first), "the first works")
    services = "/api/v1/namespaces/lora-sidecar/configmaps"

    def kept() -> bool:
        found = controlplane.api("GET", services)["items"]
        return "of-this-test" in [item["metadata"]["name"] for item in found]

    until(kept, "the ConfigMap of opted-in services")
    second = replica("second")
    assert controlplane.api("GET", LEASE)["spec"]["holderIdentity"].startswith("first_")
    until(lambda: "watching" in second.tail() or second.log.stat().st_size, "the second is there")
    assert not works(second)
    first.stop()
    assert first.exit_code == 0, first.tail()
    until(lambda: works(second), "the second works")
    spec = controlplane.api("GET", LEASE)["spec"]
    assert spec["holderIdentity"].startswith("second_")
    second.kill()
    third = replica("third")
    until(lambda: works(third), "the third works", timeout=LONG)
    assert controlplane.api("GET", LEASE)["spec"]["leaseTransitions"] == 2
