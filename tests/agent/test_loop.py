"""The loop around its real parts and the simulated engine: what ends up in the engine, what was sent, what is said.

Decisions have their tables in test_plan; here is what only shows when requests, files and time are real.
"""

import asyncio
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest

from sidecar.agent import scratch
from sidecar.agent.report import recall
from sidecar.agent.state import Me
from sidecar.api.reasons import EngineState, Reason
from tests.agent.builders import adapter
from tests.agent.harness import Agent
from tests.fakes.sglang.faults import Fault
from tests.fakes.sglang.options import Options
from tests.fakes.sglang.server import Simulator
from tests.rig.adapters import make_adapter

LOAD, UNLOAD = "/load_lora_adapter", "/unload_lora_adapter"


async def test_an_adapter_is_loaded_once_and_left_alone(simulator, make, tmp_path):
    a = adapter("a", path=make("a"))
    async with Agent(simulator, tmp_path) as agent:
        agent.source.set(a)
        await agent.until_reported(a=Reason.LOADED)
        passes = agent.loop.passes
        await agent.until(lambda: agent.loop.passes > passes + 10)
        assert len(agent.loads) == 1
        assert agent.unloads == []


@pytest.mark.field(12)
@pytest.mark.field(17)
@pytest.mark.field(40)
async def test_a_hundred_adapters_made_at_once_are_all_loaded_one_at_a_time(
    simulator, make, tmp_path
):
    path = make("a")
    wanted = [adapter(f"a{number}", path=path) for number in range(100)]
    async with Agent(simulator, tmp_path) as agent:
        agent.source.set(*wanted)
        await agent.until_reported(**{a.handle: Reason.LOADED for a in wanted})
        assert sorted(load["lora_name"] for load in agent.loads) == sorted(agent.held())
        sent = [asked for asked in simulator.asked if asked.path == LOAD]
        assert all(one.ended <= other.at for one, other in pairwise(sent))


@pytest.mark.rule(3)
@pytest.mark.field(17)
async def test_a_look_at_a_hundred_adapters_is_one_request(simulator, make, tmp_path):
    path = make("a")
    wanted = [adapter(f"a{number}", path=path) for number in range(100)]
    async with Agent(simulator, tmp_path) as agent:
        agent.source.set(*wanted)
        await agent.until_reported(**{a.handle: Reason.LOADED for a in wanted})
        passes, before = agent.loop.passes, len(simulator.asked)
        looks = {agent.follower.view.listed_at}
        while agent.loop.passes < passes + 10:
            await asyncio.sleep(0.001)
            looks.add(agent.follower.view.listed_at)
        asked = [asked.path for asked in list(simulator.asked)[before:]]
        assert set(asked) == {"/v1/models"}
        assert len(asked) <= len(looks) + 1  # one may be on its way


@pytest.mark.rule(3)
async def test_an_adapter_that_the_engine_lost_is_loaded_again(simulator, make, tmp_path):
    a, b = adapter("a", path=make("a")), adapter("b", path=make("b"))
    async with Agent(simulator, tmp_path) as agent:
        agent.source.set(a, b)
        await agent.until_reported(a=Reason.LOADED, b=Reason.LOADED)
        simulator.loras.drop("a")
        await agent.until(lambda: len(agent.loads) == 3)
        await agent.until_reported(a=Reason.LOADED, b=Reason.LOADED)


@pytest.mark.field(27)
@pytest.mark.rule(7)
async def test_a_load_whose_answer_was_lost_is_not_sent_twice(simulator, make, tmp_path):
    simulator.faults.add(Fault(LOAD, "drop", executed=True))
    async with Agent(simulator, tmp_path) as agent:
        agent.source.set(adapter("a", path=make("a")))
        await agent.until(lambda: agent.reasons().get("a") in (Reason.LOADED, Reason.ADOPTED))
        assert len(agent.loads) == 1


@pytest.mark.rule(7)
async def test_a_load_that_never_arrived_is_sent_again(simulator, make, tmp_path):
    simulator.faults.add(Fault(LOAD, "drop"))
    async with Agent(simulator, tmp_path) as agent:
        agent.source.set(adapter("a", path=make("a")))
        await agent.until_reported(a=Reason.LOADED)
        assert len(agent.loads) == 2


@pytest.mark.field(5)
@pytest.mark.rule(7)
async def test_a_refusal_for_good_is_sent_once_until_the_files_change(simulator, make, tmp_path):
    a = adapter("a", path=make("a", rank=64))
    unasked = Me("pod-0", "ns", preflight=False)
    async with Agent(simulator, tmp_path, unasked) as agent:
        agent.source.set(a)
        await agent.until_reported(a=Reason.INCOMPATIBLE)
        passes = agent.loop.passes
        await agent.until(lambda: agent.loop.passes > passes + 10)
        assert len(agent.loads) == 1
        make("a", rank=4)
        await agent.until_reported(a=Reason.LOADED)


