"""What the simulated SGLang does where it simulates a version that is not installed: the differences, by their floors.

Not a contract, as nothing real is asked: it is SGLang's source that says so. What the agent makes of it is tested on
the simulated engine, so it had better be what is written here.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from sidecar.agent.kinds import Kind
from sidecar.agent.sglang import Engine, NoRoute
from tests.conformance.gallery import Gallery
from tests.conformance.subject import eventually
from tests.fakes.sglang import Options, Simulator


@asynccontextmanager
async def engine(version: str, **options: Any) -> AsyncIterator[tuple[Simulator, Engine]]:
    """A simulated engine of that version, and our client for it."""
    async with (
        Simulator(Options(version=version, **options)) as simulator,
        Engine(["127.0.0.1"], simulator.port) as client,
    ):
        yield simulator, client


@pytest.mark.parametrize(
    ("version", "lists"), [("0.5.4", False), ("0.5.4.post2", True), ("0.5.23", True)]
)
async def test_adapters_are_listed_from_0_5_4_post2(
    gallery: Gallery, version: str, lists: bool
) -> None:
    async with engine(version) as (_, client):
        await client.load("a", gallery.a)
        listing = await client.models()
        assert listing.supported is lists
        assert listing.loaded == ({"a": gallery.a} if lists else {})
        assert (await client.unload("nobody")).names == {"a"}


@pytest.mark.parametrize(("version", "new_name"), [("0.5.5.post3", 404), ("0.5.6", 200)])
async def test_the_information_has_its_new_name_from_0_5_6(version: str, new_name: int) -> None:
    async with engine(version) as (simulator, client):
        assert (await client.server_info()).version == version
        assert simulator.asked[0].status == new_name


@pytest.mark.parametrize(
    ("version", "expected"), [("0.5.5.post3", Kind.CAPACITY), ("0.5.6", Kind.OK)]
)
async def test_the_limit_evicts_from_0_5_6_and_refuses_before(
    gallery: Gallery, version: str, expected: Kind
) -> None:
    async with engine(version, max_loaded_loras=1) as (_, client):
        await client.load("a", gallery.a)
        assert (await client.load("b", gallery.b)).kind is expected


async def test_before_0_5_6_an_unloaded_adapter_stays_away(gallery: Gallery) -> None:
    async with engine("0.5.5.post3") as (_, client):
        await client.load("a", gallery.a)
        await client.unload("a")
        assert (await client.generate_one("a")).kind is Kind.UNKNOWN_NAME


async def test_before_0_5_3_post2_a_second_load_leaks_a_copy(gallery: Gallery) -> None:
    async with engine("0.5.3") as (simulator, client):
        await client.load("a", gallery.a)
        answer = await client.load("a", gallery.a)
        assert (answer.kind, answer.loaded) == (Kind.ALREADY_LOADED, None)
        assert len(simulator.loras.held) == 2


async def test_before_0_5_1_an_unknown_name_is_a_server_error(gallery: Gallery) -> None:
    async with engine("0.4.10.post2") as (_, client):
        answer = await client.unload("nobody")
        assert (answer.status, answer.kind) == (500, Kind.TRANSIENT)


@pytest.mark.parametrize(("version", "hangs"), [("0.5.21", True), ("0.5.22", False)])
async def test_before_0_5_22_an_unload_hangs_after_a_request_for_several_answers(
    gallery: Gallery, version: str, hangs: bool
) -> None:
    async with engine(version) as (simulator, client), aiohttp.ClientSession() as http:
        await client.load("a", gallery.a)
        sampling = {"n": 2, "max_new_tokens": 1}
        body = {"text": "x", "lora_path": "a", "sampling_params": sampling}
        async with http.post(f"{simulator.url}/generate", json=body) as answer:
            assert len(await answer.json()) == 2
        unload = asyncio.ensure_future(client.unload("a"))
        await eventually(lambda: _unloading(simulator))
        if not hangs:
            assert (await unload).ok
        else:
            (held,) = simulator.loras.held
            assert held.uses == -1
            assert not unload.done()
            unload.cancel()


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"dp_size": 2}, Kind.TRANSIENT),
        ({"dp_size": 2, "enable_dp_attention": True}, Kind.OK),
        ({"frontend": "rust"}, Kind.UNSUPPORTED),
    ],
    ids=["replicas", "attention over replicas", "another frontend"],
)
async def test_some_set_ups_cannot_load(
    gallery: Gallery, told: dict[str, Any], expected: Kind
) -> None:
    async with engine("0.5.21", told=told) as (_, client):
        assert (await client.load("a", gallery.a)).kind is expected


async def test_a_further_node_knows_nothing_but_health() -> None:
    async with engine("0.5.21", told={"node_rank": 1}) as (_, client):
        with pytest.raises(NoRoute):
            await client.models()


async def test_with_a_fixed_seed_a_process_is_known_by_its_durations_from_0_5_17() -> None:
    same = {}
    for version in ("0.5.16", "0.5.17"):
        async with engine(version, random_seed=7) as (simulator, client):
            before = (await client.server_info()).identity
            await simulator.restart()
            same[version] = (await client.server_info()).identity == before
    assert same == {"0.5.16": True, "0.5.17": False}


async def _unloading(simulator: Simulator) -> bool:
    return "a" not in simulator.loaded
