"""The caBundle that is installed: read from the MutatingWebhookConfiguration, and kept in it by server-side apply.

Only that one field is applied, so whatever else of the configuration others keep (Helm, a hand) stays theirs. It is
applied only where it differs, by force: that a hand has changed it is the very thing to mend.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sidecar.api.names import PREFIX
from sidecar.kube.client import APPLY_PATCH, Client
from sidecar.kube.resources import WEBHOOKS

MANAGER: Final = f"{PREFIX}/ca-bundle"


@dataclass(frozen=True, slots=True)
class Installed:
    """The bundles (PEM) in a configuration, by the webhook's name; empty where none can be read."""

    bundles: Mapping[str, bytes]

    @property
    def all(self) -> tuple[bytes, ...]:
        """One for each webhook."""
        return tuple(self.bundles.values())

    def lacks(self, bundle: bytes) -> bool:
        """Whether one of the webhooks has another bundle."""
        return any(one != bundle for one in self.bundles.values())


async def installed(client: Client, name: str) -> Installed:
    """What is installed now. Raises KubeError."""
    body = await client.request("GET", WEBHOOKS.path(name=name))
    return _read(body)


async def install(client: Client, name: str, before: Installed, bundle: bytes) -> Installed:
    """Install the bundle in each webhook of the configuration; answers what is then there. Raises KubeError."""
    encoded = base64.b64encode(bundle).decode()
    webhooks = [
        {"name": webhook, "clientConfig": {"caBundle": encoded}} for webhook in before.bundles
    ]
    body = await client.request(
        "PATCH",
        WEBHOOKS.path(name=name),
        params={"fieldManager": MANAGER, "force": "true"},
        body={
            "apiVersion": WEBHOOKS.api_version,
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": webhooks,
        },
        content_type=APPLY_PATCH,
    )
    return _read(body)


def _read(body: Mapping[str, Any]) -> Installed:
    found = {}
    for webhook in body.get("webhooks") or ():
        config = webhook.get("clientConfig") or {}
        found[str(webhook.get("name"))] = decoded(config.get("caBundle"))
    return Installed(found)


def decoded(value: object) -> bytes:
    """The bytes of a base64 field; empty where it is none."""
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except (binascii.Error, ValueError):
        return b""
