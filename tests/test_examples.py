"""The examples work: they parse, they name what there is, and an agent started as they say loads what they show."""

import re
import shlex
from collections.abc import Mapping
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecar.agent import manifests
from sidecar.agent.__main__ import parse
from sidecar.api.adapter import LoRAAdapter
from sidecar.api.settings import ENV_PREFIX, AgentSettings
from tests.agent.processes import AgentProcess
from tests.rig.adapters import make_adapter
from tests.rig.engines import EngineProcess, free_port

EXAMPLES = Path(__file__).parents[1] / "examples"


@dataclass(frozen=True, slots=True)
class Example:
    """How an example starts the agent."""

    folder: Path
    options: tuple[str, ...]
    environment: Mapping[str, str]

    def settings(self) -> AgentSettings:
        found, warnings = parse(self.options, dict(self.environment))
        assert warnings == []
        return found

    def adapters(self) -> list[LoRAAdapter]:
        found: list[LoRAAdapter] = []
        for file in sorted((self.folder / "adapters.d").iterdir()):
            content = manifests.parse(file.read_bytes(), file.name, "default")
            assert content.invalid == {}
            assert not content.others
            found += content.adapters.values()
        return found


def services() -> dict[str, dict[str, Any]]:
    told = yaml.safe_load((EXAMPLES / "compose" / "compose.yaml").read_text())
    return dict(told["services"])


def unit() -> ConfigParser:
    read = ConfigParser(interpolation=None, strict=False, comment_prefixes=("#",))
    text = (EXAMPLES / "systemd" / "lora-sidecar.service").read_text()
    read.read_string(text.replace("\\\n", " "))
    return read


def compose() -> Example:
    agent = services()["lora-sidecar"]
    assert agent["command"] == ["python", "-m", "sidecar.agent"]
    return Example(EXAMPLES / "compose", (), agent["environment"])


def systemd() -> Example:
    python, *words = shlex.split(unit()["Service"]["ExecStart"])
    assert python.endswith("/bin/python")
    assert words[:2] == ["-m", "sidecar.agent"]
    return Example(EXAMPLES / "systemd", tuple(words[2:]), {})


EVERY = pytest.mark.parametrize("example", [compose(), systemd()], ids=["compose", "systemd"])


@EVERY
def test_every_setting_that_it_gives_exists(example: Example) -> None:
    named = {name.removeprefix(ENV_PREFIX).lower() for name in example.environment}
    named |= {word[2:].replace("-", "_") for word in example.options if word.startswith("--")}
    assert named <= AgentSettings.model_fields.keys()
    told = example.settings()
    assert all(getattr(told, name) for name in named)
    assert {"manifests", "report_file", "service", "shared"} <= named


@EVERY
def test_its_adapters_are_for_its_service_and_lie_in_its_shared_directory(example: Example) -> None:
    told = example.settings()
    assert example.adapters()
    for adapter in example.adapters():
        assert adapter.spec.inference_service_ref.name == told.service
        assert any(Path(adapter.spec.path).is_relative_to(root) for root in told.shared)


@EVERY
def test_every_setting_that_its_readme_names_exists(example: Example) -> None:
    text = (example.folder / "README.md").read_text()
    ours = set(re.findall(rf"{ENV_PREFIX}([A-Z_]+)\b", text)) - {"IMAGE"}
    assert {name.lower() for name in ours} <= AgentSettings.model_fields.keys()


def test_in_compose_both_see_the_same_adapters_and_the_same_loopback() -> None:
    engine, agent = services()["sglang"], services()["lora-sidecar"]
    told = compose().settings()
    assert engine["network_mode"] == agent["network_mode"] == "service:network"
    ours, theirs = mounts(agent), mounts(engine)
    for root in told.shared:
        assert ours[root] == theirs[root]
    assert told.manifests in ours
    assert str(Path(told.report_file).parent) in ours
    words = engine["command"]
    assert words[words.index("--port") + 1] == str(told.engine_port)
    published = {port.rpartition(":")[2] for port in services()["network"]["ports"]}
    assert published == {str(told.engine_port), str(told.listen_port)}
    assert "--enable-lora" in words


def test_in_compose_no_image_of_ours_is_made_up() -> None:
    assert services()["lora-sidecar"]["image"].startswith("${LORA_SIDECAR_IMAGE:?")


def mounts(service: Mapping[str, Any]) -> dict[str, str]:
    """What is mounted, by where: compose's `source:target[:mode]`, whose source may be `${NAME:-default}`."""
    found = {}
    for line in service["volumes"]:
        source, target = re.fullmatch(r"(\$\{[^}]*\}|[^:]+):([^:]+)(?::\w+)?", line).groups()  # type: ignore[union-attr]
        found[target] = source
    return found


def test_the_unit_may_write_where_it_reports_and_gives_the_agent_time_to_end() -> None:
    service = unit()["Service"]
    told = systemd().settings()
    assert Path(told.report_file).parent == Path("/var/lib") / service["StateDirectory"]
    assert float(service["TimeoutStopSec"]) > 10


@EVERY
def test_an_agent_started_just_so_loads_the_example(tmp_path: Path, example: Example) -> None:
    folder, weights, port = tmp_path / "agent", tmp_path / "weights", free_port()
    told = example.settings()
    with EngineProcess.start("simulated", tmp_path / "engine") as engine:
        here = {
            told.manifests: str(folder / "manifests"),
            told.report_file: str(folder / "report.json"),
            str(told.engine_port): str(engine.port),
            str(told.listen_port): str(port),
            **{root: str(weights) for root in told.shared},
        }
        options = [here.get(word, word) for word in example.options]
        environment = {name: here.get(word, word) for name, word in example.environment.items()}
        with AgentProcess(
            folder, engine, *options, environment=environment, usual=False, port=port
        ) as agent:
            for file in (example.folder / "adapters.d").iterdir():
                body = yaml.safe_load(file.read_text())
                path = make_adapter(weights / Path(body["spec"]["path"]).name)
                agent.write(file.name, body | {"spec": body["spec"] | {"path": str(path)}})
            agent.until_reported(**{adapter.handle: "Loaded" for adapter in example.adapters()})
            assert agent.state()["source"]["synced"]
            assert agent.get("/readyz") == (200, "running\n")
