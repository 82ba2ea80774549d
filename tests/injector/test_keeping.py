"""Replicas, their one Secret and the caBundle, against the fake API server; the webhook's port with real sockets."""

import asyncio
import base64
import contextlib
import io
import ssl
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from injector import certificates as c
from injector.keeping import SECRETS, Mounted, Place, SelfManaged
from injector.server import LIMIT, Metrics, Server
from injector.tls import Serving
from sidecar.kube.owning import DEPLOYMENTS
from sidecar.kube.resources import WEBHOOKS
from tests.fakes.kube import FakeKube

HOSTS = ("injector.sys.svc",)
PLACE = Place("lora-sidecar", HOSTS, "sys", "certs")


def wall():
    return datetime.now(UTC)  # noqa: TID251 - the handshake knows no other clock


@pytest.fixture
async def kube():
    async with FakeKube() as server:
        hook = {"name": "a.b", "clientConfig": {"url": "https://x"}, "failurePolicy": "Fail"}
        server.put(WEBHOOKS, {"metadata": {"name": "lora-sidecar"}, "webhooks": [hook]})
        yield server


@pytest.fixture
async def client(kube):
    async with kube.client() as opened:
        yield opened


def keeper(client):
    return SelfManaged(client, PLACE, Serving(), dice=lambda: 0.5, wall=wall)


def bundle(kube):
    hook = kube.get(WEBHOOKS, None, "lora-sidecar")["webhooks"][0]
    assert hook["failurePolicy"] == "Fail"
    return base64.b64decode(hook["clientConfig"]["caBundle"])


@pytest.mark.field(77)
async def test_five_replicas_that_race_end_with_one_authority_and_all_are_ready(
    kube, client
) -> None:
    keepers = [keeper(client) for _ in range(5)]
    assert all(await asyncio.gather(*(one.attempt() for one in keepers)))
    assert len({one.serving.shown for one in keepers}) == 1
    assert len(c.authorities_in(bundle(kube), wall())) == 1
    assert all(one.ready()[0] for one in keepers)


async def test_a_restarted_replica_serves_what_is_there_and_writes_nothing(kube, client) -> None:
    first, second = keeper(client), keeper(client)
    await first.attempt()
    kube.seen.clear()
    await second.attempt()
    assert second.serving.shown == first.serving.shown
    assert {seen.verb for seen in kube.seen} == {"get"}


@pytest.mark.field(77)
async def test_a_secret_deleted_by_hand_keeps_every_replica_trusted(kube, client) -> None:
    first, second = keeper(client), keeper(client)
    await first.attempt()
    await second.attempt()
    kube.delete(SECRETS, "sys", "certs")
    await first.attempt()
    assert first.serving.shown != second.serving.shown
    second.trusted = first.trusted
    assert first.ready()[0]
    assert second.ready()[0]


@pytest.mark.field(77)
async def test_a_broken_bundle_is_not_ready_and_is_mended(kube, client) -> None:
    one = keeper(client)
    await one.attempt()
    good = bundle(kube)
    body = kube.get(WEBHOOKS, None, "lora-sidecar")
    body["webhooks"][0]["clientConfig"]["caBundle"] = "cnViYmlzaA=="
    kube.put(WEBHOOKS, body)
    kube.forbidden = lambda seen: seen.verb == "patch"
    assert not await one.attempt()
    assert "does not verify" in one.ready()[1]
    kube.forbidden = lambda seen: False
    assert await one.attempt()
    assert bundle(kube) == good
    assert one.ready()[0]


async def test_a_missing_permission_is_said_once(kube, client, caplog) -> None:
    one = keeper(client)
    kube.forbidden = lambda seen: "mutating" in seen.path
    for _ in range(3):
        assert not await one.attempt()
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 1
    assert one.serving.shown
    assert not one.ready()[0]


@contextlib.asynccontextmanager
async def served(serving, decide):
    registry = CollectorRegistry()
    server = Server(0, decide, serving, Metrics(registry, serving))
    task = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(20):
            await server.listening.wait()
        yield f"https://127.0.0.1:{server.port}/mutate", registry
    finally:
        task.cancel()
        await asyncio.wait([task])