@pytest.mark.rule(8)
async def test_a_restarted_engine_is_given_everything_again(simulator, make, tmp_path):
    a, b = adapter("a", path=make("a")), adapter("b", path=make("b"))
    async with Agent(simulator, tmp_path) as agent:
        agent.source.set(a, b)
        await agent.until_reported(a=Reason.LOADED, b=Reason.LOADED)
        await simulator.stop()
        await agent.until(lambda: agent.follower.view.state is EngineState.STARTING)
        await agent.until_reported(a=Reason.ENGINE_STARTING, b=Reason.ENGINE_STARTING)
        await simulator.start()
        await agent.until_reported(a=Reason.LOADED, b=Reason.LOADED)


@pytest.mark.rule(8)
async def test_a_restart_too_quick_to_be_seen_is_found_out(simulator, make, tmp_path):
    async with Agent(simulator, tmp_path) as agent:
        agent.source.set(adapter("a", path=make("a")))
        await agent.until_reported(a=Reason.LOADED)
        boot = agent.follower.view.boot
        await simulator.stop()
        await simulator.start()
        await agent.until(lambda: len(agent.loads) == 2)
        await agent.until_reported(a=Reason.LOADED)
        assert agent.follower.view.boot != boot


@pytest.mark.field(39)
@pytest.mark.rule(9)
async def test_what_a_client_brings_back_is_unloaded_again(simulator, make, tmp_path):
    async with Agent(simulator, tmp_path) as agent:
        agent.source.set(adapter("a", path=make("a")))
        await agent.until_reported(a=Reason.LOADED)
        agent.source.set()
        await agent.until(lambda: not agent.held())
        await _generate(simulator, "a")
        assert agent.held()
        await agent.until(lambda: not agent.held())
        assert len(agent.unloads) == 2


@pytest.mark.field(39)
@pytest.mark.rule(2)
async def test_what_others_loaded_stays(simulator, make, tmp_path):
    await _post(simulator, LOAD, {"lora_name": "theirs", "lora_path": make("theirs")})
    async with Agent(simulator, tmp_path) as agent:
        agent.source.set(adapter("a", path=make("a")))
        await agent.until_reported(a=Reason.LOADED)
        agent.source.set()
        await agent.until(lambda: "a" not in agent.held())
        assert set(agent.held()) == {"theirs"}
        assert agent.loop.said
        assert agent.loop.said.foreign == ("theirs",)


@pytest.mark.rule(6)
async def test_replacing_under_traffic_shows_no_client_an_error(simulator, make, tmp_path):
    old, new = make("old", seed=1), make("new", seed=2)
    stop = asyncio.Event()
    answers: list[str] = []

    async def client() -> None:
        while not stop.is_set():
            answers.append(await _generate(simulator, "a"))

    async with Agent(simulator, tmp_path) as agent:
        agent.source.set(adapter("a", path=old))
        await agent.until_reported(a=Reason.LOADED)
        clients = [asyncio.create_task(client()) for _ in range(8)]
        await agent.until(lambda: len(answers) > 8)
        agent.source.set(adapter("a", path=new, generation=2))
        await agent.until(
            lambda: agent.held() == {"a": new} and agent.reasons()["a"] is Reason.LOADED
        )
        before = len(answers)
        await agent.until(lambda: len(answers) > before + 16)
        stop.set()
        await asyncio.gather(*clients)
        assert set(answers[-8:]) == {await _generate(simulator, "a")}
        assert answers[-1] != answers[0]


@pytest.mark.field(30)
@pytest.mark.field(48)
@pytest.mark.rule(6)
async def test_rewritten_weights_are_loaded_once_and_a_touch_not_at_all(simulator, make, tmp_path):
    a = adapter("a", path=make("a", seed=1))
    async with Agent(simulator, tmp_path) as agent:
        agent.source.set(a)
        await agent.until(lambda: agent.loop.said and agent.loop.said.adapters[0].content_hash)
        (tmp_path / "a" / "adapter_model.safetensors").touch()
        before = agent.loop.said.adapters[0].signature
        await agent.until(lambda: agent.loop.said.adapters[0].signature != before)
        assert len(agent.loads) == 1
        make("a", seed=2)
        await agent.until(lambda: len(agent.loads) == 2)
        await agent.until_reported(a=Reason.LOADED)


