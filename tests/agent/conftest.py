"""What the tests of the agent's process share: the engine beside it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.engines import EngineProcess


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EngineProcess]:
    with EngineProcess.start("simulated", tmp_path / "engine") as started:
        yield started
