"""Whose our own objects are: the Deployment that runs us, so that they go when it does."""

import logging
from typing import Any, Final

from sidecar.kube.client import Client, Resource
from sidecar.kube.errors import Forbidden, NotFound

log = logging.getLogger(__name__)

DEPLOYMENTS: Final = Resource("apps", "v1", "deployments")


async def owner_references(client: Client, namespace: str, deployment: str) -> list[dict[str, Any]]:
    """The owner references that name a Deployment; none for "", nor where it may not be read or is not there.

    Such an owner costs the cleaning up, not the work. Raises KubeError where the API server does not say.
    """
    if not deployment:
        return []
    try:
        body = await client.request("GET", DEPLOYMENTS.path(namespace, deployment))
        uid = body["metadata"]["uid"]
    except (Forbidden, NotFound) as error:
        log.warning("our own objects will stay behind, their owner cannot be read: %s", error)
        return []
    kind = {"apiVersion": DEPLOYMENTS.api_version, "kind": "Deployment"}
    return [kind | {"name": deployment, "uid": uid}]
