"""How a process lives: real sockets, real signals in a process of its own; time is handed in."""

import asyncio
import contextlib
import errno
import json
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import Counter

from sidecar import runtime
from sidecar.runtime import OneLine, Probes, Watchdog, new_registry, run_tasks

# --- log


def line(message: str, *args: object, error: BaseException | None = None) -> str:
    info = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord("sidecar.agent", logging.INFO, "f", 1, message, args, info)
    record.created = 1_700_000_000.25
    return OneLine().format(record)


def test_a_line_says_when_how_bad_who_and_what() -> None:
    assert line("loaded %s", "a") == "2023-11-14T22:13:20.250Z INFO sidecar.agent loaded a"


@pytest.mark.parametrize("letter", ["\n", "\r", "\x1b", "\x85", "\u2028", "\0"])
def test_a_record_is_one_line_whatever_an_engine_puts_into_it(letter: str) -> None:
    text = line("it says %s", f"a{letter}2023 CRITICAL forged")
    assert letter not in text
    assert text.isprintable()


def test_a_traceback_stays_in_its_line() -> None:
    try:
        raise KeyError("gone")  # noqa: TRY301
    except KeyError as error:
        text = line("failed", error=error)
    assert "\n" not in text
    assert "KeyError: 'gone'" in text


def test_a_bearer_token_is_masked() -> None:
    assert line("sent %s", {"Authorization": "Bearer abc.def"}).endswith(
        "{'Authorization': 'Bearer ***'}"
    )


@pytest.fixture
def _logging_as_before() -> Any:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in runtime.OURS:
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.mark.usefixtures("_logging_as_before")
def test_debug_is_for_our_loggers_only() -> None:
    runtime.set_up_logging("debug")
    assert logging.getLogger("sidecar.kube.client").isEnabledFor(logging.DEBUG)
    assert logging.getLogger("injector.server").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("kubernetes_asyncio.client.rest").isEnabledFor(logging.INFO)


@pytest.mark.usefixtures("_logging_as_before")
def test_error_is_for_all_loggers() -> None:
    runtime.set_up_logging("error")
    assert not logging.getLogger("sidecar.agent").isEnabledFor(logging.WARNING)
    assert not logging.getLogger("asyncio").isEnabledFor(logging.WARNING)


# --- tasks


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_a_task_that_fails_ends_the_others_with_a_code_that_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended = asyncio.Event()

    async def other() -> None:
        try:
            await for_ever()
        finally:
            ended.set()

    async def broken() -> None:
        await asyncio.sleep(0)
        raise RuntimeError("boom")

    assert await run_tasks({"other": other(), "broken": broken()}, stop=asyncio.Event()) == 1
    assert ended.is_set()
    assert [record.getMessage() for record in caplog.records] == ["broken failed"]


async def test_after_a_failure_no_last_things_are_done() -> None:
    asked = asyncio.Event()

    async def broken() -> None:
        raise RuntimeError("boom")

    async def grace() -> None:
        asked.set()

    assert await run_tasks({"broken": broken()}, stop=asyncio.Event(), grace=grace) == 1
    assert not asked.is_set()


async def test_a_task_that_returns_is_as_bad_as_one_that_fails() -> None:
    async def brief() -> None:
        return

    assert await run_tasks({"brief": brief(), "other": for_ever()}, stop=asyncio.Event()) == 1


async def test_a_stop_lets_the_tasks_run_while_the_last_things_are_done() -> None:
    stop, asked, answered = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def server() -> None:
        await asked.wait()
        answered.set()
        await for_ever()

    async def grace() -> None:
        asked.set()
        await answered.wait()

    stop.set()
    assert await run_tasks({"server": server()}, stop=stop, grace=grace) == 0
    assert answered.is_set()


@pytest.mark.parametrize("fails", [True, False], ids=["fail", "never end"])
async def test_last_things_that_go_wrong_do_not_hold_up_the_end(fails: bool) -> None:
    stop = asyncio.Event()
    stop.set()

    async def grace() -> None:
        if fails:
            raise OSError("no route")
        await for_ever()

    assert await run_tasks({"t": for_ever()}, stop=stop, grace=grace, limit=0.05) == 0


async def test_a_task_deaf_to_its_end_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    stop, let_go = asyncio.Event(), asyncio.Event()

    async def deaf() -> None:
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await let_go.wait()

    stop.set()
    assert await run_tasks({"deaf": deaf()}, stop=stop, limit=0.05) == 0
    assert "deaf does not end" in caplog.text
    let_go.set()


PROCESS = """
import asyncio, atexit, sys, threading, time
from sidecar.runtime import run, run_tasks, set_up_logging

async def main(stop):
    set_up_logging("info")
    async def work():
        if "fail" in sys.argv:
            raise RuntimeError("boom")
        atexit.register(print, "tidied", flush=True)
        print("up", flush=True)
        await asyncio.Event().wait()
    stuck = asyncio.get_running_loop().run_in_executor(None, time.sleep, 3600)
    return await run_tasks({"work": work()}, stop=stop)

run(main)
"""


