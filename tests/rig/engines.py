"""Runs an engine as a process, the simulated or the real SGLang, behind one interface.

Both get the same flags; the simulated one passes over what means nothing to it. Output goes to `engine.log` in the
folder given; the real one prints its flags there, so keys in them should be made up for the test. What an engine
answers is not looked at here, but for the `/health` by which it says that it is ready.
"""

import contextlib
import os
import signal
import socket
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

from tests.rig.errors import RigError
from tests.rig.polling import until
from tests.rig.process import Process
from tests.rig.sglang import install, launch
from tests.rig.sglang.model import make_model

Kind = Literal["simulated", "real"]

READY_SECONDS = {"simulated": 30.0, "real": 300.0}
ROOT = Path(__file__).parents[2]


class EngineProcess:
    """One engine, from `start` until `stop`; `restart` is another process at the same port."""

    def __init__(self, kind: Kind, command: Sequence[str], host: str, port: int, log: Path) -> None:
        self.kind = kind
        self.host = host
        self.port = port
        self.log = log
        self._command = command
        self.scheme = "https" if "--ssl-certfile" in command else "http"
        self._process: Process | None = None

    @classmethod
    def start(
        cls,
        kind: Kind,
        folder: Path,
        *,
        version: str = install.VERSION,
        host: str = "127.0.0.1",
        port: int | None = None,
        lora: bool = True,
        extra_args: Sequence[str] = (),
        wait: bool = True,
    ) -> Self:
        """Start one that serves the tiny model and return it when it is ready, or at once with `wait=False`."""
        folder.mkdir(parents=True, exist_ok=True)
        port = port or free_port(host)
        model = folder / "base"
        if not model.exists():
            make_model(model)
        command = _command(kind, version, model, host, port, lora, extra_args)
        engine = cls(kind, command, host, port, folder / "engine.log")
        engine.launch(wait=wait)
        return engine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where it answers."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of its first process; the real one has children."""
        return self._running.pid

    @property
    def alive(self) -> bool:
        """Whether its first process runs."""
        return self._process is not None and self._process.exit_code is None

    @property
    def _running(self) -> Process:
        if self._process is None:
            raise RigError("the engine was never started")
        return self._process

    def launch(self, *, wait: bool = True) -> None:
        """Start the process again, after it has ended."""
        environment = launch.environment() if self.kind == "real" else _ours()
        self._process = Process(self._command, self.log, environment=environment)
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until it has warmed up. RigError, with the end of its log, where it dies or takes too long."""
        until(self._is_ready, f"the {self.kind} engine is ready", timeout=READY_SECONDS[self.kind])

    def kill(self) -> None:
        """End it and its children at once, as a crash of the machine's memory would."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._running.kill()

    def stop(self) -> None:
        """End it in good order, and what is left of it anyway. Twice does no harm."""
        if self._process is not None:
            self._process.stop(grace=15)
            self.kill()

    def restart(self, *, wait: bool = True) -> None:
        """Kill it, and start another process at the same port."""
        self.kill()
        self.launch(wait=wait)

    def _is_ready(self) -> bool:
        if not self.alive:
            raise RigError(
                f"the {self.kind} engine ended while it started:\n{self._running.tail(15)}"
            )
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=25, context=_any()) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _command(
    kind: Kind,
    version: str,
    model: Path,
    host: str,
    port: int,
    lora: bool,
    extra: Sequence[str],
) -> list[str]:
    if kind == "real":
        python = install.install(version)
        quiet = ["--log-level", "warning"]
        return launch.command(python, model, host, port, lora=lora, extra=[*quiet, *extra])
    address = ["--host", host, "--port", str(port), "--version", version]
    off = () if lora else ("--no-enable-lora",)
    model_path = ["--model-path", str(model)]
    return [sys.executable, "-m", "tests.fakes.sglang", *address, *model_path, *off, *extra]


def _ours() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _any() -> ssl.SSLContext:
    """Trusts whatever certificate: the engine was started a moment ago, by us."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
