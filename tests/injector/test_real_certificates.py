"""Certificates while a real API server calls: whatever happens to them, no admission fails.

Reviews come two ways at once: through the API server, which keeps its connections, and by handshakes of our own
against the caBundle that is installed at that moment, as a restarted API server would make them. Time is what the
keeper is told; what it makes then must also hold for the real clocks of the other side.
"""

import asyncio
import base64
import contextlib
import http.client
import json
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from injector import certificates as c
from injector.keeping import Mounted, Place, SelfManaged
from injector.review import review
from injector.server import Metrics, Server
from injector.settings import InjectorSettings
from injector.tls import Serving
from sidecar.api import names
from sidecar.kube.client import Client
from tests.injector.pods import pod
from tests.rig.controlplane import ControlPlane
from tests.rig.engines import free_port
from tests.rig.injector import CONFIGURATION, HOST, SECRET, configured
from tests.rig.polling import until
from tests.rig.volume import AtomicVolume

pytestmark = [pytest.mark.cluster, pytest.mark.field(77)]

PLACE = Place(names.WEBHOOK, (HOST,), "lora-sidecar", "lora-sidecar-injector-tls")
DAY = timedelta(days=1)
BY = 12
"""Reviews of each kind that must have been answered before the next thing happens."""


class Clock:
    """The time of day, and a little more as a test says."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead  # noqa: TID251 - the API server knows no other clock


class Traffic:
    """Admissions without a pause, while it is entered. Every one must succeed."""

    def __init__(self, controlplane: ControlPlane, namespace: str, port: int) -> None:
        self._controlplane = controlplane
        self._path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        self._port = port
        self.admitted, self.shaken, self.failures = 0, 0, []

    async def __aenter__(self) -> "Traffic":
        self._tasks = [asyncio.create_task(self._admit()) for _ in range(3)]
        self._tasks.append(asyncio.create_task(self._shake()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def go_on(self) -> None:
        """Return when some more have been answered, and all of them well."""
        admitted, shaken = self.admitted + BY, self.shaken + BY

        def enough() -> bool:
            return bool(self.failures) or (self.admitted >= admitted and self.shaken >= shaken)

        await asyncio.to_thread(until, enough, "more reviews are answered", timeout=60)
        assert self.failures == []

    async def _admit(self) -> None:
        body = {"apiVersion": "v1", "kind": "Pod", **pod()}
        while True:
            status, text = await asyncio.to_thread(
                self._controlplane.client().raw, "POST", self._path, body
            )
            if status == 201 and f'"name":"{names.AGENT_CONTAINER}"' in text.replace(": ", ":"):
                self.admitted += 1
            else:
                self.failures.append(text)

    async def _shake(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self._once)
                self.shaken += 1
            except OSError as error:
                self.failures.append(repr(error))

    def _once(self) -> None:
        trust = ssl.create_default_context(cadata=installed(self._controlplane).decode())
        connection = http.client.HTTPSConnection(HOST, self._port, context=trust, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", "/livez")
            connection.getresponse().read()


def installed(controlplane: ControlPlane) -> bytes:
    [hook] = controlplane.api("GET", CONFIGURATION)["webhooks"]
    return base64.b64decode(hook["clientConfig"]["caBundle"])


def secret(controlplane: ControlPlane) -> dict[str, bytes]:
    data = controlplane.api("GET", SECRET)["data"]
    return {name: base64.b64decode(value) for name, value in data.items()}


def seed(controlplane: ControlPlane, state: c.State) -> None:
    """An earlier life of ours left this."""
    data = {name: base64.b64encode(value).decode() for name, value in state.data().items()}
    body = {"metadata": {"name": PLACE.secret}, "type": "kubernetes.io/tls", "data": data}
    controlplane.api("POST", "/api/v1/namespaces/lora-sidecar/secrets", body)


@pytest.fixture
async def client(controlplane: ControlPlane, tmp_path: Path) -> AsyncIterator[Client]:
    token = controlplane.service_account_token("lora-sidecar", "lora-sidecar-injector")
    kubeconfig = controlplane.kubeconfig_of(token, tmp_path / "kubeconfig")
    async with Client.open(kubeconfig=str(kubeconfig)) as opened:
        yield opened


@pytest.fixture
def port(controlplane: ControlPlane, namespace: str):
    number = free_port()
    with configured(controlplane, number, [namespace]):
        yield number


def self_managed(client: Client, clock: Clock | None = None) -> SelfManaged:
    return SelfManaged(client, PLACE, Serving(), dice=lambda: 0.5, wall=clock or Clock())


@contextlib.asynccontextmanager
async def served(keeper: Any, port: int) -> AsyncIterator[None]:
    settings = InjectorSettings()
    metrics = Metrics(CollectorRegistry(), keeper.serving)
    server = Server(port, lambda body: review(body, settings), keeper.serving, metrics)
    task = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(20):
            await server.listening.wait()
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@contextlib.asynccontextmanager
async def trusted(controlplane: ControlPlane, namespace: str, port: int) -> AsyncIterator[Traffic]:
    """Traffic from the moment on when the API server has the first caBundle."""
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    body = {"apiVersion": "v1", "kind": "Pod", **pod()}

    def admitted() -> bool:
        return controlplane.client().raw("POST", path, body)[0] == 201

    await asyncio.to_thread(until, admitted, "the API server has the caBundle")
    async with Traffic(controlplane, namespace, port) as traffic:
        await traffic.go_on()
        yield traffic
        await traffic.go_on()


async def test_five_replicas_that_start_at_once_serve_one_certificate(
    controlplane, client, port
) -> None:
    keepers = [self_managed(client) for _ in range(5)]
    assert all(await asyncio.gather(*(one.attempt() for one in keepers)))
    assert {one.serving.shown.chain for one in keepers} == {secret(controlplane)[c.CERT]}
    assert len(c.authorities_in(installed(controlplane), Clock()())) == 1
    assert [one.ready()[0] for one in keepers] == [True] * 5


async def test_a_rotation_of_everything_under_load_fails_no_admission(
    controlplane, namespace, client, port
) -> None:
    clock = Clock()
    old = c.make_authority(clock() - c.CA_LIFE * 2 / 3 - DAY)
    leaf = c.make_leaf(old, [HOST], clock() - 61 * DAY)
    seed(controlplane, c.State((old.cert,), old, leaf))
    keeper, other = self_managed(client, clock), self_managed(client, clock)
    await keeper.attempt()
    assert len(c.authorities_in(installed(controlplane), clock())) == 2
    assert keeper.serving.shown.chain == leaf.cert.public_bytes(c.serialization.Encoding.PEM)
    async with (
        served(keeper, port),
        trusted(controlplane, namespace, port) as traffic,
    ):
        clock.ahead = 2 * c.SPREAD
        await asyncio.gather(other.attempt(), keeper.attempt())
        assert keeper.serving.shown.chain == secret(controlplane)[c.CERT]
        assert keeper.serving.shown == other.serving.shown
        await traffic.go_on()
        [newest, _] = c.authorities_in(installed(controlplane), clock())
        new = c.x509.load_pem_x509_certificate(keeper.serving.shown.chain)
        new.verify_directly_issued_by(newest)


async def test_an_old_authority_leaves_the_bundle_under_load(
    controlplane, namespace, client, port
) -> None:
    clock = Clock()
    old = c.make_authority(clock() - 1000 * DAY)
    signer = c.make_authority(clock() - 92 * DAY)
    leaf = c.make_leaf(signer, [HOST], clock() - 80 * DAY)
    seed(controlplane, c.State((signer.cert, old.cert), signer, leaf))
    first = self_managed(client, clock)
    first.wall = lambda: clock() - 2 * DAY  # too early for that
    await first.attempt()
    async with served(first, port), trusted(controlplane, namespace, port) as traffic:
        assert len(c.authorities_in(installed(controlplane), clock())) == 2
        first.wall = clock
        await first.attempt()
        await traffic.go_on()
        assert c.authorities_in(installed(controlplane), clock()) == (signer.cert,)


async def test_a_secret_that_a_hand_deletes_or_breaks_is_mended_under_load(
    controlplane, namespace, client, port
) -> None:
    keeper = self_managed(client)
    await keeper.attempt()
    async with served(keeper, port), trusted(controlplane, namespace, port) as traffic:
        for hand in ("deletes", "empties", "breaks the leaf", "breaks the authority"):
            before = keeper.serving.shown
            if hand == "deletes":
                controlplane.api("DELETE", SECRET)
            else:
                rubbish = base64.b64encode(b"rubbish").decode()
                fields = {
                    "empties": (c.CA_CERT, c.CA_KEY, c.CERT, c.KEY),
                    "breaks the leaf": (c.CERT,),
                    "breaks the authority": (c.CA_KEY,),
                }[hand]
                data = dict.fromkeys(fields, rubbish)
                controlplane.api("PATCH", SECRET, {"data": data})
            assert await keeper.attempt(), (hand, keeper.trouble)
            await traffic.go_on()
            assert keeper.ready()[0]
            held = c.read(secret(controlplane), [HOST], Clock()())
            assert held.signer, hand
            assert held.leaf, hand
            assert before


async def test_a_bundle_that_a_hand_breaks_is_mended(controlplane, client, port) -> None:
    keeper = self_managed(client)
    await keeper.attempt()
    good = installed(controlplane)
    hook = controlplane.api("GET", CONFIGURATION)
    other = c.State((c.make_authority(Clock()()).cert,)).bundle
    hook["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(other).decode()
    controlplane.api("PUT", CONFIGURATION, hook)
    assert await keeper.attempt()
    assert installed(controlplane) == good
    [kept] = controlplane.api("GET", CONFIGURATION)["webhooks"]
    assert kept["failurePolicy"] == "Fail"
    assert kept["clientConfig"]["url"]


@pytest.mark.field(81)
async def test_a_certificate_that_cert_manager_renews_under_load(
    controlplane, namespace, client, port, tmp_path
) -> None:
    now = Clock()()
    signer = c.make_authority(now)
    volume = AtomicVolume(tmp_path / "certificates")

    def renew() -> bytes:
        data = c.State((signer.cert,), signer, c.make_leaf(signer, [HOST], now)).data()
        volume.write({name: data[name] for name in (c.CERT, c.KEY, c.CA_CERT)})
        return data[c.CERT]

    renew()
    hook = controlplane.api("GET", CONFIGURATION)
    bundle = base64.b64encode(c.State((signer.cert,)).bundle).decode()
    hook["webhooks"][0]["clientConfig"]["caBundle"] = bundle
    controlplane.api("PUT", CONFIGURATION, hook)
    keeper = Mounted(client, PLACE, Serving(), dice=lambda: 0.5, directory=volume.folder)
    await keeper.attempt()
    async with served(keeper, port), trusted(controlplane, namespace, port) as traffic:
        for _ in range(3):
            chain = renew()
            assert await keeper.attempt()
            assert keeper.serving.shown.chain == chain
            await traffic.go_on()
            assert keeper.ready()[0]
    assert json.dumps(controlplane.api("GET", CONFIGURATION)["webhooks"]).count(bundle) == 1
