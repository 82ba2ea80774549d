"""A small API server: it remembers objects, serves watches, and fails in whatever way a test asks for.

Served over a real socket to the real client. It knows what this project uses: create, get, list in pages, watch with
bookmarks and field selectors, merge patch, replace, delete with finalizers, status as a subresource. What it leaves
out: schemas, admission, other selectors than equality, and time (nothing happens by itself).

    async with FakeKube() as kube, kube.client() as client:
        kube.put(ADAPTERS, {"metadata": {"namespace": "a", "name": "x"}})
        kube.fail(faults.status(503), watch=True)
"""

import asyncio
import copy
import itertools
import json
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from sidecar.kube.client import Client, Resource
from sidecar.kube.credentials import Access, Credentials
from tests.fakes import kube_faults as faults
from tests.fakes.kube_memory import Event, Memory, applied, merged, selected
from tests.fakes.kube_requests import Seen, Target

Object = dict[str, Any]


@dataclass
class Rule:
    """An answer in the place of the true one, for the next `times` requests that match."""

    answer: faults.Answer
    matches: Callable[[Seen], bool]
    times: float


@dataclass
class Watch:
    """One open stream: what it selects, and what is still to be sent."""

    target: Target
    selector: str
    queue: "asyncio.Queue[bytes | None]" = field(default_factory=asyncio.Queue)
    request: web.Request | None = None


