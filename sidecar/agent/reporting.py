"""Writes the report to its desk: the latest of what is true, when it is due, until it is written.

Where reports lie, and what belongs into one, is said elsewhere (`desks`, `report`).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from sidecar.agent.desks import REPORTS, ApiDesk, Desk, FileDesk, WriteFailed
from sidecar.agent.report import QUIET, Written, due
from sidecar.api.report import ReportStatus

__all__ = ["REPORTS", "ApiDesk", "Desk", "FileDesk", "Reporter", "WriteFailed"]

log = logging.getLogger(__name__)

FIRST_RETRY = 0.5
LONGEST_RETRY = 30.0
GATHER = 0.02
"""Seconds for which news may follow one another before the first of them is written."""


class Reporter:
    """Writes the latest of what it is told, when it is due; what comes in between is skipped."""

    def __init__(self, desk: Desk, *, clock: Callable[[], float], jitter: float) -> None:
        self._desk = desk
        self._clock = clock
        self._jitter = jitter
        self._news_of: Callable[[], ReportStatus] | None = None
        self._said: ReportStatus | None = None
        self._written: Written | None = None
        self._beside: Mapping[str, str] = {}
        self._beat = 0
        self._news = asyncio.Event()
        self.problem = ""
        self.writes = 0
        self.beaten: Callable[[], None] = lambda: None

    def start_from(self, said: ReportStatus) -> None:
        """Go on counting from the report of an earlier life."""
        self._beat = said.beat

    def say(self, news: Callable[[], ReportStatus]) -> None:
        """What is true now, made when it is about to be written; its beat is ours to set."""
        self._news_of = news
        self._news.set()

    @property
    def said(self) -> ReportStatus | None:
        """The latest of what we were told."""
        if self._news_of is not None:
            self._said, self._news_of = self._news_of(), None
        return self._said

    async def run(self) -> None:
        """Write for ever."""
        failures = 0
        while True:
            pause = self._pause()
            if pause is None or pause > 0:
                await self._wait(pause)
                # One event often comes as several passes: a new adapter, then the look at its files.
                await asyncio.sleep(GATHER)
            elif await self._write():
                failures = 0
            else:
                failures += 1
                await asyncio.sleep(min(FIRST_RETRY * 2.0 ** min(failures - 1, 10), LONGEST_RETRY))

    async def finish(self) -> None:
        """Write what has not been written yet, once."""
        if self.said is not None and not self._is_written(self.said):
            await self._write()

    def _is_written(self, said: ReportStatus) -> bool:
        written = self._written
        return written is not None and said == written.said and not self._beside_moved()

    def _beside_moved(self) -> bool:
        return self._desk.beside() != self._beside

    def _pause(self) -> float | None:
        if self.said is None:
            return None
        now = self._clock()
        if self._written is not None and self._beside_moved():
            return self._written.at + QUIET - now
        return due(self._written, self.said, now, self._jitter) - now

    async def _wait(self, pause: float | None) -> None:
        self._news.clear()
        try:
            async with asyncio.timeout(pause):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _write(self) -> bool:
        said = self.said
        if said is None:
            return True
        is_beat, beside = self._is_written(said), self._desk.beside()
        try:
            await self._desk.write(said.model_copy(update={"beat": self._beat + 1}))
        except WriteFailed as error:
            if self.problem != str(error):
                log.warning("the report was not written: %s", error)
            self.problem = str(error)
            return False
        self._beat += 1
        self.writes += 1
        self._written, self._beside = Written(said, self._clock()), beside
        self.problem = ""
        if is_beat:
            self.beaten()
        return True
