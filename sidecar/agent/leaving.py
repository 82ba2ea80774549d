"""What is to be done and said for what the engine holds and nobody wants here any more. Pure.

Never by ignorance: only what we loaded (or adopted) is unloaded, and only where a complete list says that nobody wants
it. SGLang loads an unloaded adapter again when a client names it, so what we unloaded is remembered and unloaded anew.
"""

from sidecar.agent.outcome import SAFE_UNLOAD, unload_key
from sidecar.agent.scratch import Scratch
from sidecar.agent.state import Entry, Held, Tombstone, Unload
from sidecar.api.adapter import LoRAAdapter
from sidecar.api.reasons import EngineState, Reason, badness


def goodbye(pass_: Scratch, adapter: LoRAAdapter) -> Entry:
    """The entry of an adapter that is being deleted; `Unloaded` is the acknowledgement."""
    told = [(let_go(pass_, held), held) for held in pass_.mine(adapter.metadata.uid)]
    if told:
        reason, held = min(told, key=lambda one: badness(one[0]))
        return Entry(adapter, reason, _text(pass_, held, reason))
    if pass_.ready and adapter.handle in _resurrected(pass_):
        return Entry(adapter, Reason.UNLOADING, "a client's request made SGLang load it again")
    return Entry(adapter, Reason.UNLOADED)


def _text(pass_: Scratch, held: Held, reason: Reason) -> str:
    if reason is Reason.UNLOAD_REFUSED:
        return pass_.unload_refused() or "the engine's own arguments load it"
    if reason is Reason.UNLOAD_STUCK:
        return _why_stuck(pass_)
    failure = pass_.failures.get(unload_key(held.handle))
    return failure.text if failure and reason is Reason.UNLOADING else ""


def _why_stuck(pass_: Scratch) -> str:
    version = pass_.world.engine.version
    if version >= SAFE_UNLOAD:
        return (
            "SGLang waits for the requests that use it; no other load or unload can be done before"
        )
    return (
        "SGLang 0.5.1 to 0.5.21 may hang for ever when it unloads (0.5.22 does not), and no other load or unload can be"
        " done before: restart the engine"
    )


def let_go_of_the_rest(pass_: Scratch) -> None:
    """Let go of what is held for adapters that are gone, or that now want something else."""
    adapters = pass_.world.adapters or ()
    deleting = {adapter.metadata.uid for adapter in adapters if adapter.deleting}
    present = {adapter.metadata.uid for adapter in adapters}
    for held in list(pass_.held.values()):
        if held.uid in deleting or pass_.wants(held) or out_of_sight(pass_, held):
            continue
        unseen = pass_.world.partial or held.key in pass_.world.unreadable
        if unseen and held.uid not in present:
            continue
        if not _waits_for_its_successor(pass_, held):
            let_go(pass_, held)


def _waits_for_its_successor(pass_: Scratch, held: Held) -> bool:
    """An adapter that moves to another path keeps the old one until the new one can be loaded."""
    adapter = pass_.good.get(held.uid)
    return adapter is not None and adapter.handle == held.handle


def out_of_sight(pass_: Scratch, held: Held) -> bool:
    """Whether an adapter's absence means nothing, since its namespace can no longer be listed."""
    return pass_.world.scope == "own" and not held.key.startswith(f"{pass_.me.namespace}/")


def let_go(pass_: Scratch, held: Held) -> Reason:
    """Unload something that is held, if that may be; the reason is what may be said of it."""
    if not pass_.ready or pass_.calls(held.handle):
        return _still_leaving(pass_, held)
    if pass_.waits_for_unload_of(held.handle):
        return Reason.UNLOAD_STUCK
    if pass_.listed.get(held.handle) != held.path:
        del pass_.held[held.handle]
        if held.owned and held.handle not in pass_.tombstones:
            pass_.tombstones[held.handle] = Tombstone(held.path, pass_.world.engine.boot)
        return Reason.UNLOADED
    if held.owned is None:
        return Reason.UNLOADING
    if not held.owned or pass_.unload_refused():
        return Reason.UNLOAD_REFUSED
    if pass_.waiting(unload_key(held.handle)) is None:
        pass_.unloads.append(Unload(held.uid, held.key, held.handle, held.path))
    return Reason.UNLOADING


def _still_leaving(pass_: Scratch, held: Held) -> Reason:
    if pass_.world.engine.state is EngineState.STARTING:
        return Reason.UNLOADED
    stuck = any(pass_.is_stuck(running) for running in pass_.calls(held.handle))
    return Reason.UNLOAD_STUCK if stuck else Reason.UNLOADING


def _resurrected(pass_: Scratch) -> set[str]:
    return {
        handle
        for handle, stone in pass_.tombstones.items()
        if stone.covers(pass_.listed.get(handle)) and handle not in pass_.wanted_handles
    }


def bury_again(pass_: Scratch) -> None:
    """Unload what a client's request made SGLang load again, with growing pauses."""
    leaving = {unload.handle for unload in pass_.unloads}
    for handle in sorted(_resurrected(pass_) - leaving):
        stone = pass_.tombstones[handle]
        if pass_.calls(handle):
            continue
        if pass_.now < stone.retry_at:
            pass_.times.append(stone.retry_at)
        else:
            pass_.unloads.append(Unload("", "", handle, pass_.listed[handle]))
