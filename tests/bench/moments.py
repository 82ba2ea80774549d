"""How soon something follows: a directory became whole, an engine came up, a hundred adapters were lost with one."""

import time
from pathlib import Path

from tests.bench.figures import Figure, spread
from tests.bench.hundred import COUNT, a_pod, until_all_loaded
from tests.flows.engine_control import requests
from tests.rig.adapters import make_adapter
from tests.rig.controlplane import ControlPlane
from tests.rig.engines import EngineProcess
from tests.rig.kubelet import Kubelet
from tests.rig.namespaces import create_namespace
from tests.rig.polling import until
from tests.rig.stack import Stack

LOAD = "/load_lora_adapter"
SETTLE = 500.0
"""Milliseconds for which files must keep still, by default."""
ROUNDS = 30
RESTARTS = 5


def figures(controlplane: ControlPlane, kubelet: Kubelet, folder: Path) -> list[Figure]:
    """Measure it all."""
    return [
        _whole_to_load(controlplane, kubelet, folder / "whole"),
        *_after_restarts(controlplane, kubelet, folder / "restarts", per_load=0.02, limit=1.2),
        *_after_restarts(controlplane, kubelet, folder / "restarts-200", per_load=0.2, limit=1.2),
    ]


def _whole_to_load(controlplane: ControlPlane, kubelet: Kubelet, folder: Path) -> Figure:
    namespace = create_namespace(controlplane.client(), "bench-whole")
    took = []
    with Stack(controlplane, kubelet, namespace, folder) as stack:
        stack.create_service()
        names = [f"a{number}" for number in range(ROUNDS)]
        for name in names:
            stack.adapter(name)
        pod = stack.add_pod("whole")
        stack.until_reported(pod, dict.fromkeys(names, "PathNotFound"))
        for name in names:
            made = make_adapter(folder / "made" / name)
            made.rename(stack.adapters / name)
            whole = time.monotonic()
            until(lambda: name in _arrivals(pod.engine), f"{name} is asked for", every=0.05)  # noqa: B023
            took.append(1000 * (_arrivals(pod.engine)[name] - whole))
    return spread(
        "whole_to_load",
        took,
        limit=SETTLE + 50.0,
        budget="path becomes whole (rename into place) to load request: p99 <= settle + 50 ms with inotify",
    )


def _arrivals(engine: EngineProcess) -> dict[str, float]:
    return {one["body"]["lora_name"]: one["at"] for one in requests(engine, LOAD)}


def _after_restarts(
    controlplane: ControlPlane, kubelet: Kubelet, folder: Path, *, per_load: float, limit: float
) -> list[Figure]:
    namespace = create_namespace(controlplane.client(), f"bench-{folder.name}")
    arguments = ("--load-seconds", str(per_load))
    first, all_of_them = [], []
    rounds = RESTARTS if per_load < 0.1 else 1
    with Stack(controlplane, kubelet, namespace, folder, engine_args=arguments) as stack:
        pod = a_pod(stack)
        for _ in range(rounds):
            stack.kill_engine(pod)
            until(lambda: stack.report(pod).get("loaded") == f"0/{COUNT}", "the loss is told")
            stack.restart_engine(pod)
            until_all_loaded(stack, pod)
            listed = min(
                one["ended"] for one in requests(pod.engine, "/v1/models") if one["status"] == 200
            )
            loads = requests(pod.engine, LOAD)
            first.append(1000 * (loads[0]["at"] - listed))
            own = sum(one["ended"] - one["at"] for one in loads)
            all_of_them.append((loads[-1]["ended"] - loads[0]["at"]) / own)
    milliseconds = round(1000 * per_load)
    told = [
        Figure(
            f"restart_{milliseconds}ms_a_load",
            rounds,
            "ratio",
            limit,
            "100 adapters after a restart: <= 1.2 x the engine's own serial time",
            value=max(all_of_them),
        )
    ]
    if rounds > 1:
        budget = "engine answers to first load request: p99 <= 150 ms"
        told.append(spread("engine_answers_to_first_load", first, limit=150.0, budget=budget))
    return told
