"""The demo as it is run: it shows its steps, says whether they were seen, and leaves nothing behind."""

import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.demo.steps import STEPS
from tests.rig.polling import until
from tests.rig.stack import ROOT

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks into /proc"),
]

MARK = "LORA_SIDECAR_TEST_MARK"


@dataclass(frozen=True, slots=True)
class Run:
    """One run. All that it starts inherits the mark from it, and puts temporary files into `temporary`."""

    process: subprocess.Popen[str]
    mark: str
    temporary: Path

    def pids(self) -> set[int]:
        """The processes that carry the mark and have not ended."""
        wanted = f"{MARK}={self.mark}".encode()
        found = set()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.add(int(folder.name))
            except OSError:
                continue  # it has just ended, or is somebody else's
        return found

    def read_until(self, word: str) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            if word in line:
                return
        raise AssertionError(f"it ended without saying {word!r}")


@pytest.fixture
def demo() -> Iterator[Run]:
    """The demo, just started. The folder is not pytest's: a socket's path must be short."""
    mark = secrets.token_hex(8)
    with tempfile.TemporaryDirectory(prefix="demo-") as temporary:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.demo"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            cwd=ROOT,
            env=os.environ | {MARK: mark, "TMPDIR": temporary, "PYTHONIOENCODING": "utf-8"},
            start_new_session=True,
        )
        run = Run(process, mark, Path(temporary))
        try:
            yield run
        finally:
            process.kill()
            process.communicate()


def left_by(run: Run) -> list[str]:
    """What stands in the temporary folder after the last process has gone."""
    until(lambda: not run.pids(), "the last process is gone", timeout=10)
    return [path.name for path in run.temporary.iterdir()]


def test_every_step_is_seen_and_nothing_is_left(demo: Run):
    told, _ = demo.process.communicate(timeout=240)
    assert demo.process.returncode == 0, told
    for number, step in enumerate(STEPS, 1):
        assert f"{number}/{len(STEPS)}  {step.title}" in told
    for line in (
        "it waits for the path, and says so",
        "loaded on the pod that is up",
        "loaded on both",
        "the adapter changes what the model answers",
        "the status no longer counts chat-0",
        "the new engine has the adapter again",
        "both pods have loaded the new content",
        "the new weights answer",
        "refused, with the reason",
        "All 6 steps were seen",
    ):
        assert line in told
    assert "\x1b" not in told
    assert left_by(demo) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_ends_it_and_nothing_is_left(demo: Run, number: signal.Signals):
    demo.read_until(f"2/{len(STEPS)}  ")
    assert len(demo.pids()) > 5  # control plane, engines, agent and aggregator carry the mark
    demo.process.send_signal(number)
    demo.process.communicate(timeout=60)
    assert demo.process.returncode == 128 + number
    assert left_by(demo) == []
