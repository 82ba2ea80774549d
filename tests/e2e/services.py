"""What LLMKube's users have: InferenceServices with their Deployments, a volume with adapters, LoRAAdapters."""

from typing import Any

from tests.e2e.cluster import Cluster

Object = dict[str, Any]
GROUP = "inference.llmkube.dev/v1alpha1"
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "fsGroup": 102,
    "seccompProfile": {"type": "RuntimeDefault"},
}
PLACE = {"name": "adapters", "mountPath": "/adapters"}


def namespace(name: str, level: str) -> Object:
    """A namespace that enforces this level of Pod Security."""
    labels = {"pod-security.kubernetes.io/enforce": level}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def volume(cluster: Cluster, where: str) -> list[Object]:
    """A claim for adapters: a folder of the node, or what somebody's cluster provides; and a pod that writes to it."""
    size = {"requests": {"storage": "64Mi"}}
    spec: Object = {"accessModes": ["ReadWriteOnce"], "resources": size}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "adapters", "namespace": where},
        "spec": spec,
    }
    made: list[Object] = [claim]
    if cluster.node:
        folder = cluster.work / f"volume-{where}"
        folder.mkdir()
        folder.chmod(0o777)
        spec |= {"storageClassName": "", "volumeName": f"adapters-{where}"}
        made.insert(0, _volume_of_the_node(where, str(folder)))
    shell = {
        "name": "shell",
        "image": cluster.engine,
        "command": ["sleep", "infinity"],
        "securityContext": RESTRICTED,
        "volumeMounts": [PLACE],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "files", "namespace": where},
        "spec": {
            "securityContext": POD_SECURITY,
            "terminationGracePeriodSeconds": 1,
            "containers": [shell],
            "volumes": [_claimed()],
        },
    }
    return [*made, pod]


def _volume_of_the_node(where: str, folder: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"adapters-{where}"},
        "spec": {
            "capacity": {"storage": "64Mi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": folder, "type": "Directory"},
            "storageClassName": "",
            "claimRef": {"namespace": where, "name": "adapters"},
        },
    }


def _claimed() -> Object:
    return {"name": "adapters", "persistentVolumeClaim": {"claimName": "adapters"}}


def simulated(cluster: Cluster) -> Object:
    """An engine's container with the simulated SGLang, as Pod Security wants it."""
    return {
        "name": "sglang",
        "image": cluster.engine,
        "command": ["python", "-m", "tests.fakes.sglang"],
        "args": ["--host", "0.0.0.0", "--port", "30000"],
        "ports": [{"name": "http", "containerPort": 30000}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 2},
        "securityContext": RESTRICTED,
        "volumeMounts": [PLACE | {"readOnly": True}],
    }


def service(name: str, where: str, engine: Object, **pod: Any) -> list[Object]:
    """An InferenceService, and the Deployment that LLMKube makes of it; `pod` adds to the pod's spec."""
    labels = {
        "app": name,
        "inference.llmkube.dev/service": name,
        "inference.llmkube.dev/runtime": "sglang",
    }
    spec = {
        "securityContext": POD_SECURITY,
        "terminationGracePeriodSeconds": 5,
        "containers": [engine],
        "volumes": [_claimed()],
    } | pod
    metadata = {"name": name, "namespace": where}
    return [
        {
            "apiVersion": GROUP,
            "kind": "InferenceService",
            "metadata": metadata,
            "spec": {"runtime": "sglang", "modelRef": "tiny"},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        },
    ]


def lora(name: str, where: str, of: str) -> Object:
    """A LoRAAdapter whose files the volume has under its name."""
    return {
        "apiVersion": GROUP,
        "kind": "LoRAAdapter",
        "metadata": {"name": name, "namespace": where},
        "spec": {"inferenceServiceRef": {"name": of}, "name": name, "path": f"/adapters/{name}"},
    }