class FakeKube:
    """The server. `seen` is what arrived; the other attributes are a test's to set."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.memory = Memory()
        self.memory.subscribe(self._publish)
        self.seen: list[Seen] = []
        self.tokens: set[str] | None = None
        """The tokens that are good; None: no token is asked for."""
        self.forbidden: Callable[[Seen], bool] = lambda seen: False
        self.missing: set[Resource] = set()
        """Kinds that are not served."""
        self.selectable = {"metadata.name", "metadata.namespace", "spec.inferenceServiceRef.name"}
        self.statuses: set[Resource] = set()
        """Kinds with a status subresource."""
        self._tls = tls
        self._rules: list[Rule] = []
        self._watches: list[Watch] = []
        self._changed = asyncio.Condition()
        self._port = 0
        self._runner: web.AppRunner | None = None
        self._names = itertools.count()

    # ---- life -------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listens, the second time on the same port as the first."""
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, shutdown_timeout=0.1, access_log=None, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(
            self._runner, "127.0.0.1", self._port, ssl_context=self._tls, reuse_address=True
        )
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Ends every stream and listens no longer; what is remembered stays."""
        self.end_streams()
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    def client(self, token: str | None = None) -> Client:
        """A client of this server, to be entered."""
        authorization = f"Bearer {token}" if token else None
        return Client(Credentials(lambda: Access(self.url, authorization)))

    # ---- what a test does -----------------------------------------------------------------------------------------

    def put(self, resource: Resource, body: Object) -> Object:
        """Creates or replaces an object, as somebody else would, and returns it as stored."""
        return self.memory.put(resource, body)

    def delete(self, resource: Resource, namespace: str | None, name: str) -> None:
        self.memory.delete(resource, namespace, name)

    def get(self, resource: Resource, namespace: str | None, name: str) -> Object | None:
        return self.memory.get(resource, namespace, name)

    def objects(self, resource: Resource) -> list[Object]:
        return self.memory.objects(resource)

    def fail(
        self,
        answer: faults.Answer,
        *,
        verb: str | None = None,
        when: Callable[[Seen], bool] = lambda seen: True,
        times: float = 1,
    ) -> None:
        """Gives this answer to the next `times` (float("inf"): all) requests with that verb."""
        self._rules.append(Rule(answer, lambda s: verb in (None, s.verb) and when(s), times))

    def heal(self) -> None:
        """Forgets every fault that was asked for."""
        self._rules.clear()

    def bookmark(self, resource: Resource) -> None:
        """Tells every watch of the resource the present version."""
        line = _line("BOOKMARK", {"metadata": {"resourceVersion": self.memory.version}})
        for watch in self._of(resource):
            watch.queue.put_nowait(line)

    def end_streams(self) -> None:
        """Ends every watch as the server does when its time is over."""
        for watch in self._watches:
            watch.queue.put_nowait(None)

    def cut_streams(self, half: bytes = b"") -> None:
        """Breaks the connection of every watch, after sending `half` of a line."""
        for watch in self._watches:
            if half:
                watch.queue.put_nowait(half)
            watch.queue.put_nowait(faults.CUT)

    async def streams(self, count: int = 1) -> None:
        """Waits until that many watches are open."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._watches) == count)

    async def requests(self, count: int, verb: str | None = None) -> list[Seen]:
        """Waits until that many requests have arrived, and returns them."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.of(verb)) >= count)
        return self.of(verb)

    def of(self, verb: str | None) -> list[Seen]:
        """The requests that arrived with this verb."""
        return [seen for seen in self.seen if verb in (None, seen.verb)]

    # ---- HTTP -------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        seen = Seen(
            request.method,
            request.path,
            dict(request.query),
            dict(request.headers),
            json.loads(raw) if raw else None,
            request.transport.get_extra_info("peername") if request.transport else None,
        )
        self.seen.append(seen)
        await self._notify()
        answer = self._fault(seen) or self._refusal(seen)
        if answer is not None:
            return await answer(request)
        target = Target.of(request.path)
        if seen.watch:
            return await self._serve_watch(request, target, seen.params)
        return self._answer(seen, target)

    def _fault(self, seen: Seen) -> faults.Answer | None:
        for rule in self._rules:
            if rule.times > 0 and rule.matches(seen):
                rule.times -= 1
                return rule.answer
        return None

    def _refusal(self, seen: Seen) -> faults.Answer | None:
        target = Target.of(seen.path)
        token = seen.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.tokens is not None and token not in self.tokens:
            return faults.status(401, "Unauthorized")
        if self.forbidden(seen):
            return faults.forbidden(seen.verb, target.resource.plural)
        if target.resource in self.missing:
            return faults.status(404, "the server could not find the requested resource")
        for wanted in _pairs(seen.params.get("fieldSelector", "")):
            if wanted[0] not in self.selectable:
                return faults.status(400, f"field label not supported: {wanted[0]}", "BadRequest")
        return None

    def _answer(self, seen: Seen, target: Target) -> web.Response:
        try:
            match seen.verb:
                case "list":
                    return web.json_response(self._list(target, seen.params))
                case "get":
                    found = self.get(target.resource, target.namespace, target.name or "")
                    return web.json_response(found) if found else _error(404, "NotFound")
                case "create":
                    return self._create(target, seen.body)
                case "patch" | "replace":
                    return self._write(target, seen)
                case _:
                    self.delete(target.resource, target.namespace, target.name or "")
                    return web.json_response({"kind": "Status", "status": "Success"})
        except KeyError:
            return _error(404, "NotFound")

    def _list(self, target: Target, params: dict[str, str]) -> Object:
        selector = params.get("fieldSelector", "")
        found = [o for o in self._in(target) if _matches(o, selector)]
        start, size = int(params.get("continue", "0")), int(params.get("limit", "0")) or len(found)
        meta = {"resourceVersion": self.memory.version}
        if start + size < len(found):
            meta["continue"] = str(start + size)
        return {"kind": "List", "metadata": meta, "items": found[start : start + size]}

    def _in(self, target: Target) -> list[Object]:
        return [
            o
            for o in self.objects(target.resource)
            if target.namespace in (None, o["metadata"].get("namespace"))
        ]

    def _create(self, target: Target, body: Object) -> web.Response:
        meta = {**body.get("metadata", {})}
        if target.namespace:
            meta["namespace"] = target.namespace
        if "name" not in meta:
            meta["name"] = f"{meta['generateName']}{next(self._names)}"
        if self.get(target.resource, target.namespace, meta["name"]):
            return _error(409, "AlreadyExists")
        if target.resource in self.statuses:
            body = {key: value for key, value in body.items() if key != "status"}
        return web.json_response(
            self.memory.put(target.resource, {**body, "metadata": meta}), status=201
        )

    def _write(self, target: Target, seen: Seen) -> web.Response:
        old = self.get(target.resource, target.namespace, target.name or "")
        if old is None:
            return _error(404, "NotFound")
        body = copy.deepcopy(seen.body)
        version = body.get("metadata", {}).pop("resourceVersion", None)
        if version not in (None, old["metadata"]["resourceVersion"]):
            return _error(409, "Conflict")
        if body.get("metadata", {}).get("uid") not in (None, old["metadata"]["uid"]):
            return _error(422, "Invalid")
        applies = seen.headers.get("Content-Type", "").startswith("application/apply-patch")
        patched = applied if applies else merged
        new = patched(old, body) if seen.verb == "patch" else body
        if target.resource in self.statuses:
            whole = target.subresource == "status"
            new = {**(old if whole else new), "status": (new if whole else old).get("status", {})}
        new["metadata"] = {**old["metadata"], **new.get("metadata", {})}
        return web.json_response(self.memory.put(target.resource, new))

    # ---- watches --------------------------------------------------------------------------------------------------

    async def _serve_watch(
        self, request: web.Request, target: Target, params: dict[str, str]
    ) -> web.StreamResponse:
        response = await faults.opened(request)
        version = int(params.get("resourceVersion") or 0)
        if version < self.memory.oldest:
            await response.write(_line("ERROR", faults.said(410, "too old resource version")))
            return response
        watch = Watch(target, params.get("fieldSelector", ""), request=request)
        for event in self.memory.since(target.resource, version):
            self._send(watch, event)
        self._watches.append(watch)
        try:
            await self._notify()
            while (line := await watch.queue.get()) is not None:
                if line is faults.CUT:
                    return faults.cut(request, response)
                await response.write(line)
        except ConnectionResetError:
            pass  # the client went away
        finally:
            self._watches.remove(watch)
            await self._notify()
        return response

    def _publish(self, event: Event) -> None:
        for watch in self._of(event.resource):
            self._send(watch, event)

    def _of(self, resource: Resource) -> list[Watch]:
        return [watch for watch in self._watches if watch.target.resource == resource]

    def _send(self, watch: Watch, event: Event) -> None:
        if watch.target.namespace not in (None, event.namespace):
            return
        was = event.old is not None and _matches(event.old, watch.selector)
        now = event.new is not None and _matches(event.new, watch.selector)
        kind = {(0, 1): "ADDED", (1, 1): "MODIFIED", (1, 0): "DELETED"}.get((was, now))
        if kind is not None:
            watch.queue.put_nowait(_line(kind, event.shown))

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _error(code: int, reason: str) -> web.Response:
    return web.json_response(faults.said(code, reason, reason), status=code)


def _line(kind: str, item: Object) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


def _pairs(selector: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, selector.split(",")):
        name, _, value = part.partition("=")
        yield name, value.removeprefix("=")


def _matches(item: Object, selector: str) -> bool:
    return all(selected(item, name) == value for name, value in _pairs(selector))
