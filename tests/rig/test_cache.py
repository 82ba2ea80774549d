import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.rig.cache import workspace
from tests.rig.polling import until

REPOSITORY = Path(__file__).parents[2]
HOLD = """
import pathlib, sys
from tests.rig.cache import workspace
with workspace(pathlib.Path(sys.argv[1])) as work:
    (work / "half").touch()
    print(work, flush=True)
    sys.stdin.read()
"""


def test_a_workspace_is_empty_and_gone_afterwards(tmp_path):
    with pytest.raises(ZeroDivisionError), workspace(tmp_path / "kept") as work:  # noqa: PT012
        assert list(work.iterdir()) == []
        (work / "half").touch()
        raise ZeroDivisionError

    assert not work.exists()


def test_two_workers_take_turns_and_what_an_interrupted_one_left_goes(tmp_path, capsys):
    home = tmp_path / "kept"
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, home],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other:
        theirs = Path(other.stdout.readline().strip())
        entered = Event()

        def enter() -> None:
            with workspace(home):
                entered.set()

        thread = Thread(target=enter)
        thread.start()
        until(lambda: "waiting for another process" in capsys.readouterr().err, "it waits")
        assert not entered.is_set()
        assert theirs.exists()

        other.kill()
        thread.join()

    assert entered.is_set()
    assert not theirs.exists()
