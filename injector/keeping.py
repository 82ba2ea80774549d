"""Keeps the certificate that is served, and the caBundle by which the API server verifies it, in step.

Two sources. `SelfManaged`: one Secret for all replicas, of which each look reads what is there, decides by
`certificates`, and writes with the version that was read; whoever comes second reads again. `Mounted`: the files of
cert-manager or of a hand, which somebody else also puts into the caBundle. Both look every few seconds, so a Secret
deleted, a file swapped or a bundle broken is found by itself; nothing is asked while a review is answered.

Order is what keeps reviews from failing: a leaf is shown only once the installed bundle verifies it, unless nothing
that it verifies is shown now.
"""

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol

from injector.bundles import Installed, decoded, install, installed
from injector.certificates import CERT, KEY, advance, read
from injector.tls import Serving, Shown, UnusableError, verify
from sidecar.kube.backoff import Backoff
from sidecar.kube.client import Client, Resource
from sidecar.kube.errors import Conflict, Forbidden, KubeError, NotFound
from sidecar.kube.owning import owner_references

log = logging.getLogger(__name__)

SECRETS: Final = Resource("", "v1", "secrets")
LOOK: Final = 10.0
"""Seconds between two looks."""
NOTICE: Final = 1.0
"""Seconds that API servers, who learn of a caBundle by watching, get before a certificate is shown that needs it."""
_RACES: Final = 5
"""How often one look reads again because another replica wrote first."""
_MOUNT: Final = "..data"
"""What the kubelet swaps: a link to the directory that holds all files of one version."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where things are: the webhook's configuration, the names by which the API server calls us, the Secret."""

    webhook: str
    hosts: tuple[str, ...]
    namespace: str = ""
    secret: str = ""
    owner: str = ""
    """The Deployment in that namespace with which the Secret goes."""


class Keeper(Protocol):
    """What the process needs of either source."""

    async def run(self) -> NoReturn:
        """Look for ever; ends by cancellation only."""

    def ready(self) -> tuple[bool, str]:
        """Whether the API server, by the caBundle that is installed, takes what is shown; with a sentence."""


@dataclass(slots=True)
class _Common:
    """What both sources do: look and retry, tell a failure once, and say whether what is shown is trusted."""

    client: Client
    place: Place
    serving: Serving
    dice: Callable[[], float]
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    trusted: Installed | None = field(default=None, init=False)
    trouble: str = field(default="", init=False)

    async def run(self) -> NoReturn:
        backoff = Backoff(1.0, LOOK, self.dice)
        while True:
            if await self.attempt():
                backoff.reset()
                await self.sleep(LOOK)
            else:
                await self.sleep(0.1 + backoff.next())

    async def attempt(self) -> bool:
        """Look once; whether all is well. Raises nothing of the API server's or of the files'."""
        try:
            await self.look()
        except (KubeError, UnusableError, OSError) as error:
            self._complain(str(error) or type(error).__name__)
            return False
        if self.trouble:
            log.info("the certificate and the caBundle are in order again")
        self.trouble = ""
        return True

    async def look(self) -> None:
        raise NotImplementedError

    def ready(self) -> tuple[bool, str]:
        if self.trusted is None:
            return False, self.trouble or "the caBundle has not been read yet"
        if not self.trusted.bundles:
            return False, f"{self.place.webhook} has no webhook"
        for name, bundle in self.trusted.bundles.items():
            try:
                self.serving.verify(bundle, self.place.hosts[0])
            except UnusableError as error:
                return False, f"the caBundle of {name} does not verify the certificate: {error}"
        return True, "the installed caBundle verifies the certificate"

    def _show(self, pair: Shown) -> None:
        if self.serving.show(pair):
            log.info("serves a new certificate, until %d (Unix time)", self.serving.not_after)

    def _complain(self, text: str) -> None:
        if text != self.trouble:
            log.warning("certificates: %s", text)
        self.trouble = text


