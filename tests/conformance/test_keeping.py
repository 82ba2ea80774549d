"""The agent's whole loop around an engine: what only shows where its calls, the engine's moods and clients meet."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

import aiohttp
import pytest

from sidecar.api.reasons import Reason
from tests.agent.builders import adapter
from tests.agent.harness import Agent
from tests.conformance.gallery import Gallery
from tests.conformance.subject import Subject, fresh
from tests.rig.engines import EngineProcess
from tests.rig.sglang.model import make_model

PATIENCE = 300
"""Seconds: several starts of the real engine."""


@pytest.mark.rule(6)
async def test_clients_see_no_error_while_the_agent_replaces_the_path_that_they_name(
    plain: Subject, gallery: Gallery
) -> None:
    name, reference = fresh(), fresh()
    await plain.load(reference, gallery.b)
    _, new = await plain.generate(reference)
    await plain.unload(reference)
    async with Agent(plain.process, gallery.folder, patience=PATIENCE) as agent:
        agent.source.set(adapter("a", handle=name, path=gallery.a))
        await agent.until_reported(**{name: Reason.LOADED})
        replaced = asyncio.Event()
        clients = [asyncio.ensure_future(_keep_asking(plain, name, replaced)) for _ in range(4)]
        for generation, path in enumerate((gallery.b, gallery.a) * 3 + (gallery.b,), start=2):
            agent.source.set(adapter("a", handle=name, path=path, generation=generation))
            wanted = {name: path}
            await agent.until(lambda: agent.follower.view.held == wanted, PATIENCE)  # noqa: B023
        replaced.set()
        for statuses, last in await asyncio.gather(*clients):
            assert set(statuses) == {HTTPStatus.OK}
            assert last == new
        await agent.until_reported(**{name: Reason.LOADED})


@pytest.mark.rule(12)
async def test_an_adapter_that_kills_the_engine_is_held_back_and_the_other_serves(
    mortal: EngineProcess, gallery: Gallery
) -> None:
    """As a pod lives it: the engine is started again whenever it has died."""
    good = adapter("good", path=gallery.a)
    kills = adapter("kills", path=gallery.other_shape)
    starts: list[int] = []
    async with (
        Agent(mortal, gallery.folder, patience=PATIENCE) as agent,
        _started_again(mortal, starts),
    ):
        agent.source.set(good, kills)
        await agent.until_reported(good=Reason.LOADED, kills=Reason.LOADED)
        await _first_use(mortal, "kills")
        await agent.until_reported(good=Reason.LOADED, kills=Reason.ENGINE_CRASH_SUSPECT)
        assert len(starts) == 3  # after the client's death and after each of the two trials
        assert (await agent.engine.generate_one("good")).ok
        assert (await agent.engine.models()).loaded == {"good": gallery.a}


@pytest.mark.rule(5)
async def test_an_adapter_that_would_kill_the_engine_is_refused_where_the_base_model_can_be_read(
    plain: Subject, gallery: Gallery
) -> None:
    good, kills = fresh("good"), fresh("kills")
    base = plain.process.log.parent / "base"
    if not base.exists():  # the simulated engine needs none
        make_model(base)
    async with Agent(plain.process, gallery.folder, patience=PATIENCE, shares_base=base) as agent:
        agent.source.set(
            adapter("a", handle=kills, path=gallery.other_shape),
            adapter("b", handle=good, path=gallery.a),
        )
        await agent.until_reported(**{kills: Reason.INCOMPATIBLE, good: Reason.LOADED})
        assert agent.text(kills) == (
            "the lora_A of its q_proj has 32 columns, the base model's q_proj 64 (hidden_size)"
        )
    assert list(await plain.listed()) == [good]


@asynccontextmanager
async def _started_again(engine: EngineProcess, starts: list[int]) -> AsyncIterator[None]:
    """What a kubelet does, with no back-off."""

    async def restart() -> None:
        while True:
            if not engine.alive:
                engine.restart(wait=False)
                starts.append(engine.pid)
            await asyncio.sleep(0.05)

    task = asyncio.create_task(restart())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _first_use(engine: EngineProcess, handle: str) -> None:
    body = {"input_ids": [1], "lora_path": handle, "sampling_params": {"max_new_tokens": 1}}
    async with aiohttp.ClientSession() as session:
        with suppress(aiohttp.ClientError):
            await session.post(f"{engine.url}/generate", json=body)


async def _keep_asking(plain: Subject, name: str, until: asyncio.Event) -> tuple[list[int], str]:
    """The statuses of requests one after another, and the text of one that began after `until`."""
    statuses = []
    while not until.is_set():
        statuses.append((await plain.generate(name))[0])
    status, text = await plain.generate(name)
    return [*statuses, status], text
