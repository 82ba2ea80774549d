"""Measures the agent against its budgets, on a real API server and the simulated engine: one JSON line a figure.

A figure that depends on the machine is measured beside its bare counterpart in the same run, turn by turn: a watch and
a POST with nothing in between, in a process of its own like the agent.

    python -m tests.bench.agent [--rounds N]
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import hundred, moments, passes
from tests.bench.bare import SERVICE
from tests.bench.figures import Figure, quantile, spread, tell
from tests.flows.engine_control import requests
from tests.rig.adapters import make_adapter
from tests.rig.controlplane import ControlPlane
from tests.rig.kubelet import Kubelet
from tests.rig.namespaces import create_namespace
from tests.rig.polling import until
from tests.rig.process import Process
from tests.rig.stack import ROOT, ServedPod, Stack

WARM_UP = 5
LOAD = "/load_lora_adapter"


def main() -> int:
    """Measure all; the exit code is 0 however the budgets fared: a noisy machine is no fault of the code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.agent", description=__doc__)
    parser.add_argument("--rounds", type=int, default=60, help="adapters created one by one")
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 where a budget is missed"
    )
    options = parser.parse_args()
    with ControlPlane() as controlplane, tempfile.TemporaryDirectory() as folder:
        kubelet = Kubelet(controlplane)
        missed = tell(
            *_created_to_load(controlplane, kubelet, Path(folder) / "load", options.rounds)
        )
        missed += tell(*hundred.figures(controlplane, kubelet, Path(folder) / "hundred"))
        missed += tell(*moments.figures(controlplane, kubelet, Path(folder) / "moments"))
        missed += tell(*passes.figures(Path(folder) / "passes"))
    return 1 if missed and options.strict else 0


# --- LoRAAdapter created → load request -----------------------------------------------------------


def _created_to_load(
    controlplane: ControlPlane, kubelet: Kubelet, folder: Path, rounds: int
) -> list[Figure]:
    namespace = create_namespace(controlplane.client(), "bench-load")
    with Stack(controlplane, kubelet, namespace, folder) as stack:
        stack.create_service()
        ours = stack.add_pod("ours")
        bare = stack.add_pod("bare", agent=False)
        watcher = _bare(stack, bare)
        names = [f"a{number}" for number in range(rounds + WARM_UP)]
        took, base = [], []
        try:
            for seed, name in enumerate(names):
                make_adapter(stack.adapters / name, seed=seed)
            time.sleep(1.0)  # files at rest: older than `settle`
            for name in names:
                took.append(_one(stack, ours, name, stack.service))
                base.append(_one(stack, bare, name, SERVICE))
        finally:
            watcher.stop()
    took, base = took[WARM_UP:], base[WARM_UP:]
    words = "LoRAAdapter created to load request: p50 <= bare + 2 ms, p99 <= bare + 10 ms"
    return [
        Figure(
            "created_to_load_bare",
            len(base),
            "ms",
            1000.0,
            "for comparison only: an aiohttp watch and POST",
            p50=statistics.median(base),
            p99=quantile(base, 0.99),
            max=max(base),
        ),
        Figure(
            "created_to_load_p50",
            len(took),
            "ms",
            statistics.median(base) + 2.0,
            words,
            value=statistics.median(took),
        ),
        spread("created_to_load", took, limit=quantile(base, 0.99) + 10.0, budget=words),
    ]


def _one(stack: Stack, pod: ServedPod, name: str, service: str) -> float:
    """Milliseconds from when the create had returned until the engine was asked; negative where that was first."""
    stack.adapter(
        f"{service}-{name}", handle=name, path=str(stack.adapters / name), service=service
    )
    returned = time.monotonic()
    until(lambda: name in _arrivals(pod), f"{pod.name} asks for {name}", every=0.02)
    return 1000 * (_arrivals(pod)[name] - returned)


def _arrivals(pod: ServedPod) -> dict[str, float]:
    """When each handle was first asked for, on the clock that all processes of a machine share."""
    first: dict[str, float] = {}
    for one in requests(pod.engine, LOAD):
        first.setdefault(one["body"]["lora_name"], one["at"])
    return first


def _bare(stack: Stack, pod: ServedPod) -> Process:
    environment = stack.environment({})
    command = [
        sys.executable,
        "-m",
        "tests.bench.bare",
        str(pod.folder / "credentials"),
        pod.engine.url,
    ]
    started = Process(command, pod.folder / "bare.log", environment=environment)
    until(lambda: "watching" in started.tail(), "the bare watcher watches")
    return started


if __name__ == "__main__":
    assert ROOT.exists()
    sys.exit(main())
