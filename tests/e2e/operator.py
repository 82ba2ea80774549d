"""LLMKube's part where it is not: its CRDs, annotations from InferenceServices onto pods, its LoRAAdapter controller.

It runs in a thread of the tests and asks the API server as LLMKube's own service account.
"""

import base64
import json
import ssl
import threading
from typing import Any, Self
from urllib.parse import urlsplit

import yaml

from tests.e2e.cluster import Cluster
from tests.rig.apiclient import ApiClient, ApiError
from tests.rig.install import MANIFESTS
from tests.rig.llmkube import Llmkube, crd

NAMESPACE = "llmkube-system"
ACCOUNT = "llmkube-controller-manager"
PAUSE_SECONDS = 1.0
API = "/apis/inference.llmkube.dev/v1alpha1"


class Operator:
    """Reconciles what there is, pass after pass, until `stop`."""

    def __init__(self, cluster: Cluster) -> None:
        _install(cluster)
        self._client = _client(cluster)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="llmkube", daemon=True)
        self.passes = 0
        """How many times it has gone through everything."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stopped.wait(PAUSE_SECONDS):
            try:
                self._pass()
                self.passes += 1
            except (ApiError, OSError):
                continue  # it tries again, as a controller does

    def _pass(self) -> None:
        for service in self._client.api("GET", f"{API}/inferenceservices")["items"]:
            self._annotate(service)
        for adapter in self._client.api("GET", f"{API}/loraadapters")["items"]:
            metadata = adapter["metadata"]
            Llmkube(self._client, metadata["namespace"]).reconcile(metadata["name"])

    def _annotate(self, service: dict[str, Any]) -> None:
        """Give the pods of a service the annotations that it asks for."""
        metadata = service["metadata"]
        path = f"/apis/apps/v1/namespaces/{metadata['namespace']}/deployments/{metadata['name']}"
        wanted = service["spec"].get("podAnnotations", {})
        template = self._client.api("GET", path)["spec"]["template"]["metadata"]
        if not wanted.items() <= template.get("annotations", {}).items():
            change = {"spec": {"template": {"metadata": {"annotations": wanted}}}}
            self._client.api("PATCH", path, change)


def _install(cluster: Cluster) -> None:
    metadata = {"name": ACCOUNT, "namespace": NAMESPACE}
    everything = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
    cluster.apply(
        yaml.safe_load((MANIFESTS / "inferenceservice-crd.yaml").read_text()),
        crd(),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "llmkube-stand-in"},
            "roleRef": everything | {"name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", **metadata}],
        },
    )
    cluster.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=30s")


def _client(cluster: Cluster) -> ApiClient:
    token = cluster.kubectl("-n", NAMESPACE, "create", "token", ACCOUNT, "--duration=2h").strip()
    told = json.loads(cluster.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    server = told["clusters"][0]["cluster"]
    authority = base64.b64decode(server["certificate-authority-data"]).decode()
    where = urlsplit(server["server"])
    assert where.hostname
    return ApiClient(
        where.hostname, where.port or 443, ssl.create_default_context(cadata=authority), token
    )
