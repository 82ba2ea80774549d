"""Asks the API server: one request and its answer, or a stream of lines. Errors: `errors`; logins: `credentials`.

The session is our own rather than that of `kubernetes_asyncio.client.rest`, whose one looks for proxies and for a
.netrc before each request in asyncio's shared threads: where a dead file system holds these, no request would go
out at all, and a .netrc entry beats the token. Objects travel as plain JSON, as typed models cost too much memory.
"""

import asyncio
import json
import logging
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import aiohttp
from yarl import URL

from sidecar.kube.credentials import SERVICE_ACCOUNT, Access, Credentials, find
from sidecar.kube.errors import ServerError, Unconfigured, from_answer, translated

log = logging.getLogger(__name__)

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
"""Server-side apply; needs the parameter fieldManager, and takes JSON as well."""

_CONNECT_TIMEOUT: Final = 5.0
_ERROR_LIMIT: Final = 1 << 16
_LINE_LIMIT: Final = 16 << 20
"""Far above what etcd stores (1.5 MiB unless told otherwise); no object, only a fault is as long."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object, as its URL names it. `group` is empty for the core API."""

    group: str
    version: str
    plural: str

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """The path of all of them, of those in a namespace, of one, or of a part of one."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part is not None]
        return "/" + "/".join(quote(part, safe="") for part in parts)


class Client:
    """A connection to one API server, open while it is entered.

    Every method raises KubeError, and nothing else, for what the network and the server do.
    """

    def __init__(self, credentials: Credentials, *, user_agent: str = "lora-sidecar") -> None:
        self._credentials = credentials
        self._user_agent = user_agent
        self._access: Access
        self._tls: ssl.SSLContext | None
        self._session: aiohttp.ClientSession

    @classmethod
    def open(
        cls,
        *,
        kubeconfig: str | None = None,
        context: str | None = None,
        directory: Path = SERVICE_ACCOUNT,
        environ: Mapping[str, str] = os.environ,
        user_agent: str = "lora-sidecar",
    ) -> Self:
        """A client by the kubeconfig named, else by the pod's files in `directory`, else the user's kubeconfig.

        Entering it reads these files and connects to nothing; it raises Unconfigured where there are none.
        """
        credentials = find(
            kubeconfig=kubeconfig, context=context, directory=directory, environ=environ
        )
        return cls(credentials, user_agent=user_agent)

    async def __aenter__(self) -> Self:
        try:
            self._access = await self._credentials.access()
            self._tls = _tls(self._access) if self._access.url.startswith("https") else None
        except Unconfigured:
            self._credentials.close()
            raise
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls or True),
            # Compressing costs both sides more than the cluster's network does.
            headers={
                "User-Agent": self._user_agent,
                "Accept": JSON,
                "Accept-Encoding": "identity",
            },
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.close()
        self._credentials.close()

    @property
    def namespace(self) -> str | None:
        """The namespace that the credentials name, if any."""
        return self._access.namespace

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        timeout: float = 10.0,
    ) -> dict[str, Any]:
        """Sends one request and returns the object that answers it. `timeout`: seconds, for all of it."""
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        headers = {} if data is None else {"Content-Type": content_type}
        with translated():
            async with (
                asyncio.timeout(timeout),
                self._answer(method, path, params, data=data, headers=headers) as response,
            ):
                status, raw = response.status, await response.read()
        try:
            answer = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise ServerError("the answer is not JSON", status=status) from error
        if not isinstance(answer, dict):
            raise ServerError("the answer is not an object", status=status)
        return answer

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str] | None = None, *, read_timeout: float = 90.0
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Opens a GET whose answer is read line by line as it comes, without end.

        Entering returns once the server has said 200. Only whole lines are handed out; what a broken or ended
        stream leaves half said is dropped. Silence for `read_timeout` seconds, and a break, raise Unreachable.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, connect=_CONNECT_TIMEOUT, sock_read=read_timeout
        )
        async with (
            self._answer("GET", path, params, timeout=timeout) as response,
            aclosing(_lines(response.content)) as lines,
        ):
            yield lines

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yields a good answer with its body unread. A 401 is tried once more with the token read afresh."""
        timeout = timeout or aiohttp.ClientTimeout(total=None, connect=_CONNECT_TIMEOUT)
        with translated():
            response = await self._send(method, path, params, data, headers, timeout)
            if response.status == 401:
                response.close()
                await self._renew()
                response = await self._send(method, path, params, data, headers, timeout)
        try:
            if not 200 <= response.status < 300:
                raise from_answer(response.status, await _beginning(response), response.headers)
            yield response
        finally:
            # Gives a connection back whose answer was read to its end, and ends any other.
            response.release()

    async def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        data: bytes | None,
        headers: Mapping[str, str] | None,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        access = await self._credentials.access()
        self._trust(access)
        headers = dict(headers or {})
        if access.authorization:
            headers["Authorization"] = access.authorization
        return await self._session.request(
            method,
            URL(access.url + path, encoded=True).with_query(params),
            data=data,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
            proxy=access.proxy,
            server_hostname=access.server_name,
        )

    async def _renew(self) -> None:
        refused = self._access.authorization
        access = await self._credentials.access(fresh=True)
        if access.authorization != refused:
            log.info("the API server refused the token (401), a newer one was found")

    def _trust(self, access: Access) -> None:
        """Adds an authority that came with a newer reading: a cluster's CA may be rotated under a running pod."""
        if self._tls is not None and access.ca is not None and access.ca != self._access.ca:
            try:
                self._tls.load_verify_locations(cadata=access.ca)
            except ssl.SSLError as error:
                log.warning("the cluster's new CA cannot be read: %s", error)
        self._access = access


def _tls(access: Access) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=access.ca)
        if access.certificate:
            context.load_cert_chain(*access.certificate)
    except OSError as error:
        raise Unconfigured(f"the CA or our own certificate cannot be read: {error}") from error
    # Python 3.13 and later want key identifiers, which the CAs of many clusters lack. Chain and host stay verified.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """As much of an error's body as can be had; whatever happens to the rest, the status has said enough."""
    body = b""
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT):
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > _ERROR_LIMIT:
                    break
    except (aiohttp.ClientError, OSError):
        pass
    return body


async def _lines(content: aiohttp.StreamReader) -> AsyncGenerator[bytes]:
    held: list[bytes] = []
    size = 0
    with translated():
        async for chunk in content.iter_any():
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                yield b"".join((*held, end))
                held, size = [], 0
            held.append(rest)
            size += len(rest)
            if size > _LINE_LIMIT:
                raise ServerError(f"a line is longer than {_LINE_LIMIT} bytes")
