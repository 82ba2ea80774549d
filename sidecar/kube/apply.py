"""Writes that are silent when nothing differs.

What differs is a JSON merge patch (RFC 7386): it names only what is to change, so fields of others survive, and one
that names nothing is not sent. When to write, and what to do about a Conflict, is the caller's to decide.
"""

from collections.abc import Mapping
from typing import Any

from sidecar.kube.client import MERGE_PATCH, Client, Resource


def difference(current: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """The merge patch that makes `wanted` of `current`; None where there is nothing to change.

    Objects are compared field by field, lists as a whole. A null counts as absent, which is all that a merge patch
    can say. To change a part of an object only, hand in that part of both.
    """
    patch: dict[str, Any] = {}
    for name in current.keys() | wanted.keys():
        have, want = current.get(name), wanted.get(name)
        if isinstance(have, Mapping) and isinstance(want, Mapping):
            if deeper := difference(have, want):
                patch[name] = deeper
        elif have != want:
            patch[name] = want
    return patch or None


async def create(
    client: Client,
    resource: Resource,
    namespace: str | None,
    body: Mapping[str, Any],
    *,
    manager: str | None = None,
) -> dict[str, Any]:
    """Creates an object and returns it as stored. Raises Conflict (`already_exists`) where the name is taken."""
    path = resource.path(namespace)
    return await client.request("POST", path, params=_manager(manager), body=body)


async def merge_patch(
    client: Client,
    resource: Resource,
    namespace: str | None,
    name: str,
    patch: Mapping[str, Any] | None,
    *,
    subresource: str | None = None,
    resource_version: str | None = None,
    manager: str | None = None,
) -> dict[str, Any] | None:
    """Patches an object and returns it as stored; None, and no request, where the patch is empty.

    With `resource_version`, raises Conflict where the object has been written since. `manager` is the name under
    which Kubernetes notes whose the fields are.
    """
    if not patch:
        return None
    body = dict(patch)
    if resource_version is not None:
        body["metadata"] = {**body.get("metadata", {}), "resourceVersion": resource_version}
    return await client.request(
        "PATCH",
        resource.path(namespace, name, subresource),
        params=_manager(manager),
        body=body,
        content_type=MERGE_PATCH,
    )


def _manager(name: str | None) -> dict[str, str] | None:
    return {"fieldManager": name} if name else None
