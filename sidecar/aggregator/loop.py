"""The aggregator's loop: wait for news or for a moment that was set, fold what is due, write what differs.

News only wake it; what to do is decided by `index` (whom it concerns), `pacing` (when) and `fold` (what). It writes
adapters of services that are opted in, once more those that have just left, and, where the cluster serves no
InferenceServices, every adapter; no others. One adapter is written by one task at a time; a write that failed in
whatever way leads to another look at the world as it is then, so nothing is lost and nothing old is sent again.

Finalizers (`finalizing`) go before the status: an adapter that is being deleted waits for nothing but its pods.

What this leaves to the caller: that only one of several replicas needs to run it. Two would write the same.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from sidecar.aggregator.announcing import Announcer
from sidecar.aggregator.finalizing import Policy
from sidecar.aggregator.fold import EXTRAS, KEYS, Spoken, fold, spoken, wire
from sidecar.aggregator.index import Index, ServiceKey
from sidecar.aggregator.jobs import Job
from sidecar.aggregator.metrics import Metrics
from sidecar.aggregator.news import news
from sidecar.aggregator.opting import OptIns
from sidecar.aggregator.pacing import Pace
from sidecar.aggregator.pruning import Pruning
from sidecar.aggregator.records import Adapter
from sidecar.aggregator.sources import Sources
from sidecar.aggregator.writing import (
    Failed,
    Marking,
    Overtaken,
    Write,
    Written,
    mark,
    send,
)
from sidecar.api.conditions import ConditionType
from sidecar.api.names import LLMKUBE_FINALIZER
from sidecar.api.wire import cut
from sidecar.kube.apply import difference
from sidecar.kube.client import Client

log = logging.getLogger(__name__)

_AT_ONCE: Final = 16
"""Writes under way at the same time; what has to wait is folded when its turn comes, not before."""
_HEARING: Final = 5.0
"""Seconds for which no agent is called silent after we could not hear any."""
_IDLE: Final = 60.0
_LOGGED: Final = 400
"""Bytes of a message that go into the log."""


class Loop:
    """Keeps statuses true until cancelled. `wake` must be set by every change of `sources`."""

    def __init__(
        self,
        client: Client,
        index: Index,
        sources: Sources,
        metrics: Metrics,
        announcer: Announcer,
        opt_ins: OptIns | None = None,
        *,
        policy: Callable[[ServiceKey], Policy] = lambda _: Policy(),
        wake: asyncio.Event,
        clock: Callable[[], float],
        wall: Callable[[], datetime],
    ) -> None:
        self.passes = 0
        """How often it has looked at the world; 0 until everything was listed."""
        self._client = client
        self._index = index
        self._sources = sources
        self._metrics = metrics
        self._announcer = announcer
        self._opt_ins = opt_ins
        self._policy = policy
        self._wake = wake
        self._clock = clock
        self._wall = wall
        self._jobs: dict[str, Job] = {}
        self._agenda: dict[str, float] = {}
        self._writing: set[str] = set()
        self._crd = Pruning()
        self._deaf = False
        self._turns = self._seen = 0

    def ready(self) -> tuple[bool, str]:
        """Whether it has begun to work, or what it waits for."""
        if self.passes:
            return True, "running"
        return False, f"not listed yet: {', '.join(self.missing()) or 'nothing'}"

    def missing(self) -> list[str]:
        """What is not known yet, without which nothing may be concluded."""
        unknown = self._opt_ins is not None and self._opt_ins.unknown
        return [*self._sources.missing(), *(["which services are opted in"] if unknown else [])]

    @property
    def busy(self) -> bool:
        """Whether a write is under way."""
        return bool(self._writing)

    def is_turning(self) -> bool:
        """Whether passes come when they are called for; asked now and then, for the watchdog."""
        moved, self._seen = self._turns != self._seen, self._turns
        return moved or not self._wake.is_set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as writes:
            while True:
                pause = await self._pass(writes)
                self._turns += 1
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
                self._wake.clear()

    async def _pass(self, writes: asyncio.TaskGroup) -> float:
        """Do what is due; answer for how many seconds there is nothing to do unless news come."""
        self._sources.tell()
        if not self._hears() or self.missing():
            return _IDLE
        expiry = self._index.expire()
        if self._crd.doubt(self._sources.adapters.watches):
            self._index.mark_all()
        self._stir()
        now = self._clock()
        for key in sorted(key for key, when in self._agenda.items() if when <= now):
            if len(self._writing) >= _AT_ONCE:
                return _IDLE  # the end of a write is news
            self._look(key, writes)
            await asyncio.sleep(
                0
            )  # a fold over many pods takes milliseconds, and others want the loop too
        if self._opt_ins is not None:
            self._opt_ins.tell()
        self.passes += 1
        moments = [*self._agenda.values(), *([] if expiry is None else [expiry])]
        return max(0.0, min(moments, default=now + _IDLE) - self._clock())

    def _hears(self) -> bool:
        """Whether what is known is fresh. After a time of deafness, agents get a moment to be heard again."""
        deaf = self._sources.deaf()
        if self._deaf and not deaf:
            self._index.forgive(_HEARING)
        self._deaf = deaf
        return not deaf

    # ---- who is looked at, and when ------------------------------------------------------------------------

    def _stir(self) -> None:
        """Put every adapter that a change may concern on the agenda."""
        now = self._clock()
        dirty, self._index.dirty = self._index.dirty, {}
        for key, since in dirty.items():
            adapter = self._index.adapters.get(key)
            if adapter is None:
                continue
            job = self._jobs.get(key)
            if job is None or job.uid != adapter.uid:
                job = Job(adapter.uid)
            job = replace(job, since=since if job.since is None else job.since)
            self._keep(key, job, job.pace.stir(now))
        for key in self._jobs.keys() - self._index.adapters.keys():
            self._forget(key)

    def _keep(self, key: str, job: Job, pace: Pace) -> None:
        self._jobs[key] = replace(job, pace=pace)
        self._agenda.pop(key, None)
        if pace.next is not None and key not in self._writing:
            self._agenda[key] = pace.next

    def _forget(self, key: str) -> None:
        self._jobs.pop(key, None)
        self._agenda.pop(key, None)

    # ---- what is looked at, and whether it is written --------------------------------------------------------

    def _look(self, key: str, writes: asyncio.TaskGroup) -> None:
        job, adapter = self._jobs.get(key), self._index.adapters.get(key)
        view = self._index.view(adapter.service) if adapter is not None else None
        if job is None or adapter is None or view is None or not job.concerns(adapter, view):
            self._forget(key)
            return
        now = self._clock()
        job = job.seen(adapter, view, now, self._wall())
        policy = self._policy(adapter.service)
        finalizers, again = job.finalizers(adapter, view, policy, now)
        if finalizers != adapter.finalizers:
            self._mark(key, job, Marking(adapter, finalizers), writes)
            return
        wanted = wire(fold(adapter, view, self._wall()), adapter)
        patch = self._difference(adapter, wanted)
        if patch is None:
            done = replace(job, ours=view.opted_in, since=None)
            pace = job.pace.look(now).settle()
            self._keep(key, done, pace if again is None else pace.wait(again))
            return
        said, stands = spoken(wanted), spoken(adapter.status)
        corrective = job.said == said != stands
        urgent = _statuses(said) != _statuses(stands)
        pace = job.pace.look(now)
        when = pace.may_write(now, pods=len(view.pods), urgent=urgent, corrective=corrective)
        if when > now:
            self._keep(key, job, pace.wait(when if again is None else min(when, again)))
            return
        self._writing.add(key)
        self._keep(key, job, pace)
        write = Write(
            adapter, patch, wanted, last=not view.opted_in, corrective=corrective, again=again
        )
        writes.create_task(self._write(key, write), name=f"write {key}")

    def _mark(self, key: str, job: Job, marking: Marking, writes: asyncio.TaskGroup) -> None:
        """Have finalizers written, unless the last write failed just now."""
        now = self._clock()
        if now < job.pace.held_until:
            self._keep(key, job, job.pace.look(now).wait(job.pace.held_until))
            return
        gone = set(marking.adapter.finalizers) - set(marking.finalizers)
        if LLMKUBE_FINALIZER in gone:
            log.info("%s: LLMKube's finalizer is taken off: we are in charge of it", key)
            job = job.took_over(now)
        self._writing.add(key)
        self._keep(key, job, job.pace.look(now))
        writes.create_task(self._write_finalizers(key, marking), name=f"mark {key}")

    def _difference(self, adapter: Adapter, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
        """What is to be changed, or None. What this cluster's CRD prunes is no reason to write."""
        current = {name: adapter.status[name] for name in KEYS if name in adapter.status}
        patch = difference(current, wanted)
        return patch if patch and self._crd.matters(patch) else None

    # ---- writing ---------------------------------------------------------------------------------------------

    async def _write(self, key: str, write: Write) -> None:
        outcome = await send(self._client, write)
        self._writing.discard(key)
        self._metrics.wrote(outcome, corrective=write.corrective)
        job = self._job(key, write.adapter.uid)
        if job is not None:
            if isinstance(outcome, Written):
                job = self._written(job, write, outcome)
            else:
                job = self._not_written(job, key, "status", outcome)
        self._resume(key, job)

    async def _write_finalizers(self, key: str, marking: Marking) -> None:
        outcome = await mark(self._client, marking)
        self._writing.discard(key)
        self._metrics.marked(outcome)
        job = self._job(key, marking.adapter.uid)
        if job is not None:
            if isinstance(outcome, Written):
                self._index.learn(outcome.stored)
                job = replace(job, pace=job.pace.again(self._clock()))
            else:
                job = self._not_written(job, key, "list of finalizers", outcome)
        self._resume(key, job)

    def _resume(self, key: str, job: Job | None) -> None:
        """Go on after a write; where the adapter was made anew meanwhile, with the new one, which had to wait."""
        now = job or self._jobs.get(key)
        if now is not None:
            self._keep(key, now, now.pace)
        self._wake.set()

    def _not_written(self, job: Job, key: str, what: str, outcome: Overtaken | Failed) -> Job:
        if isinstance(outcome, Overtaken):
            self._index.learn(outcome.fresh)
            return replace(job, pace=job.pace.conflict(self._clock()))
        level = logging.DEBUG if job.pace.failures else logging.WARNING
        log.log(level, "%s: its %s was not written: %s", key, what, outcome.error)
        pace = job.pace.fail(self._clock(), outcome.error.retry_after or 0.0)
        return replace(job, pace=pace)

    def _written(self, job: Job, write: Write, outcome: Written) -> Job:
        now = self._clock()
        if job.since is not None:
            self._metrics.lag.observe(now - job.since)
        _tell(write)
        self._announce(write)
        self._index.learn(outcome.stored)
        self._notice_pruning(write, outcome)
        pace = job.pace.write(now, corrective=write.corrective)
        if pace.next is None and write.again is not None:
            pace = pace.wait(write.again)
        return replace(
            job,
            pace=pace,
            ours=not write.last,
            said=spoken(write.wanted),
            since=None if job.pace.next is None else job.pace.stirred,
        )

    def _announce(self, write: Write) -> None:
        adapter = write.adapter
        told = news(adapter.status, write.wanted, corrective=write.corrective)
        self._announcer.tell(adapter, told, lambda name: self._index.pod(adapter.service[0], name))

    def _notice_pruning(self, write: Write, outcome: Written) -> None:
        asked = {name for name in EXTRAS if name in write.wanted}
        if self._crd.learn(asked, outcome.pruned(asked, write)):
            self._index.mark_all()

    def _job(self, key: str, uid: str) -> Job | None:
        """The adapter's job, if it is still there and still the same adapter."""
        job, adapter = self._jobs.get(key), self._index.adapters.get(key)
        return job if job and adapter and job.uid == adapter.uid == uid else None


def _statuses(said: Spoken) -> set[tuple[str, str]]:
    return {(kind, status) for kind, status, *_ in said}


def _tell(write: Write) -> None:
    """Log what became of Loaded, where that is another thing than before, and a correction."""
    key = write.adapter.key
    if write.corrective:
        log.warning("%s: another writer had changed our conditions; they are set again", key)
    before = {said[:3] for said in spoken(write.adapter.status)}
    for kind, status, reason, message in spoken(write.wanted):
        if kind == ConditionType.LOADED and (kind, status, reason) not in before:
            log.info("%s: Loaded is %s (%s): %s", key, status, reason, cut(message, _LOGGED))