def process(*argv: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_the_process_well_although_a_thread_of_it_hangs(number: int) -> None:
    with process() as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        child.send_signal(number)
        assert child.wait(timeout=60) == 0
        assert child.stdout.read() == b"tidied\n", "what libraries leave for the end is done"


def test_a_failed_task_ends_the_process_badly() -> None:
    with process("fail") as child:
        _, log = child.communicate(timeout=60)
    assert child.returncode == 1
    assert b"ERROR sidecar.runtime work failed: Traceback" in log
    assert log.count(b"\n") == 1


# --- watchdog


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Dog:
    """A watchdog whose thread is the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.ends: list[int] = []
        self.watchdog = Watchdog(limit=300, every=5, clock=self.clock, end=self.ends.append)
        monkeypatch.setattr(runtime.faulthandler, "dump_traceback", lambda *_, **__: None)

    def checks(self, count: int, *, beating: bool = False, apart: float = 5.0) -> list[int]:
        for _ in range(count):
            if beating:
                self.watchdog.beat()
            self.clock.now += apart
            self.watchdog.check()
        return self.ends


def test_a_process_that_beats_lives_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Dog(monkeypatch).checks(1000, beating=True) == []


def test_a_process_silent_for_the_limit_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    dog = Dog(monkeypatch)
    assert dog.checks(59) == []
    assert dog.watchdog.silence == 295
    assert dog.checks(1) == [runtime.STUCK]


def test_one_beat_begins_the_count_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    dog = Dog(monkeypatch)
    assert dog.checks(59) + dog.checks(1, beating=True) + dog.checks(59) == []


def test_a_process_that_was_frozen_is_not_ended_as_it_thaws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Dog(monkeypatch).checks(1, apart=86_400) == []


@pytest.mark.field(73)
async def test_the_loop_beats_only_while_its_work_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    dog, moving = Dog(monkeypatch), True
    task = asyncio.create_task(dog.watchdog.keep_beating(lambda: moving, every=0))
    for _ in range(100):
        await asyncio.sleep(0)
        assert dog.checks(1) == []
    moving = False
    await asyncio.sleep(0)
    dog.checks(1)
    for _ in range(60):
        await asyncio.sleep(0)
        dog.checks(1)
    assert runtime.STUCK in dog.ends
    task.cancel()


def test_a_real_watchdog_says_where_the_process_hangs() -> None:
    code = (
        "import time\n"
        "from sidecar.runtime import Watchdog, set_up_logging\n"
        "set_up_logging('info')\n"
        "def hang():\n    time.sleep(3600)\n"
        "Watchdog(limit=0.2, every=0.05).start()\n"
        "hang()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == runtime.STUCK
    assert b"nothing has moved" in done.stderr
    assert b"in hang" in done.stderr


# --- HTTP


@contextlib.asynccontextmanager
async def serving(port: int = 0, **over: Any) -> AsyncIterator[Probes]:
    arguments: dict[str, Any] = {
        "live": lambda: True,
        "ready": lambda: (True, ""),
        "registry": new_registry(),
    }
    probes = Probes(port, **(arguments | over))
    task = asyncio.create_task(probes.serve())
    try:
        yield probes
    finally:
        task.cancel()
        await asyncio.wait([task])


async def get(port: int | None, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{port}{path}") as answer,
    ):
        return answer.status, await answer.text()


@pytest.mark.field(54)
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_it_is_served_on_both_families(host: str) -> None:
    async with serving() as probes:
        await probes.listening.wait()
        assert await get(probes.port, "/livez", host) == (200, "ok\n")


NO_IPV6 = {
    "the kernel has none": (OSError(errno.EAFNOSUPPORT, "no family"), None),
    "it has no address": (None, OSError(errno.EADDRNOTAVAIL, "no address")),
}


@pytest.mark.field(54)
@pytest.mark.parametrize(("on_open", "on_bind"), NO_IPV6.values(), ids=NO_IPV6)
async def test_without_ipv6_it_is_served_on_ipv4(
    monkeypatch: pytest.MonkeyPatch, on_open: OSError | None, on_bind: OSError | None
) -> None:
    class Socket(socket.socket):
        def __init__(self, family: int = -1, *args: Any, **kwargs: Any) -> None:
            if family == socket.AF_INET6 and on_open:
                raise on_open
            super().__init__(family, *args, **kwargs)

        def bind(self, address: Any) -> None:
            if self.family == socket.AF_INET6 and on_bind:
                raise on_bind
            super().bind(address)

    monkeypatch.setattr(runtime.socket, "socket", Socket)
    async with serving() as probes:
        await probes.listening.wait()
        assert await get(probes.port, "/livez") == (200, "ok\n")
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(probes.port, "/livez", "[::1]")


def taken(family: int, host: str) -> socket.socket:
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, 0))
    sock.listen()
    return sock


@pytest.mark.field(99)
@pytest.mark.parametrize(
    ("family", "host"),
    [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")],
    ids=["by IPv4", "by IPv4 loopback", "by IPv6 loopback"],
)
async def test_a_taken_port_costs_one_warning_until_it_is_free(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, family: int, host: str
) -> None:
    other = taken(family, host)
    port = other.getsockname()[1]
    tries: asyncio.Queue[int] = asyncio.Queue()
    real = runtime.dual_stack

    def counted(wanted: int) -> socket.socket:
        tries.put_nowait(wanted)
        return real(wanted)

    monkeypatch.setattr(runtime, "dual_stack", counted)
    async with serving(port, retry=0.001) as probes:
        assert [await tries.get() for _ in range(5)] == [port] * 5
        assert probes.port is None
        other.close()
        await asyncio.wait_for(probes.listening.wait(), 30)
        assert await get(port, "/livez") == (200, "ok\n")
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert f"port {port}" in warnings[0]
    assert "the work goes on" in warnings[0]


async def test_probes_follow_what_the_process_says() -> None:
    live, ready = True, (False, "2 adapters are not loaded yet")
    async with serving(live=lambda: live, ready=lambda: ready) as probes:
        await probes.listening.wait()
        assert await get(probes.port, "/livez") == (200, "ok\n")
        assert await get(probes.port, "/readyz") == (503, "2 adapters are not loaded yet\n")
        live, ready = False, (True, "")
        assert await get(probes.port, "/livez") == (503, "no\n")
        assert await get(probes.port, "/readyz") == (200, "ok\n")


async def test_metrics_are_those_of_our_own_registry() -> None:
    registry = new_registry()
    Counter("loads", "Loads.", registry=registry).inc()
    async with serving(registry=registry) as probes:
        await probes.listening.wait()
        status, text = await get(probes.port, "/metrics")
    assert status == 200
    assert "loads_total 1.0" in text
    assert "process_resident_memory_bytes" in text
    assert "python_gc" not in text


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "127.8.8.8"])
async def test_state_is_shown_to_loopback(host: str) -> None:
    async with serving(state=lambda: {"engine": "Ready"}) as probes:
        await probes.listening.wait()
        status, text = await get(probes.port, "/state", host)
        assert (status, json.loads(text)) == (200, {"engine": "Ready"})


def own_address() -> str | None:
    """Answer an address of this machine that is not loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return str(sock.getsockname()[0])


async def test_state_is_refused_to_everyone_else() -> None:
    address = own_address()
    if address is None or address.startswith("127."):
        pytest.skip("this machine has no address but loopback")
    async with serving(state=lambda: {"engine": "Ready"}) as probes:
        await probes.listening.wait()
        status, text = await get(probes.port, "/state", address)
        assert status == 403
        assert "Ready" not in text
        assert (await get(probes.port, "/livez", address))[0] == 200


async def test_without_a_state_there_is_none() -> None:
    async with serving() as probes:
        await probes.listening.wait()
        assert (await get(probes.port, "/state"))[0] == 404


PEERS: dict[str, tuple[object, bool]] = {
    "IPv4 loopback": (("127.0.0.1", 1), True),
    "IPv6 loopback": (("::1", 1, 0, 0), True),
    "mapped loopback": (("::ffff:127.0.0.1", 1, 0, 0), True),
    "the whole of 127/8": (("::ffff:127.9.9.9", 1, 0, 0), True),
    "a pod": (("10.1.2.3", 1), False),
    "a mapped pod": (("::ffff:10.1.2.3", 1, 0, 0), False),
    "a link-local peer with a zone": (("fe80::1%eth0", 1, 0, 2), False),
    "a peer that has gone": (None, False),
    "a UNIX socket": ("", False),
}


@pytest.mark.parametrize(("peer", "answer"), PEERS.values(), ids=PEERS)
def test_who_counts_as_loopback(peer: object, answer: bool) -> None:
    class Transport(asyncio.BaseTransport):
        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return {"peername": peer}.get(name, default)

    assert runtime.is_loopback(Transport()) is answer


async def test_further_routes_are_served_besides() -> None:
    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    async with serving(routes=[web.get("/hello", hello)]) as probes:
        await probes.listening.wait()
        assert await get(probes.port, "/hello") == (200, "hello")


async def test_the_port_is_free_again_when_serving_ends() -> None:
    async with serving() as probes:
        await probes.listening.wait()
        port = probes.port
        await get(port, "/livez")
    assert probes.port is None
    assert port is not None
    runtime.dual_stack(port).close()
