"""The client of the engine: what it sends, and what it makes of each way in which an exchange can end.

What SGLang itself answers is `tests/conformance`'s; here the answers are made up, and the connections go wrong.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aioresponses import aioresponses
from yarl import URL

from sidecar.agent import exchange
from sidecar.agent.keys import Certificate, Keys
from sidecar.agent.sglang import (
    Engine,
    EngineError,
    Garbled,
    Kind,
    NoRoute,
    Refused,
    Silent,
    Unauthorized,
    Untrusted,
)
from tests.agent.waiting import until
from tests.fakes.sglang import Fault, Options, Simulator
from tests.rig import pki
from tests.rig.engines import free_port

URL_ = "http://127.0.0.1:30000"
LIST = {"data": [{"id": "base", "root": "base", "parent": None}]}
INFO = {"model_path": "/models/base", "version": "0.5.21"}
DONE = {"success": True, "error_message": "", "loaded_adapters": {"a": "/a"}}

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
def http() -> Iterator[aioresponses]:
    with aioresponses() as mocked:
        yield mocked


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with Engine(["127.0.0.1"], keys=Keys(api_value="A", admin_value="B")) as client:
        yield client


def sent(http: aioresponses, method: str, path: str) -> list[dict[str, Any]]:
    """The arguments of the requests that were made."""
    return [call.kwargs for call in http.requests.get((method, URL(URL_ + path)), [])]


class TestRequests:
    async def test_a_load_says_name_and_path_and_nothing_else(
        self, http: aioresponses, engine: Engine
    ) -> None:
        http.post(f"{URL_}/load_lora_adapter", payload=DONE)
        answer = await engine.load("a", "/a")
        assert (answer.kind, answer.loaded) == (Kind.OK, {"a": "/a"})
        (request,) = sent(http, "POST", "/load_lora_adapter")
        assert request["json"] == {"lora_name": "a", "lora_path": "/a"}
        assert request["headers"]["Authorization"] == "Bearer B"
        assert request["timeout"].total == 300

    async def test_a_pinned_load_says_so(self, http: aioresponses, engine: Engine) -> None:
        http.post(f"{URL_}/load_lora_adapter", payload=DONE)
        await engine.load("a", "/a", pinned=True)
        (request,) = sent(http, "POST", "/load_lora_adapter")
        assert request["json"] == {"lora_name": "a", "lora_path": "/a", "pinned": True}

    async def test_an_unload_may_take_for_ever(self, http: aioresponses, engine: Engine) -> None:
        http.post(f"{URL_}/unload_lora_adapter", payload=DONE)
        await engine.unload("a")
        (request,) = sent(http, "POST", "/unload_lora_adapter")
        assert request["json"] == {"lora_name": "a"}
        assert request["headers"]["Authorization"] == "Bearer B"
        assert request["timeout"].total is None

    async def test_a_read_shows_the_api_key_and_waits_ten_seconds(
        self, http: aioresponses, engine: Engine
    ) -> None:
        http.get(f"{URL_}/v1/models", payload=LIST)
        assert (await engine.models()).base == "base"
        (request,) = sent(http, "GET", "/v1/models")
        assert request["headers"]["Authorization"] == "Bearer A"
        assert request["timeout"].total == 10

    async def test_a_generation_is_one_token_with_the_api_key(
        self, http: aioresponses, engine: Engine
    ) -> None:
        http.post(f"{URL_}/generate", payload={"text": "x"})
        assert (await engine.generate_one("a")).ok
        (request,) = sent(http, "POST", "/generate")
        assert request["json"]["lora_path"] == "a"
        assert request["json"]["sampling_params"]["max_new_tokens"] == 1
        assert request["headers"]["Authorization"] == "Bearer A"

    async def test_without_an_admin_key_the_api_key_is_shown(self, http: aioresponses) -> None:
        http.post(f"{URL_}/unload_lora_adapter", payload=DONE)
        async with Engine(["127.0.0.1"], keys=Keys(api_value="A")) as client:
            await client.unload("a")
        (request,) = sent(http, "POST", "/unload_lora_adapter")
        assert request["headers"]["Authorization"] == "Bearer A"

    async def test_without_keys_none_is_shown(self, http: aioresponses) -> None:
        http.get(f"{URL_}/v1/models", payload=LIST)
        async with Engine(["127.0.0.1"]) as client:
            await client.models()
        assert "Authorization" not in sent(http, "GET", "/v1/models")[0]["headers"]

    async def test_an_old_engine_is_asked_under_the_old_name(
        self, http: aioresponses, engine: Engine
    ) -> None:
        http.get(f"{URL_}/server_info", status=404, payload={"detail": "Not Found"})
        http.get(f"{URL_}/get_server_info", payload=INFO)
        assert (await engine.server_info()).version == "0.5.21"

    async def test_nobody_is_followed_elsewhere_with_our_key(
        self, http: aioresponses, engine: Engine
    ) -> None:
        http.get(f"{URL_}/v1/models", status=302, headers={"Location": "http://127.0.0.1:1/"})
        with pytest.raises(Garbled, match="/v1/models: HTTP 302"):
            await engine.models()


class TestReads:
    @pytest.mark.parametrize(
        ("status", "error", "words"),
        [
            (401, Unauthorized, "the engine refused the api key"),
            (403, Unauthorized, "the engine refused the api key"),
            (404, NoRoute, "the engine has no /v1/models"),
            (500, Garbled, "/v1/models: HTTP 500 oops"),
            (503, Garbled, "/v1/models: HTTP 503 oops"),
        ],
    )
    async def test_a_status_is_an_error_by_what_to_do_next(
        self,
        http: aioresponses,
        engine: Engine,
        status: int,
        error: type[EngineError],
        words: str,
    ) -> None:
        http.get(f"{URL_}/v1/models", status=status, body="oops")
        with pytest.raises(error, match=f"^{words}$"):
            await engine.models()

    @pytest.mark.parametrize("body", ["", "<html></html>", '{"data": []}', "null"])
    async def test_what_is_not_sglangs_is_garbled(
        self, http: aioresponses, engine: Engine, body: str
    ) -> None:
        http.get(f"{URL_}/v1/models", body=body)
        http.get(f"{URL_}/server_info", body=body)
        with pytest.raises(Garbled):
            await engine.models()
        with pytest.raises(Garbled):
            await engine.server_info()

    async def test_a_key_in_an_answer_is_blotted_out(
        self, http: aioresponses, engine: Engine
    ) -> None:
        http.get(f"{URL_}/v1/models", status=500, body="the key A is as good as B")
        with pytest.raises(Garbled, match=r"the key \*\*\* is as good as \*\*\*$"):
            await engine.models()


class TestChanges:
    @pytest.mark.parametrize(
        "error",
        [
            TimeoutError(),
            aiohttp.ServerDisconnectedError(),
            aiohttp.ClientOSError(104, "reset"),
            aiohttp.ClientPayloadError(),
            aiohttp.InvalidURL("x"),
        ],
        ids=lambda error: type(error).__name__,
    )
    async def test_whatever_happens_after_sending_leaves_it_unknown(
        self, http: aioresponses, engine: Engine, error: Exception
    ) -> None:
        http.post(f"{URL_}/load_lora_adapter", exception=error)
        answer = await engine.load("a", "/a")
        assert (answer.kind, answer.status) == (Kind.UNKNOWN, None)
        assert answer.text.startswith("127.0.0.1:30000: ")
        assert len(sent(http, "POST", "/load_lora_adapter")) == 1

    async def test_a_refused_key_is_named(self, http: aioresponses, engine: Engine) -> None:
        http.post(f"{URL_}/load_lora_adapter", status=401, payload={"error": "Unauthorized"})
        answer = await engine.load("a", "/a")
        assert (answer.kind, answer.text) == (Kind.UNAUTHORIZED, "the engine refused the admin key")

    async def test_a_cancelled_call_is_cancelled(self) -> None:
        async with Simulator() as simulator, _client(simulator.port) as client:
            simulator.faults.add(Fault("/unload_lora_adapter", "hang"))
            unload = asyncio.ensure_future(client.unload("a"))
            await until(lambda: simulator.posts("/unload_lora_adapter"))
            unload.cancel()
            with pytest.raises(asyncio.CancelledError):
                await unload
            assert (await client.models()).loaded == {}

    async def test_closing_breaks_off_what_is_under_way(self) -> None:
        async with Simulator() as simulator:
            client = _client(simulator.port)
            simulator.faults.add(Fault("/unload_lora_adapter", "hang"))
            unload = asyncio.ensure_future(client.unload("a"))
            await until(lambda: simulator.posts("/unload_lora_adapter"))
            await client.close()
            assert (await unload).kind is Kind.UNKNOWN


@pytest.mark.rule(14)
class TestKeys:
    async def test_a_refused_key_is_read_again_and_the_new_one_shown_once(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "key"
        file.write_text("old\n")
        async with Simulator(Options(api_key="new")) as simulator:
            keys = Keys(api_file=file)
            async with Engine(["127.0.0.1"], simulator.port, keys=keys) as client:
                with pytest.raises(Unauthorized):
                    await client.models()
                assert len(simulator.asked) == 1
                file.write_text("new\n")
                assert (await client.models()).base == "tiny-base"
                assert [asked.authorization for asked in simulator.asked] == [
                    "Bearer old",
                    "Bearer old",
                    "Bearer new",
                ]

    async def test_of_two_calls_that_are_refused_the_later_gets_the_new_key_as_well(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "key"
        file.write_text("old")
        async with (
            Simulator(Options(api_key="old")) as simulator,
            Engine(["127.0.0.1"], simulator.port, keys=Keys(api_file=file)) as client,
        ):
            await client.models()
            simulator.options.api_key = "new"
            file.write_text("new")
            simulator.faults.add(Fault("/v1/models", "delay", seconds=0.2))
            slow = asyncio.create_task(client.models())
            await until(lambda: len(simulator.asked) == 2)
            await client.models()
            assert (await slow).base == "tiny-base"

    async def test_a_changed_key_lets_a_change_through_that_was_refused(
        self, tmp_path: Path
    ) -> None:
        file = tmp_path / "key"
        async with Simulator(Options(admin_api_key="new")) as simulator:
            keys = Keys(admin_file=file)
            async with Engine(["127.0.0.1"], simulator.port, keys=keys) as client:
                answer = await client.unload("a")
                assert answer.text == "the engine asks for a key, and none is given"
                file.write_text("new")
                assert (await client.unload("a")).kind is Kind.UNKNOWN_NAME

    async def test_a_file_wins_over_a_value_and_an_empty_one_does_not(self, tmp_path: Path) -> None:
        full, empty = tmp_path / "full", tmp_path / "empty"
        full.write_text("  from file  \nsecond line\n")
        empty.write_text("\n")
        keys = Keys(api_file=full, admin_file=empty, api_value="A", admin_value="B")
        assert await keys.pick(admin=False) == "from file"
        assert await keys.pick(admin=True) == "B"
        assert set(keys.secrets) == {"from file", "B"}

    async def test_nothing_shows_a_key(self) -> None:
        keys = Keys(api_value="S3CRET", admin_value="S3CRET")
        await keys.refresh()
        assert "S3CRET" not in repr(keys)


@pytest.mark.rule(14)
class TestAddresses:
    async def test_where_nothing_listens_it_is_refused(self) -> None:
        port = free_port()
        async with Engine(port=port) as client:
            where = f"[::1]:{port}, 127.0.0.1:{port}"
            assert client.addresses == where
            assert not await client.connect()
            with pytest.raises(Refused, match="nothing listens at"):
                await client.models()
            answer = await client.load("a", "/a")
            assert (answer.kind, answer.text) == (Kind.REFUSED, f"nothing listens at {where}")

    @pytest.mark.parametrize("host", ["::1", "127.0.0.1"])
    async def test_an_engine_at_either_loopback_address_is_found(self, host: str) -> None:
        async with Simulator(host=host) as simulator, Engine(port=simulator.port) as client:
            assert await client.connect()
            assert (await client.models()).base == "tiny-base"

    async def test_the_address_that_answered_is_asked_first_until_it_refuses(self) -> None:
        port = free_port()
        async with (
            Simulator(host="127.0.0.1", port=port) as first,
            Engine(port=port) as client,
        ):
            await client.models()
            async with Simulator(host="::1", port=port) as second:
                await client.models()
                assert (len(first.asked), len(second.asked)) == (2, 0)
                await first.stop()
                await client.models()
                await first.start()
                await client.models()
                assert (len(first.asked), len(second.asked)) == (2, 2)

    async def test_a_connection_that_meets_itself_is_no_engine(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On loopback, a connect to a closed port of the ephemeral range may be given that very port."""
        port, real = free_port(), asyncio.open_connection

        async def from_the_same_port(host: str, port: int) -> Any:
            return await real(host, port, local_addr=(host, port))

        monkeypatch.setattr(asyncio, "open_connection", from_the_same_port)
        async with Engine(["127.0.0.1"], port) as client:
            assert not await client.connect()

    async def test_proxies_are_not_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
        async with Simulator() as simulator, _client(simulator.port) as client:
            assert (await client.models()).base == "tiny-base"


