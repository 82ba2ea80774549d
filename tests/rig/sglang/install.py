"""Installs a pinned SGLang into the cache, in a virtual environment of its own.

It stands at `${XDG_CACHE_HOME:-~/.cache}/lora-sidecar/sglang/<version>-<key>`; the key is made of the pins and the
interpreter, so a change of either makes a new one. It is made aside and renamed into place, which a virtual environment
bears as long as its programs are run as `python -m`. pip's own settings (PIP_INDEX_URL, PIP_CERT and the like) are
honoured. Needs Linux on x86_64, Python 3.11 to 3.13, about 4.7 GB of disk (mostly the CUDA libraries that PyPI's torch
links against; no GPU is used) and, to run, 2.5 GB of memory.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rig import adapters
from tests.rig.cache import cache_root, say, workspace
from tests.rig.errors import RigError
from tests.rig.sglang import model

PINS = Path(__file__).parent / "requirements"
VERSION = "0.5.21"
"""What is installed unless asked otherwise."""
SHARED_PINS = ("torch", "common")


def versions() -> list[str]:
    """The versions there are pins for."""
    return sorted(pins.stem for pins in PINS.glob("[0-9]*.txt"))


def install(version: str = VERSION) -> Path:
    """Install that version where it is not there yet, and return the interpreter that runs it."""
    if version not in versions():
        raise RigError(f"no pins for SGLang {version}; there are {', '.join(versions())}")
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise RigError("the pinned wheels of SGLang exist for Linux on x86_64 only")
    base = _interpreter()
    pins = [PINS / f"{name}.txt" for name in (*SHARED_PINS, version)]
    home = _home() / f"{version}-{_digest(base.encode(), *(path.read_bytes() for path in pins))}"
    if not home.exists():
        with workspace(home) as work:
            if not home.exists():
                say(f"installing SGLang {version} for the CPU (once; 2 to 5 minutes, 4.7 GB)")
                _install(base, pins, work / "venv")
                (work / "venv").rename(home)
                say(f"installed {home}")
    return home / "bin" / "python"


def models() -> Path:
    """A folder with the tiny model `base` and three adapters for it; made where it is not there yet."""
    sources = (Path(adapters.__file__), Path(model.__file__))
    home = _home() / f"models-{_digest(*(source.read_bytes() for source in sources))}"
    if not home.exists():
        with workspace(home) as work:
            if not home.exists():
                model.make_model(work / "models" / "base")
                for seed, letter in enumerate("abc", start=1):
                    adapters.make_adapter(work / "models" / f"lora-{letter}", seed=seed)
                (work / "models").rename(home)
    return home


def _home() -> Path:
    return cache_root() / "sglang"


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _interpreter() -> str:
    """The pins were tried with Python 3.11, so that one is taken where it is found."""
    found = os.environ.get("PYTHON") or shutil.which("python3.11") or sys.executable
    # The base of a virtual environment, so that the key is the same from inside and outside of ours.
    ask = "import sys; print(sys.base_prefix, *sys.version_info[:2])"
    try:
        answer = subprocess.run([found, "-c", ask], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RigError(f"the interpreter {found} does not run: {error}") from None
    prefix, major, minor = answer.stdout.rsplit(maxsplit=2)
    if not (3, 11) <= (int(major), int(minor)) <= (3, 13):
        raise RigError(
            f"Python {major}.{minor} has no wheels for these pins: set PYTHON to one of 3.11 to 3.13"
        )
    base = Path(prefix) / "bin" / f"python{major}.{minor}"
    return str(base) if base.exists() else found


def _install(base: str, pins: list[Path], venv: Path) -> None:
    _run([base, "-m", "venv", str(venv)], "the virtual environment")
    pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
    pip.append("--disable-pip-version-check")
    for at, path in enumerate(pins, start=1):
        _run([*pip, "-r", str(path)], f"the packages of {path.name} ({at} of {len(pins)})")


def _run(command: list[str], what: str) -> None:
    say(f"  {what}")
    with _heartbeat(what):
        done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode:
        raise RigError(
            f"could not install {what}: is a package index reachable? "
            "(PIP_INDEX_URL, PIP_CERT and the like are honoured)"
        )


@contextmanager
def _heartbeat(what: str, every: float = 20.0) -> Iterator[None]:
    """Say that it goes on, so that nobody takes a long download for a hang."""
    began, done = time.monotonic(), threading.Event()

    def beat() -> None:
        while not done.wait(every):
            say(f"  {what}: {time.monotonic() - began:.0f} s so far")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