def _rewrite(folder: Path) -> None:
    weights = folder / "a" / "adapter_model.safetensors"
    new = make_adapter(folder / "new", seed=2) / weights.name
    assert len(new.read_bytes()) == weights.stat().st_size
    weights.write_bytes(new.read_bytes())


def _rename(folder: Path) -> None:
    new = make_adapter(folder / "new", seed=2)
    (new / "adapter_model.safetensors").rename(folder / "a" / "adapter_model.safetensors")


def _swap_data(folder: Path) -> None:
    make_adapter(folder / "volume" / "..2", seed=2)
    (folder / "volume" / "..new").symlink_to("..2")
    (folder / "volume" / "..new").rename(folder / "volume" / "..data")


def _replace_directory(folder: Path) -> None:
    new = make_adapter(folder / "new", seed=2)
    (folder / "a").rename(folder / "old")
    new.rename(folder / "a")


def _link_data(folder: Path) -> None:
    """A directory as kubelet makes it of a ConfigMap."""
    make_adapter(folder / "volume" / "..1", seed=1)
    (folder / "volume" / "..data").symlink_to("..1")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (folder / "volume" / name).symlink_to(f"..data/{name}")


@pytest.mark.rule(6)
@pytest.mark.field(30)
@pytest.mark.field(118)
@pytest.mark.parametrize("change", [_rewrite, _rename, _swap_data, _replace_directory])
async def test_new_weights_are_loaded_once_however_they_came(simulator, make, tmp_path, change):
    a = adapter("a", path=make("a", seed=1))
    if change is _swap_data:
        _link_data(tmp_path)
        a = adapter("a", path=str(tmp_path / "volume"))
    async with Agent(simulator, tmp_path) as agent:
        agent.source.set(a)
        await agent.until(lambda: agent.loop.said and agent.loop.said.adapters[0].content_hash)
        before = agent.loop.said.adapters[0].content_hash
        change(tmp_path)
        await agent.until(
            lambda: agent.loop.said.adapters[0].content_hash not in ("", None, before)
        )
        await agent.until_reported(a=Reason.LOADED)
        passes = agent.loop.passes
        await agent.until(lambda: agent.loop.passes > passes + 10)
        assert len(agent.loads) == 2


@pytest.mark.rule(7)
@pytest.mark.field(43)
async def test_tokens_that_an_adapter_adds_are_for_the_engine_to_judge(simulator, make, tmp_path):
    """Versions differ in what they take; none may be denied here what its engine serves."""
    path = make("a")
    (tmp_path / "a" / "added_tokens.json").write_text('{"<new>": 5000}')
    async with Agent(simulator, tmp_path) as agent:
        agent.source.set(adapter("a", path=path))
        await agent.until_reported(a=Reason.INCOMPATIBLE)
        assert len(agent.loads) == 1
        assert "add tokens to the vocabulary" in agent.text("a")


async def test_memory_that_is_recalled_from_the_report_loads_nothing_twice(
    simulator, make, tmp_path
):
    a = adapter("a", path=make("a"))
    async with Agent(simulator, tmp_path) as agent:
        agent.source.set(a)
        await agent.until_reported(a=Reason.LOADED)
        said = agent.loop.said
    again = Agent(simulator, tmp_path)
    again.remember(recall(said, 0.0))
    again.follower.remember_boot(said.engine.boot_id)
    async with again:
        again.source.set(a)
        await again.until_reported(a=Reason.LOADED)
        assert len(again.loads) == 1
        again.source.set()
        await again.until(lambda: not again.held())


@pytest.mark.rule(4)
async def test_files_that_come_late_are_waited_for_and_nothing_is_sent_before(simulator, tmp_path):
    path = tmp_path / "late"
    async with Agent(simulator, tmp_path) as agent:
        agent.source.set(adapter("a", path=str(path)))
        await agent.until_reported(a=Reason.PATH_NOT_FOUND)
        make_adapter(path, weights="truncated")
        await agent.until_reported(a=Reason.PATH_INCOMPLETE)
        assert agent.loads == []
        make_adapter(path)
        await agent.until_reported(a=Reason.LOADED)


@pytest.mark.field(18)
@pytest.mark.rule(4)
async def test_a_file_system_that_hangs_beside_a_load_holds_up_nobody(
    simulator, make, tmp_path, monkeypatch
):
    monkeypatch.setattr("sidecar.agent.calling.GLANCE", 0.01)
    a, b = adapter("a", path=make("a")), adapter("b", path=make("b"))
    async with Agent(simulator, tmp_path) as agent:
        look = agent.files.look

        async def hanging(path: str, *, within: float = 0.0) -> object:
            if path == a.spec.path:
                await asyncio.Event().wait()
            return await look(path, within=within)

        monkeypatch.setattr(agent.files, "look", hanging)
        agent.source.set(a, b)
        await agent.until(lambda: "b" in agent.held())
        assert agent.loads == [{"lora_name": "b", "lora_path": b.spec.path}]


