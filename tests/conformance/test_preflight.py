"""The preflight is as strict as the engine and no stricter: what it refuses fails, what the engine serves passes."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sidecar.agent import files
from sidecar.agent.base import BaseModel, read_base
from sidecar.agent.mounts import Shared
from sidecar.agent.pathview import AdapterFacts
from sidecar.agent.preflight import Refusal, judge, limits_of
from tests.conformance.gallery import Gallery
from tests.conformance.subject import Subject, fresh
from tests.rig.adapters import make_adapter
from tests.rig.engines import EngineProcess, Kind
from tests.rig.sglang.model import make_model

pytestmark = pytest.mark.rule(5)

ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@pytest.fixture(scope="module")
def wide_process(
    kind: Kind, version: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineProcess]:
    flags = ["--lora-target-modules", *ALL]
    folder = tmp_path_factory.mktemp("wide")
    with EngineProcess.start(kind, folder, version=version, extra_args=flags) as process:
        yield process


@pytest.fixture
async def wide(wide_process: EngineProcess) -> AsyncIterator[Subject]:
    """An engine that serves adapters of every projection."""
    async with Subject.of(wide_process) as subject:
        yield subject


async def verdict(subject: Subject, path: Path | str, base: Path) -> Refusal | None:
    return judge(_facts(path), limits_of(await subject.client.server_info(), _sizes(base)))


def _facts(path: Path | str) -> AdapterFacts:
    view = files.inspect(str(path), Shared.of(["/"]), 2e9)
    assert view.config
    return view.config


def _sizes(base: Path) -> BaseModel:
    if not base.exists():
        make_model(base)
    sizes = read_base((base / "config.json").read_bytes())
    assert sizes
    return sizes


@pytest.mark.parametrize(
    ("modules", "rank"),
    [
        (["q_proj", "v_proj"], 4),
        (["q_proj", "k_proj", "v_proj"], 2),
        (["o_proj"], 4),
        (["gate_proj"], 4),
        (["gate_proj", "up_proj"], 4),
        (["down_proj"], 4),
        (ALL, 8),
        (ALL, 1),
    ],
)
async def test_what_the_engine_serves_passes(
    wide: Subject, tmp_path: Path, modules: list[str], rank: int
) -> None:
    made = make_adapter(tmp_path / "a", seed=5, modules=modules, rank=rank)
    assert await verdict(wide, made, tmp_path / "base") is None
    name = fresh()
    assert (await wide.load(name, str(made)))[0] == 200
    assert (await wide.generate(name))[0] == 200


async def test_modules_of_one_fused_layer_pass_together(plain: Subject, tmp_path: Path) -> None:
    """The engine was started for q_proj and v_proj; k_proj is a part of the same layer."""
    made = make_adapter(tmp_path / "a", seed=5, modules=["k_proj", "q_proj", "v_proj"])
    assert await verdict(plain, made, tmp_path / "base") is None
    name = fresh()
    assert (await plain.load(name, str(made)))[0] == 200
    assert (await plain.generate(name))[0] == 200


@pytest.mark.parametrize("name", ["rank-16", "other-module", "prompt-tuning"])
async def test_what_the_engine_refuses_is_refused_before(
    plain: Subject, gallery: Gallery, tmp_path: Path, name: str
) -> None:
    assert await verdict(plain, gallery[name], tmp_path / "base")
    assert (await plain.load(fresh(), gallery[name]))[0] == 400


async def test_a_query_without_a_value_is_refused_before(plain: Subject, tmp_path: Path) -> None:
    made = make_adapter(tmp_path / "a", modules=["q_proj"])
    assert await verdict(plain, made, tmp_path / "base")
    status, told = await plain.load(fresh(), str(made))
    assert status == 400
    assert "layers.0.self_attn.v_proj.lora_A" in told["error_message"]


async def test_an_adapter_of_more_layers_is_refused_before(plain: Subject, tmp_path: Path) -> None:
    made = make_adapter(tmp_path / "a", layers=3)
    assert await verdict(plain, made, tmp_path / "base")
    status, told = await plain.load(fresh(), str(made))
    assert status == 400
    assert "out of range" in told["error_message"]
