"""Whether the pod may have traffic, where it asked to wait for its adapters. Pure: the last verdict in, the next out.

Waited for are the adapters of the pod's own namespace that the first list held: other namespaces must not hold up a
pod, and later adapters not take it out of service. A verdict lasts as long as its engine process, and the next process
is judged anew by what is wanted then. Who asks, and how often, is left to others: an answer holds for its moment.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from sidecar.agent.state import EngineView, Entry, Me
from sidecar.api.reasons import Reason, State

NO_LIST: Final = 60.0
"""Seconds from the agent's start after which a missing list of adapters holds up the pod no longer."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """A verdict and what led to it. Times are monotonic seconds.

    `began` is the agent's start. `process` is when the engine process that is judged was first seen, None without one.
    `awaited` are the uids of the adapters that it waits for, None before the first list, and `until` how long.
    """

    began: float
    process: datetime | None = None
    awaited: frozenset[str] | None = None
    until: float = 0.0
    ready: bool = False
    text: str = ""


def after(
    last: Readiness, me: Me, engine: EngineView, entries: Sequence[Entry] | None, now: float
) -> Readiness:
    """The next verdict, from what a pass saw and said; `entries` is None before the first list."""
    if engine.since != last.process:
        last = Readiness(last.began, engine.since)
    if last.ready:
        return last
    if entries is None:
        return _without_list(last, now)
    own = [entry for entry in entries if _is_own(entry, me)]
    if last.awaited is None:
        uids = frozenset(entry.adapter.metadata.uid for entry in own)
        last = replace(last, awaited=uids, until=now + me.hold)
    open_ = [e for e in own if e.adapter.metadata.uid in (last.awaited or ()) and _holds(e)]
    if not open_:
        return replace(last, ready=True, text="ready")
    if now >= last.until:
        return replace(last, ready=True, text=f"ready without {_named(open_)}")
    return replace(last, text=f"waits for {_named(open_)}")


def _without_list(last: Readiness, now: float) -> Readiness:
    if now - last.began >= NO_LIST:
        return replace(last, ready=True, text="ready without a list of LoRAAdapters")
    return replace(last, text="waits for the first list of LoRAAdapters")


def _is_own(entry: Entry, me: Me) -> bool:
    return entry.adapter.metadata.namespace == me.namespace and not entry.adapter.deleting


def _holds(entry: Entry) -> bool:
    """Whether it may still come by itself, and soon: a slot in a full engine may never come free."""
    return entry.state is State.PENDING and entry.reason is not Reason.CAPACITY_EXCEEDED


def _named(entries: Sequence[Entry]) -> str:
    first, more = entries[0], len(entries) - 1
    return f"{first.adapter.key}: {first.reason}" + (f", and {more} more" if more else "")
