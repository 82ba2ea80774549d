"""Runs one program of the rig: output to a file, ended by its process id, and never outliving this process.

What the program is, and when it is ready, is its owner's business. On Linux the kernel ends it when this process dies,
however that happens (PR_SET_PDEATHSIG). That signal really follows the *thread* that started the program, so one
thread, which lives as long as the interpreter, starts them all; and it is asked for by a few lines of Python that then
become the program, rather than between fork and exec of a process with threads.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_BECOME = """
import os, sys
if sys.platform == "linux":
    import ctypes, signal
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""

_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rig-starter")


class Process:
    """One running program, from construction until `stop`; its working folder is that of its log."""

    def __init__(
        self,
        command: Sequence[str | Path],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        words = [str(word) for word in command]
        become = [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid())]
        self.name = Path(words[0]).name
        self.log = log
        with log.open("ab") as out:
            self._popen = _starter.submit(
                subprocess.Popen,
                [*become, *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=environment,
                cwd=log.parent,
                start_new_session=True,  # Ctrl-C is for us, who then end it in good order
            ).result()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code (negative: the signal), or None while it runs."""
        return self._popen.poll()

    def tail(self, lines: int = 30) -> str:
        """Return the last lines of its output, each cut to what a person reads."""
        last = self.log.read_text(errors="replace").splitlines()[-lines:]
        return "\n".join(line[:300] for line in last)

    def terminate(self) -> None:
        """Ask it to end, and do not wait."""
        self._popen.terminate()

    def kill(self) -> None:
        """End it at once, as a crash would, and wait until it is gone."""
        self._popen.kill()
        self._popen.wait()

    def stop(self, grace: float = 10) -> None:
        """Ask it to end and wait; after `grace` seconds end it anyway. Twice does no harm."""
        self._popen.terminate()
        try:
            self._popen.wait(grace)
        except subprocess.TimeoutExpired:
            self.kill()
