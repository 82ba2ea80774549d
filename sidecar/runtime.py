"""How a process of ours lives: its log, its signals, its tasks, its watchdog, and its HTTP side.

Every `__main__` is wired from these parts and they know nothing of adapters. What alive, ready and stuck mean is said
by the process in callables. Two principles hold throughout: what a process shows of itself never stops its work (a
port that is taken costs the metrics), and its end never waits for a thread (one may hang in a dead NFS mount, and a
pod's end would wait for it).
"""

import asyncio
import atexit
import errno
import faulthandler
import ipaddress
import json
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

from aiohttp import web
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    ProcessCollector,
    generate_latest,
)

logger = logging.getLogger(__name__)

OURS: Final = ("sidecar", "injector", "__main__")
"""Loggers that follow the level asked for; libraries, which may log bodies and headers, stay at WARNING."""

STUCK: Final = 70
"""Exit code of a process whose loop has stopped turning (EX_SOFTWARE)."""

_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_BEARER: Final = re.compile(r"(?i)\b(bearer\s+)[^\s\"',;]+")


# --- log --------------------------------------------------------------------------------------


class OneLine(logging.Formatter):
    """One line per record: UTC time, level, logger, message; a traceback stands escaped in the same line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record; control characters are escaped and bearer tokens masked."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}: {self.formatException(record.exc_info)}"
        text = _BEARER.sub(r"\1***", text)
        text = _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
        return f"{moment.replace('+00:00', 'Z')} {record.levelname} {record.name} {text}"


def set_up_logging(level: str) -> None:
    """Log to stderr from `level` (debug, info, warning or error) on; other people's loggers from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.WARNING, _level(level)))
    for name in OURS:
        logging.getLogger(name).setLevel(_level(level))


def _level(name: str) -> int:
    return logging.getLevelNamesMapping()[name.upper()]


# --- life -------------------------------------------------------------------------------------


def run(main: Callable[[asyncio.Event], Coroutine[Any, Any, int]]) -> NoReturn:
    """Run the process: `main` is given the event that SIGTERM and SIGINT set; its answer is the exit code."""

    async def process() -> NoReturn:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        code = 1
        try:
            code = await main(stop)
        except Exception:
            logger.exception("the process failed")
        finally:
            # What libraries leave for the end, such as removing keys from temporary files; os._exit would skip it.
            atexit._run_exitfuncs()
            os._exit(code)

    asyncio.run(process())
    raise AssertionError("the process outlived its end")


