"""Reads the base model's config.json once for each engine process, where the agent can see it.

Loads wait for it, but not for long: a file system that hangs costs the checks that need the sizes, not the adapters.
What the sizes mean is for `base` and `preflight` to say.
"""

import asyncio
import logging
import os
import stat
from collections.abc import Callable
from functools import partial

from sidecar.agent.base import CONFIG, LIMIT, BaseModel, read_base
from sidecar.agent.crew import Crew
from sidecar.agent.mounts import Shared, leads_outside
from sidecar.agent.weights import read

log = logging.getLogger(__name__)

PATIENCE = 2.0
"""Seconds for which loads wait."""


class BaseReader:
    """Knows the base model of the present engine process. Belongs to the event loop's thread.

    `wake` is called when the answer is there, or is no longer waited for.
    """

    def __init__(
        self, shared: Shared, wake: Callable[[], None], *, patience: float = PATIENCE
    ) -> None:
        self._shared = shared
        self._wake = wake
        self._patience = patience
        self._crew = Crew("base")
        self._asked: tuple[str, str] = ("", "")
        self._timer: asyncio.TimerHandle | None = None
        self.found: BaseModel | None = None
        """The sizes; None while or where they are not known."""

    @property
    def awaited(self) -> bool:
        """Whether the answer is worth waiting for."""
        return self._timer is not None

    def ask(self, model_path: str | None, boot: str) -> None:
        """Have the model of an engine process read, unless it has been."""
        path = model_path or ""
        if not boot or self._asked == (path, boot):
            return
        self._asked, self.found = (path, boot), None
        self._settle()
        if not path.startswith("/") or not self._shared.holds(path):
            log.info("the base model's sizes are unknown: its path is in no shared mount")
            return
        self._timer = asyncio.get_running_loop().call_later(self._patience, self._give_up)
        work = partial(_look, path, self._shared)
        self._crew.submit(self._shared.group(path), work, partial(self._answered, self._asked))

    def close(self) -> None:
        """Stop; no callback comes any more."""
        self._settle()
        self._asked = ("", "")
        self._crew.close()

    def _settle(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        log.warning("the base model's config.json has not been read yet; loads go on without it")
        self._wake()

    def _answered(self, asked: tuple[str, str], answer: BaseModel | str) -> None:
        if asked != self._asked:
            return
        self._settle()
        if isinstance(answer, str):
            log.info("the base model's sizes are unknown: %s", answer)
        else:
            self.found = answer
        self._wake()


def _look(path: str, shared: Shared) -> BaseModel | str:
    """Read the sizes, in a thread: they, or why not. Never raises."""
    try:
        real = os.path.realpath(f"{path}/{CONFIG}")
        if leads_outside(real, shared):
            return f"its {CONFIG} leads out of the shared mounts"
        fd = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return f"its {CONFIG} is not a regular file"
            raw = read(fd, LIMIT + 1, 0)
        finally:
            os.close(fd)
    except (OSError, ValueError) as error:
        return f"its {CONFIG} cannot be read ({error})"
    return read_base(raw) or f"its {CONFIG} is not that of a model whose sizes are known here"
