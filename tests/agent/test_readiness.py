"""When a pod that waits for its adapters may have traffic: pure values, with time as a number; once over real HTTP."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from sidecar.agent.readiness import NO_LIST, Readiness, after
from sidecar.agent.state import EngineView, Entry, Me
from sidecar.api.reasons import Reason, State
from sidecar.runtime import Probes
from tests.agent.builders import NOON, adapter, engine
from tests.agent.harness import Agent
from tests.fakes.sglang.options import Options
from tests.fakes.sglang.server import Simulator
from tests.rig.adapters import make_adapter

pytestmark = pytest.mark.rule(16)

HOLD = 600.0
ME = Me("pod-0", "ns", hold=HOLD)
FIRST = engine()
SECOND = replace(FIRST, boot="boot-2", since=NOON + timedelta(hours=1))
STARTING = EngineView()


def entry(name: str, reason: Reason, **over: object) -> Entry:
    return Entry(adapter(name, **over), reason)  # type: ignore[arg-type]


class Gate:
    """Readiness over time, from the agent's start at 100 on."""

    def __init__(self) -> None:
        self.now = Readiness(100.0)

    def at(
        self, seconds: float, *entries: Entry, engine: EngineView = FIRST, listed: bool = True
    ) -> bool:
        """The verdict so many seconds after the start."""
        self.now = after(self.now, ME, engine, entries if listed else None, 100.0 + seconds)
        return self.now.ready


DONE = [
    reason
    for reason in Reason
    if reason.state is not State.PENDING or reason.value == "CapacityExceeded"
]


@pytest.mark.parametrize("reason", DONE, ids=str)
def test_an_adapter_that_is_there_or_will_not_come_soon_holds_nothing(reason: Reason) -> None:
    assert Gate().at(0, entry("a", reason))


@pytest.mark.parametrize("reason", [r for r in Reason if r not in DONE], ids=str)
def test_a_pending_adapter_holds_the_pod_until_it_is_loaded(reason: Reason) -> None:
    gate = Gate()
    assert not gate.at(0, entry("a", reason), entry("b", Reason.LOADED))
    assert gate.now.text == f"waits for ns/a: {reason}"
    assert gate.at(1, entry("a", Reason.LOADED), entry("b", Reason.LOADED))
    assert gate.now.text == "ready"


def test_it_names_the_first_and_counts_the_others() -> None:
    gate = Gate()
    gate.at(0, *(entry(name, Reason.PATH_NOT_FOUND) for name in "abc"))
    assert gate.now.text == "waits for ns/a: PathNotFound, and 2 more"


def test_a_pending_adapter_holds_the_pod_no_longer_than_the_timeout() -> None:
    gate = Gate()
    missing = entry("a", Reason.PATH_NOT_FOUND)
    assert not gate.at(5, missing)
    assert not gate.at(5 + HOLD - 1, missing)
    assert gate.at(5 + HOLD, missing)
    assert gate.now.text == "ready without ns/a: PathNotFound"


def test_an_adapter_of_another_namespace_holds_nothing() -> None:
    assert Gate().at(0, entry("a", Reason.LOADING, namespace="theirs"))


def test_an_adapter_that_is_being_deleted_holds_nothing() -> None:
    assert Gate().at(0, entry("a", Reason.LOADING, deleting=True))


def test_an_adapter_that_is_gone_holds_nothing_any_more() -> None:
    gate = Gate()
    assert not gate.at(0, entry("a", Reason.LOADING))
    assert gate.at(1)


def test_an_adapter_that_came_after_the_first_list_holds_nothing() -> None:
    gate = Gate()
    assert not gate.at(0, entry("a", Reason.LOADING))
    assert gate.at(1, entry("a", Reason.LOADED), entry("late", Reason.LOADING))


def test_without_a_list_for_a_minute_the_pod_is_ready() -> None:
    gate = Gate()
    assert not gate.at(0, listed=False)
    assert gate.now.text == "waits for the first list of LoRAAdapters"
    assert not gate.at(NO_LIST - 1, listed=False)
    assert gate.at(NO_LIST, listed=False)
    assert gate.at(NO_LIST + 1, entry("a", Reason.LOADING)), (
        "a list that comes late changes nothing"
    )


def test_a_list_without_adapters_makes_ready_at_once() -> None:
    assert Gate().at(0)


def test_a_ready_pod_stays_ready_whatever_becomes_of_its_adapters() -> None:
    gate = Gate()
    assert gate.at(0, entry("a", Reason.LOADED))
    assert gate.at(1, entry("a", Reason.LOADING), entry("b", Reason.PATH_NOT_FOUND))
    assert gate.now.text == "ready"


