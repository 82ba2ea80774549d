"""How what is wrong with a directory becomes a state and a sentence.

The functions that look raise `NotWholeError`, or let the operating system's errors pass; `refused` translates both,
once. Sentences are for people: one line, no full paths (the report has the path beside it).
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from sidecar.agent.pathview import PathState, PathView


class NotWholeError(Exception):
    """Why a directory is not whole."""

    def __init__(self, state: PathState, text: str) -> None:
        super().__init__(text)
        self.state = state
        self.text = text


LOOKING = (NotWholeError, OSError, ValueError)
"""What looking at files may raise. ValueError: names and numbers that the operating system's calls do not take."""


def refuse(state: PathState, text: str) -> NoReturn:
    """Give up the look with this verdict."""
    raise NotWholeError(state, text)


def refused(error: Exception, view: Callable[..., PathView]) -> PathView:
    """Translate one of LOOKING. `view` makes a view of a state and a text, with whatever else is known."""
    if isinstance(error, NotWholeError):
        return view(error.state, error.text)
    if not isinstance(error, OSError):
        return view(PathState.UNREADABLE, f"it cannot be read ({type(error).__name__})")
    if error.errno == errno.ENOTDIR:
        return view(PathState.INVALID, "a part of it is not a directory")
    if error.errno == errno.ENAMETOOLONG:
        return view(PathState.INVALID, "it is too long for a path")
    if error.errno == errno.ENOENT:  # between two of our own steps
        return view(PathState.PARTIAL, "its files are being replaced")
    return view(PathState.UNREADABLE, _explain(error))


def printable(name: str) -> str:
    """Make a file's name fit for a sentence: it may hold any byte, and be long."""
    shown = name if name.isprintable() else ascii(name)[1:-1]
    return shown if len(shown) <= 80 else shown[:77] + "..."


def _explain(error: OSError) -> str:
    code = errno.errorcode.get(error.errno or 0, "an unknown error")
    what = printable(Path(error.filename).name) if isinstance(error.filename, str) else "it"
    text = f"{what} cannot be read: {code} ({error.strerror or 'no details'})"
    if error.errno in (errno.EACCES, errno.EPERM):
        groups = ",".join(str(group) for group in os.getgroups()) or "none"
        text += f"; the agent is uid {os.geteuid()}, gid {os.getegid()}, groups {groups}"
    return text