class TestConnections:
    async def test_a_bare_connect_sends_nothing(self) -> None:
        heard: asyncio.Queue[bytes] = asyncio.Queue()

        async def listen(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            heard.put_nowait(await reader.read())

        async with _server(listen) as port, _client(port) as client:
            assert await client.connect()
            assert await heard.get() == b""

    async def test_no_connection_outlives_its_call(self) -> None:
        ended = asyncio.Semaphore(0)

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(_reply(LIST))
            await reader.read()
            ended.release()

        async with _server(answer) as port, _client(port) as client:
            for _ in range(3):
                await client.models()
            for _ in range(3):
                await ended.acquire()

    async def test_an_engine_that_never_answers_is_silent(self) -> None:
        async with Simulator() as simulator:
            simulator.faults.add(Fault("/v1/models", "hang"))
            simulator.faults.add(Fault("/load_lora_adapter", "hang"))
            port = simulator.port
            async with Engine(["127.0.0.1"], port, read_seconds=0.05, load_seconds=0.05) as client:
                with pytest.raises(Silent, match=r"no answer within 0\.05 s"):
                    await client.models()
                assert (await client.load("a", "/a")).kind is Kind.UNKNOWN
            assert len(simulator.asked) == 2

    async def test_a_change_that_is_broken_off_is_not_sent_again(self) -> None:
        async with Simulator() as simulator, _client(simulator.port) as client:
            simulator.faults.add(Fault("/load_lora_adapter", "drop"))
            answer = await client.load("a", "/a")
            assert (answer.kind, len(simulator.asked)) == (Kind.UNKNOWN, 1)

    async def test_a_read_that_is_broken_off_is_silence(self) -> None:
        async with Simulator() as simulator, _client(simulator.port) as client:
            simulator.faults.add(Fault("/v1/models", "drop", times=-1))
            with pytest.raises(Silent, match="broke off"):
                await client.models()

    async def test_an_answer_without_an_end_is_cut_off(self) -> None:
        async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
            while not writer.is_closing():
                writer.write(b" " * 65536)
                await writer.drain()

        async with _server(pour) as port, _client(port) as client:
            with pytest.raises(Garbled, match="more than 1048576 bytes"):
                await client.models()

    async def test_what_is_not_http_is_garbled(self) -> None:
        async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"220 mail.example ESMTP\r\n\r\n")
            await writer.drain()

        async with _server(speak) as port, _client(port) as client:
            with pytest.raises(Garbled, match="not an HTTP answer"):
                await client.models()
            assert (await client.load("a", "/a")).kind is Kind.UNKNOWN


