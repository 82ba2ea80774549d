"""What an agent costs that has a hundred adapters to look after: memory, its start, a look, and being idle."""

import statistics
import time
from pathlib import Path

from tests.bench.figures import Figure
from tests.bench.processes import cpu, cpu_of_living_threads, resident
from tests.rig.adapters import make_adapter
from tests.rig.controlplane import ControlPlane
from tests.rig.kubelet import Kubelet
from tests.rig.namespaces import create_namespace
from tests.rig.polling import until
from tests.rig.stack import ServedPod, Stack

COUNT = 100
SETTLED = 15.0
"""Seconds after which hashing has ended."""
IDLE = 40.0


def figures(controlplane: ControlPlane, kubelet: Kubelet, folder: Path) -> list[Figure]:
    """Measure it all on one pod."""
    namespace = create_namespace(controlplane.client(), "bench-hundred")
    with Stack(controlplane, kubelet, namespace, folder) as stack:
        pod = a_pod(stack)
        time.sleep(SETTLED)
        mib = resident(pod.agent.pid)
        idle = _idle(pod)
        starts = [_start(stack, pod) for _ in range(5)]
    wall = [took for took, _ in starts]
    return [
        Figure(
            "agent_rss_100_adapters",
            1,
            "MiB",
            60.0,
            "<= 60 MiB RSS with 100 adapters",
            value=mib,
        ),
        Figure(
            "agent_idle_100_adapters",
            1,
            "%",
            0.25,
            "idle <= 0.25 % of a core with 100 adapters and inotify",
            value=idle,
        ),
        Figure(
            "agent_start_to_first_list",
            len(wall),
            "s",
            1.0,
            "process start to first list <= 1 s",
            value=statistics.median(wall),
            max=max(wall),
        ),
        Figure(
            "agent_cpu_to_first_list",
            len(starts),
            "s",
            0.5,
            "process start to first list <= 0.5 CPU-s",
            value=statistics.median(cpu for _, cpu in starts),
            max=max(cpu for _, cpu in starts),
        ),
    ]


def a_pod(stack: Stack) -> ServedPod:
    """A pod that has loaded a hundred adapters."""
    stack.create_service()
    for number in range(COUNT):
        make_adapter(stack.adapters / f"a{number}", seed=number)
        stack.adapter(f"a{number}")
    pod = stack.add_pod("hundred")
    until_all_loaded(stack, pod)
    return pod


def until_all_loaded(stack: Stack, pod: ServedPod) -> None:
    """Wait for the report that says so."""
    every = f"{COUNT}/{COUNT}"
    until(lambda: stack.report(pod).get("loaded") == every, "all are loaded", timeout=120)


def _idle(pod: ServedPod) -> float:
    """The share of a core, in percent, that an agent takes which has nothing to do."""
    assert pod.agent
    before = cpu_of_living_threads(pod.agent.pid)
    time.sleep(IDLE)
    return 100 * (cpu_of_living_threads(pod.agent.pid) - before) / IDLE


def _start(stack: Stack, pod: ServedPod) -> tuple[float, float]:
    """Wall and CPU seconds from the start of an agent's process until it has its first list."""
    assert pod.agent
    pod.agent.stop()
    size = pod.agent.log.stat().st_size
    began = time.monotonic()
    agent = stack.start_agent(pod)

    def listed() -> bool:
        with agent.log.open("rb") as log:
            log.seek(size)
            return b"(a0): Loaded" in log.read()

    until(listed, "the agent has its first list", every=0.005)
    return time.monotonic() - began, cpu(agent.pid)
