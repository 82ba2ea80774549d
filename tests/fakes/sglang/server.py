"""The simulated SGLang's process: routes, keys, and its life from a bound port to a crash.

A life is one `Life`; what must survive it (the port, the log of requests, the faults) belongs to the Simulator.
"""

import asyncio
import random
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import web

from tests.fakes.sglang.bodies import document
from tests.fakes.sglang.faults import Faults
from tests.fakes.sglang.loras import Loras
from tests.fakes.sglang.options import Options
from tests.fakes.sglang.routes import CONTROL, Routes

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ADMIN = ("/load_lora_adapter", "/unload_lora_adapter")
OPEN = ("/health", "/metrics", "/ready")


@dataclass(slots=True)
class Asked:
    """One request, as it is remembered. Times are of the monotonic clock, which all processes of a machine share."""

    at: float
    method: str
    path: str
    body: Any
    authorization: str | None
    status: int | None = None
    """None while it is not answered, or never was."""
    ended: float | None = None


class Simulator:
    """A simulated SGLang; `async with` starts it on a free port and stops it."""

    def __init__(
        self, options: Options | None = None, *, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.options = options or Options()
        self.host = host
        self.port = port
        self.asked: deque[Asked] = deque(maxlen=100_000)
        self.faults = Faults()
        self.died = asyncio.Event()
        self.boots = 0
        self._life: Life | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """Where it is."""
        scheme = "https" if self.options.ssl_certfile else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"

    @property
    def alive(self) -> bool:
        """Whether its port is bound."""
        return self._life is not None

    @property
    def loras(self) -> Loras:
        """What the process that runs now holds."""
        if self._life is None:
            raise RuntimeError("the simulated engine is down")
        return self._life.loras

    @property
    def loaded(self) -> dict[str, str]:
        """Handle → path of what is listed; nothing while it is down."""
        return (
            {ref.name: ref.path for ref in self._life.loras.registry.values()} if self._life else {}
        )

    def posts(self, path: str) -> list[Any]:
        """The bodies of all requests to load or unload, in order."""
        return [asked.body for asked in self.asked if asked.method == "POST" and asked.path == path]

    async def start(self) -> None:
        """Live: wait for as long as the start takes, then bind the port. RuntimeError where it is already up."""
        if self._life is not None:
            raise RuntimeError("the simulated engine is up")
        self.died.clear()
        self.boots += 1
        await asyncio.sleep(self.options.startup)
        life = Life(self)
        await life.loras.start()
        self.port = await life.bind(self.host, self.port)
        self._life = life

    async def stop(self) -> None:
        """End the process, and let nothing of it live on."""
        life, self._life = self._life, None
        if life is not None:
            await life.end()
        self.died.set()

    kill = stop

    async def restart(self) -> None:
        """Another process at the same port."""
        await self.stop()
        await self.start()


class Life:
    """One process of the simulated engine."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.options = simulator.options
        self.loras = Loras(self.options)
        self.seed = self.options.random_seed or random.randrange(1 << 30)
        self.took = {"tokenizer_e2e": random.random(), "scheduler_e2e": random.random()}
        self.warm = asyncio.Event()
        self._crashed = False
        self._tasks: set[asyncio.Task[Any]] = set()
        app = web.Application(middlewares=[self._remember, self._befall, self._authorize])
        Routes(self).add_to(app)
        self._runner = web.AppRunner(
            app, keepalive_timeout=5.0, access_log=None, shutdown_timeout=0.01
        )

    async def bind(self, host: str, port: int) -> int:
        """Listen, and begin to warm up; the port that was bound."""
        context = None
        if self.options.ssl_certfile:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            key = self.options.ssl_keyfile
            await asyncio.to_thread(context.load_cert_chain, self.options.ssl_certfile, key)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=context)
        await site.start()
        self.spawn(self._warm_up())
        return int(self._runner.addresses[0][1])

    async def end(self) -> None:
        """Break off every connection and free the port."""
        for site in list(self._runner.sites):
            await site.stop()
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()
        if self._runner.server is not None:
            for connection in self._runner.server.connections:
                if connection.transport is not None:
                    connection.transport.abort()
        await self._runner.cleanup()

    def crash(self) -> None:
        """Die as SGLang does when its scheduler has: accept for a while, answer nothing, then be gone."""
        if not self._crashed:
            self._crashed = True
            self.spawn(self._fade())

    async def _fade(self) -> None:
        await asyncio.sleep(self.options.dying)
        await self.simulator.stop()

    async def _warm_up(self) -> None:
        await asyncio.sleep(self.options.warmup)
        self.warm.set()

    def spawn(self, work: Any) -> None:
        """Have it done beside, until this process ends."""
        self._keep(asyncio.ensure_future(work))

    def _keep(self, task: asyncio.Task[Any] | None) -> None:
        """Remember what must not outlive this process."""
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    # --- what befalls each request ------------------------------------------------------------

    @web.middleware
    async def _remember(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == CONTROL:
            return await handler(request)
        asked = Asked(
            at=time.monotonic(),
            method=request.method,
            path=request.path,
            body=document(await request.read()),
            authorization=request.headers.get("Authorization"),
        )
        self.simulator.asked.append(asked)
        self._keep(asyncio.current_task())
        try:
            response = await handler(request)
        except web.HTTPException as error:
            response = web.json_response({"detail": error.reason}, status=error.status)
            if allowed := error.headers.get("Allow"):
                response.headers["Allow"] = allowed
        asked.status, asked.ended = response.status, time.monotonic()
        return response

    @web.middleware
    async def _befall(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == CONTROL:
            return await handler(request)
        if self._crashed:
            await asyncio.Event().wait()
        fault = self.simulator.faults.take(request.path)
        if fault is None:
            return await handler(request)
        await asyncio.sleep(fault.seconds)
        response = await handler(request) if fault.executed or fault.act == "delay" else None
        if fault.act == "delay" and response is not None:
            return response
        if fault.act == "hang":
            await asyncio.Event().wait()
        if fault.act == "drop" and request.transport is not None:
            request.transport.abort()
        return web.Response(
            status=fault.status, body=fault.body.encode(), content_type=fault.content_type
        )

    @web.middleware
    async def _authorize(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        options = self.options
        if request.path == CONTROL or request.path.startswith(OPEN):
            return await handler(request)
        key = options.api_key
        if options.since("0.5.8") and request.path in ADMIN:
            key = options.admin_api_key or key
        if key is not None and request.headers.get("Authorization") != f"Bearer {key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        return await handler(request)


async def serve(options: Options, host: str, port: int) -> int:
    """Run one as a process of its own until it dies (1) or is cancelled (0): its exit code."""
    simulator = Simulator(options, host=host, port=port)
    await simulator.start()
    with suppress(asyncio.CancelledError):
        await simulator.died.wait()
        return 1
    await simulator.stop()
    return 0
