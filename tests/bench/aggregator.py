"""Measures the aggregator against its budgets, on a real API server: one JSON line a figure.

Pods and their reports are written by this bench, as 1,000 agents would not fit on a machine; the aggregator is a
process of its own under its own permissions. What the lists alone take is measured beside it in the same run.

    python -m tests.bench.aggregator [--pods 10 100 1000]
"""

import argparse
import asyncio
import itertools
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sidecar.aggregator.sources import ADAPTERS, PODS, REPORTS, SERVICES
from sidecar.api import names
from sidecar.api.reasons import EngineState, Reason
from sidecar.api.report import AdapterEntry, EngineEntry, LoRAPodStatus, ReportSpec, ReportStatus
from sidecar.kube.client import Client, Resource
from tests.bench.figures import Figure, spread, tell
from tests.bench.processes import cpu, resident
from tests.rig.controlplane import ControlPlane
from tests.rig.kubelet import Kubelet, PodHandle, pod_manifest
from tests.rig.namespaces import create_namespace
from tests.rig.polling import until
from tests.rig.process import Process
from tests.rig.stack import Stack

ADAPTER_COUNT = 100
CHANGES = 30
REST = 60.0
"""Seconds for which nothing may be written when nothing changes."""
REPORT_PAGE, POD_PAGE = 10, 100
LISTS = (
    (ADAPTERS, 500),
    (REPORTS, REPORT_PAGE),
    (PODS, POD_PAGE),
    (PODS, POD_PAGE),
    (SERVICES, 500),
)
"""What an aggregator lists at its start, and in which pages."""


def main() -> int:
    """Measure all; the exit code is 0 however the budgets fared, unless `--strict` is given."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.aggregator", description=__doc__)
    parser.add_argument("--pods", type=int, nargs="+", default=[10, 100, 1000], metavar="N")
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 where a budget is missed"
    )
    options = parser.parse_args()
    with ControlPlane() as controlplane, tempfile.TemporaryDirectory() as folder:
        namespace = create_namespace(controlplane.client(), "bench-aggregator")
        with Stack(controlplane, Kubelet(controlplane), namespace, Path(folder)) as stack:
            missed = _all(Service(stack), options.pods)
    return 1 if missed and options.strict else 0


def _all(service: "Service", sizes: Sequence[int]) -> int:
    missed, costs = 0, []
    for size in sorted(sizes):
        service.grow(size)
        process, took, spent = _cold_start(service)
        costs.append(spent)
        bare = asyncio.run(_bare(service.stack))
        missed += tell(*_figures(size, took, spent, bare, resident(process.pid)))
        if size == max(sizes):
            missed += tell(_one_change(service), _storm(service, process))
            missed += tell(_at_rest(service, process))
        process.stop()
    return missed + tell(*_curve(sorted(sizes), costs))


class Service:
    """One service with 100 adapters, and as many pods as a measurement needs."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.pods: list[PodHandle] = []
        self.beat = 1
        self.loaded_at = datetime.now(UTC)  # noqa: TID251 - a bench has the real time
        stack.create_service()
        self.adapters = [
            stack.adapter(f"a{n:02}", path=f"/adapters/a{n:02}") for n in range(ADAPTER_COUNT)
        ]

    def grow(self, size: int) -> None:
        """Add pods with their reports until there are so many."""
        say(f"making {size - len(self.pods)} pods with a report of {ADAPTER_COUNT} adapters each")
        while len(self.pods) < size:
            manifest = pod_manifest(
                f"pod-{len(self.pods):04}",
                self.stack.service,
                labels={names.INJECTED_LABEL: "true"},
                annotations={
                    names.INJECT: "true",
                    names.INJECTED_CONTAINER: names.ENGINE_CONTAINER,
                },
            )
            pod = self.stack.kubelet.create_pod(self.stack.namespace, manifest)
            self.pods.append(pod)
            path = REPORTS.path(self.stack.namespace)
            self.stack.controlplane.api("POST", path, self._report(pod).wire())

    def report(
        self, pod: PodHandle, failing: str = "", engine: EngineState = EngineState.READY
    ) -> None:
        """Write a pod's report anew, with one adapter that fails on it or none."""
        path = REPORTS.path(self.stack.namespace, pod.name)
        status = self._report(pod, failing, engine).status_wire()
        self.stack.controlplane.api("PATCH", path, {"status": status})

    def _report(
        self, pod: PodHandle, failing: str = "", state: EngineState = EngineState.READY
    ) -> LoRAPodStatus:
        self.beat += 1
        entries = tuple(
            _entry(self.stack.namespace, one, failing, self.loaded_at + timedelta(seconds=number))
            for number, one in enumerate(self.adapters, start=int(pod.name[-4:]))
        )
        since = self.loaded_at + timedelta(days=1)  # later than any container of ours began
        engine = EngineEntry(state=state, since=since, boot_id="boot", version="0.5.23")
        status = ReportStatus(
            agent_version="0.1.0",
            beat=self.beat,
            scope="all",
            allowed_namespaces=("*",),
            engine=engine,
            adapters=entries,
            loaded=f"{ADAPTER_COUNT}/{ADAPTER_COUNT}",
        )
        spec = ReportSpec(
            pod_name=pod.name, pod_uid=pod.uid, node=pod.node, service=self.stack.service
        )
        return LoRAPodStatus(name=pod.name, namespace=pod.namespace, spec=spec, status=status)

    def counts(self) -> list[str]:
        """What every adapter's podsLoaded says."""
        listed = self.stack.controlplane.api("GET", ADAPTERS.path(self.stack.namespace))["items"]
        return [item.get("status", {}).get("podsLoaded", "") for item in listed]


