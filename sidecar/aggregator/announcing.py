"""Sends news as events (events.k8s.io/v1): on the LoRAAdapter, and where a pod fails on the Pod too.

Events are a courtesy: one that cannot be sent is counted and dropped, and nobody waits for them. What repeats within
ten minutes is counted up in its first event (`series`), and each adapter has so many events and then one a minute.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from sidecar.aggregator.metrics import Metrics
from sidecar.aggregator.news import News
from sidecar.aggregator.records import Adapter, Pod
from sidecar.api import names
from sidecar.api.wire import cut, to_micro_time
from sidecar.kube.client import MERGE_PATCH, Client, Resource
from sidecar.kube.errors import KubeError, NotFound

log = logging.getLogger(__name__)

EVENTS: Final = Resource("events.k8s.io", "v1", "events")

BURST: Final = 25
"""Events of one adapter that go out at once."""
REFILL: Final = 60.0
"""Seconds after which it may send one more."""
REPEAT: Final = 600.0
"""Seconds within which the same thing is counted up rather than told anew."""
WAITING: Final = 500
"""Events that may wait to be sent."""
NOTE_LIMIT: Final = 1024
"""Bytes; the API server refuses longer notes."""

_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Sent:
    """An event that stands on the API server."""

    namespace: str
    name: str
    count: int
    at: float


@dataclass(frozen=True, slots=True)
class _Bucket:
    left: float
    at: float

    def taken(self, now: float) -> "_Bucket | None":
        left = min(BURST, self.left + (now - self.at) / REFILL)
        return _Bucket(left - 1, now) if left >= 1 else None


@dataclass(frozen=True, slots=True)
class _Letter:
    """One event to be sent."""

    key: _Key
    regarding: Mapping[str, str]
    related: Mapping[str, str] | None
    news: News


class Announcer:
    """Events of one aggregator. `clock` is monotonic; `identity` names this replica."""

    def __init__(
        self,
        client: Client,
        metrics: Metrics,
        identity: str,
        *,
        clock: Callable[[], float],
        wall: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._identity = identity
        self._clock = clock
        self._wall = wall
        self._queue: asyncio.Queue[_Letter] = asyncio.Queue(WAITING)
        self._sent: dict[_Key, _Sent] = {}
        self._buckets: dict[str, _Bucket] = {}

    def tell(
        self, adapter: Adapter, news: Iterable[News], pod: Callable[[str], Pod | None]
    ) -> None:
        """Have news sent soon; `pod` finds a pod of the adapter's service by its name."""
        for one in news:
            found = pod(one.pod) if one.pod else None
            about = _adapter(adapter)
            self._put(adapter.uid, about, _pod(found) if found else None, one)
            if found is not None:
                self._put(adapter.uid, _pod(found), about, one)

    def _put(
        self, owner: str, regarding: Mapping[str, str], related: Mapping[str, str] | None, one: News
    ) -> None:
        now = self._clock()
        bucket = self._buckets.get(owner, _Bucket(BURST, now)).taken(now)
        if bucket is None or self._queue.full():
            self._metrics.events.labels("dropped").inc()
            return
        self._buckets[owner] = bucket
        other = related["uid"] if related else ""
        self._queue.put_nowait(
            _Letter((regarding["uid"], one.reason, other), regarding, related, one)
        )

    async def run(self) -> None:
        """Send what waits, for ever."""
        while True:
            letter = await self._queue.get()
            try:
                await self._send(letter)
            except KubeError as error:
                self._metrics.events.labels("failed").inc()
                log.debug("an event was not sent: %s", error)
            else:
                self._metrics.events.labels("sent").inc()
            if self._queue.empty():
                self._forget_the_old()

    async def _send(self, letter: _Letter) -> None:
        before = self._sent.get(letter.key)
        if before is not None and self._clock() - before.at < REPEAT:
            try:
                await self._count_up(letter.key, before)
            except NotFound:
                del self._sent[letter.key]
            else:
                return
        body = self._event(letter)
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        await self._client.request("POST", EVENTS.path(namespace), body=body)
        self._sent[letter.key] = _Sent(namespace, name, 1, self._clock())

    async def _count_up(self, key: _Key, before: _Sent) -> None:
        now = replace(before, count=before.count + 1, at=self._clock())
        series = {"count": now.count, "lastObservedTime": to_micro_time(self._wall())}
        path = EVENTS.path(now.namespace, now.name)
        await self._client.request("PATCH", path, body={"series": series}, content_type=MERGE_PATCH)
        self._sent[key] = now

    def _event(self, letter: _Letter) -> dict[str, Any]:
        about, news = letter.regarding, letter.news
        who = f"{letter.related['name']}: " if letter.related else ""
        body: dict[str, Any] = {
            "apiVersion": EVENTS.api_version,
            "kind": "Event",
            "metadata": {
                "namespace": about["namespace"],
                "name": f"{about['name'][:200].rstrip('.-')}.{secrets.token_hex(8)}",
            },
            "eventTime": to_micro_time(self._wall()),
            "reportingController": names.PREFIX,
            "reportingInstance": cut(self._identity, 128),
            "action": "Unload" if news.reason.startswith("Unload") else "Load",
            "reason": news.reason,
            "type": "Warning" if news.warning else "Normal",
            "regarding": dict(about),
            "note": cut(f"{who}{news.note}" or news.reason, NOTE_LIMIT),
        }
        if letter.related is not None:
            body["related"] = dict(letter.related)
        return body

    def _forget_the_old(self) -> None:
        now = self._clock()
        self._sent = {key: sent for key, sent in self._sent.items() if now - sent.at < REPEAT}
        whole = BURST * REFILL
        self._buckets = {uid: one for uid, one in self._buckets.items() if now - one.at < whole}


def _adapter(adapter: Adapter) -> dict[str, str]:
    return {
        "apiVersion": f"{names.INFERENCE_GROUP}/{names.VERSION}",
        "kind": names.ADAPTER_KIND,
        "namespace": adapter.namespace,
        "name": adapter.name,
        "uid": adapter.uid,
    }


def _pod(pod: Pod) -> dict[str, str]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
    }