@dataclass(slots=True)
class SelfManaged(_Common):
    """Certificates of our own, in one Secret. `wall` answers the time of day (aware)."""

    wall: Callable[[], datetime] = field(kw_only=True)

    async def look(self) -> None:
        """Read, decide, write, install and show: once, or again where another replica was quicker."""
        # Before the Secret: what is decided on it must not be newer than what is known to be trusted.
        unread = await self._read_trusted()
        for _ in range(_RACES):
            try:
                bundle, pair = await self._secret()
                break
            except (Conflict, NotFound):
                continue
        else:
            raise UnusableError("other writers of the Secret were always quicker")
        try:
            if unread is not None:
                raise unread
            if self.trusted is not None and self.trusted.lacks(bundle):
                self.trusted = await install(self.client, self.place.webhook, self.trusted, bundle)
                log.info("installed the caBundle in %s", self.place.webhook)
                if self.serving.shown is not None:
                    await self.sleep(NOTICE)
        finally:
            self._show_in_turn(pair)

    async def _read_trusted(self) -> KubeError | None:
        """What is wrong with the caBundle must not keep the certificate from being made."""
        try:
            self.trusted = await installed(self.client, self.place.webhook)
        except (Forbidden, NotFound) as error:
            self.trusted = None
            return error
        except KubeError as error:
            return error
        return None

    async def _secret(self) -> tuple[bytes, Shown]:
        """One round on the Secret: the bundle and leaf in it. Raises Conflict and NotFound, to go again."""
        place, now = self.place, self.wall()
        path = SECRETS.path(place.namespace, place.secret)
        try:
            body: dict[str, Any] | None = await self.client.request("GET", path)
        except NotFound:
            body = None
        held = {name: decoded(value) for name, value in ((body or {}).get("data") or {}).items()}
        trusted = self.trusted.all if self.trusted else ()
        state, done = advance(read(held, place.hosts, now), place.hosts, trusted, now)
        data = state.data()
        if body is None:
            new = self._new(data, await owner_references(self.client, place.namespace, place.owner))
            await self.client.request("POST", SECRETS.path(place.namespace), body=new)
        elif done or data != {name: held.get(name) for name in data}:
            changed = {**body, "data": {**(body.get("data") or {}), **_encoded(data)}}
            await self.client.request("PUT", path, body=changed)
        if done:
            log.info("%s in the Secret %s/%s", ", ".join(done), place.namespace, place.secret)
        return state.bundle, Shown(data[CERT], data[KEY])

    def _new(self, data: Mapping[str, bytes], owners: list[dict[str, Any]]) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": self.place.secret, "namespace": self.place.namespace}
        if owners:
            metadata["ownerReferences"] = owners
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "type": "kubernetes.io/tls",
            "data": _encoded(data),
        }

    def _show_in_turn(self, pair: Shown) -> None:
        """Show the leaf, unless what is shown now is trusted and the leaf is not yet."""
        if pair == self.serving.shown:
            return
        if self.serving.shown and self.ready()[0] and self.trusted:
            for bundle in self.trusted.all:
                verify(pair, bundle, self.place.hosts[0])
        self._show(pair)


@dataclass(slots=True)
class Mounted(_Common):
    """Certificates of somebody else, in files: tls.crt and tls.key in a directory that is mounted."""

    directory: Path = field(kw_only=True)

    async def look(self) -> None:
        """Show what the files hold; what cannot be used is said, and the former stays."""
        self._show(await asyncio.to_thread(_pair, self.directory))
        self.trusted = await installed(self.client, self.place.webhook)


def _pair(directory: Path) -> Shown:
    """Certificate and key of one version: the link is followed once, so a swap in between mixes nothing."""
    link = directory / _MOUNT
    version = link.resolve() if link.exists() else directory
    return Shown((version / CERT).read_bytes(), (version / KEY).read_bytes())


def _encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(value).decode() for name, value in data.items()}
