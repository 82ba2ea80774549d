"""Waiting for a real part to come to a state: polling with a bound, since these parts send us no events."""

import time
from collections.abc import Callable
from typing import TypeVar

from tests.rig.errors import RigError

T = TypeVar("T")


def until(probe: Callable[[], T], what: str, *, timeout: float = 30, every: float = 0.05) -> T:
    """Ask `probe` every so many seconds and return its first true answer.

    After `timeout` seconds it raises RigError, which names `what` was waited for. What the probe
    raises is not caught: a probe knows best which of its failures mean "not yet".
    """
    end = time.monotonic() + timeout
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > end:
            raise RigError(f"not within {timeout:g} s: {what}")
        time.sleep(every)
