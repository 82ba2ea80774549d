"""What the flows look at, and what they do to services: a LoRAAdapter's condition, pods, engines."""

import json
from typing import Any

from tests.e2e.cluster import Cluster

INJECT = "lora-sidecar.llmkube.dev/inject"


def loaded(cluster: Cluster, where: str, name: str) -> dict[str, Any]:
    """The condition Loaded; {} where there is none."""
    conditions = cluster.get(where, "lora", name).get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == "Loaded"), {})


def said(cluster: Cluster, where: str, name: str) -> tuple[str, str, str]:
    """Loaded's status and reason, and the count of pods."""
    one = loaded(cluster, where, name)
    status = cluster.get(where, "lora", name).get("status", {})
    return one.get("status", ""), one.get("reason", ""), status.get("podsLoaded", "")


def scale(cluster: Cluster, where: str, name: str, replicas: int) -> None:
    """Set a Deployment's replicas."""
    cluster.kubectl("-n", where, "scale", f"deploy/{name}", f"--replicas={replicas}")


def pods(cluster: Cluster, where: str, service: str) -> list[str]:
    """The names of a service's pods, those that are ending among them."""
    told = cluster.kubectl("-n", where, "get", "pods", "-l", f"app={service}", "-o", "name")
    return told.split()


def agent_of(pod: dict[str, Any]) -> dict[str, Any]:
    """The native sidecar that a pod was given."""
    (agent,) = [one for one in pod["spec"]["initContainers"] if one["name"] == "lora-sidecar"]
    return agent  # type: ignore[no-any-return]


def models(cluster: Cluster, where: str, service: str) -> set[str]:
    """What the simulated engine of a service's only pod says that it serves."""
    return {one["id"] for one in json.loads(_ask(cluster, where, service, "/v1/models"))["data"]}


def kill_engine(cluster: Cluster, where: str, service: str) -> None:
    """The simulated engine's process ends by itself, as far as the kubelet can tell."""
    _ask(cluster, where, service, "/_sim", {"crash": True}, check=False)


def _ask(
    cluster: Cluster,
    where: str,
    service: str,
    path: str,
    body: dict[str, Any] | None = None,
    *,
    check: bool = True,
) -> str:
    """Ask an engine from within its own container."""
    (pod,) = pods(cluster, where, service)
    ask = (
        "import sys, urllib.request as u;"
        f"data = {json.dumps(body)!r}.encode() if {body is not None} else None;"
        f"asked = u.Request('http://127.0.0.1:30000{path}', data, {{'Content-Type': 'application/json'}});"
        "sys.stdout.write(u.urlopen(asked, timeout=5).read().decode())"
    )
    within = ("-n", where, "exec", pod, "-c", "sglang", "--", "python", "-c", ask)
    return cluster.kubectl(*within, check=check)
