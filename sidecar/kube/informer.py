"""Keeps a snapshot of all objects of a kind true: lists once, watches from there, and lists again when in doubt.

`run` is a loop of two steps too plain to be wrong; what is known lives in `store`. What it holds to:

* The snapshot shrinks only by a DELETED event or by a complete list. A list that failed, in whole or in part, a
  refusal or a missing kind say nothing about the objects.
* A watch is an accelerator, never to be trusted with silence. The server is told to end it after some minutes;
  with bookmarks each minute, 90 s without a word mean a dead connection; and one that ended without having said
  anything is followed by a new list, whatever the reason.
* No end of a stream is an error. But where streams end early, the next one waits, and so does every failure.
* Lists are consistent reads: a cached one (resourceVersion=0) may be older than what was already seen.
"""

import asyncio
import json
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, Generic, NoReturn, TypeVar

from sidecar.kube.backoff import Backoff
from sidecar.kube.client import Client, Resource
from sidecar.kube.errors import (
    Gone,
    Invalid,
    KubeError,
    ServerError,
    Throttled,
    Unreachable,
    from_status,
)
from sidecar.kube.selectors import Selectors
from sidecar.kube.store import Change, Record, Store, is_object

log = logging.getLogger(__name__)

T = TypeVar("T")

READ_TIMEOUT: Final = 90.0
"""The API server sends a bookmark each minute (defaultBookmarkFrequency), and one before it ends a watch."""

_LIST_TIMEOUT: Final = 30.0
_WATCH_SECONDS: Final = (240, 480)
_GOOD_LIFE: Final = 10.0
"""A stream that lived longer than this was a good one, and the next follows it without a pause."""
_AWAY: Final = frozenset({502, 503})
"""What an API server says that is still starting, and a load balancer that has none.

Its Retry-After (always 5 s from a starting kube-apiserver 1.36) is not waited for: it is no measure of load, would have
every pod of a cluster come back in the same second, and a server with too much to do says 429.
"""
_CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
_MOST_RETRY_AFTER: Final = 120.0


