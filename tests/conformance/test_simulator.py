"""How the simulated SGLang is steered: what tests of the agent rely on, and no SGLang has."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from sidecar.agent.kinds import Kind
from sidecar.agent.sglang import Engine, Garbled, Silent
from tests.conformance.gallery import Gallery
from tests.conformance.subject import eventually
from tests.fakes.sglang import Fault, Options, Simulator
from tests.fakes.sglang.options import Adapter, parse
from tests.rig.engines import EngineProcess


async def steer(engine: Simulator | EngineProcess, **told: Any) -> Any:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{engine.url}/_sim", json=told) as answer,
    ):
        assert answer.status == 200


async def tell(engine: Simulator | EngineProcess) -> Any:
    async with aiohttp.ClientSession() as http, http.get(f"{engine.url}/_sim") as answer:
        return await answer.json()


async def test_it_remembers_what_it_was_asked(gallery: Gallery) -> None:
    async with Simulator() as simulator, Engine(["127.0.0.1"], simulator.port) as client:
        await client.load("a", gallery.a)
        (asked,) = (await tell(simulator))["requests"]
        assert (asked["method"], asked["path"]) == ("POST", "/load_lora_adapter")
        assert asked["body"] == {"lora_name": "a", "lora_path": gallery.a}
        assert asked["at"] <= asked["ended"]
        assert simulator.posts("/load_lora_adapter") == [asked["body"]]


async def test_a_fault_befalls_as_many_requests_as_was_said(gallery: Gallery) -> None:
    async with Simulator() as simulator, Engine(["127.0.0.1"], simulator.port) as client:
        await steer(
            simulator, fault={"path": "/v1/models", "status": 503, "body": "no", "times": 2}
        )
        for _ in range(2):
            with pytest.raises(Garbled, match="HTTP 503 no"):
                await client.models()
        assert (await client.models()).supported


async def test_faults_can_be_taken_back() -> None:
    async with Simulator() as simulator, Engine(["127.0.0.1"], simulator.port) as client:
        await steer(simulator, fault={"path": "/v1/models", "act": "drop", "times": -1})
        with pytest.raises(Silent):
            await client.models()
        await steer(simulator, clear=True)
        assert (await client.models()).supported


async def test_a_request_may_be_carried_out_and_its_answer_lost(gallery: Gallery) -> None:
    async with Simulator() as simulator, Engine(["127.0.0.1"], simulator.port) as client:
        simulator.faults.add(Fault("/load_lora_adapter", "drop", executed=True))
        assert (await client.load("a", gallery.a)).kind is Kind.UNKNOWN
        assert (await client.models()).loaded == {"a": gallery.a}


async def test_an_adapter_in_use_for_ever_makes_its_unload_hang(gallery: Gallery) -> None:
    async with Simulator() as simulator, Engine(["127.0.0.1"], simulator.port) as client:
        await client.load("a", gallery.a)
        await steer(simulator, use="a")
        unload = asyncio.ensure_future(client.unload("a"))
        await eventually(lambda: _lists(simulator, {}))
        assert [held["name"] for held in (await tell(simulator))["held"]] == ["a"]
        await simulator.restart()
        assert (await unload).kind is Kind.UNKNOWN


async def test_an_adapter_can_be_lost(gallery: Gallery) -> None:
    async with Simulator() as simulator, Engine(["127.0.0.1"], simulator.port) as client:
        await client.load("a", gallery.a)
        await steer(simulator, evict="a")
        assert (await client.models()).loaded == {}


async def test_until_it_has_warmed_up_it_lists_and_has_loads_wait(gallery: Gallery) -> None:
    async with (
        Simulator(Options(warmup=3600)) as simulator,
        Engine(["127.0.0.1"], simulator.port, read_seconds=0.05) as client,
    ):
        assert (await client.models()).supported
        load = asyncio.ensure_future(client.load("a", gallery.a))
        await eventually(lambda: _was_asked(simulator, "/load_lora_adapter"))
        with pytest.raises(Silent):
            await client.server_info()
        assert not load.done()
        load.cancel()


async def test_a_crash_accepts_and_answers_nothing_before_it_is_gone() -> None:
    async with (
        Simulator(Options(dying=3600)) as simulator,
        Engine(["127.0.0.1"], simulator.port, read_seconds=0.05) as client,
    ):
        await steer(simulator, crash=True)
        assert await client.connect()
        with pytest.raises(Silent):
            await client.models()


async def test_as_a_process_it_ends_when_it_is_told_to(tmp_path: Path) -> None:
    with EngineProcess.start("simulated", tmp_path, extra_args=["--startup", "0.1"]) as process:
        await steer(process, kill=True)
        await eventually(lambda: _has_ended(process))
        process.restart()
        async with Engine(["127.0.0.1"], process.port) as client:
            assert (await client.models()).loaded == {}


async def test_a_bad_adapter_among_its_arguments_fails_the_start() -> None:
    simulator = Simulator(Options(lora_paths=(Adapter("a", "/missing"),)))
    with pytest.raises(RuntimeError, match="Failed to load LoRA adapter a: Repo id must"):
        await simulator.start()


def test_it_takes_sglangs_flags_and_passes_over_those_that_mean_nothing_to_it() -> None:
    flags = "--port 1234 --host ::1 --api-key K --max-loaded-loras 3 --device cpu --startup 0.5 --lora-paths a=/a /b"
    options, host, port = parse(
        [*flags.split(), '{"lora_name":"c","lora_path":"/c","pinned":true}']
    )
    assert (host, port, options.api_key, options.startup) == ("::1", 1234, "K", 0.5)
    assert options.max_loaded_loras == 3
    assert options.lora_paths == (Adapter("a", "/a"), Adapter("/b", "/b"), Adapter("c", "/c", True))


async def _lists(simulator: Simulator, expected: dict[str, str]) -> bool:
    return simulator.loaded == expected


async def _was_asked(simulator: Simulator, path: str) -> bool:
    return bool(simulator.posts(path))


async def _has_ended(process: EngineProcess) -> bool:
    return not process.alive
