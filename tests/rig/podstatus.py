"""What a kubelet writes into a pod's status, as values: containers that run, wait or have ended, and what follows from
them for phase and conditions.

Pure: the time is an argument (Unix seconds), the API server is not asked. A container is known by its name; init
containers with restartPolicy Always (native sidecars) count for readiness, the others have ended before.
"""

import time
from typing import Any

Json = dict[str, Any]


def timestamp(seconds: float) -> str:
    """Return a time as Kubernetes writes it: UTC, whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def bound(spec: Json, ip: str, now: float) -> Json:
    """Return the status of a pod that a node has just taken: nothing runs yet."""
    return {
        "phase": "Pending",
        "hostIP": "127.0.0.1",
        "hostIPs": [{"ip": "127.0.0.1"}],
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "startTime": timestamp(now),
        "containerStatuses": [_waiting(container) for container in spec["containers"]],
        "initContainerStatuses": [
            _waiting(container) if _is_sidecar(container) else _completed(container, now)
            for container in spec.get("initContainers", [])
        ],
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": timestamp(now)}
            for kind in ("PodScheduled", "PodReadyToStartContainers", "Initialized")
        ],
    }


def with_running(
    status: Json, name: str, *, ready: bool, started_at: float | None, now: float
) -> Json:
    """Return the status after a container was seen running.

    A container that was not running before has started, at `started_at` or now, and again if it
    has an end behind it. One that was running goes on, unless another `started_at` is given.
    """
    old = container_status(status, name)
    before = old["state"].get("running")
    if before is None or started_at is not None:
        began = timestamp(now if started_at is None else started_at)
    else:
        began = before["startedAt"]
    new = old | {"ready": ready, "started": True, "state": {"running": {"startedAt": began}}}
    if before is None or before["startedAt"] != began:
        restarts = old["restartCount"] + ("terminated" in old["state"] or before is not None)
        new |= {"restartCount": restarts, "containerID": _id(name, restarts, began)}
    if "terminated" in old["state"]:
        new["lastState"] = old["state"]
    return _settled(_replaced(status, new), now)


def with_ended(status: Json, name: str, *, exit_code: int, now: float) -> Json:
    """Return the status after a container has ended, for good or to be started again."""
    old = container_status(status, name)
    running = old["state"].get("running", {})
    ended = {
        "exitCode": exit_code,
        "reason": "Error" if exit_code else "Completed",
        "startedAt": running.get("startedAt", timestamp(now)),
        "finishedAt": timestamp(now),
        "containerID": old.get("containerID", ""),
    }
    new = old | {"ready": False, "started": False, "state": {"terminated": ended}}
    return _settled(_replaced(status, new), now)


def with_condition(status: Json, kind: str, value: str, reason: str, now: float) -> Json:
    """Return the status with one condition set; its time moves only if its value does."""
    kept = [condition for condition in status.get("conditions", []) if condition["type"] != kind]
    old = [condition for condition in status.get("conditions", []) if condition["type"] == kind]
    since = timestamp(now)
    if old and old[0]["status"] == value:
        since = old[0]["lastTransitionTime"]
    new = {"type": kind, "status": value, "reason": reason, "lastTransitionTime": since}
    return status | {"conditions": [*kept, {key: text for key, text in new.items() if text}]}


def container_status(status: Json, name: str) -> Json:
    """Return the status of one container; raises KeyError where the pod has none of that name."""
    for entry in _entries(status):
        if entry["name"] == name:
            return entry
    raise KeyError(name)


def containers(spec: Json) -> list[str]:
    """Return the names of the containers that run as long as the pod: native sidecars first."""
    sidecars = [c["name"] for c in spec.get("initContainers", []) if _is_sidecar(c)]
    return sidecars + [c["name"] for c in spec["containers"]]


def _settled(status: Json, now: float) -> Json:
    """Return the status with phase and conditions as its containers say."""
    started = any("waiting" not in entry["state"] for entry in status["containerStatuses"])
    ready = "True" if all(entry["ready"] for entry in _entries(status)) else "False"
    reason = "" if ready == "True" else "ContainersNotReady"
    status = status | {"phase": "Running" if started else status["phase"]}
    for kind in ("ContainersReady", "Ready"):
        status = with_condition(status, kind, ready, reason, now)
    return status


def _entries(status: Json) -> list[Json]:
    return [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]


def _replaced(status: Json, new: Json) -> Json:
    lists = {}
    for key in ("initContainerStatuses", "containerStatuses"):
        old = status.get(key, [])
        lists[key] = [new if entry["name"] == new["name"] else entry for entry in old]
    return status | lists


def _is_sidecar(container: Json) -> bool:
    return container.get("restartPolicy") == "Always"


def _waiting(container: Json) -> Json:
    return _entry(container, {"waiting": {"reason": "PodInitializing"}})


def _completed(container: Json, now: float) -> Json:
    at = timestamp(now)
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at}
    return _entry(container, {"terminated": ended}) | {"ready": True}


def _entry(container: Json, state: Json) -> Json:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": f"rig://{container['image']}",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "state": state,
    }


def _id(name: str, restarts: int, began: str) -> str:
    return f"rig://{name}-{restarts}-{began}"
