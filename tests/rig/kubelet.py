"""Plays the kubelet: a node on which pods are real objects, and only their containers are pretended.

Pods are taken onto the node, get an IP, report containers that run, stop or start again, hold tokens that are bound to
them, and go when told to. Nothing happens by itself: each method does one thing and returns when the API server has
it. What a status must say stands in `podstatus`.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.rig import podstatus
from tests.rig.apiclient import ApiError
from tests.rig.controlplane import ControlPlane
from tests.rig.polling import until
from tests.rig.volume import AtomicVolume

Json = dict[str, Any]
SERVICE_LABEL = "inference.llmkube.dev/service"
TOKEN_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class PodHandle:
    """One pod on the node: what never changes about it."""

    namespace: str
    name: str
    uid: str
    ip: str
    node: str
    service_account: str

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"


@dataclass(frozen=True, slots=True)
class _Projection:
    volume: AtomicVolume
    service_account: str | None
    audiences: tuple[str, ...]


def pod_manifest(
    name: str,
    service: str = "chat",
    *,
    agent: bool = True,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Json:
    """Return a pod as LLMKube makes it for a service, with the agent as a native sidecar or without."""
    sidecar = {"name": "lora-sidecar", "image": "lora-sidecar", "restartPolicy": "Always"}
    engine = {
        "name": "sglang",
        "image": "sglang",
        "ports": [{"name": "http", "containerPort": 30000}],
    }
    ours = {"app": service, SERVICE_LABEL: service, "inference.llmkube.dev/runtime": "sglang"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": ours | (labels or {}),
            "annotations": annotations or {},
        },
        "spec": {"containers": [engine]} | ({"initContainers": [sidecar]} if agent else {}),
    }


class Kubelet:
    """One node, registered with the control plane at construction (or found there)."""

    def __init__(self, controlplane: ControlPlane, node: str = "rig-node") -> None:
        self._api = controlplane.api
        self._ca_file = controlplane.ca_file
        self.node = node
        self._ips = (f"10.244.{n // 250}.{n % 250 + 1}" for n in itertools.count())
        self._projections: dict[str, list[_Projection]] = {}
        self._register()

    def _register(self) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node}}
        try:
            self._api("POST", "/api/v1/nodes", node)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        at = podstatus.timestamp(time.time())
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        ready |= {"message": "", "lastHeartbeatTime": at, "lastTransitionTime": at}
        self._api("PATCH", f"/api/v1/nodes/{self.node}/status", {"status": {"conditions": [ready]}})

    # --- pods come ------------------------------------------------------------------

    def create_pod(
        self, namespace: str, pod: Json | str, *, ip: str | None = None, start: bool = True
    ) -> PodHandle:
        """Create a pod on this node and start its containers.

        `pod` is a manifest, or the name of one that `pod_manifest` makes.
        """
        manifest = pod_manifest(pod) if isinstance(pod, str) else pod
        made = self._api("POST", f"/api/v1/namespaces/{namespace}/pods", manifest)
        return self.take(made, ip=ip, start=start)

    def adopt(
        self, namespace: str, selector: str = "", *, count: int = 1, start: bool = True
    ) -> list[PodHandle]:
        """Wait for at least `count` pods that no node has, such as a ReplicaSet's, and take them.

        `selector` is a label selector. The handles come sorted by name.
        """
        path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={quote(selector)}"

        def homeless() -> list[Json]:
            pods = [p for p in self._api("GET", path)["items"] if not p["spec"].get("nodeName")]
            return pods if len(pods) >= count else []

        pods = until(homeless, f"{count} pods {selector} in {namespace} without a node")
        pods.sort(key=lambda pod: pod["metadata"]["name"])
        return [self.take(pod, start=start) for pod in pods]

    def take(self, pod: Json, *, ip: str | None = None, start: bool = True) -> PodHandle:
        """Bind a pod object to this node, give it an address (default: one nobody answers at)."""
        meta, spec = pod["metadata"], pod["spec"]
        handle = PodHandle(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
            ip=ip or next(self._ips),
            node=self.node,
            service_account=spec["serviceAccountName"],
        )
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": handle.name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
        }
        self._api("POST", f"{handle.path}/binding", binding)
        self._change(handle, lambda _, now: podstatus.bound(spec, handle.ip, now))
        if start:
            self.start(handle)
        return handle

    # --- containers -----------------------------------------------------------------

    def start(self, pod: PodHandle, *, ready: bool = True, started_at: float | None = None) -> None:
        """Let every lasting container run, and be ready or not yet."""
        names = podstatus.containers(self.get(pod)["spec"])

        def started(status: Json, now: float) -> Json:
            for name in names:
                status = podstatus.with_running(
                    status, name, ready=ready, started_at=started_at, now=now
                )
            return status

        self._change(pod, started)

    def set_container(
        self,
        pod: PodHandle,
        name: str,
        *,
        running: bool = True,
        ready: bool = True,
        started_at: float | None = None,
        exit_code: int = 1,
    ) -> None:
        """Let one container run (again) or end; the pod's phase and conditions follow.

        A container that runs after an end has restarted: its count grows, its id is new.
        `started_at` is in Unix seconds, and kept to the second as Kubernetes does.
        """

        def changed(status: Json, now: float) -> Json:
            if not running:
                return podstatus.with_ended(status, name, exit_code=exit_code, now=now)
            return podstatus.with_running(status, name, ready=ready, started_at=started_at, now=now)

        self._change(pod, changed)

    def restart_container(self, pod: PodHandle, name: str, *, ready: bool = True) -> None:
        """Let one container end and start again."""
        self.set_container(pod, name, running=False)
        self.set_container(pod, name, ready=ready)

    def set_ready(self, pod: PodHandle, value: str, reason: str = "") -> None:
        """Set the pod's Ready condition alone: Unknown is what becomes of pods on a lost node."""
        self._change(pod, lambda s, now: podstatus.with_condition(s, "Ready", value, reason, now))

    def get(self, pod: PodHandle) -> Json:
        """Return the pod object as the API server has it."""
        return self._api("GET", pod.path)

    def _change(self, pod: PodHandle, change: Callable[[Json, float], Json]) -> None:
        status = change(self.get(pod)["status"], time.time())
        self._api("PATCH", f"{pod.path}/status", {"status": status})

    # --- tokens -----------------------------------------------------------------------

    def issue_token(
        self,
        pod: PodHandle,
        service_account: str | None = None,
        audiences: Sequence[str] | None = None,
        seconds: int = TOKEN_SECONDS,
    ) -> str:
        """Return a token bound to the pod, of the pod's own service account unless told otherwise."""
        account = service_account or pod.service_account
        reference = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        spec: Json = {"boundObjectRef": reference, "expirationSeconds": seconds}
        if audiences:
            spec["audiences"] = list(audiences)
        path = f"/api/v1/namespaces/{pod.namespace}/serviceaccounts/{account}/token"
        return self._api("POST", path, {"spec": spec})["status"]["token"]

    def project(
        self,
        pod: PodHandle,
        folder: Path,
        service_account: str | None = None,
        audiences: Sequence[str] = (),
    ) -> Path:
        """Write token, ca.crt and namespace into a folder as into a pod's volume; return the folder."""
        projection = _Projection(AtomicVolume(folder), service_account, tuple(audiences))
        self._projections.setdefault(pod.uid, []).append(projection)
        self._write(pod, projection)
        return folder

    def rotate(self, pod: PodHandle) -> None:
        """Put a new token into every folder that `project` has written for the pod."""
        for projection in self._projections[pod.uid]:
            self._write(pod, projection)

    def _write(self, pod: PodHandle, projection: _Projection) -> None:
        token = self.issue_token(pod, projection.service_account, projection.audiences)
        projection.volume.write(
            {"token": token, "ca.crt": self._ca_file.read_bytes(), "namespace": pod.namespace}
        )

    # --- pods go ----------------------------------------------------------------------

    def delete(self, pod: PodHandle, grace: int = 30) -> None:
        """Ask for the pod's deletion as a user does: it is terminating until `finish`."""
        self._delete(pod, grace)

    def finish(self, pod: PodHandle) -> None:
        """End every container and let the pod go, as a kubelet does with a terminating pod."""
        for name in podstatus.containers(self.get(pod)["spec"]):
            if "terminated" not in self.container(pod, name)["state"]:
                self.set_container(pod, name, running=False, exit_code=0)
        self._delete(pod, 0)

    def remove(self, pod: PodHandle) -> None:
        """Let the pod be gone at once (a forced deletion)."""
        self._delete(pod, 0)

    def container(self, pod: PodHandle, name: str) -> Json:
        """Return the status of one of the pod's containers."""
        return podstatus.container_status(self.get(pod)["status"], name)

    def _delete(self, pod: PodHandle, grace: int) -> None:
        options = {"gracePeriodSeconds": grace, "preconditions": {"uid": pod.uid}}
        self._api("DELETE", pod.path, options)
