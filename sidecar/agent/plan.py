"""What to do now, and why not more: plan(world, memory, me, now). Pure.

The decision for one pass, from the whole world: forget what belongs to an engine process that is gone; judge what
should be here (`arriving`); judge what should not (`leaving`); choose the calls. SGLang takes one change at a time (it
holds one lock), so one call is open at any time, but for a load that follows the unload it replaces.
"""

from collections.abc import Mapping
from dataclasses import replace

from sidecar.agent import arriving, leaving
from sidecar.agent.outcome import SAFE_UNLOAD, unload_key
from sidecar.agent.pathview import PathState
from sidecar.agent.scratch import Scratch
from sidecar.agent.state import (
    UNNAMED,
    Action,
    Entry,
    Held,
    Load,
    Me,
    Memory,
    Plan,
    Stuck,
    Unload,
    World,
)
from sidecar.agent.suspects import Case, Suspects
from sidecar.api.adapter import LoRAAdapter


def plan(world: World, memory: Memory, me: Me, now: float) -> Plan:
    """Decide one pass. Every adapter of the world gets an entry; before the first full list nothing is done."""
    good = {want.adapter.metadata.uid: want.adapter for want in world.wants if want.reason is None}
    memory = replace(memory, suspects=_suspects(world, memory, good, now))
    memory = _of_this_engine(world, memory)
    if world.adapters is None:
        return Plan(actions=(), entries=(), memory=memory)
    pass_ = Scratch(world, memory, me, now, good)
    _judge(pass_, [adapter for adapter in world.adapters if adapter.deleting])
    return _result(pass_, world.adapters)


def _suspects(
    world: World, memory: Memory, good: Mapping[str, LoRAAdapter], now: float
) -> Suspects:
    """Who may have killed the engine, with what this pass shows of its life and of the adapters."""
    boot = world.engine.boot
    dead = {
        held.uid: Case(held.handle, held.path, held.signature, _retry(good.get(held.uid)))
        for held in memory.held.values()
        if held.owned and held.boot not in ("", boot) and not held.boot.startswith(UNNAMED)
    }
    suspects = memory.suspects.seen(boot, world.engine.seen_at, now, dead)
    if not suspects.by_uid or world.adapters is None:
        return suspects
    cases = {uid: _case(world, adapter) for uid, adapter in good.items()}
    return suspects.still(cases, complete=not world.partial and not world.unreadable)


def _case(world: World, adapter: LoRAAdapter) -> Case:
    view = world.paths.get(adapter.spec.path)
    signature = view.signature if view and view.state is PathState.WHOLE else ""
    return Case(adapter.handle, adapter.spec.path, signature, adapter.retry)


def _retry(adapter: LoRAAdapter | None) -> str:
    return adapter.retry if adapter else ""


def _of_this_engine(world: World, memory: Memory) -> Memory:
    """Forget what an earlier engine process held, and doubts that a newer list has answered."""
    boot, seen_at = world.engine.boot, world.engine.seen_at
    doubtful = {handle: since for handle, since in memory.doubtful.items() if since >= seen_at}
    if not boot:
        return replace(memory, doubtful=doubtful)
    return replace(
        memory,
        held={
            handle: held if held.boot else replace(held, boot=boot)
            for handle, held in memory.held.items()
            if held.boot in (boot, "")
        },
        tombstones={h: stone for h, stone in memory.tombstones.items() if stone.boot == boot},
        doubtful=doubtful,
        stuck=memory.stuck if memory.stuck and memory.stuck.boot == boot else None,
    )


def _judge(pass_: Scratch, deleting: list[LoRAAdapter]) -> None:
    if pass_.ready:
        for adapter in (*pass_.good.values(), *_unclaimed(pass_, deleting)):
            arriving.adopt(pass_, adapter)
    for want in pass_.world.wants:
        uid = want.adapter.metadata.uid
        if want.reason is None:
            pass_.entries[uid] = arriving.entry(pass_, want.adapter)
        else:
            pass_.entries[uid] = Entry(want.adapter, want.reason, want.text)
    for adapter in deleting:
        pass_.entries[adapter.metadata.uid] = leaving.goodbye(pass_, adapter)
    leaving.let_go_of_the_rest(pass_)
    if pass_.ready:
        leaving.bury_again(pass_)


def _unclaimed(pass_: Scratch, deleting: list[LoRAAdapter]) -> list[LoRAAdapter]:
    """Those being deleted that nothing else stands for: the engine may hold them though we remember nothing."""
    return [
        adapter
        for adapter in deleting
        if adapter.handle not in pass_.wanted_handles
        and adapter.handle not in pass_.tombstones
        and adapter.handle not in pass_.held
    ]


