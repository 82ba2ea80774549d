"""The agent as it runs beside an SGLang without Kubernetes: a process, manifests, a report file, and `/state`.

What files mean is tested in test_manifests, how they are looked at in test_directory; here is what a person sees who
edits them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agent.processes import AgentProcess, manifest
from tests.flows.engine_control import held, loads
from tests.rig.adapters import make_adapter
from tests.rig.engines import EngineProcess
from tests.rig.polling import until


@pytest.fixture
def agent(tmp_path: Path, engine: EngineProcess) -> Iterator[AgentProcess]:
    with AgentProcess(tmp_path / "agent", engine) as started:
        yield started


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, str]:
    return {n: str(make_adapter(tmp_path / n, seed=s)) for s, n in enumerate(("a", "b", "c"))}


@pytest.mark.rule(1)
def test_what_is_written_edited_and_deleted_in_files_happens_in_the_engine(
    agent: AgentProcess, engine: EngineProcess, paths: dict[str, str]
) -> None:
    until(lambda: agent.state().get("source"), "it runs without its directory")
    source = agent.state()["source"]
    assert not source["synced"]
    assert str(agent.manifests) in source["problem"]
    agent.write("two.yaml", manifest("a", paths["a"]), manifest("b", paths["b"]))
    agent.until_reported(a="Loaded", b="Loaded")
    items = {"apiVersion": "v1", "kind": "List", "items": [manifest("c", paths["c"])]}
    agent.write("list.yml", items)
    agent.until_reported(a="Loaded", b="Loaded", c="Loaded")
    agent.write("two.yaml", manifest("a", paths["b"]))
    until(lambda: held(engine) == {"a": paths["b"], "c": paths["c"]}, "the edit is carried out")
    (agent.manifests / "list.yml").unlink()
    until(lambda: held(engine) == {"a": paths["b"]}, "the deletion is carried out")
    agent.until_reported(a="Loaded")


@pytest.mark.rule(2)
def test_a_broken_edit_unloads_nothing_and_is_named_wherever_one_looks(
    agent: AgentProcess, engine: EngineProcess, paths: dict[str, str]
) -> None:
    agent.write("a.yaml", manifest("a", paths["a"]))
    agent.write("b.yaml", manifest("b", paths["b"]))
    agent.until_reported(a="Loaded", b="Loaded")
    (agent.manifests / "a.yaml").write_text("kind: {")
    until(lambda: "a.yaml" in agent.report()["invalid"], "the report names the file")
    (agent.manifests / "b.yaml").unlink()
    until(lambda: held(engine) == {"a": paths["a"]}, "the other file counts on")
    agent.until_reported(a="Loaded")
    agent.write("a.yaml", manifest("a", paths["a"]))
    until(lambda: agent.report()["invalid"] == {}, "the report takes it back")
    assert len(loads(engine)) == 2


def test_a_broken_edit_is_told_also_while_nothing_else_happens(
    agent: AgentProcess, engine: EngineProcess, paths: dict[str, str]
) -> None:
    engine.kill()
    agent.write("a.yaml", manifest("a", paths["a"]))
    agent.until_reported(a="EngineStarting")
    (agent.manifests / "a.yaml").write_text("kind: {")
    until(lambda: "a.yaml" in agent.report()["invalid"], "the report names the file", timeout=15)
    assert agent.reasons() == {"a": "EngineStarting"}


def without_path(path: str) -> dict[str, Any]:
    body = manifest("never", path)
    del body["spec"]["path"]
    return body


def test_an_object_that_never_could_be_read_is_in_state_report_and_once_in_the_log(
    agent: AgentProcess, engine: EngineProcess, paths: dict[str, str]
) -> None:
    agent.write("a.yaml", manifest("a", paths["a"]), without_path(paths["b"]))
    agent.until_reported(a="Loaded")
    until(lambda: agent.report().get("invalid"), "the report names the object")
    told = agent.report()["invalid"]
    assert list(told) == ["default/never"]
    assert "a.yaml: spec.path" in told["default/never"]
    assert agent.state()["source"]["invalid"] == told
    agent.write("other.yaml", manifest("c", paths["c"]))
    agent.until_reported(a="Loaded", c="Loaded")
    lines = [line for line in agent.log.read_text().splitlines() if "a.yaml: spec.path" in line]
    assert len(lines) == 1
    agent.write("a.yaml", manifest("a", paths["a"]), manifest("never", paths["b"]))
    agent.until_reported(a="Loaded", c="Loaded", never="Loaded")


def test_links_that_are_swapped_and_editors_that_rename_take_nothing_away(
    agent: AgentProcess, engine: EngineProcess, paths: dict[str, str]
) -> None:
    for number, name in enumerate("ab"):
        version = agent.manifests / f"..{number}"
        version.mkdir(parents=True)
        (version / "a.yaml").write_text(yaml.safe_dump(manifest("a", paths[name])))
    (agent.manifests / "..data").symlink_to("..0")
    (agent.manifests / "a.yaml").symlink_to("..data/a.yaml")
    agent.write("b.yaml", manifest("b", paths["b"]))
    agent.until_reported(a="Loaded", b="Loaded")
    (agent.manifests / "..new").symlink_to("..1")
    (agent.manifests / "..new").rename(agent.manifests / "..data")
    until(lambda: held(engine).get("a") == paths["b"], "the swap is seen")
    (agent.manifests / "b.yaml").rename(agent.manifests / "b.yaml~")
    agent.write("b.yaml", manifest("b", paths["c"]))
    until(lambda: held(engine) == {"a": paths["b"], "b": paths["c"]}, "the save is seen")
    assert sorted(loads(engine)) == [paths["a"], paths["b"], paths["b"], paths["c"]]


@pytest.mark.rule(16)
def test_readiness_that_waits_is_a_setting_and_says_what_it_waits_for(
    tmp_path: Path, engine: EngineProcess, paths: dict[str, str]
) -> None:
    with AgentProcess(tmp_path / "agent", engine, "--readiness", "true") as agent:
        until(lambda: agent.get("/readyz")[0], "it answers")
        assert agent.get("/readyz") == (503, "waits for the first list of LoRAAdapters\n")
        agent.write("a.yaml", manifest("a", paths["a"]), manifest("late", tmp_path / "late"))
        until(
            lambda: agent.get("/readyz") == (503, "waits for default/late: PathNotFound\n"),
            "it names what is missing",
        )
        make_adapter(tmp_path / "late")
        until(lambda: agent.get("/readyz") == (200, "ready\n"), "it is ready")
