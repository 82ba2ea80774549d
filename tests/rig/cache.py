"""The cache in which what is slow to make is kept: where it is, one maker at a time, and never half a result.

It knows nothing of what is kept there.
"""

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def say(line: str) -> None:
    """Tell the person who waits; stdout stays free for results."""
    print(f"lora-sidecar: {line}", file=sys.stderr, flush=True)


def cache_root() -> Path:
    """Return this project's folder below `$XDG_CACHE_HOME` (default `~/.cache`)."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "lora-sidecar"


@contextmanager
def workspace(home: Path) -> Iterator[Path]:
    """Hold the lock of `home` and lend an empty folder on its file system, from which to rename into it.

    The folder is gone afterwards, also when the work has failed; what an interrupted holder left
    behind goes when the next one comes. A second process waits for the first.
    """
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / f".{home.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process that works on {home}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        prefix = f".{home.name}.work-"
        for leftover in home.parent.glob(f"{prefix}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        folder = tempfile.mkdtemp(prefix=prefix, dir=home.parent)
        try:
            yield Path(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
