"""What this pod says: a report from a plan, the memory back from a report, and when to say it.

Pure. The report is the agent's memory across its own restarts, so what `recall` needs is written even where nobody
reads it.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from sidecar.agent.state import EngineView, Entry, Held, Memory, Plan, Scope, Stuck, Tombstone
from sidecar.agent.suspects import Case, Suspects, recalled
from sidecar.api.reasons import Reason, State, worst
from sidecar.api.report import (
    ENTRY_LIMIT,
    SIZE_LIMIT,
    TEXT_LIMIT,
    AdapterEntry,
    EngineEntry,
    ReportStatus,
    SuspectEntry,
    UnloadedEntry,
)
from sidecar.api.wire import cut

QUIET: Final = 1.0
"""Seconds between two writes that are not urgent."""
URGENT: Final = 0.5
"""Seconds between two urgent ones."""
BEAT: Final = 300.0
"""Seconds after which a report is written though nothing has changed, less up to a tenth by jitter."""


@dataclass(frozen=True, slots=True)
class Says:
    """What does not change from pass to pass: who speaks."""

    version: str
    allowed: tuple[str, ...]


def report(says: Says, plan: Plan, engine: EngineView, scope: Scope) -> ReportStatus:
    """The status to report after a pass; `beat` is the writer's."""
    entries = plan.entries[:ENTRY_LIMIT]
    adapters = [_entry(entry, plan.memory) for entry in entries]
    said = ReportStatus(
        agent_version=says.version,
        scope=scope,
        allowed_namespaces=says.allowed,
        engine=_engine(engine),
        adapters=tuple(adapters),
        foreign=tuple(cut(handle, TEXT_LIMIT) for handle in plan.foreign[:ENTRY_LIMIT]),
        unloaded=tuple(_unloaded(plan)[:ENTRY_LIMIT]),
        suspects=_suspects(plan.memory.suspects)[:ENTRY_LIMIT],
        loaded=_loaded(entries),
        reason=worst(entry.reason for entry in entries if entry.state is not State.UNLOADED),
        report_truncated=len(plan.entries) > ENTRY_LIMIT or None,
    )
    return _bounded(said)


def _unloaded(plan: Plan) -> list[UnloadedEntry]:
    """What must stay, or become, unloaded: also what is still held for adapters without an entry that says so."""
    said = {
        (entry.adapter.metadata.uid, entry.adapter.handle, entry.adapter.spec.path)
        for entry in plan.entries
    }
    left = {
        handle: Tombstone(held.path, held.boot)
        for handle, held in plan.memory.held.items()
        if held.owned and (held.uid, handle, held.path) not in said and handle not in plan.foreign
    }
    stones = {**left, **plan.memory.tombstones}
    stuck = plan.memory.stuck
    if stuck:
        stones[stuck.handle] = Tombstone(stuck.path, stuck.boot)
    return [
        UnloadedEntry(
            handle=handle,
            path=path,
            boot_id=stone.boot,
            stuck=True if stuck and (handle, path) == (stuck.handle, stuck.path) else None,
        )
        for handle, stone in sorted(stones.items(), key=lambda item: item[0])
        for path in (stone.path, stone.older)
        if path
    ]


def _suspects(suspects: Suspects) -> tuple[SuspectEntry, ...]:
    return tuple(
        SuspectEntry(
            uid=uid,
            handle=suspect.case.handle,
            path=suspect.case.path,
            signature=suspect.case.signature,
            retry=cut(suspect.case.retry, TEXT_LIMIT),
            deaths=suspect.deaths,
        )
        for uid, suspect in suspects.by_uid.items()
        if not suspect.cleared
    )


def _loaded(entries: Iterable[Entry]) -> str:
    wanted = [entry for entry in entries if not entry.adapter.deleting]
    return f"{sum(entry.state is State.LOADED for entry in wanted)}/{len(wanted)}"


def _engine(engine: EngineView) -> EngineEntry:
    return EngineEntry(
        state=engine.state,
        reason=engine.reason,
        text=cut(engine.text, TEXT_LIMIT) or None,
        since=engine.since,
        boot_id=engine.boot or None,
        version=cut(engine.info.version, 64) if engine.info else None,
        model=cut(engine.model, TEXT_LIMIT) if engine.model else None,
    )


def _entry(entry: Entry, memory: Memory) -> AdapterEntry:
    adapter = entry.adapter
    held = memory.held.get(adapter.handle)
    if held and (held.uid, held.path) != (adapter.metadata.uid, adapter.spec.path):
        held = None
    loaded = entry.state in (State.LOADED, State.UNLOADING)
    return AdapterEntry(
        adapter=adapter.key,
        uid=adapter.metadata.uid,
        generation=adapter.metadata.generation,
        name=adapter.handle,
        path=cut(adapter.spec.path, 4096),
        state=entry.state,
        reason=entry.reason,
        text=cut(entry.text, TEXT_LIMIT) or None,
        loaded_at=held.loaded_at if held else None,
        owned=bool(held and held.owned),
        signature=held.signature or None if held and loaded else None,
        content_hash=held.content or None if held and loaded else None,
        retry=cut(adapter.retry, TEXT_LIMIT) or None,
    )


