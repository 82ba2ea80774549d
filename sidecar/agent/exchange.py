"""Carries a request to the engine and its answer back: which address, which key, which certificate, what went wrong.

It retries one thing only: a key that was refused is read again, and if it is another one, the call is made once more.
(aiohttp itself sends a GET once more that was broken off before its answer began, and never a POST.)
Each call makes a connection of its own and leaves nothing open: SGLang (uvicorn) drops idle ones after 5 s, and a
request that meets such an end cannot tell whether it was carried out. On loopback that costs a tenth of a millisecond.

    EngineError
    ├── Refused        nothing listens at any of its addresses: it is not there yet, or no longer
    ├── Untrusted      TLS failed: another certificate than the pinned one, or no TLS at all
    ├── Silent         it connects, but gives no whole answer in time, or breaks off
    ├── Unauthorized   it refused the key
    ├── NoRoute        it has no such route
    └── Garbled        it answered, but not as SGLang does
"""

# ruff: noqa: N818 - the root says that these are errors, the names say what to do

import asyncio
import ipaddress
import logging
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import aiohttp
from yarl import URL

from sidecar.agent.answers import one_line
from sidecar.agent.keys import Certificate, Keys

CONNECT_SECONDS: Final = 3.0
BODY_LIMIT: Final = 1024 * 1024
"""Bytes of an answer that are read at most: a list of 1,000 adapters has some 300 KB."""

log = logging.getLogger(__name__)


class EngineError(Exception):
    """A read did not succeed. The message is one line, free of secrets."""


class Refused(EngineError):
    """Nothing listens at any of the engine's addresses."""


class Untrusted(EngineError):
    """TLS failed, so nothing was sent."""


class Silent(EngineError):
    """The engine connects, but gives no whole answer in time, or breaks off."""


class Unauthorized(EngineError):
    """The engine refused the key."""


class NoRoute(EngineError):
    """The engine has no such route."""


class Garbled(EngineError):
    """The engine answered, but not as SGLang does."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request, before it is known at which address it will be answered. `seconds` of None is for ever."""

    method: str
    path: str
    seconds: float | None
    body: Mapping[str, object] | None = None
    admin: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer, whatever it says."""

    status: int
    body: bytes


class Wire:
    """The way to one engine."""

    def __init__(
        self, hosts: Sequence[str], port: int, scheme: str, keys: Keys, certificate: Certificate
    ) -> None:
        self._hosts = tuple(hosts)
        self._port = port
        self._scheme = scheme
        self._keys = keys
        self._certificate = certificate
        self._known: str | None = None
        self._told_unverified = False
        self._open: set[aiohttp.ClientSession] = set()

    async def close(self) -> None:
        """Break off what is under way."""
        for session in list(self._open):
            await session.close()

    @property
    def addresses(self) -> str:
        """Where the engine is looked for, for people."""
        return ", ".join(_address(host, self._port) for host in self._hosts)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not appear in any text."""
        return self._keys.secrets

    def refused_key(self, *, admin: bool) -> str:
        """Which key the engine refused, as a sentence."""
        name = self._keys.name(admin=admin)
        if name is None:
            return "the engine asks for a key, and none is given"
        if admin and name != self._keys.ADMIN:
            return f"the engine refused the {name} for loading and unloading: it asks for its {self._keys.ADMIN}"
        return f"the engine refused the {name}"

    async def connect(self, seconds: float) -> bool:
        """Whether something accepts connections at one of the addresses."""
        for host in self._order():
            if await _accepts(host, self._port, seconds):
                self._known = host
                return True
        return False

    async def send(self, call: Call) -> Reply:
        """The engine's reply. Raises Refused, Untrusted, Silent or Garbled."""
        key = await self._keys.pick(admin=call.admin)
        reply = await self._find(call, key)
        if reply.status != 401:
            return reply
        if await self._keys.refresh():
            log.info("the engine refused a key, and its file holds another one by now")
        # Not only where it changed just now: a call beside this one may have read the files first.
        fresh = await self._keys.pick(admin=call.admin)
        return reply if fresh == key else await self._find(call, fresh)

    async def _find(self, call: Call, key: str | None) -> Reply:
        """The reply of the first address at which something listens."""
        for host in self._order():
            try:
                reply = await self._exchange(host, call, key)
            except Refused:
                continue
            self._known = host
            return reply
        raise Refused(f"nothing listens at {self.addresses}")

    def _order(self) -> list[str]:
        return sorted(self._hosts, key=lambda host: host != self._known)

    async def _exchange(self, host: str, call: Call, key: str | None) -> Reply:
        trust = await self._trust(host)
        async with (
            _translated(host, self._port, call.seconds),
            self._connection() as session,
            session.request(
                call.method,
                URL.build(scheme=self._scheme, host=host, port=self._port, path=call.path),
                json=call.body,
                headers={"Authorization": f"Bearer {key}"} if key else None,
                timeout=aiohttp.ClientTimeout(total=call.seconds, sock_connect=CONNECT_SECONDS),
                ssl=trust,
                allow_redirects=False,  # the key is for this address only
            ) as response,
        ):
            return Reply(response.status, await _body(response))

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[aiohttp.ClientSession]:
        """Lend what makes one connection, and is closed together with it."""
        async with aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "lora-sidecar"},
            trust_env=False,  # a proxy never stands between two containers of one pod
        ) as session:
            self._open.add(session)
            try:
                yield session
            finally:
                self._open.discard(session)

    async def _trust(self, host: str) -> bool | ssl.SSLContext:
        if self._scheme != "https":
            return True
        pinned = await self._certificate.trust()
        if pinned is not None:
            return pinned
        if not _is_loopback(host):
            return True
        if not self._told_unverified:
            self._told_unverified = True
            log.warning("the engine's certificate cannot be read, so on loopback any is accepted")
        return False


@asynccontextmanager
async def _translated(host: str, port: int, seconds: float | None) -> AsyncIterator[None]:
    """Each way in which aiohttp fails, named by what it means here."""
    where = _address(host, port)
    try:
        yield
    except aiohttp.ClientSSLError as error:
        raise Untrusted(f"{where}: {_reason(error)}") from error
    except aiohttp.ClientConnectorError as error:
        raise Refused(f"{where}: {_reason(error)}") from error
    except TimeoutError as error:
        within = CONNECT_SECONDS if isinstance(error, aiohttp.ConnectionTimeoutError) else seconds
        raise Silent(f"{where}: no answer within {within:g} s") from error
    except (
        aiohttp.ClientOSError,
        aiohttp.ServerDisconnectedError,
        aiohttp.ClientPayloadError,
    ) as error:
        raise Silent(f"{where}: the connection broke off") from error
    except aiohttp.ClientError as error:
        raise Garbled(f"{where}: not an HTTP answer") from error


async def _body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > BODY_LIMIT:
            raise Garbled(f"an answer of more than {BODY_LIMIT} bytes")
    return bytes(body)


async def _accepts(host: str, port: int, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    # A loopback connection to a port of the ephemeral range can meet itself where nothing listens.
    ours, theirs = writer.get_extra_info("sockname"), writer.get_extra_info("peername")
    writer.transport.abort()
    return bool(ours != theirs)


def _reason(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not the one in the engine's certificate file"
    if isinstance(error, aiohttp.ClientSSLError):
        return one_line(f"TLS failed: {error}")
    return one_line(error.strerror or "no connection")


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