def _result(pass_: Scratch, adapters: tuple[LoRAAdapter, ...]) -> Plan:
    world, memory = pass_.world, pass_.memory
    order = [adapter.metadata.uid for adapter in adapters]
    waits = _waits_to_know_the_loss(pass_)
    kept = _kept(pass_) if pass_.failures else set()
    failures = {
        uid: failure
        for uid, failure in pass_.failures.items()
        if uid in pass_.entries or uid in kept
    }
    return Plan(
        actions=() if waits else _chosen(pass_),
        entries=tuple(pass_.entries[uid] for uid in order),
        memory=replace(
            memory,
            held=memory.held if waits else _with_misses(pass_),
            failures=failures,
            tombstones=pass_.tombstones,
            stuck=pass_.stuck,
            losing=waits,
        ),
        hash=tuple(pass_.hash),
        list_now=pass_.ready and world.engine.lists and bool(memory.doubtful),
        identify=waits and not memory.losing,
        foreign=_foreign(pass_) if pass_.listed else (),
        wake_at=min(pass_.times, default=None),
    )


def _kept(pass_: Scratch) -> set[str]:
    """Which failures to unload still matter: those of handles that may be unloaded once more."""
    handles = {*pass_.listed, *pass_.wanted_handles}
    if pass_.stuck:
        handles.add(pass_.stuck.handle)
    return {unload_key(handle) for handle in handles}


def _chosen(pass_: Scratch) -> tuple[Action, ...]:
    open_actions = pass_.open_actions()
    if open_actions:
        return tuple(load for load in pass_.loads if _may_follow(load, open_actions))[:1]
    if pass_.stuck:
        return _probe(pass_, pass_.stuck)
    unload_first = pass_.world.engine.version >= SAFE_UNLOAD
    suspects = pass_.memory.suspects
    late = [load for load in pass_.loads if suspects.of(load.uid)]
    loads = [load for load in pass_.loads if load not in late]
    unloads: tuple[Action, ...] = tuple(pass_.unloads)
    arrivals: tuple[Action, ...] = (*loads, *pass_.trials, *late)
    return (unloads + arrivals if unload_first else arrivals + unloads)[:1]


def _probe(pass_: Scratch, stuck: Stuck) -> tuple[Action, ...]:
    """The stuck unload once more, since nobody waits for its answer: it is answered when the engine is free again."""
    known = pass_.ready and pass_.world.engine.boot == stuck.boot
    doubtful = stuck.handle in pass_.memory.doubtful
    if not known or doubtful or pass_.waiting(unload_key(stuck.handle)):
        return ()
    return (Unload(stuck.uid, stuck.key, stuck.handle, stuck.path),)


def _may_follow(load: Load, open_actions: list[Action]) -> bool:
    return all(
        isinstance(action, Unload) and action.replacing and action.handle == load.handle
        for action in open_actions
    )


def _waits_to_know_the_loss(pass_: Scratch) -> bool:
    """All that we had has vanished at once: most likely another process answers, and nothing is sent before it says.

    If it is the same process after all (SGLang evicts), what it lost is marked as missed and does not count again.
    """
    engine = pass_.world.engine
    if not _shows_misses(pass_):
        return pass_.memory.losing
    mine = [
        held
        for held in pass_.memory.held.values()
        if held.owned and not held.missed and not pass_.waits_for_unload_of(held.handle)
    ]
    lost_all = bool(mine) and not any(held.handle in pass_.listed for held in mine)
    return lost_all and not (pass_.memory.losing and engine.settled)


def _shows_misses(pass_: Scratch) -> bool:
    """Whether what the list lacks is not there: no call of ours is changing it."""
    return pass_.ready and pass_.world.engine.lists and not pass_.world.running


def _with_misses(pass_: Scratch) -> Mapping[str, Held]:
    if not _shows_misses(pass_):
        return pass_.held
    return {
        handle: held
        if held.missed == (handle not in pass_.listed)
        else replace(held, missed=not held.missed)
        for handle, held in pass_.held.items()
    }


def _foreign(pass_: Scratch) -> tuple[str, ...]:
    """What the engine holds that no adapter wants and we did not load, or may no longer see the adapter of."""
    ours = {held.handle for held in pass_.held.values() if not leaving.out_of_sight(pass_, held)}
    ours |= set(pass_.tombstones) | {action.handle for action in pass_.open_actions()}
    return tuple(sorted(handle for handle in pass_.listed if handle not in ours))
