"""A service as its users run it, from real parts: pods with an engine and an agent each, and the aggregator.

Every part is a process of its own. Agents find token, CA and namespace in files as in a cluster, and act under the
permissions that a pod's service account has there. The kubelet's part is played: what it says of containers is kept
true to the processes that run.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from sidecar.api import names
from sidecar.api.settings import AgentSettings
from tests.rig.controlplane import ControlPlane
from tests.rig.engines import EngineProcess, Kind
from tests.rig.kubelet import Kubelet, PodHandle, pod_manifest
from tests.rig.polling import until
from tests.rig.process import Process

ROOT = Path(__file__).parents[2]
INFERENCE = f"/apis/{names.INFERENCE_GROUP}/{names.VERSION}"
REPORTS = f"/apis/{names.PREFIX}/{names.VERSION}"
AGGREGATOR = ("lora-sidecar", "lora-sidecar-aggregator")
DAY = 24 * 3600


@dataclass(slots=True)
class ServedPod:
    """One pod of the service, with the processes that its containers stand for."""

    handle: PodHandle
    engine: EngineProcess
    folder: Path
    settings: dict[str, str]
    agent: Process | None = None

    @property
    def name(self) -> str:
        return self.handle.name


@dataclass(slots=True)
class Stack:
    """A service in a namespace. `adapters` is the folder that stands for the volume with the weights."""

    controlplane: ControlPlane
    kubelet: Kubelet
    namespace: str
    folder: Path
    service: str = "chat"
    kind: Kind = "simulated"
    engine_args: tuple[str, ...] = ()
    version: str | None = None
    pods: list[ServedPod] = field(default_factory=list)
    aggregator: Process | None = None
    _aggregators: list[Process] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.adapters.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def adapters(self) -> Path:
        return self.folder / "adapters"

    # --- the service and its pods -------------------------------------------------------------

    def create_service(self, runtime: str = names.SGLANG_RUNTIME) -> None:
        """Create the InferenceService, which LLMKube's users do."""
        body = {
            "apiVersion": f"{names.INFERENCE_GROUP}/{names.VERSION}",
            "kind": names.SERVICE_KIND,
            "metadata": {"name": self.service},
            "spec": {"runtime": runtime, "modelRef": "tiny"},
        }
        self.controlplane.api(
            "POST", f"{INFERENCE}/namespaces/{self.namespace}/{names.SERVICE_PLURAL}", body
        )

    def add_pod(
        self,
        name: str,
        *,
        agent: bool = True,
        wait: bool = True,
        host: str = "127.0.0.1",
        settings: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> ServedPod:
        """Create an opted-in pod and start its engine and its agent. With `wait` its engine is up on return."""
        folder = self.folder / "pods" / name
        folder.mkdir(parents=True, exist_ok=True)
        version = {"version": self.version} if self.version else {}
        engine = EngineProcess.start(
            self.kind, folder, host=host, extra_args=self.engine_args, wait=wait, **version
        )
        marks = {names.INJECT: "true", names.INJECTED_CONTAINER: names.ENGINE_CONTAINER}
        manifest = pod_manifest(
            name,
            self.service,
            labels={names.INJECTED_LABEL: "true"},
            annotations=marks | dict(annotations or {}),
        )
        handle = self.kubelet.create_pod(self.namespace, manifest, start=False)
        self.kubelet.start(handle, ready=wait)
        pod = ServedPod(handle, engine, folder, dict(settings or {}))
        self.pods.append(pod)
        self.kubelet.project(handle, folder / "credentials")
        if agent:
            self.start_agent(pod)
        return pod

    def start_agent(self, pod: ServedPod) -> Process:
        """Start the agent of a pod as its container would be."""
        values = {
            "pod_name": pod.name,
            "pod_namespace": self.namespace,
            "pod_uid": pod.handle.uid,
            "node_name": pod.handle.node,
            "service": self.service,
            "engine_port": str(pod.engine.port),
            "shared": str(self.adapters),
            "credentials": str(pod.folder / "credentials"),
            "listen_port": "0",
        } | pod.settings
        settings, warnings = AgentSettings.lenient(values)
        if warnings:
            raise ValueError("; ".join(warnings))
        pod.agent = Process(
            [sys.executable, "-m", "sidecar.agent"],
            pod.folder / "agent.log",
            environment=self.environment(settings.to_env()),
        )
        return pod.agent

    def environment(self, ours: Mapping[str, str]) -> dict[str, str]:
        """The environment of a process in a pod, with what is its own."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in ("KUBECONFIG",) and not name.startswith("LORA_SIDECAR_")
        }
        return inherited | self.controlplane.service_environment | {"PYTHONPATH": str(ROOT)} | ours

    def restart_agent(self, pod: ServedPod) -> None:
        """End the agent in good order, and start it again."""
        if pod.agent:
            pod.agent.stop()
        self.start_agent(pod)

    def kill_engine(self, pod: ServedPod) -> None:
        """The engine dies; its container with it."""
        pod.engine.kill()
        self.kubelet.set_container(pod.handle, names.ENGINE_CONTAINER, running=False, exit_code=137)

    def restart_engine(self, pod: ServedPod) -> None:
        """The kubelet starts the engine's container again; returns when it is up."""
        pod.engine.launch(wait=False)
        self.kubelet.set_container(pod.handle, names.ENGINE_CONTAINER, ready=False)
        pod.engine.wait_ready()
        self.kubelet.set_container(pod.handle, names.ENGINE_CONTAINER, ready=True)

    def remove_pod(self, pod: ServedPod) -> None:
        """The pod is deleted and its processes end."""
        self.kubelet.delete(pod.handle)
        self._end(pod)
        self.kubelet.finish(pod.handle)
        self.pods.remove(pod)

    # --- the aggregator -----------------------------------------------------------------------

    def start_aggregator(self, *more: str) -> Process:
        """Start the aggregator under its own service account, or one more, with these arguments besides."""
        self.aggregator = self.run_aggregator("--listen-port", "0", *more)
        return self.aggregator

    def run_aggregator(self, *arguments: str) -> Process:
        """Run the aggregator's program with these arguments, under its own service account."""
        namespace, account = AGGREGATOR
        token = self.controlplane.service_account_token(namespace, account, seconds=DAY)
        kubeconfig = self.controlplane.kubeconfig_of(token, self.folder / "aggregator.kubeconfig")
        command = [sys.executable, "-m", "sidecar.aggregator", *arguments]
        process = Process(
            [*command, "--kubeconfig", str(kubeconfig)],
            self.folder / f"aggregator-{len(self._aggregators)}.log",
            environment=self.environment({"TMPDIR": str(self.folder)}),
        )
        self._aggregators.append(process)
        return process

    # --- adapters ------------------------------------------------------------------------------

    def adapter(
        self,
        name: str,
        *,
        path: str | None = None,
        handle: str | None = None,
        namespace: str | None = None,
        service: str | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Create a LoRAAdapter for the service; its path is by default the folder of its name."""
        ref = {"name": service or self.service}
        if namespace and namespace != self.namespace:
            ref["namespace"] = self.namespace
        body = {
            "apiVersion": f"{names.INFERENCE_GROUP}/{names.VERSION}",
            "kind": names.ADAPTER_KIND,
            "metadata": {"name": name, "annotations": dict(annotations or {})},
            "spec": {
                "inferenceServiceRef": ref,
                "name": handle or name,
                "path": path or str(self.adapters / name),
            },
        }
        where = f"{INFERENCE}/namespaces/{namespace or self.namespace}/{names.ADAPTER_PLURAL}"
        return self.controlplane.api("POST", where, body)

    def get_adapter(self, name: str, namespace: str | None = None) -> dict[str, Any]:
        """The LoRAAdapter as the API server has it."""
        where = f"{INFERENCE}/namespaces/{namespace or self.namespace}/{names.ADAPTER_PLURAL}"
        return self.controlplane.api("GET", f"{where}/{name}")

    def delete_adapter(self, name: str) -> None:
        """Delete a LoRAAdapter as a user does."""
        where = f"{INFERENCE}/namespaces/{self.namespace}/{names.ADAPTER_PLURAL}"
        self.controlplane.api("DELETE", f"{where}/{name}")

    def report(self, pod: ServedPod) -> dict[str, Any]:
        """The status of a pod's report; empty where there is none yet."""
        where = f"{REPORTS}/namespaces/{self.namespace}/{names.REPORT_PLURAL}"
        items = self.controlplane.api("GET", where)["items"]
        found = [item for item in items if item["metadata"]["name"] == pod.name]
        return found[0].get("status") or {} if found else {}

    def reported(self, pod: ServedPod) -> dict[str, str]:
        """The reason of each adapter in a pod's report, by "namespace/name"."""
        return {e["adapter"]: e["reason"] for e in self.report(pod).get("adapters", [])}

    def until_reported(
        self, pod: ServedPod, wanted: Mapping[str, str], timeout: float = 30
    ) -> None:
        """Wait until a pod's report gives these reasons, keyed by the adapter's name."""

        def there() -> bool:
            now = self.reported(pod)
            return all(
                now.get(f"{self.namespace}/{name}") == reason for name, reason in wanted.items()
            )

        until(there, f"{pod.name} reports {dict(wanted)}", timeout=timeout)

    # --- the end -------------------------------------------------------------------------------

    def stop(self) -> None:
        """End every process that was started."""
        for pod in list(self.pods):
            self._end(pod)
        for process in self._aggregators:
            process.stop()

    def _end(self, pod: ServedPod) -> None:
        if pod.agent:
            pod.agent.stop()
        pod.engine.stop()
