"""Keys, certificates and addresses as the whole agent meets them: what is loaded, what is said, what is logged.

How each call shows and finds them is tested in test_sglang.
"""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sidecar.agent.keys import Certificate, Keys
from sidecar.agent.sglang import Engine
from sidecar.api.reasons import Reason
from tests.agent.builders import adapter
from tests.agent.harness import Agent
from tests.agent.processes import AgentProcess, manifest
from tests.fakes.sglang.options import Options
from tests.fakes.sglang.server import Simulator
from tests.rig import pki
from tests.rig.adapters import make_adapter
from tests.rig.engines import EngineProcess
from tests.rig.polling import until

pytestmark = pytest.mark.rule(14)

POD_IP = "127.0.0.2"
"""Stands for the pod's address: none of the two loopbacks that are tried by themselves."""


class Guarded:
    """An engine that asks for two keys, and an agent that reads its own from files."""

    def __init__(self, simulator: Simulator, folder: Path) -> None:
        self.simulator = simulator
        self.api, self.admin = folder / "api", folder / "admin"
        keys = Keys(api_file=self.api, admin_file=self.admin)
        engine = Engine((simulator.host,), simulator.port, keys=keys)
        self.agent = Agent(simulator, folder, engine=engine)
        self.a, self.b = (
            adapter(name, path=str(make_adapter(folder / name, seed=seed)))
            for seed, name in enumerate("ab")
        )

    def give(self, api: str | None, admin: str | None) -> None:
        for file, key in ((self.api, api), (self.admin, admin)):
            file.unlink(missing_ok=True)
            if key is not None:
                file.write_text(key)

    def ask_for(self, api: str, admin: str) -> None:
        self.simulator.options.api_key = api
        self.simulator.options.admin_api_key = admin


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    options = Options(api_key="reads-1", admin_api_key="changes-1")
    async with Simulator(options) as simulator:
        made = Guarded(simulator, tmp_path)
        made.give("reads-1", "changes-1")
        yield made


@pytest.mark.field(9)
async def test_rotated_keys_are_taken_up_with_one_line_in_the_log(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with guarded.agent as agent:
        agent.source.set(guarded.a)
        await agent.until_reported(a=Reason.LOADED)
        guarded.give("reads-2", "changes-2")
        guarded.ask_for("reads-2", "changes-2")
        agent.source.set(guarded.a, guarded.b)
        await agent.until_reported(a=Reason.LOADED, b=Reason.LOADED)
    lines = [line for line in caplog.messages if "a key" in line]
    assert lines == ["the engine refused a key, and its file holds another one by now"]
    assert "reads-" not in caplog.text
    assert "changes-" not in caplog.text


@pytest.mark.field(9)
async def test_an_api_key_that_is_refused_is_named_until_its_file_holds_the_right_one(
    guarded: Guarded,
) -> None:
    guarded.give("another", "changes-1")
    async with guarded.agent as agent:
        agent.source.set(guarded.a)
        await agent.until_reported(a=Reason.ENGINE_UNAUTHORIZED)
        assert agent.text("a") == "the engine refused the api key"
        assert agent.loads == []
        guarded.give("reads-1", "changes-1")
        await agent.until_reported(a=Reason.LOADED)


REFUSED = {
    "another admin key": ("another", "the engine refused the admin key"),
    "the api key alone": (
        None,
        "the engine refused the api key for loading and unloading: it asks for its admin key",
    ),
}


@pytest.mark.field(9)
@pytest.mark.parametrize(("admin", "text"), REFUSED.values(), ids=REFUSED)
async def test_a_refused_load_says_which_key_is_wrong_and_is_not_sent_again_and_again(
    guarded: Guarded, admin: str | None, text: str
) -> None:
    guarded.give("reads-1", admin)
    async with guarded.agent as agent:
        agent.source.set(guarded.a)
        await agent.until_reported(a=Reason.ENGINE_UNAUTHORIZED)
        assert agent.text("a") == text
        passes = agent.loop.passes
        await agent.until(lambda: agent.loop.passes > passes + 10)
        assert len(agent.loads) == 1


async def test_without_any_key_it_says_that_one_is_asked_for(guarded: Guarded) -> None:
    guarded.give(None, None)
    async with guarded.agent as agent:
        agent.source.set(guarded.a)
        await agent.until_reported(a=Reason.ENGINE_UNAUTHORIZED)
        assert agent.text("a") == "the engine asks for a key, and none is given"


@pytest.mark.parametrize("pinned", [True, False], ids=["pinned", "unpinned"])
async def test_over_https_adapters_are_loaded_and_a_missing_pin_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, pinned: bool
) -> None:
    cert, key = pki.Authority(tmp_path).issue("engine", user="engine")
    async with Simulator(Options(ssl_certfile=cert, ssl_keyfile=key)) as simulator:
        file = cert if pinned else tmp_path / "absent"
        async with https(simulator, tmp_path, file) as agent:
            agent.source.set(adapter("a", path=str(make_adapter(tmp_path / "a"))))
            await agent.until_reported(a=Reason.LOADED)
    told = [line for line in caplog.messages if "certificate" in line]
    assert len(told) == (0 if pinned else 1)


async def test_an_engine_with_another_certificate_is_sent_nothing_and_that_is_said(
    tmp_path: Path,
) -> None:
    authority = pki.Authority(tmp_path)
    cert, key = authority.issue("engine", user="engine")
    another, _ = authority.issue("another", user="another")
    async with (
        Simulator(Options(ssl_certfile=cert, ssl_keyfile=key)) as simulator,
        https(simulator, tmp_path, another) as agent,
    ):
        agent.source.set(adapter("a", path=str(make_adapter(tmp_path / "a"))))
        await agent.until_reported(a=Reason.ENGINE_UNREACHABLE)
        assert "not the one in the engine's certificate file" in agent.text("a")
        assert not simulator.asked


def https(simulator: Simulator, folder: Path, certificate: Path) -> Agent:
    pin = Certificate(certificate)
    hosts = (simulator.host,)
    engine = Engine(hosts, simulator.port, scheme="https", certificate=pin)
    return Agent(simulator, folder, engine=engine)


@pytest.mark.field(52)
@pytest.mark.parametrize("host", ["::1", "127.0.0.1", POD_IP])
def test_an_engine_is_found_at_whichever_single_address_it_listens(
    tmp_path: Path, host: str
) -> None:
    with (
        EngineProcess.start("simulated", tmp_path / "engine", host=host) as engine,
        AgentProcess(tmp_path / "agent", engine, "--pod-ip", POD_IP) as agent,
    ):
        agent.write("a.yaml", manifest("a", make_adapter(tmp_path / "a")))
        agent.until_reported(a="Loaded")


@pytest.mark.field(52)
def test_an_engine_at_an_address_that_nobody_told_is_waited_for_where_it_was_looked_for(
    tmp_path: Path,
) -> None:
    with (
        EngineProcess.start("simulated", tmp_path / "engine", host=POD_IP) as engine,
        AgentProcess(tmp_path / "agent", engine) as agent,
    ):
        agent.write("a.yaml", manifest("a", make_adapter(tmp_path / "a")))
        agent.until_reported(a="EngineStarting")
        where = f"nothing listens on [::1]:{engine.port}, 127.0.0.1:{engine.port}"
        until(lambda: agent.report()["status"]["engine"]["text"] == where, "the report says where")
