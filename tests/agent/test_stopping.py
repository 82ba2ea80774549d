"""How an agent's process ends: what is under way is finished where it can be, and the report has the last word."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.agent.__main__ import GRACE
from tests.agent.processes import AgentProcess, manifest
from tests.flows.engine_control import held, loads, misbehave
from tests.rig.adapters import make_adapter
from tests.rig.engines import EngineProcess
from tests.rig.polling import until

LOAD = "/load_lora_adapter"


@pytest.fixture
def agent(tmp_path: Path, engine: EngineProcess) -> Iterator[AgentProcess]:
    with AgentProcess(tmp_path / "agent", engine) as started:
        started.write("a.yaml", manifest("a", make_adapter(tmp_path / "a")))
        yield started


@pytest.mark.rule(15)
def test_a_load_under_way_at_sigterm_is_finished_and_its_outcome_reported(
    agent: AgentProcess, engine: EngineProcess
) -> None:
    misbehave(engine, LOAD, act="delay", seconds=1.5)
    until(lambda: loads(engine), "the load is under way")
    assert held(engine) == {}
    assert agent.end() == 0
    assert agent.reasons() == {"a": "Loaded"}
    assert len(loads(engine)) == 1
    assert set(held(engine)) == {"a"}


@pytest.mark.rule(15)
def test_a_call_that_never_ends_holds_up_neither_the_end_nor_the_report(
    agent: AgentProcess, engine: EngineProcess
) -> None:
    misbehave(engine, LOAD, act="hang")
    until(lambda: loads(engine), "the load is under way")
    assert agent.end(within=GRACE) == 0
    assert agent.reasons() == {"a": "Loading"}
    log = agent.log.read_text()
    assert "a call to the engine is still open" in log
    assert "Traceback" not in log


@pytest.mark.rule(15)
def test_an_agent_at_rest_ends_at_once_and_leaves_the_engine_alone(
    agent: AgentProcess, engine: EngineProcess
) -> None:
    agent.until_reported(a="Loaded")
    assert agent.end(within=5) == 0
    assert set(held(engine)) == {"a"}
