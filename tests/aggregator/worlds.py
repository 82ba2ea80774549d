"""Objects as the API server gives them, all defaults but what a test is about; and one adapter folded from them."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from sidecar.aggregator import reading
from sidecar.aggregator.fold import fold, wire
from sidecar.aggregator.records import Webhook
from sidecar.aggregator.view import Presence, View, view

Json = dict[str, Any]

NAMESPACE, SERVICE = "ml", "chat"
NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
LATER = datetime(2026, 5, 1, 13, 0, 0, tzinfo=UTC)
STARTED, READY_SINCE, LOADED_AT = (
    "2026-05-01T10:00:00Z",
    "2026-05-01T10:05:00Z",
    "2026-05-01T10:06:00Z",
)
PREFIX = "lora-sidecar.llmkube.dev"
OURS = (f"{PREFIX}/unload",)
"""The finalizers of an adapter that we have seen before."""
SERVICE_LABEL = "inference.llmkube.dev/service"


def adapter(
    name: str = "sql",
    *,
    namespace: str = NAMESPACE,
    service: str = SERVICE,
    path: str = "/adapters/sql",
    uid: str = "uid-sql",
    generation: int = 1,
    deleting: bool = False,
    finalizers: Iterable[str] = (),
    status: Json | None = None,
    **spec: Any,
) -> Json:
    reference = {"name": service}
    if namespace != NAMESPACE:
        reference["namespace"] = NAMESPACE
    meta: Json = {
        "name": name,
        "namespace": namespace,
        "uid": uid,
        "generation": generation,
        "resourceVersion": "7",
    }
    if finalizers:
        meta["finalizers"] = list(finalizers)
    if deleting:
        meta["deletionTimestamp"] = "2026-05-01T11:59:00Z"
    return {
        "apiVersion": "inference.llmkube.dev/v1alpha1",
        "kind": "LoRAAdapter",
        "metadata": meta,
        "spec": {"inferenceServiceRef": reference, "name": name, "path": path} | spec,
        "status": status or {},
    }


def container(
    name: str, *, running: bool = True, ready: bool = True, started: str = STARTED, why: str = ""
) -> Json:
    state: Json = {"running": {"startedAt": started}}
    if not running:
        state = {"waiting": {"reason": why} if why else {}}
    return {"name": name, "ready": running and ready, "state": state}


def pod(
    name: str = "chat-a",
    *,
    service: str | None = SERVICE,
    node: str = "node-1",
    agent: bool = True,
    opted_in: bool = True,
    agent_state: Json | None = None,
    engine_state: Json | None = None,
    phase: str = "Running",
    annotations: Json | None = None,
    labels: Json | None = None,
    conditions: list[Json] | None = None,
    created: str = STARTED,
    deleting: bool = False,
    version: int = 1,
) -> Json:
    meta: Json = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "creationTimestamp": created,
        "labels": ({SERVICE_LABEL: service} if service else {}) | (labels or {}),
        "annotations": ({f"{PREFIX}/inject": "true"} if opted_in else {}) | (annotations or {}),
    }
    if agent and opted_in:
        meta["labels"][f"{PREFIX}/injected"] = "true"
    if deleting:
        meta["deletionTimestamp"] = "2026-05-01T11:59:00Z"
    sidecar = [{"name": "lora-sidecar", "restartPolicy": "Always"}] if agent else []
    status = {
        "phase": phase,
        "conditions": conditions or [{"type": "Ready", "status": "True"}],
        "containerStatuses": [engine_state or container("sglang")],
        "initContainerStatuses": [agent_state or container("lora-sidecar")] if agent else [],
    }
    spec = {"nodeName": node, "containers": [{"name": "sglang"}], "initContainers": sidecar}
    return {"metadata": meta, "spec": spec, "status": status}


def entry(
    reason: str = "Loaded",
    text: str = "",
    *,
    name: str = "sql",
    namespace: str = NAMESPACE,
    uid: str = "uid-sql",
    generation: int = 1,
    loaded_at: str = LOADED_AT,
    state: str | None = None,
) -> Json:
    states = {str(r): str(r.state) for r in reading.Reason}
    body = {
        "adapter": f"{namespace}/{name}",
        "uid": uid,
        "generation": generation,
        "name": name,
        "path": f"/adapters/{name}",
        "state": state or states.get(reason, "Failed"),
        "reason": reason,
    }
    if text:
        body["text"] = text
    if body["state"] == "Loaded":
        body["loadedAt"] = loaded_at
    return body


def report(
    pod: str = "chat-a",
    *entries: Json,
    engine: str = "Ready",
    engine_text: str = "",
    since: str | None = READY_SINCE,
    uid: str | None = None,
    beat: int = 1,
    version: int = 1,
    **status: Any,
) -> Json:
    meta = {"name": pod, "namespace": NAMESPACE, "uid": f"r-{pod}", "resourceVersion": str(version)}
    said = {"state": engine, "text": engine_text, "since": since}
    return {
        "apiVersion": f"{PREFIX}/v1alpha1",
        "kind": "LoRAPodStatus",
        "metadata": meta,
        "spec": {"podName": pod, "podUID": uid or f"uid-{pod}", "service": "whatever it says"},
        "status": {
            "schemaVersion": 1,
            "beat": beat,
            "scope": "all",
            "allowedNamespaces": ["*"],
            "engine": {key: value for key, value in said.items() if value},
            "adapters": list(entries),
        }
        | status,
    }


def service(name: str = SERVICE, runtime: str = "sglang") -> Json:
    meta = {"name": name, "namespace": NAMESPACE}
    return {"metadata": meta, "spec": {"runtime": runtime}}


def seen(
    pods: Iterable[Json],
    reports: Iterable[Json] = (),
    *,
    silent: Iterable[str] = (),
    opted_in: bool = True,
    presence: Presence = Presence.FOUND,
    runtime: str = "sglang",
    webhook: Webhook | None = None,
) -> View:
    """The view of the service; `silent`: names of pods whose beat has not been seen for too long."""
    mute = {f"{NAMESPACE}/{name}" for name in silent}
    read = [reading.report(body) for body in reports]
    return view(
        (NAMESPACE, SERVICE),
        [reading.pod(body) for body in pods],
        {one.key: one for one in read},
        alive=lambda key: key not in mute,
        opted_in=opted_in,
        presence=presence,
        runtime=runtime,
        webhook=webhook,
    )


def folded(
    pods: Iterable[Json],
    reports: Iterable[Json] = (),
    *,
    adapter: Json | None = None,
    now: datetime = NOW,
    **world: Any,
) -> Json:
    """The status that the adapter should have, as it is written."""
    read = reading.adapter(adapter or globals()["adapter"]())
    return wire(fold(read, seen(pods, reports, **world), now), read)


def condition(status: Json, kind: str = "Loaded") -> Json:
    (found,) = [one for one in status["conditions"] if one["type"] == kind]
    return found


def says(status: Json, kind: str = "Loaded") -> tuple[str, str]:
    """Status and reason of a condition."""
    found = condition(status, kind)
    return found["status"], found["reason"]