def _entry(namespace: str, adapter: dict[str, Any], failing: str, now: datetime) -> AdapterEntry:
    name = adapter["metadata"]["name"]
    reason = Reason.INCOMPATIBLE if name == failing else Reason.LOADED
    return AdapterEntry(
        adapter=f"{namespace}/{name}",
        uid=adapter["metadata"]["uid"],
        generation=adapter["metadata"]["generation"],
        name=name,
        path=f"/adapters/{name}",
        state=reason.state,
        reason=reason,
        loaded_at=now,
        owned=True,
        signature="0123456789abcdef01234567",
        content_hash="0" * 64,
    )


# --- what is measured -----------------------------------------------------------------------------


def _cold_start(service: Service) -> tuple[Process, float, float]:
    """Start an aggregator; seconds and CPU-seconds until every status is written and true."""
    wanted = [f"{len(service.pods)}/{len(service.pods)}"] * ADAPTER_COUNT
    began = time.monotonic()
    process = service.stack.start_aggregator()
    last = service.adapters[-1]["metadata"]["name"]  # by name, which is the order of folding
    folded = wanted[0]
    until(lambda: _pods_loaded(service, last) == folded, "the last is folded", timeout=120)
    until(lambda: service.counts() == wanted, "all are folded", timeout=120, every=0.01)
    return process, time.monotonic() - began, cpu(process.pid)


def _pods_loaded(service: Service, name: str) -> str:
    """Asked of one adapter only, as the question costs the machine that is measured."""
    return str(service.stack.get_adapter(name).get("status", {}).get("podsLoaded", ""))


async def _bare(stack: Stack) -> float:
    """Seconds for the same lists in the same pages, one beside the other, with nothing made of them."""
    kubeconfig = stack.folder / "aggregator.kubeconfig"
    async with Client.open(kubeconfig=str(kubeconfig)) as client:
        began = time.monotonic()
        await asyncio.gather(*(_list(client, resource, limit) for resource, limit in LISTS))
        return time.monotonic() - began


async def _list(client: Client, resource: Resource, limit: int) -> None:
    params = {"limit": str(limit)}
    while True:
        page = await client.request("GET", resource.path(), params=params, timeout=60)
        more = page["metadata"].get("continue")
        if not more:
            return
        params["continue"] = more