class Informer(Generic[T]):
    """A live view of the objects of one resource in one namespace, or in all of them (`namespace` None).

    `decode` turns an object into a value, or None where it is not wanted. Where it raises, the object keeps its
    last good value, and `undecodable` says why.
    `accept` repeats `field_selector` on our side, for servers that cannot select by that field: there the selector
    is left out, and tried again each hour.
    `wake` is called after every change of the snapshot, of `synced`, `problem` and `watches`; `on_change` with key, old
    and new value for each object. Both run on the loop, must not block, and must not raise.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        *,
        decode: Callable[[dict[str, Any]], T | None],
        namespace: str | None = None,
        field_selector: str | None = None,
        label_selector: str | None = None,
        accept: Callable[[dict[str, Any]], bool] | None = None,
        wake: Callable[[], None] | None = None,
        on_change: Change[T] | None = None,
        limit: int = 500,
        read_timeout: float = READ_TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._path = resource.path(namespace)
        self._selectors = Selectors(
            field_selector, label_selector, optional=accept is not None, clock=clock
        )
        self._store = Store(decode, accept, on_change)
        self._wake = wake or (lambda: None)
        self._limit = limit
        self._read_timeout = read_timeout
        self._clock = clock
        self._sleep = sleep
        self._dice = dice
        # To ask a server that is away costs nobody much, so one that comes back is found within two seconds.
        self._away = Backoff(0.25, 2.0, dice)
        self._failing = Backoff(0.5, 30.0, dice)
        self._version: str | None = None
        self._problem: KubeError | None = None
        self._confirmed_at: float | None = None
        self._lists = 0
        self._watches = 0

    @property
    def snapshot(self) -> Mapping[str, T]:
        """The values by `namespace/name` (`name` where there is no namespace). Live: copy it before you await."""
        return self._store.snapshot

    @property
    def undecodable(self) -> Mapping[str, str]:
        """Key → why the newest version of that object could not be decoded."""
        return self._store.undecodable

    @property
    def synced(self) -> bool:
        """A complete list was read; true ever since."""
        return self._lists > 0

    @property
    def lists(self) -> int:
        """How many complete lists were read."""
        return self._lists

    @property
    def watches(self) -> int:
        """How many watches were begun. Each but the first wakes, as a kind that is changed ends the watches of it."""
        return self._watches

    @property
    def confirmed_at(self) -> float | None:
        """When the server last said anything, by `clock`; bookmarks count. None: never."""
        return self._confirmed_at

    @property
    def problem(self) -> KubeError | None:
        """Why the snapshot may be behind; None while a watch is open or has just ended."""
        return self._problem

    async def run(self) -> NoReturn:
        """Keeps the snapshot true until cancelled."""
        while True:
            if delay := await self._step():
                await self._sleep(delay)

    async def _step(self) -> float:
        """Lists where that is due, then watches until the stream ends. Answers how long to wait."""
        listed = False
        try:
            if self._selectors.retry() or self._version is None:
                self._version = await self._list()
                listed = True
            return await self._watch()
        except KubeError as error:
            return self._failed(error, listed=listed)

    # ---- list ------------------------------------------------------------------------------------------------

    async def _list(self) -> str:
        """Takes a complete list into the store and answers its version."""
        records: dict[str, Record[T]] = {}
        token = ""
        while True:
            params = {**self._selectors.params(), "limit": str(self._limit)}
            if token:
                params["continue"] = token
            page = await self._client.request(
                "GET", self._path, params=params, timeout=_LIST_TIMEOUT
            )
            self._confirm()
            meta = await self._read_page(page, records)
            token = meta.get("continue") or ""
            if not token:
                break
        changed = self._store.replace(records)
        first, self._lists = not self._lists, self._lists + 1
        if changed or first:
            self._wake()
        return _version(page) or ""

    async def _read_page(
        self, page: Mapping[str, Any], records: dict[str, Record[T]]
    ) -> dict[str, Any]:
        meta, items = page.get("metadata"), page.get("items", "missing")
        if not isinstance(meta, dict) or not isinstance(items, list | None):
            raise ServerError("the answer is not a list")
        for count, item in enumerate(items or ()):
            if not is_object(item):
                raise ServerError("the list holds what is no object")
            key, record = self._store.read(item)
            records[key] = record
            if count % 20 == 19:
                await asyncio.sleep(0)  # a page of large objects must not hold up everything else
        return meta

    # ---- watch -----------------------------------------------------------------------------------------------

    async def _watch(self) -> float:
        """Follows one stream to its end. Answers how long to wait before the next; raises what ends no stream."""
        low, high = _WATCH_SECONDS
        params = {
            **self._selectors.params(),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "",
            "timeoutSeconds": str(int(low + self._dice() * (high - low))),
        }
        stream = self._client.stream(self._path, params, read_timeout=self._read_timeout)
        async with stream as lines:
            self._away.reset()
            self._confirm()
            self._set_problem(None)
            self._watches += 1
            if self._watches > 1:
                self._wake()
            began = self._clock()
            try:
                said = await self._follow(lines)
            finally:
                if good := self._clock() - began > _GOOD_LIFE:
                    self._failing.reset()
        if not said:
            self._version = None
        return 0.0 if good else self._failing.next()

    async def _follow(self, lines: AsyncIterator[bytes]) -> bool:
        """Takes every event in. Answers whether there was any; raises what an ERROR event says."""
        said = False
        try:
            async for line in lines:
                said = self._take(line) or said
        except Unreachable as error:
            log.debug("the watch ended: %s", error)
        return said

    def _take(self, line: bytes) -> bool:
        """Takes one line in; answers whether it was an event."""
        event = _event(line)
        if event is None:
            log.debug("the watch said what is no event: %.80r", line)
            return False
        self._confirm()
        kind, item = event
        if kind == "ERROR":
            raise from_status(item)
        # BOOKMARK, and whatever is invented later, tell the version only.
        self._version = _version(item) or self._version
        if kind in _CHANGES and (
            self._store.drop(item) if kind == "DELETED" else self._store.put(item)
        ):
            self._wake()
        return True

    # ---- what goes wrong ----------------------------------------------------------------------------------------

    def _failed(self, error: KubeError, *, listed: bool) -> float:
        """Answers how long to wait after `error`, and forgets the version unless it is certainly still good.

        `listed`: the server had just answered a list.
        """
        if not isinstance(error, Unreachable | Throttled):
            self._version = None
        if isinstance(error, Invalid) and self._selectors.drop(error):
            return 0.0
        if not isinstance(error, Gone):
            self._set_problem(error)
        if isinstance(error, Unreachable) or (error.status in _AWAY and not listed):
            return self._away.next()
        self._away.reset()
        after = error.retry_after
        return self._failing.next(None if after is None else min(after, _MOST_RETRY_AFTER))

    def _set_problem(self, error: KubeError | None) -> None:
        if _words(error) == _words(self._problem):
            return
        if error is None:
            log.info("%s: watching again", self._path)
        else:
            log.warning("%s: %s", self._path, error)
        self._problem = error
        self._wake()

    def _confirm(self) -> None:
        self._confirmed_at = self._clock()


def _words(error: KubeError | None) -> tuple[type | None, str]:
    return type(error), str(error)


def _event(line: bytes) -> tuple[str, dict[str, Any]] | None:
    """The type and object of a watch's line; None for what is no event, as a proxy's page."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict):
        return None
    kind, item = event.get("type"), event.get("object")
    if not isinstance(kind, str) or not isinstance(item, dict):
        return None
    return (kind, item) if kind not in _CHANGES or is_object(item) else None


def _version(item: Mapping[str, Any]) -> str | None:
    meta = item.get("metadata")
    return (meta.get("resourceVersion") or None) if isinstance(meta, dict) else None
