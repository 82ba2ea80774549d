"""The aggregator is killed at any moment, fifty times, while the world changes: whatever it left, its next life mends.

What a status should be is folded here anew, from all that the API server holds.
"""

import json
import random
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sidecar.aggregator import reading
from sidecar.aggregator.fold import KEYS, fold, wire
from sidecar.aggregator.index import LABELLED, Index
from sidecar.kube.apply import difference
from tests.aggregator.test_real import ACCOUNT, Service
from tests.aggregator.worlds import OURS, Json, entry
from tests.rig.polling import until
from tests.rig.process import Process

pytestmark = [pytest.mark.cluster, pytest.mark.field(10), pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
ROUNDS = 50
LONGEST_LIFE = 0.8
"""Seconds for which things change before a life is killed that has written before."""
ADAPTERS = ("one", "two", "three", "four")
REASONS = ("Loaded", "PathNotFound", "Incompatible", "Retrying", "CapacityExceeded", "NotListed")


@pytest.fixture
def start(controlplane, tmp_path):
    token = controlplane.service_account_token(*ACCOUNT)
    kubeconfig = controlplane.kubeconfig_of(token, tmp_path / "kubeconfig")
    lives = []

    def begin() -> Process:
        own = ["--kubeconfig", str(kubeconfig), "--listen-port", "0"]
        life = Process(
            [sys.executable, "-m", "sidecar.aggregator", *own],
            tmp_path / "log",
            environment={"PYTHONPATH": str(ROOT)},
        )
        lives.append(life)
        return life

    yield begin
    for life in lives:
        life.stop()


def listed(service: Service, group: str, plural: str) -> list[Json]:
    prefix = f"/apis/{group}/v1alpha1" if group else "/api/v1"
    path = f"{prefix}/namespaces/{service.namespace}/{plural}"
    return service.controlplane.api("GET", path)["items"]


def wrong(service: Service) -> dict[str, Json]:
    """What the statuses and finalizers lack, by adapter."""
    index = Index(lambda: 0.0)
    for body in listed(service, "", "pods"):
        pod = reading.pod(body)
        index.on_pod(LABELLED, pod.key, pod)
    for body in listed(service, "inference.llmkube.dev", "inferenceservices"):
        one = reading.service(body)
        index.on_service(one.key, None, one)
    for body in listed(service, "lora-sidecar.llmkube.dev", "lorapodstatuses"):
        report = reading.report(body)
        index.on_report(report.key, None, report)
    found = {}
    for body in listed(service, "inference.llmkube.dev", "loraadapters"):
        adapter = reading.adapter(body)
        view = index.view(adapter.service)
        wanted = wire(fold(adapter, view, datetime.now(UTC)), adapter)  # noqa: TID251
        current = {key: adapter.status[key] for key in KEYS if key in adapter.status}
        patch = difference(current, wanted) or {}
        if adapter.finalizers != OURS:
            patch["finalizers"] = list(adapter.finalizers)
        if patch:
            found[adapter.name] = patch
    return found


def change(service: Service, pods, dice: random.Random) -> None:
    """One of the things that happen."""
    match dice.randrange(4):
        case 0 | 1:
            said = [entry(dice.choice(REASONS), name=name) for name in ADAPTERS]
            service.report(dice.choice(pods), *said)
        case 2:
            name = dice.choice(ADAPTERS)
            patch = {"spec": {"path": f"/adapters/{dice.randrange(1000)}"}}
            path = service._path("inference.llmkube.dev", "loraadapters", name)
            service.controlplane.api("PATCH", path, patch)
        case 3:
            name = dice.choice(ADAPTERS)
            path = service._path("inference.llmkube.dev", "loraadapters", name)
            theirs = {"type": "Loaded", "status": "False", "reason": "Theirs", "message": "x"}
            stamp = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
            patch = {"status": {"conditions": [theirs | stamp]}}
            service.controlplane.api("PATCH", f"{path}/status", patch)


def test_after_a_death_at_any_moment_the_next_life_makes_every_status_true(
    controlplane, kubelet, namespace, start
):
    dice = random.Random(7)
    service = Service(controlplane, kubelet, namespace, "killed")
    for name in ADAPTERS:
        service.adapter(name)
    pods = [service.pod(letter) for letter in "abc"]
    life = start()
    for number in range(ROUNDS):
        ends = time.monotonic() + dice.uniform(0.0, LONGEST_LIFE)
        while time.monotonic() < ends:
            change(service, pods, dice)
        life.kill()
        change(service, pods, dice)
        life = start()
        until(
            lambda: not wrong(service),
            f"round {number}: all is true again; lacks {json.dumps(wrong(service))}",
            timeout=90,
            every=0.1,
        )