def _bounded(said: ReportStatus) -> ReportStatus:
    """Keep the whole within its limit: texts go first, then the last entries."""
    if _size_at_most(said) <= SIZE_LIMIT or _size(said) <= SIZE_LIMIT:
        return said
    bare = tuple(entry.model_copy(update={"text": None}) for entry in said.adapters)
    said = said.model_copy(update={"adapters": bare, "report_truncated": True})
    while said.adapters and _size(said) > SIZE_LIMIT:
        keep = len(said.adapters) * 3 // 4
        said = said.model_copy(
            update={
                "adapters": said.adapters[:keep],
                "foreign": said.foreign[:keep],
                "unloaded": said.unloaded[:keep],
                "suspects": said.suspects[:keep],
            }
        )
    return said


def _size_at_most(said: ReportStatus) -> int:
    """A bound that costs little: JSON writes a byte as six at the most, and 800 cover an entry's other fields."""
    paths = [
        *(entry.path for entry in said.adapters),
        *(stone.path for stone in said.unloaded),
        *(suspect.path for suspect in said.suspects),
    ]
    texts = [entry.text or "" for entry in said.adapters]
    return 6 * sum(map(len, (*paths, *texts, *said.foreign))) + 800 * (len(paths) + 10)


def _size(said: ReportStatus) -> int:
    return len(json.dumps(said.model_dump(mode="json", by_alias=True, exclude_none=True)))


def recall(said: ReportStatus, now: float) -> Memory:
    """The memory that an earlier life of this agent left in its report; what it held back is held back anew."""
    boot = (said.engine.boot_id if said.engine else None) or ""
    held = {
        entry.name: Held(
            uid=entry.uid,
            key=entry.adapter,
            handle=entry.name,
            path=entry.path,
            boot=boot,
            owned=entry.owned or None,
            adopted=entry.reason is Reason.ADOPTED,
            loaded_at=entry.loaded_at,
            signature=entry.signature or "",
            content=entry.content_hash or "",
        )
        for entry in said.adapters
        if entry.state in (State.LOADED, State.UNLOADING) and entry.name and entry.path
    }
    return Memory(
        held=held,
        tombstones=_tombstones(said),
        stuck=_stuck(said, boot),
        suspects=recalled(((one.uid, _case(one), one.deaths) for one in said.suspects), now),
    )


def _case(one: SuspectEntry) -> Case:
    return Case(one.handle, one.path, one.signature, one.retry)


def _tombstones(said: ReportStatus) -> dict[str, Tombstone]:
    stones: dict[str, Tombstone] = {}
    for entry in said.unloaded:
        first = stones.get(entry.handle)
        stones[entry.handle] = (
            replace(first, older=entry.path) if first else Tombstone(entry.path, entry.boot_id)
        )
    return stones


def _stuck(said: ReportStatus, boot: str) -> Stuck | None:
    """The unload that was stuck when the report was written, whether or not an adapter's entry says so."""
    entries = {entry.name: entry for entry in said.adapters if entry.state is State.UNLOADING}
    for stone in said.unloaded:
        if stone.stuck:
            entry = entries.get(stone.handle)
            uid, key = (entry.uid, entry.adapter) if entry else ("", "")
            return Stuck(uid, key, stone.handle, stone.path, stone.boot_id)
    for entry in entries.values():
        if entry.reason is Reason.UNLOAD_STUCK:
            return Stuck(entry.uid, entry.adapter, entry.name, entry.path, boot)
    return None


# --- when to write ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Written:
    """The last report that was written, and when (monotonic seconds)."""

    said: ReportStatus
    at: float


def due(last: Written | None, said: ReportStatus, now: float, jitter: float) -> float:
    """When `said` is to be written (monotonic seconds). Both reports are compared without their beat.

    At once where the engine's state changed or an adapter left Loaded (at most twice a second), or where nothing was
    written for a second; else once a second. `jitter` from 0 to 1 takes up to a tenth off the beat.
    """
    if last is None:
        return now
    beat = last.at + BEAT * (1.0 - jitter / 10.0)
    if said == last.said:
        return beat
    return max(now, last.at + (URGENT if _is_urgent(last.said, said) else QUIET))


def _is_urgent(before: ReportStatus, said: ReportStatus) -> bool:
    if (before.engine and before.engine.state) != (said.engine and said.engine.state):
        return True
    loaded = {entry.uid for entry in said.adapters if entry.state is State.LOADED}
    return any(entry.state is State.LOADED and entry.uid not in loaded for entry in before.adapters)