@pytest.mark.rule(14)
class TestTls:
    async def test_the_certificate_in_the_file_is_trusted_though_it_has_expired(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pki, "LIFE", timedelta(seconds=-1))
        cert, key = pki.Authority(tmp_path).issue("engine", user="engine")
        async with _guarded(cert, key) as port, _https(port, cert) as client:
            assert (await client.models()).base == "tiny-base"

    async def test_another_certificate_is_not_and_nothing_is_sent(self, tmp_path: Path) -> None:
        authority = pki.Authority(tmp_path)
        cert, key = authority.issue("engine", user="engine")
        other, _ = authority.issue("other", user="other")
        async with Simulator(Options(ssl_certfile=cert, ssl_keyfile=key)) as simulator:
            async with _https(simulator.port, other) as client:
                with pytest.raises(Untrusted, match="not the one in the engine's certificate file"):
                    await client.models()
                assert (await client.load("a", "/a")).kind is Kind.REFUSED
            assert not simulator.asked

    async def test_a_replaced_certificate_is_trusted_at_once(self, tmp_path: Path) -> None:
        authority, file = pki.Authority(tmp_path), tmp_path / "engine-certificate"
        old, _ = authority.issue("old", user="engine")
        new, key = authority.issue("new", user="engine")
        file.write_bytes(old.read_bytes())
        async with _guarded(new, key) as port, _https(port, file) as client:
            with pytest.raises(Untrusted):
                await client.models()
            file.write_bytes(new.read_bytes() + old.read_bytes())
            assert (await client.models()).base == "tiny-base"

    async def test_of_several_certificates_in_the_file_the_first_counts(
        self, tmp_path: Path
    ) -> None:
        authority, file = pki.Authority(tmp_path), tmp_path / "engine-certificate"
        second, key = authority.issue("second", user="engine")
        first, _ = authority.issue("first", user="engine")
        file.write_bytes(first.read_bytes() + second.read_bytes())
        async with _guarded(second, key) as port, _https(port, file) as client:
            with pytest.raises(Untrusted):
                await client.models()

    @pytest.mark.parametrize("content", [None, "", "rubbish", ssl.PEM_HEADER])
    async def test_without_a_readable_file_any_is_accepted_on_loopback_and_that_is_said_once(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str | None
    ) -> None:
        cert, key = pki.Authority(tmp_path).issue("engine", user="engine")
        file = tmp_path / "unreadable"
        if content is not None:
            file.write_text(content)
        async with _guarded(cert, key) as port, _https(port, file) as client:
            await client.models()
            await client.models()
        assert [record.message for record in caplog.records if "certificate" in record.message] == [
            "the engine's certificate cannot be read, so on loopback any is accepted"
        ]

    async def test_elsewhere_only_one_that_the_system_trusts(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(exchange, "_is_loopback", lambda host: False)
        cert, key = pki.Authority(tmp_path).issue("engine", user="engine")
        async with _guarded(cert, key) as port, _https(port, None) as client:
            with pytest.raises(Untrusted):
                await client.models()

    async def test_it_never_falls_back_to_plain_http(self) -> None:
        heard: asyncio.Queue[bytes] = asyncio.Queue()

        async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.put_nowait(await reader.read(3))
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()

        async with _server(plain) as port, _https(port, None) as client:
            assert (await client.load("a", "/a")).kind is Kind.REFUSED
            assert await heard.get() == b"\x16\x03\x01"  # a TLS handshake
            assert heard.empty()


def test_loopback_is_told_by_the_address() -> None:
    told = {
        host: exchange._is_loopback(host)
        for host in ("::1", "127.0.0.1", "localhost", "10.0.0.1", "engine")
    }
    assert told == {
        "::1": True,
        "127.0.0.1": True,
        "localhost": True,
        "10.0.0.1": False,
        "engine": False,
    }


def _client(port: int) -> Engine:
    return Engine(["127.0.0.1"], port)


def _https(port: int, file: Path | None) -> Engine:
    return Engine(["127.0.0.1"], port, scheme="https", certificate=Certificate(file))


@asynccontextmanager
async def _guarded(cert: Path, key: Path) -> AsyncIterator[int]:
    async with Simulator(Options(ssl_certfile=cert, ssl_keyfile=key)) as simulator:
        yield simulator.port


@asynccontextmanager
async def _server(serve: Serve) -> AsyncIterator[int]:
    """A server that does as it is told with each connection; it closes what `serve` leaves open."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def _reply(document: Any) -> bytes:
    body = json.dumps(document).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
