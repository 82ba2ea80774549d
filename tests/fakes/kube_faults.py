"""Answers that an API server, or what stands before it, gives when it is not well. Each is a handler of aiohttp."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

CUT = b"(the connection breaks here)"
"""In the place of a line: break the connection. Compared by identity."""


def said(code: int, message: str, reason: str = "") -> dict[str, Any]:
    """A Status object."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


def status(
    code: int, message: str = "told to fail", reason: str = "", retry_after: int | None = None
) -> Answer:
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response(said(code, message, reason), status=code, headers=headers)

    return answer


def forbidden(verb: str, plural: str, group: str = "inference.llmkube.dev") -> Answer:
    """As RBAC words it."""
    return status(
        403,
        f'{plural}.{group} is forbidden: User "system:serviceaccount:a:default" cannot {verb} resource "{plural}"'
        f' in API group "{group}" at the cluster scope',
        "Forbidden",
    )


def page(code: int, text: str = "<html>\n<h1>Bad Gateway</h1>\n</html>\n") -> Answer:
    """What a proxy says."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=code, text=text, content_type="text/html")

    return answer


def stream(
    *lines: bytes, then: Callable[[], None] | None = None, cut_after: bool = False
) -> Answer:
    """A 200 with these bytes; then it ends, or breaks. `then` is called before that."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await opened(request)
        for line in lines:
            await response.write(line)
        if then is not None:
            then()
        return cut(request, response) if cut_after else response

    return answer


def silence(release: asyncio.Event, *, before_headers: bool = False) -> Answer:
    """No word until released, as from behind a firewall that has forgotten the connection."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse() if before_headers else await opened(request)
        await release.wait()
        return response

    return answer


async def opened(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    return response


def cut(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Breaks the connection in the middle of the answer."""
    if request.transport is not None:
        request.transport.close()
    return response


def event(kind: str, item: dict[str, Any]) -> bytes:
    """A line of a watch."""
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"
