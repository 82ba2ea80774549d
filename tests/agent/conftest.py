"""What the tests of the agent share: an engine beside its process, or in this one, and adapters on disk."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.sglang.options import Options
from tests.fakes.sglang.server import Simulator
from tests.rig.adapters import make_adapter
from tests.rig.engines import EngineProcess


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EngineProcess]:
    with EngineProcess.start("simulated", tmp_path / "engine") as started:
        yield started


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    async with Simulator(Options(version="0.5.23", dying=0.0)) as running:
        yield running


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., str]:
    """A directory with an adapter, by its name: answers its path."""
    return lambda name, **how: str(make_adapter(tmp_path / name, **how))