async def test_a_fault_of_ours_in_one_pass_does_not_end_the_agent(
    simulator, make, tmp_path, monkeypatch
):
    monkeypatch.setattr("sidecar.agent.loop.FAULT_PAUSE", 0.01)
    async with Agent(simulator, tmp_path) as agent:
        broken = iter([True])
        gather = agent.loop.gather

        def once() -> object:
            if next(broken, False):
                raise RuntimeError("a fault")
            return gather()

        monkeypatch.setattr(agent.loop, "gather", once)
        agent.source.set(adapter("a", path=make("a")))
        await agent.until_reported(a=Reason.LOADED)


@pytest.mark.field(21)
async def test_an_engine_without_lora_is_asked_once_at_the_most(make, tmp_path):
    async with (
        Simulator(Options(enable_lora=False)) as simulator,
        Agent(simulator, tmp_path) as agent,
    ):
        agent.source.set(adapter("a", path=make("a")))
        await agent.until_reported(a=Reason.LORA_DISABLED)
        assert "--enable-lora" in agent.text("a")
        passes = agent.loop.passes
        await agent.until(lambda: agent.loop.passes > passes + 10)
        assert len(agent.loads) <= 1


@pytest.mark.field(123)
async def test_trusted_paths_are_sent_unseen(simulator, make, tmp_path):
    outside = make("a")
    me = Me("pod-0", "ns", trust_path=True)
    async with Agent(simulator, tmp_path / "elsewhere", me) as agent:
        agent.source.set(adapter("a", path=outside))
        await agent.until_reported(a=Reason.LOADED)


@pytest.mark.field(20)
async def test_the_gauge_of_an_adapter_follows_it(simulator, make, tmp_path):
    labels = {"adapter": "ns/a", "handle": "a"}

    def gauge() -> float | None:
        return agent.registry.get_sample_value("lora_sidecar_adapter_loaded", labels)

    async with Agent(simulator, tmp_path) as agent:
        agent.source.set(adapter("a", path=str(tmp_path / "a")))
        await agent.until(lambda: gauge() == 0)
        make("a")
        await agent.until(lambda: gauge() == 1)
        await simulator.stop()
        await agent.until(lambda: gauge() == 0)
        agent.source.set()
        await agent.until(lambda: gauge() is None)


async def _post(simulator: Simulator, path: str, body: dict[str, object]) -> dict[str, object]:
    # No threads: the engine simulated in this process needs those that there are.
    async with (
        aiohttp.ClientSession() as session,
        session.post(simulator.url + path, json=body) as answer,
    ):
        assert answer.status == 200
        return dict(await answer.json())


async def _generate(simulator: Simulator, handle: str) -> str:
    sampling = {"temperature": 0, "max_new_tokens": 6}
    body = {"text": "hello", "lora_path": handle, "sampling_params": sampling}
    return str((await _post(simulator, "/generate", body))["text"])


@pytest.mark.rule(11)
async def test_the_next_agent_probes_an_unload_that_hangs_once_and_goes_on_when_it_ends(
    simulator, make, tmp_path, monkeypatch
):
    monkeypatch.setattr(scratch, "STUCK_AFTER", 0.05)
    a, b = adapter("a", path=make("a")), adapter("b", path=make("b"))
    leaving = adapter("a", path=a.spec.path, deleting=True)
    async with Agent(simulator, tmp_path) as agent:
        agent.source.set(a)
        await agent.until_reported(a=Reason.LOADED)
        simulator.loras.registry["a"].use(1)  # a request that never ends
        held = simulator.loras.registry["a"]
        agent.source.set(leaving, b)
        await agent.until_reported(a=Reason.UNLOAD_STUCK, b=Reason.LOADING)
        assert "a" in agent.text("b")
        said = agent.loop.said
    again = Agent(simulator, tmp_path)
    again.remember(recall(said, 0.0))
    again.follower.remember_boot(said.engine.boot_id)
    async with again:
        again.source.set(leaving, b)
        await again.until(lambda: len(again.unloads) == 2)
        passes = again.loop.passes
        await again.until(lambda: again.loop.passes > passes + 10)
        assert again.reasons() == {"a": Reason.UNLOAD_STUCK, "b": Reason.LOADING}
        assert (len(again.unloads), len(again.loads)) == (2, 1)
        held.use(-1)
        await again.until_reported(a=Reason.UNLOADED, b=Reason.LOADED)
        assert again.held() == {"b": b.spec.path}
