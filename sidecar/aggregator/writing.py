"""Sends one status, or an adapter's finalizers, to the API server, and tells how that went as a value.

By merge patch with the resourceVersion that was folded, so that nothing is overwritten unseen. When to write, and
what to do about what happened, is for `loop`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sidecar.aggregator import reading
from sidecar.aggregator.records import Adapter
from sidecar.aggregator.sources import ADAPTERS
from sidecar.api import names
from sidecar.kube.apply import merge_patch
from sidecar.kube.client import Client
from sidecar.kube.errors import Conflict, KubeError


@dataclass(frozen=True, slots=True)
class Write:
    """One status to be written. `last`: the adapter is ours no longer after it. `again`: when to look after it."""

    adapter: Adapter
    patch: Mapping[str, Any]
    wanted: Mapping[str, Any]
    last: bool = False
    corrective: bool = False
    again: float | None = None


@dataclass(frozen=True, slots=True)
class Marking:
    """The finalizers that an adapter should have."""

    adapter: Adapter
    finalizers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """It was stored, and this is what is stored now."""

    stored: Adapter

    def pruned(self, names: Collection[str], write: Write) -> set[str]:
        """Which of these parts of the wanted status were not kept."""
        return {name for name in names if self.stored.status.get(name) != write.wanted[name]}


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Somebody else wrote the object first, and this is what is stored now."""

    fresh: Adapter


@dataclass(frozen=True, slots=True)
class Failed:
    """It was not stored, or that is not known."""

    error: KubeError


Outcome = Written | Overtaken | Failed


async def send(client: Client, write: Write) -> Outcome:
    """Write the status; raises nothing that the network or the server does."""
    return await _patch(client, write.adapter, {"status": write.patch}, "status")


async def mark(client: Client, marking: Marking) -> Outcome:
    """Write the finalizers; raises nothing that the network or the server does."""
    patch = {"metadata": {"finalizers": list(marking.finalizers)}}
    return await _patch(client, marking.adapter, patch)


async def _patch(
    client: Client, adapter: Adapter, patch: Mapping[str, Any], subresource: str | None = None
) -> Outcome:
    try:
        answer = await merge_patch(
            client,
            ADAPTERS,
            adapter.namespace,
            adapter.name,
            patch,
            subresource=subresource,
            resource_version=adapter.resource_version,
            manager=names.AGGREGATOR_MANAGER,
        )
        return Written(reading.adapter(answer or {}))
    except Conflict:
        return await _read_again(client, adapter)
    except KubeError as error:
        return Failed(error)


async def _read_again(client: Client, adapter: Adapter) -> Outcome:
    try:
        body = await client.request("GET", ADAPTERS.path(adapter.namespace, adapter.name))
    except KubeError as error:
        return Failed(error)
    return Overtaken(reading.adapter(body))
