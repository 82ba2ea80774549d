"""One agent in this process, around its real loop, engine client, follower and prober, and a simulated engine.

Only the ends are plain: adapters are a list that a test sets, the report is what the loop says last. Intervals are
short, so that what takes seconds in a pod takes moments here; nothing is asserted about how long.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from prometheus_client import CollectorRegistry

from sidecar.agent.basereader import BaseReader
from sidecar.agent.engine import Follower
from sidecar.agent.loop import Loop
from sidecar.agent.metrics import Metrics
from sidecar.agent.mounts import Shared
from sidecar.agent.paths import Pace, Prober
from sidecar.agent.report import Says
from sidecar.agent.reporting import FileDesk, Reporter
from sidecar.agent.sglang import Engine
from sidecar.agent.state import Me, Memory, Scope
from sidecar.api.adapter import LoRAAdapter
from sidecar.api.reasons import Reason
from tests.fakes.sglang.server import Simulator
from tests.rig.engines import EngineProcess

PACE = Pace(settle=0.0, unsettled=0.02, few=0.02)


class ListedAdapters:
    """A source whose list a test sets; None until it does."""

    scope: Scope = "all"
    partial = False
    problem = ""
    confirmed_at = None

    def __init__(self, wake: Callable[[], None]) -> None:
        self.adapters: Sequence[LoRAAdapter] | None = None
        self.invalid: dict[str, str] = {}
        self._wake = wake

    def set(self, *adapters: LoRAAdapter) -> None:
        self.adapters = adapters
        self._wake()

    async def run(self) -> None:
        await asyncio.Event().wait()


class Agent:
    """Runs while it is entered."""

    def __init__(
        self,
        simulator: Simulator | EngineProcess,
        folder: Path,
        me: Me | None = None,
        engine: Engine | None = None,
        patience: float = 20,
        shares_base: Path | None = None,
    ) -> None:
        self.simulator = simulator  # or, for what is only asked of the agent, an engine's process
        self.woken = asyncio.Event()
        self.registry = CollectorRegistry()
        self.engine = engine or Engine((simulator.host,), simulator.port)
        self.follower = Follower(
            self.engine, self.woken.set, drift=0.05, clock=time.monotonic, wall=_wall, pulse=0.02
        )
        self.files = Prober(Shared.of([str(folder)]), self.woken.set, pace=PACE)
        self.base = BaseReader(Shared.of([str(shares_base)] if shares_base else []), self.woken.set)
        self.source = ListedAdapters(self.woken.set)
        self.loop = Loop(
            me=me or Me("pod-0", "ns", reload="on-change"),
            service="svc",
            says=Says("test", ("*",)),
            files=self.files,
            base=self.base,
            engine=self.engine,
            follower=self.follower,
            reporter=Reporter(FileDesk(""), clock=time.monotonic, jitter=0.0),
            metrics=Metrics(self.registry),
            wake=self.woken,
            clock=time.monotonic,
            wall=_wall,
        )
        self.patience = patience
        self._task: asyncio.Task[None] | None = None

    def remember(self, memory: Memory) -> None:
        self.loop.start_from(memory)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.follower.run())
            group.create_task(self.files.run())
            group.create_task(self.loop.run(self.source))

    async def __aexit__(self, *_: object) -> None:
        assert self._task
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self.base.close()
        await self.engine.close()

    def reasons(self) -> dict[str, Reason]:
        said = self.loop.said
        return {entry.name: entry.reason for entry in said.adapters} if said else {}

    def text(self, handle: str) -> str:
        assert self.loop.said
        return next(e.text or "" for e in self.loop.said.adapters if e.name == handle)

    async def until(self, condition: Callable[[], object], seconds: float = 20) -> None:
        """Wait until something holds; gives up, with what is reported, after long enough."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():  # noqa: ASYNC110 - engine, files and loop move by themselves
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise AssertionError(f"never so; reported: {self.reasons()}") from None

    async def until_reported(self, **wanted: Reason) -> None:
        await self.until(lambda: self.reasons() == wanted, self.patience)

    @property
    def loads(self) -> list[dict[str, str]]:
        return self.simulator.posts("/load_lora_adapter")

    @property
    def unloads(self) -> list[dict[str, str]]:
        return self.simulator.posts("/unload_lora_adapter")

    def held(self) -> dict[str, str]:
        return {ref.name: ref.path for ref in self.simulator.loras.held}


def _wall() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - real parts run in real time