def _figures(size: int, took: float, spent: float, bare: float, mib: float) -> list[Figure]:
    budget = f"{size} pods x {ADAPTER_COUNT} adapters from a cold start: <= the lists + 3 s"
    return [
        Figure(f"aggregator_cold_start_{size}", 1, "s", bare + 3.0, budget, value=took),
        Figure(f"aggregator_rss_{size}", 1, "MiB", 96.0, "<= 96 MiB RSS", value=mib),
        Figure(f"aggregator_cpu_{size}", 1, "s", bare + 3.0, "for the curve", value=spent),
    ]


def _one_change(service: Service) -> Figure:
    """Milliseconds from a report's being written until the status of the one adapter it concerns says so."""
    took = []
    for number in range(CHANGES):
        name, pod = f"a{number:02}", service.pods[number * 7 % len(service.pods)]
        time.sleep(1.2)  # after a quiet second
        service.report(pod, failing=name)
        written = time.monotonic()
        until(lambda name=name: _is_false(service, name), "the status says so", every=0.002)
        took.append(1000 * (time.monotonic() - written))
        service.report(pod)
    budget = "report written to status written: p99 <= 100 ms"
    return spread("aggregator_report_to_status", took, limit=100.0, budget=budget)


def _is_false(service: Service, name: str) -> bool:
    conditions = service.stack.get_adapter(name).get("status", {}).get("conditions", [])
    return any(one["type"] == "Loaded" and one["status"] == "False" for one in conditions)


def _storm(service: Service, process: Process) -> Figure:
    """Writes of an adapter's status while all engines go and come back, one after another."""
    say("letting all engines restart")
    wanted = [f"{len(service.pods)}/{len(service.pods)}"] * ADAPTER_COUNT
    before, began = _writes(process), time.monotonic()
    for state in (EngineState.STARTING, EngineState.READY):
        for pod in service.pods:
            service.report(pod, engine=state)
    until(lambda: service.counts() == wanted, "all is as it was", timeout=120, every=0.2)
    took = time.monotonic() - began
    pace = max(1.0, len(service.pods) / 100)
    return Figure(
        "aggregator_storm",
        ADAPTER_COUNT,
        "writes",
        took / pace + 3,  # the first, and one for each change of a condition
        f"all pods restart: one write per {pace:g} s and adapter, and at once where a condition changes",
        value=(_writes(process) - before) / ADAPTER_COUNT,
    )


def _writes(process: Process) -> float:
    """How many statuses it has written, by its own count."""
    port = re.findall(r"metrics on port (\d+)", process.log.read_text())[-1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    (count,) = re.findall(r'status_writes_total\{result="written"\} (\S+)', text)
    return float(count)


def _at_rest(service: Service, process: Process) -> Figure:
    wanted = [f"{len(service.pods)}/{len(service.pods)}"] * ADAPTER_COUNT
    until(lambda: service.counts() == wanted, "all is as it was", timeout=60)
    time.sleep(3)
    say(f"resting for {REST:.0f} s")
    before = _versions(service)
    time.sleep(REST)
    assert process.exit_code is None
    writes = float(sum(one != other for one, other in zip(before, _versions(service), strict=True)))
    return Figure("aggregator_writes_at_rest", 1, "writes", 0.0, "0 in a minute", value=writes)


def _versions(service: Service) -> list[str]:
    listed = service.stack.controlplane.api("GET", ADAPTERS.path(service.stack.namespace))["items"]
    return [item["metadata"]["resourceVersion"] for item in listed]


def _curve(sizes: Sequence[int], costs: Sequence[float]) -> list[Figure]:
    """How much more CPU a pod costs in the last step than in the one before: 1 is linear, less is better."""
    points = itertools.pairwise(zip(sizes, costs, strict=True))
    steps = [(cost - before) / (size - smaller) for (smaller, before), (size, cost) in points]
    if len(steps) < 2:
        return []
    ratio = steps[-1] / max(steps[-2], 1e-9)
    return [Figure("aggregator_curve", len(sizes), "ratio", 1.5, "cost is linear", value=ratio)]


def say(text: str) -> None:
    """Tell progress, apart from the figures."""
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
