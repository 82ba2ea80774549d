"""A stand-in for LLMKube's own LoRAAdapter controller: what it does to an adapter, one reconcile at a time; its CRD.

Its finalizer first; then (after a request through the Service, which is left out here) a PUT of the whole status as its
Go types know it, so that fields of others are dropped. Where the finalizer is refused it does nothing else; from an
adapter that is being deleted it takes the finalizer, whatever happens. Facts: its source, and a trial with the real
operator.
"""

from typing import Any

import yaml

from tests.rig.apiclient import ApiClient
from tests.rig.install import CRDS

FINALIZER = "loraadapter.inference.llmkube.dev/finalizer"
KNOWN = ("conditions", "lastLoadedAt", "loadedPath")
COLUMNS = ("Service", "Adapter", "Loaded", "Age")


def crd() -> dict[str, Any]:
    """LLMKube's CRD of LoRAAdapter: ours without what this project adds."""
    made: dict[str, Any] = yaml.safe_load((CRDS / "loraadapters.yaml").read_text())
    (version,) = made["spec"]["versions"]
    del version["selectableFields"]
    columns = version["additionalPrinterColumns"]
    version["additionalPrinterColumns"] = [one for one in columns if one["name"] in COLUMNS]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    for name in status.keys() - set(KNOWN):
        del status[name]
    return made


class Llmkube:
    """Reconciles LoRAAdapters of one namespace."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self._client = client
        self._path = f"/apis/inference.llmkube.dev/v1alpha1/namespaces/{namespace}/loraadapters"

    def reconcile(self, name: str) -> str:
        """Answer why it was kept off; "" where it did what it does."""
        adapter = self._client.api("GET", f"{self._path}/{name}")
        finalizers = adapter["metadata"].setdefault("finalizers", [])
        if "deletionTimestamp" in adapter["metadata"]:
            if FINALIZER in finalizers:
                finalizers.remove(FINALIZER)
                self._client.raw("PUT", f"{self._path}/{name}", adapter)
            return ""
        if FINALIZER not in finalizers:
            finalizers.append(FINALIZER)
            status, body = self._client.raw("PUT", f"{self._path}/{name}", adapter)
            if status == 409:
                return self.reconcile(name)
            if status >= 400:
                return body
        self._write_status(name)
        return ""

    def _write_status(self, name: str) -> None:
        adapter = self._client.api("GET", f"{self._path}/{name}")
        before = adapter.get("status", {})
        status: dict[str, Any] = {key: before[key] for key in KNOWN if key in before}
        said = {
            "type": "Loaded",
            "status": "False",
            "reason": "LoadUnsuccessful",
            "message": "load failed: HTTP 400",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": adapter["metadata"]["generation"],
        }
        others = [c for c in status.get("conditions", []) if c["type"] != "Loaded"]
        adapter["status"] = status | {"conditions": [*others, said]}
        self._client.raw("PUT", f"{self._path}/{name}/status", adapter)