def test_an_engine_that_tells_its_name_late_or_is_silent_is_the_same_process() -> None:
    gate = Gate()
    assert gate.at(0, entry("a", Reason.LOADED), engine=replace(FIRST, boot=""))
    assert gate.at(1, entry("a", Reason.LOADING))
    assert gate.at(2, entry("a", Reason.ENGINE_UNREACHABLE), engine=replace(FIRST, text="silent"))


@pytest.mark.parametrize("seen_dead", [True, False])
def test_a_new_engine_process_is_waited_for_again_for_all_that_is_wanted_then(
    seen_dead: bool,
) -> None:
    gate = Gate()
    assert gate.at(0, entry("a", Reason.LOADED))
    if seen_dead:
        assert not gate.at(1, entry("a", Reason.ENGINE_STARTING), engine=STARTING)
    pending = entry("a", Reason.LOADING), entry("b", Reason.LOADING)
    assert not gate.at(2 * HOLD, *pending, engine=SECOND)
    assert gate.now.text == "waits for ns/a: Loading, and 1 more"
    assert not gate.at(3 * HOLD - 1, *pending, engine=SECOND), "the timeout counts from its start"
    assert gate.at(3 * HOLD, *pending, engine=SECOND)


def test_the_hours_in_which_an_engine_starts_leave_it_the_whole_timeout() -> None:
    gate = Gate()
    starting, pending = entry("a", Reason.ENGINE_STARTING), entry("a", Reason.LOADING)
    assert not gate.at(0, starting, engine=STARTING)
    assert gate.at(HOLD, starting, engine=STARTING)
    assert not gate.at(HOLD + 1, pending)
    assert not gate.at(2 * HOLD, pending)


async def test_a_probe_sees_the_pod_wait_become_ready_and_wait_again(tmp_path) -> None:
    present, late = adapter("a", path=str(make_adapter(tmp_path / "a"))), str(tmp_path / "late")
    async with (
        Simulator(Options(dying=0.0)) as simulator,
        Agent(simulator, tmp_path, ME) as agent,
        _Probed(agent) as probe,
    ):
        assert await probe.says(503, "waits for the first list of LoRAAdapters")
        agent.source.set(present, adapter("b", path=late))
        assert await probe.says(503, "waits for ns/b: PathNotFound")
        make_adapter(tmp_path / "late")
        assert await probe.says(200, "ready")
        (tmp_path / "late").rename(tmp_path / "away")
        await simulator.stop()
        assert await probe.says(503, "waits for ns/a: EngineStarting, and 1 more")
        await simulator.start()
        assert await probe.says(503, "waits for ns/b: PathNotFound")


async def test_a_restarted_agent_is_ready_after_the_pass_that_finds_everything_held(
    tmp_path,
) -> None:
    a = adapter("a", path=str(make_adapter(tmp_path / "a")))
    async with Simulator() as simulator:
        async with Agent(simulator, tmp_path, ME) as agent:
            agent.source.set(a)
            await agent.until_reported(a=Reason.LOADED)
        again = Agent(simulator, tmp_path, ME)
        again.source.set(a)
        async with again:
            await again.until(lambda: again.loop.passes)
            assert again.loop.ready() == (True, "ready")
            assert again.loads == agent.loads


async def test_without_the_wish_to_wait_readiness_says_that_the_agent_runs(tmp_path) -> None:
    async with Simulator() as simulator:
        agent = Agent(simulator, tmp_path)
        assert agent.loop.ready() == (False, "starting")
        async with agent:
            agent.source.set(adapter("a", path=str(tmp_path / "absent")))
            await agent.until_reported(a=Reason.PATH_NOT_FOUND)
            assert agent.loop.ready() == (True, "running")


class _Probed:
    """The agent's real HTTP side, asked as a kubelet asks."""

    def __init__(self, agent: Agent) -> None:
        self._probes = Probes(
            0, live=lambda: True, ready=agent.loop.ready, registry=CollectorRegistry()
        )

    async def __aenter__(self) -> "_Probed":
        self._serving = asyncio.create_task(self._probes.serve())
        await self._probes.listening.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._serving.cancel()
        await asyncio.wait([self._serving])

    async def says(self, status: int, text: str) -> bool:
        """Whether the endpoint comes to say it."""
        url = f"http://127.0.0.1:{self._probes.port}/readyz"
        async with aiohttp.ClientSession() as session, asyncio.timeout(20):
            while True:
                async with session.get(url) as answer:
                    if (answer.status, await answer.text()) == (status, text + "\n"):
                        return True
                await asyncio.sleep(0.005)
