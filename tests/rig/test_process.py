import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.rig.polling import until
from tests.rig.process import Process

REPOSITORY = Path(__file__).parents[2]
IGNORES_TERM = "trap '' TERM; echo ready; while true; do sleep 1; done"
OWNER = """
import pathlib, sys
from tests.rig.process import Process
print(Process(["/bin/sh", "-c", "echo ready; exec sleep 600"], pathlib.Path(sys.argv[1])).pid, flush=True)
sys.stdin.read()
"""


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def says_ready(log: Path) -> None:
    until(lambda: log.exists() and "ready" in log.read_text(), "the program runs")


def test_output_goes_to_the_log_and_the_exit_code_is_known(tmp_path):
    process = Process(["/bin/sh", "-c", "pwd; echo oops >&2; exit 3"], tmp_path / "log")

    until(lambda: process.exit_code is not None, "the program ends")

    assert process.exit_code == 3
    assert process.tail() == f"{tmp_path}\noops"


def test_a_program_that_ignores_the_request_is_ended_all_the_same(tmp_path):
    process = Process(["/bin/sh", "-c", IGNORES_TERM], tmp_path / "log")
    says_ready(process.log)

    process.stop(grace=0.1)
    process.stop()

    assert process.exit_code == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
def test_a_program_dies_with_the_process_that_started_it(tmp_path):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, tmp_path / "log"],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        pid = int(owner.stdout.readline())
        says_ready(tmp_path / "log")

        owner.kill()

    until(lambda: is_gone(pid), "the program is gone")


def test_a_program_outlives_the_thread_that_started_it(tmp_path):
    started = []
    runs = Event()

    def start() -> None:
        started.append(Process(["/bin/sh", "-c", "echo ready; exec sleep 600"], tmp_path / "log"))
        runs.wait()

    thread = Thread(target=start)
    thread.start()
    says_ready(tmp_path / "log")
    runs.set()
    thread.join()

    started[0].stop()

    assert started[0].exit_code == -signal.SIGTERM


def test_a_program_is_out_of_reach_of_the_terminals_interrupt(tmp_path):
    process = Process(["/bin/sh", "-c", "echo ready; exec sleep 600"], tmp_path / "log")
    says_ready(process.log)

    assert os.getsid(process.pid) != os.getsid(0)

    process.kill()
