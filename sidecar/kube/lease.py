"""Leader election on a Lease (coordination.k8s.io/v1): of several replicas one works, and another takes over.

A holder renews its Lease; who waits takes it over when it has not changed for its duration by the waiter's own
monotonic clock, so that no two machines need to agree on the time. A holder that cannot renew gives up well before
that: every request of it is bounded by what is left. Work and renewal end together, and a Lease is handed back at the
end.

What this leaves to the caller: to end the process when the Lease is lost, and to bear two holders for a moment, which
a machine that was frozen can cause with any lease.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sidecar.api.wire import to_micro_time
from sidecar.kube.client import Client, Resource
from sidecar.kube.errors import Conflict, KubeError, NotFound

log = logging.getLogger(__name__)

LEASES: Final = Resource("coordination.k8s.io", "v1", "leases")

_REQUEST: Final = 5.0
_LONGEST: Final = 300.0
"""Seconds that a Lease of others is believed to last at the most, whatever it says."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds: how long a Lease lasts, after which its holder gives up, and between two looks. As in client-go."""

    duration: float = 15.0
    deadline: float = 10.0
    pause: float = 2.0


class LostError(Exception):
    """The Lease is another's, or could not be renewed in time."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A Lease as it was first seen in this version, and when (monotonic)."""

    body: Mapping[str, Any]
    since: float

    @property
    def holder(self) -> str:
        return str(self._spec.get("holderIdentity") or "")

    @property
    def duration(self) -> float:
        told = self._spec.get("leaseDurationSeconds")
        return min(float(told), _LONGEST) if isinstance(told, int) and told > 0 else 0.0

    @property
    def version(self) -> object:
        metadata = self.body.get("metadata") or {}
        return metadata.get("uid"), metadata.get("resourceVersion")

    @property
    def transitions(self) -> int:
        told = self._spec.get("leaseTransitions")
        return told if isinstance(told, int) else 0

    @property
    def _spec(self) -> Mapping[str, Any]:
        return self.body.get("spec") or {}


class Lease:
    """One replica's part in the election. `identity` must differ from replica to replica and from life to life.

    `clock` is monotonic, `wall` tells the time of day, which is written for people only. `annotations` are put on the
    Lease, and stay when it is handed back. With `force` it is taken from whoever holds it. `owners`, set before it
    runs, are the objects that it goes with.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        *,
        clock: Callable[[], float],
        wall: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        timing: Timing | None = None,
        annotations: Mapping[str, str] | None = None,
        force: bool = False,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._timing = timing or Timing()
        self._annotations = annotations or {}
        self._force = force
        self.owners: Sequence[Mapping[str, Any]] = ()
        self._seen: _Seen | None = None
        self._told = ""
        self.held = False

    @property
    def holder(self) -> str:
        """Who was last seen to hold it; "" for nobody."""
        return self._seen.holder if self._seen else ""

    @property
    def annotations(self) -> Mapping[str, str]:
        """Those of the Lease as it was last seen."""
        metadata = (self._seen.body.get("metadata") or {}) if self._seen else {}
        found = metadata.get("annotations")
        return found if isinstance(found, dict) else {}

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the Lease, then work and renew it. Ends with the work; raises LostError once it is not held."""
        while not await self._attempt(_REQUEST):
            await self._sleep(self._timing.pause)
        log.info("holds the lease %s/%s", self._namespace, self._name)
        self.held = True
        tasks = [asyncio.create_task(work()), asyncio.create_task(self._renew())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self.held = False
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._hand_back()

    async def _renew(self) -> None:
        renewed = self._clock()
        while (left := renewed + self._timing.deadline - self._clock()) > 0:
            await self._sleep(min(self._timing.pause, left))
            began = self._clock()
            left = renewed + self._timing.deadline - began
            if left > 0 and await self._attempt(min(_REQUEST, left)):
                renewed = began
            elif self.holder not in (self._identity, ""):
                raise LostError(f"the lease {self._name} was taken by {self.holder}")
        raise LostError(
            f"the lease {self._name} could not be renewed for {self._timing.deadline:g} s"
        )

    async def _attempt(self, seconds: float) -> bool:
        """Take or renew it, in one or two requests; whether it is held now. Raises nothing of the API server's."""
        try:
            async with asyncio.timeout(seconds):
                return await self._take()
        except (Conflict, NotFound):
            return False  # another was quicker; the next look tells who
        except (KubeError, TimeoutError) as error:
            self._complain(str(error) or "no answer in time")
            return False

    async def _take(self) -> bool:
        if self._seen is None or self.holder != self._identity:
            await self._look()
        if self._seen is None:
            body = {"metadata": {"name": self._name, "namespace": self._namespace}}
            path = LEASES.path(self._namespace)
            self._note(await self._client.request("POST", path, body=self._mine(body)))
        elif self._is_free(self._seen):
            seen, self._seen = (
                self._seen,
                None,
            )  # whatever comes of it, what was seen is of the past
            self._note(await self._write(self._mine(seen.body, seen)))
        self._told = ""
        return self.holder == self._identity

    async def _look(self) -> None:
        try:
            body = await self._client.request("GET", LEASES.path(self._namespace, self._name))
        except NotFound:
            self._seen = None
        else:
            self._note(body)

    def _note(self, body: Mapping[str, Any]) -> None:
        seen = _Seen(body, self._clock())
        if self._seen is None or self._seen.version != seen.version:
            self._seen = seen

    def _is_free(self, seen: _Seen) -> bool:
        if self._force or seen.holder in ("", self._identity):
            return True
        return self._clock() >= seen.since + seen.duration

    def _mine(self, body: Mapping[str, Any], seen: _Seen | None = None) -> dict[str, Any]:
        """The Lease, held by us from now on. All that others wrote beside that stays."""
        now = to_micro_time(self._wall())
        spec = dict(body.get("spec") or {})
        if seen is None or seen.holder != self._identity:
            spec |= {
                "acquireTime": now,
                "leaseTransitions": seen.transitions + 1 if seen else 0,
            }
        spec |= {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": round(self._timing.duration) or 1,
            "renewTime": now,
        }
        metadata = dict(body["metadata"])
        if self._annotations:
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **self._annotations}
        if self.owners:
            metadata["ownerReferences"] = [dict(owner) for owner in self.owners]
        kind = {"apiVersion": LEASES.api_version, "kind": "Lease"}
        return {**body, **kind, "metadata": metadata, "spec": spec}

    async def _write(self, body: Mapping[str, Any]) -> dict[str, Any]:
        path = LEASES.path(self._namespace, self._name)
        return await self._client.request("PUT", path, body=body)

    async def _hand_back(self) -> None:
        """Let the next one begin at once rather than after the duration. Only a courtesy: it may fail."""
        seen = self._seen
        if seen is None or seen.holder != self._identity:
            return
        spec = dict(seen.body["spec"]) | {"holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            async with asyncio.timeout(self._timing.pause):
                await self._write({**seen.body, "spec": spec})
        except (KubeError, TimeoutError) as error:
            log.info("the lease was not handed back: %s", error)

    def _complain(self, text: str) -> None:
        if text != self._told:
            log.warning("the lease %s/%s: %s", self._namespace, self._name, text)
        self._told = text
