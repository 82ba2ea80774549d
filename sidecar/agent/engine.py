"""Follows one engine: is it there, what does it hold, who is it. The loop reads `view` and is woken when it moves.

A bare connect each second notices a death (no request, so no line in the engine's log), the list each few seconds
notices drift. What an answer means is `life`'s to say, how the engine is spoken to `sglang`'s.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from sidecar.agent import life
from sidecar.agent.life import Life
from sidecar.agent.sglang import Engine, EngineError, NoRoute, Refused, Unauthorized
from sidecar.agent.state import EngineView
from sidecar.api import names
from sidecar.api.reasons import EngineState, Reason

log = logging.getLogger(__name__)

PULSE: Final = 1.0
"""Seconds between two bare connects."""
PULSE_REFUSED: Final = 0.1
LIST_GAP: Final = 0.02
"""Seconds between two lists at the least, however often they are asked for."""
INFO_PAUSE: Final = 1.0
NAMES_SECONDS: Final = 10.0


class Follower:
    """One engine, followed. `wake` is called whenever the view has moved."""

    def __init__(
        self,
        engine: Engine,
        wake: Callable[[], None],
        *,
        drift: float,
        clock: Callable[[], float],
        wall: Callable[[], datetime],
        pulse: float = PULSE,
    ) -> None:
        self._engine = engine
        self._wake = wake
        self._drift = drift
        self._clock = clock
        self._wall = wall
        self._pulse_every = pulse
        self._life = Life()
        self._poked = asyncio.Event()
        self._asked = asyncio.Event()
        self._list_wanted = False
        self._changed_at = 0.0
        self._open = 0
        self._list_began = float("-inf")
        self.looked = asyncio.Event()

    @property
    def view(self) -> EngineView:
        """What is known now."""
        return self._life.view

    def remember_boot(self, boot: str) -> None:
        """The name of the engine process that an earlier life of this agent saw; to be told before `run`."""
        self._life = replace(self._life, last_boot=boot)

    def list_now(self) -> None:
        """Read the list soon, not only when drift is due."""
        self._list_wanted = True
        self._poked.set()

    def identify(self) -> None:
        """Ask the engine again who it is; loads wait for that."""
        self._become(life.asked_again(self._life, self._clock()))

    def changing(self) -> None:
        """A change is being sent: until it is `changed`, names are not asked for, as SGLang would answer after it."""
        self._open += 1

    def changed(self, held: Mapping[str, str] | None) -> None:
        """An answer to a change told what the engine holds: lists that began before it no longer count."""
        self._open -= 1
        self._changed_at = self._clock()
        handles = frozenset(held) if held is not None else None
        self._become(life.named(self._life, handles, self._changed_at))
        if held is not None:
            self._become(life.changed(self._life, held))

    async def run(self) -> None:
        """Follow for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pulse())
            group.create_task(self._identify())

    def _become(self, new: Life) -> None:
        if new == self._life:
            return
        before, self._life = self._life.view, new
        if new.unidentified:
            self._asked.set()
        if new.view != before:
            if new.view.state is not before.state:
                log.info("engine: %s %s", new.view.state, new.view.text)
            self._wake()

    async def _pulse(self) -> None:
        while True:
            self._poked.clear()
            if not await self._engine.connect():
                self._become(life.refused(self._life, self._engine.addresses))
                pause = PULSE_REFUSED
            else:
                pause = await self._maybe_list()
            self._become(life.waited(self._life, self._clock()))
            self.looked.set()
            await self._rest(pause)

    async def _maybe_list(self) -> float:
        since = self._clock() - self._list_began
        if self._list_wanted and since < LIST_GAP:
            return LIST_GAP - since
        ready = self.view.state is EngineState.READY
        if self._list_wanted or since >= self._drift or not ready:
            await self._list()
        ready = self.view.state is EngineState.READY
        return self._pulse_every if ready else PULSE_REFUSED * 3

    async def _rest(self, pause: float) -> None:
        try:
            async with asyncio.timeout(pause):
                await self._poked.wait()
        except TimeoutError:
            pass

    async def _list(self) -> None:
        self._list_wanted = False
        began = self._list_began = self._clock()
        try:
            listing = await self._engine.models()
        except Refused:
            self._become(life.refused(self._life, self._engine.addresses))
        except Unauthorized as error:
            self._become(life.turned_away(self._life, Reason.ENGINE_UNAUTHORIZED, str(error)))
        except NoRoute:
            text = "the engine has no /v1/models: not SGLang, or not its first node"
            self._become(life.turned_away(self._life, Reason.ENGINE_UNSUPPORTED, text))
        except EngineError as error:
            self._become(life.silent(self._life, str(error)))
        else:
            if self._changed_at <= began:
                now = self._clock()
                self._become(life.listed(self._life, listing, now, self._wall()))
                await self._ask_names()
            else:
                self._list_wanted = True

    async def _ask_names(self) -> None:
        """Ask an engine that cannot list which handles it holds: between changes, as it takes SGLang's one lock."""
        view = self.view
        if view.lists or not view.tells_names or view.state is not EngineState.READY or self._open:
            return
        began = self._clock()
        try:
            async with asyncio.timeout(NAMES_SECONDS):
                answer = await self._engine.unload(names.PROBE_HANDLE)
        except TimeoutError:
            return
        if answer.names is not None and self._changed_at <= began and not self._open:
            self._become(life.named(self._life, answer.names, self._clock()))

    async def _identify(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            while self._life.unidentified:
                try:
                    info = await self._engine.server_info()
                except EngineError as error:
                    log.debug("server_info: %s", error)
                    await asyncio.sleep(INFO_PAUSE)
                else:
                    self._become(life.identified(self._life, info, self._wall()))
                    if self.view.tells_names and not self.view.lists:
                        self.list_now()