async def run_tasks(
    tasks: Mapping[str, Coroutine[Any, Any, object]],
    *,
    stop: asyncio.Event,
    grace: Callable[[], Awaitable[object]] | None = None,
    limit: float = 5.0,
) -> int:
    """Run tasks that should never end until `stop` is set or one of them ends; answer the exit code.

    At a stop `grace` is awaited first, `limit` seconds at most, while the tasks still run: the code is 0. A task that
    raises, or that merely returns, ends the others at once: the code is 1.
    """
    running = {asyncio.create_task(work, name=name) for name, work in tasks.items()}
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        done, _ = await asyncio.wait({*running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        ended = done - {stopping}
        for task in ended:
            _mourn(task)
        if not ended and grace is not None:
            await _in_time(grace, limit)
    finally:
        await _cancel({*running, stopping}, limit)
    return 1 if ended else 0


def _mourn(task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is None:
        logger.error("%s ended, which it never should", task.get_name())
    else:
        logger.error("%s failed", task.get_name(), exc_info=error)


async def _in_time(work: Callable[[], Awaitable[object]], limit: float) -> None:
    try:
        async with asyncio.timeout(limit):
            await work()
    except Exception:
        logger.exception("the last things were not done")


async def _cancel(tasks: set[asyncio.Task[Any]], limit: float) -> None:
    open_tasks = {task for task in tasks if not task.done()}
    for task in open_tasks:
        task.cancel()
    if not open_tasks:
        return
    done, deaf = await asyncio.wait(open_tasks, timeout=limit)
    for task in done:
        if not task.cancelled() and task.exception() is not None:
            _mourn(task)
    for task in deaf:
        logger.warning("%s does not end; the process ends without it", task.get_name())


class Watchdog:
    """A thread that ends the process when `beat` has not been called for `limit` seconds.

    Silence is summed up over the thread's own checks, so that a process that was itself frozen (SIGSTOP, a paused
    machine) is not ended as it thaws. It says what every thread was doing, and does not wait for that to be read.
    """

    def __init__(
        self,
        *,
        limit: float = 300.0,
        every: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        self._limit = limit
        self._every = every
        self._clock = clock
        self._end = end
        self._beaten = False
        self._silence = 0.0
        self._checked = clock()

    @property
    def silence(self) -> float:
        """Seconds without a beat, as far as they have been counted."""
        return 0.0 if self._beaten else self._silence

    def beat(self) -> None:
        """Say that the work goes on. Cheap, from any thread."""
        self._beaten = True

    def start(self) -> None:
        """Begin to watch."""
        self._checked = self._clock()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def check(self) -> None:
        """Look once; ends the process where the silence has been too long."""
        now = self._clock()
        passed = min(now - self._checked, 2 * self._every)
        self._checked = now
        self._silence = 0.0 if self._beaten else self._silence + passed
        self._beaten = False
        if self._silence >= self._limit:
            words = threading.Thread(target=self._last_words, daemon=True)
            words.start()
            words.join(self._every)
            self._end(STUCK)

    async def keep_beating(
        self, progress: Callable[[], bool] = lambda: True, *, every: float = 5.0
    ) -> NoReturn:
        """Beat for ever, which proves that the event loop turns, but only while `progress` says that its work does."""
        while True:
            if progress():
                self.beat()
            await asyncio.sleep(every)

    def _watch(self) -> None:
        while True:
            time.sleep(self._every)
            self.check()

    def _last_words(self) -> None:
        logger.critical("nothing has moved for %.0f s; the process ends itself", self._silence)
        faulthandler.dump_traceback(sys.stderr, all_threads=True)


# --- HTTP -------------------------------------------------------------------------------------


def new_registry() -> CollectorRegistry:
    """Make the process' own registry of metrics, with those of the process itself in it."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


class Probes:
    """`/livez`, `/readyz`, `/metrics` for everyone and `/state` for loopback, on all addresses of both families.

    `ready` answers with a sentence. `port` is where it listens, None while it does not; port 0 takes any. `routes`
    are served besides.
    """

    def __init__(
        self,
        port: int,
        *,
        live: Callable[[], bool],
        ready: Callable[[], tuple[bool, str]],
        registry: CollectorRegistry,
        state: Callable[[], Mapping[str, Any]] | None = None,
        routes: Iterable[web.AbstractRouteDef] = (),
        retry: float = 60.0,
    ) -> None:
        self.port: int | None = None
        self.listening = asyncio.Event()
        self._wanted = port
        self._live = live
        self._ready = ready
        self._state = state
        self._registry = registry
        self._routes = tuple(routes)
        self._retry = retry

    async def serve(self) -> None:
        """Serve until cancelled. A port that is taken is asked for again each `retry` seconds, after one warning."""
        runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await self._listen(runner)
            await asyncio.Event().wait()
        finally:
            self.port = None
            self.listening.clear()
            await runner.cleanup()

    async def _listen(self, runner: web.AppRunner) -> None:
        warned = False
        while self.port is None:
            try:
                self.port = await _open(runner, self._wanted)
            except OSError as error:
                if not warned:
                    text = "no probes and metrics: port %d cannot be had (%s); the work goes on"
                    logger.warning(text, self._wanted, error.strerror)
                warned = True
                await asyncio.sleep(self._retry)
        self.listening.set()
        logger.info("probes and metrics on port %d", self.port)

    def _app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
            ]
        )
        if self._state is not None:
            app.router.add_get("/state", self._show_state)
        app.add_routes(self._routes)
        return app

    async def _livez(self, _: web.Request) -> web.Response:
        return _verdict(self._live(), "")

    async def _readyz(self, _: web.Request) -> web.Response:
        return _verdict(*self._ready())

    async def _metrics(self, _: web.Request) -> web.Response:
        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _show_state(self, request: web.Request) -> web.Response:
        if self._state is None or not is_loopback(request.transport):
            raise web.HTTPForbidden(
                text="only from this pod or machine: use kubectl port-forward\n"
            )
        text = json.dumps(self._state(), indent=2, default=str)
        return web.Response(text=text + "\n", content_type="application/json")


def _verdict(good: bool, text: str) -> web.Response:
    return web.Response(status=200 if good else 503, text=(text or ("ok" if good else "no")) + "\n")


def is_loopback(transport: asyncio.BaseTransport | None) -> bool:
    """Whether the peer is this machine or pod; on a dual-stack socket its IPv4 addresses come mapped."""
    peer = transport.get_extra_info("peername") if transport else None
    if not isinstance(peer, tuple):
        return False
    address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


async def _open(runner: web.AppRunner, port: int) -> int:
    sock = dual_stack(port)
    try:
        await web.SockSite(runner, sock).start()
    except OSError:
        sock.close()
        raise
    return int(sock.getsockname()[1])


def dual_stack(port: int) -> socket.socket:
    """Bind a port on every address of both families; raises OSError where it is taken.

    Probes come over IPv6 in clusters that have nothing else, and the kernel may have IPv6 switched off.
    """
    try:
        return _bind(socket.AF_INET6, ("::", port))
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise
    return _bind(socket.AF_INET, ("0.0.0.0", port))


def _bind(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock
