"""Keys, certificate and address: who may ask what, and where."""

from http import HTTPStatus
from pathlib import Path

import pytest

from sidecar.agent.keys import Certificate, Keys
from sidecar.agent.kinds import Kind
from sidecar.agent.sglang import Engine, Refused, Unauthorized, Untrusted
from tests.conformance.conftest import ADMIN_KEY, API_KEY, STARTUP, TLS_SINCE
from tests.conformance.gallery import Gallery
from tests.conformance.subject import Subject, fresh
from tests.rig.pki import Authority


def engine(subject: Subject, *, keys: Keys, file: Path | None = None) -> Engine:
    process = subject.process
    certificate = Certificate(file)
    return Engine(port=process.port, scheme=process.scheme, keys=keys, certificate=certificate)


@pytest.mark.parametrize("path", ["/v1/models", "/server_info"])
async def test_reads_take_the_api_key_only(guarded: Subject, path: str) -> None:
    assert (await guarded.get(path, key=API_KEY))[0] == HTTPStatus.OK
    refused = (401, {"error": "Unauthorized"})
    assert await guarded.get(path, key=ADMIN_KEY) == refused
    assert await guarded.get(path, key="another") == refused


async def test_changes_take_the_admin_key_only(guarded: Subject) -> None:
    body = {"lora_name": "nobody"}
    refused = (401, {"error": "Unauthorized"})
    for key in (API_KEY, "another"):
        assert await guarded.post("/unload_lora_adapter", body, key=key) == refused
        assert await guarded.post("/load_lora_adapter", body, key=key) == refused
    assert (await guarded.post("/unload_lora_adapter", body, key=ADMIN_KEY))[0] == 400


async def test_health_is_open_to_everyone(guarded: Subject) -> None:
    assert (await guarded.get("/health", key="another"))[0] == HTTPStatus.OK


async def test_the_client_shows_each_key_where_it_is_asked_for(
    guarded: Subject, gallery: Gallery
) -> None:
    name = fresh()
    assert (await guarded.client.load(name, gallery.b)).ok
    assert name in await guarded.listed()
    assert (await guarded.client.generate_one(name)).ok
    assert (await guarded.client.unload(name)).ok


@pytest.mark.rule(14)
@pytest.mark.field(9)
async def test_the_client_says_which_key_was_refused(guarded: Subject, gallery: Gallery) -> None:
    async with engine(guarded, keys=Keys(api_value="x", admin_value="y")) as client:
        with pytest.raises(Unauthorized, match="refused the api key"):
            await client.models()
        answer = await client.load(fresh(), gallery.a)
        assert (answer.kind, answer.text) == (Kind.UNAUTHORIZED, "the engine refused the admin key")
    async with engine(guarded, keys=Keys()) as client:
        with pytest.raises(Unauthorized, match="asks for a key, and none is given"):
            await client.server_info()


@pytest.mark.rule(14)
async def test_a_pinned_certificate_must_be_the_engines(
    guarded: Subject, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    if guarded.process.scheme == "http":
        pytest.skip(f"SGLang serves https from {TLS_SINCE} on")
    keys = Keys(api_value=API_KEY)
    another, _ = Authority(tmp_path).issue("another", user="another")
    async with engine(guarded, keys=keys, file=certificate[0]) as client:
        assert (await client.models()).base == "tiny-base"
    async with engine(guarded, keys=keys, file=another) as client:
        with pytest.raises(Untrusted, match="not the one in the engine's certificate file"):
            await client.models()
        assert (await client.unload("nobody")).kind is Kind.REFUSED


@pytest.mark.rule(14)
@pytest.mark.field(52)
async def test_an_engine_on_ipv6_alone_is_found(guarded: Subject) -> None:
    assert await guarded.client.connect()
    assert (await guarded.client.models()).base == "tiny-base"
    async with Engine(["127.0.0.1"], guarded.process.port) as client:
        assert not await client.connect()
        with pytest.raises(Refused):
            await client.models()


async def test_what_the_engine_loaded_at_its_start_is_told_apart(
    guarded: Subject, gallery: Gallery
) -> None:
    info = await guarded.client.server_info()
    assert info.startup_adapters == {STARTUP: gallery.a}
    assert await guarded.listed() == {STARTUP: gallery.a}


async def test_what_we_keep_of_the_servers_information_holds_no_key(guarded: Subject) -> None:
    _, told = await guarded.get("/server_info", key=API_KEY)
    assert told["admin_api_key"] == ADMIN_KEY
    kept = repr(await guarded.client.server_info())
    assert API_KEY not in kept
    assert ADMIN_KEY not in kept