def answer(body):
    return SimpleNamespace(
        status=200,
        body={"size": len(body)},
        decision="inject",
        reason="asked",
        subject="a/b",
        sentence="because",
    )


def write(directory, name, data):
    (directory / name).mkdir()
    for file in (c.CERT, c.KEY):
        (directory / name / file).write_bytes(data[file])
    (directory / "new").symlink_to(name)
    (directory / "new").rename(directory / "..data")


@pytest.mark.field(77)
@pytest.mark.field(81)
async def test_a_mounted_certificate_swapped_under_load_fails_no_review(
    client, kube, tmp_path
) -> None:
    now = wall()
    signer = c.make_authority(now)
    states = [c.State((signer.cert,), signer, c.make_leaf(signer, HOSTS, now)) for _ in range(4)]
    write(tmp_path, "0", states[0].data())
    mounted = Mounted(client, PLACE, Serving(), dice=lambda: 0.5, directory=tmp_path)
    await mounted.attempt()
    await kube.stop()  # nothing on the road of a review needs the API server
    trust = ssl.create_default_context(cadata=states[0].bundle.decode())
    async with served(mounted.serving, answer) as (url, registry):
        for number in range(1, 4):
            write(tmp_path, str(number), states[number].data())
            connector = aiohttp.TCPConnector(ssl=trust, force_close=True)
            async with aiohttp.ClientSession(connector=connector) as session:
                calls = [session.post(url, json={}, server_hostname=HOSTS[0]) for _ in range(20)]
                *answers, _ = await asyncio.gather(*calls, mounted.attempt())
                assert {one.status for one in answers} == {200}
            assert mounted.serving.shown.chain == states[number].data()[c.CERT]
        labels = {"decision": "inject", "reason": "asked"}
        assert registry.get_sample_value("lora_sidecar_injector_reviews_total", labels) == 60
        end = registry.get_sample_value("lora_sidecar_injector_certificate_not_after_seconds")
        assert end == mounted.serving.not_after


async def test_what_is_no_review_is_refused(client) -> None:
    one = keeper(client)
    await one.attempt()

    def fails(body):
        raise ValueError(body)

    async with (
        served(one.serving, fails) as (url, _),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
    ):
        assert (await session.post(url, data=b"x")).status == 415
        assert (await session.post(url, json={})).status == 500
        headers = {"Content-Type": "application/json"}
        assert (
            await session.post(url, data=io.BytesIO(bytes(LIMIT + 1)), headers=headers)
        ).status == 413


async def test_a_sender_that_stalls_is_told_so(client) -> None:
    one = keeper(client)
    await one.attempt()
    metrics = Metrics(CollectorRegistry(), one.serving)
    server = Server(0, answer, one.serving, metrics, patience=0.05)
    task = asyncio.create_task(server.serve())
    await asyncio.wait_for(server.listening.wait(), 20)
    trust = ssl.create_default_context(cadata=bundle_of(one).decode())
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", server.port, ssl=trust, server_hostname=HOSTS[0]
    )
    head = "POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: 100\r\n\r\n{{".encode())
    assert b" 408 " in await asyncio.wait_for(reader.readline(), 20)
    writer.close()
    task.cancel()
    await asyncio.wait([task])


def bundle_of(keeper) -> bytes:
    [found] = keeper.trusted.all
    return found


async def test_the_secret_goes_with_the_deployment_that_owns_it(kube, client) -> None:
    kube.put(DEPLOYMENTS, {"metadata": {"name": "owner", "namespace": "sys", "uid": "u-1"}})
    one = keeper(client)
    one.place = replace(PLACE, owner="owner")
    assert await one.attempt()
    [reference] = kube.get(SECRETS, "sys", "certs")["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["name"]) == ("Deployment", "owner")
    assert reference["uid"] == kube.get(DEPLOYMENTS, "sys", "owner")["metadata"]["uid"]


async def test_an_owner_that_cannot_be_read_costs_no_certificate(kube, client, caplog) -> None:
    one = keeper(client)
    one.place = replace(PLACE, owner="gone")
    assert await one.attempt()
    assert "will stay behind" in caplog.text
