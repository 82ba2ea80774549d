"""How an engine starts, what it says of itself, and how it dies."""

import asyncio
import contextlib
import json
from http import HTTPStatus

from sidecar.agent.kinds import Kind
from sidecar.agent.sglang import Engine, EngineError
from tests.conformance.gallery import Gallery
from tests.conformance.subject import Subject, eventually, fresh
from tests.rig.engines import EngineProcess

STARTING_SECONDS = 300
DYING_SECONDS = 60


async def test_without_lora_everything_is_refused_in_one_sentence(
    without_lora: Subject, gallery: Gallery
) -> None:
    sentence = "LoRA is not enabled. Please set `--enable-lora` to enable LoRA."
    for answer in (
        await without_lora.client.load("x", gallery.a),
        await without_lora.client.unload("x"),
    ):
        assert (answer.kind, answer.text) == (Kind.LORA_DISABLED, sentence)
    listing = await without_lora.client.models()
    assert (listing.loaded, listing.supported) == ({}, True)
    assert not (await without_lora.client.server_info()).enable_lora
    assert (await without_lora.client.generate_one("x")).kind is Kind.LORA_DISABLED


async def test_the_engine_tells_what_the_agent_decides_by(plain: Subject, version: str) -> None:
    info = await plain.client.server_info()
    assert info.version == version
    assert info.version_numbers == tuple(map(int, version.split(".")))
    assert (info.served_model_name, info.enable_lora) == ("tiny-base", True)
    assert info.model_path == str(plain.process.log.parent / "base")
    assert (info.max_lora_rank, info.max_loras_per_batch, info.max_loaded_loras) == (8, 3, None)
    assert set(info.lora_target_modules or ()) == {"q_proj", "v_proj"}
    assert (info.dp_size, info.tp_size, info.node_rank, info.tokenizer_worker_num) == (1, 1, 0, 1)
    assert info.startup_adapters == {}
    assert info == await plain.client.server_info()


async def test_the_old_name_of_the_information_still_answers(plain: Subject) -> None:
    status, told = await plain.get("/get_server_info")
    assert (status, told["served_model_name"]) == (HTTPStatus.OK, "tiny-base")


async def test_health_answers_with_nothing_and_an_unknown_path_with_404(plain: Subject) -> None:
    assert await plain.get("/health") == (HTTPStatus.OK, "")
    assert await plain.get("/nowhere") == (HTTPStatus.NOT_FOUND, {"detail": "Not Found"})


async def test_an_engine_is_refused_until_it_lists_and_dies_of_what_does_not_fit(
    mortal: EngineProcess, gallery: Gallery
) -> None:
    """One life from start to crash, and the next: two starts of the real one are a minute."""
    async with Engine(port=mortal.port) as client:
        assert not await client.connect()
        await eventually(client.connect, STARTING_SECONDS)
        assert (await client.models()).loaded == {}
        assert (await client.load("fits", gallery.a)).ok  # answered once it has warmed up
        first = await client.server_info()

        assert (await client.load("kills", gallery.other_shape)).ok
        assert "kills" in (await client.models()).loaded
        assert (await client.generate_one("kills")).kind is Kind.UNKNOWN
        await eventually(lambda: _is_gone(client), DYING_SECONDS)
        assert (await client.load("fits", gallery.a)).kind is Kind.REFUSED
        await eventually(lambda: _has_ended(mortal), DYING_SECONDS)

        mortal.launch(wait=False)
        await eventually(client.connect, STARTING_SECONDS)
        assert (await client.models()).loaded == {}
        assert (await client.server_info()).identity != first.identity

        mortal.kill()
        assert not await client.connect()


async def test_an_idle_connection_is_closed_within_seconds(plain: Subject) -> None:
    """Why each of our calls makes a connection of its own."""
    reader, writer = await asyncio.open_connection(plain.process.host, plain.process.port)
    writer.write(b"GET /v1/models HTTP/1.1\r\nHost: engine\r\n\r\n")
    async with asyncio.timeout(30):
        await reader.readuntil(b"\r\n\r\n")
        while await reader.read(1024):
            pass
    writer.close()


async def test_a_load_goes_on_when_its_client_has_gone(plain: Subject, gallery: Gallery) -> None:
    name = fresh()
    body = json.dumps({"lora_name": name, "lora_path": gallery.a})
    head = f"POST /load_lora_adapter HTTP/1.1\r\nHost: engine\r\nContent-Length: {len(body)}\r\n"
    _, writer = await asyncio.open_connection(plain.process.host, plain.process.port)
    writer.write(f"{head}Content-Type: application/json\r\n\r\n{body}".encode())
    await writer.drain()
    writer.close()
    await eventually(lambda: _holds(plain, name))


async def _holds(subject: Subject, name: str) -> bool:
    return name in await subject.listed()


async def _is_gone(client: Engine) -> bool:
    """Whether nothing listens any more. A dying engine may accept, and say nothing."""
    if not await client.connect():
        return True
    with contextlib.suppress(EngineError, TimeoutError):
        await asyncio.wait_for(client.models(), 1)
    return False


async def _has_ended(process: EngineProcess) -> bool:
    return not process.alive
