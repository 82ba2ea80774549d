"""Namespaces for tests: ready when handed out, and emptied when given back.

No kubelet lets terminating pods go here, and no aggregator may be left to take a finalizer off: so both is done by
force, or a later test that looks at all namespaces would still see them.
"""

from functools import partial

from tests.rig.apiclient import ApiClient
from tests.rig.polling import until

ADAPTERS = "/apis/inference.llmkube.dev/v1alpha1/namespaces/{}/loraadapters"


def create_namespace(client: ApiClient, name: str) -> str:
    """Create a namespace and return its name when pods can be created in it."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    client.api("POST", "/api/v1/namespaces", body)
    for what in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
        until(partial(_exists, client, f"/api/v1/namespaces/{name}/{what}"), f"{what} in {name}")
    return name


def delete_namespace(client: ApiClient, name: str) -> None:
    """Delete a namespace with all that is in it; the end of it is not waited for. It may be gone already."""
    client.raw("DELETE", f"/api/v1/namespaces/{name}/pods", {"gracePeriodSeconds": 0})
    adapters = ADAPTERS.format(name)
    status, _ = client.raw("GET", adapters)
    if status == 200:
        for adapter in client.api("GET", adapters)["items"]:
            path = f"{adapters}/{adapter['metadata']['name']}"
            client.raw("PATCH", path, {"metadata": {"finalizers": None}})
    client.raw("DELETE", f"/api/v1/namespaces/{name}")


def _exists(client: ApiClient, path: str) -> bool:
    return client.raw("GET", path)[0] == 200
