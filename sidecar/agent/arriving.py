"""What is to be done and said for an adapter that this pod should have. Pure.

First what the engine holds is compared with what is wanted; only what is missing is looked for on disk. Nothing that
the engine's own arguments loaded, or that somebody else loaded from another path, is touched.
"""

from dataclasses import replace
from typing import Final

from sidecar.agent import reload
from sidecar.agent.answers import Kind
from sidecar.agent.outcome import cause, unload_key
from sidecar.agent.pathview import PathState
from sidecar.agent.scratch import Scratch
from sidecar.agent.state import Entry, Held, Load, Trial, Unload
from sidecar.api.adapter import LoRAAdapter
from sidecar.api.reasons import EngineState, Reason

_BY_PATH: Final = {
    PathState.MISSING: Reason.PATH_NOT_FOUND,
    PathState.PARTIAL: Reason.PATH_INCOMPLETE,
    PathState.SETTLING: Reason.PATH_SETTLING,
    PathState.INVALID: Reason.INVALID_PATH,
    PathState.NOT_SHARED: Reason.PATH_NOT_SHARED,
    PathState.UNREADABLE: Reason.PATH_UNREADABLE,
    PathState.STUCK: Reason.PATH_UNREADABLE,
    PathState.BAD: Reason.INVALID_ADAPTER,
}

_ENGINE_AWAY: Final = {
    EngineState.STARTING: Reason.ENGINE_STARTING,
    EngineState.UNREACHABLE: Reason.ENGINE_UNREACHABLE,
    EngineState.UNSUPPORTED: Reason.ENGINE_UNSUPPORTED,
}


LATE: Final = "comes after the others: the engine died within 10 minutes of loading it"
UNTRIED: Final = "is tried with one token: the engine died within 10 minutes of loading it"

FOLLOW: Final = 0.001
"""Seconds after which the unload of a replaced handle has reached the engine, on the same host, before its load."""


def adopt(pass_: Scratch, adapter: LoRAAdapter) -> None:
    """Take charge of what the engine already holds as an adapter says, whoever loaded it."""
    uid, handle, path = adapter.metadata.uid, adapter.handle, adapter.spec.path
    if pass_.listed.get(handle) != path or pass_.calls(handle):
        return
    held = pass_.held.get(handle)
    if held is None or held.path != path:
        held = _found(pass_, adapter)
    if not adapter.deleting:
        if held.uid != uid:
            held = replace(held, uid=uid, key=adapter.key)
        pass_.tombstones.pop(handle, None)
    pass_.held[handle] = _with_owner(pass_, held)


def _found(pass_: Scratch, adapter: LoRAAdapter) -> Held:
    buried = pass_.tombstones.get(adapter.handle)
    ours = buried is not None and buried.covers(adapter.spec.path)
    return Held(
        uid=adapter.metadata.uid,
        key=adapter.key,
        handle=adapter.handle,
        path=adapter.spec.path,
        boot=pass_.world.engine.boot,
        owned=True if ours else None,
        adopted=True,
    )


def _with_owner(pass_: Scratch, held: Held) -> Held:
    """What the engine's own arguments load is never ours; it is known once it has told them."""
    engine = pass_.world.engine
    if held.owned is not None or engine.info is None:
        return held
    return replace(held, owned=engine.startup_handles.get(held.handle) != held.path)


def entry(pass_: Scratch, adapter: LoRAAdapter) -> Entry:
    """Judge one wanted adapter; the calls it needs are put on the scratch paper."""
    if not pass_.ready:
        engine = pass_.world.engine
        away = _ENGINE_AWAY.get(engine.state, Reason.ENGINE_STARTING)
        return Entry(adapter, engine.reason or away, engine.text)
    if pass_.calls(adapter.handle):
        follows = _follows_unload(pass_, adapter)
        return _missing(pass_, adapter, follows=True) if follows else _busy(pass_, adapter)
    at = pass_.listed.get(adapter.handle)
    if adapter.handle in pass_.memory.doubtful:
        return Entry(
            adapter, Reason.LOADING, "the last call had no answer; the engine is asked again"
        )
    if at is None:
        return _missing(pass_, adapter)
    if at == adapter.spec.path:
        return _present(pass_, adapter)
    return _elsewhere(pass_, adapter, at)


def _follows_unload(pass_: Scratch, adapter: LoRAAdapter) -> bool:
    """Whether the only call open for a handle is the unload that its new load may already follow.

    SGLang serves changes in the order in which they come, and a client's request for an unloaded handle is one: it
    loads the old path again. So the load must be next in line, and not wait until the list shows that the handle has
    gone. Should it overtake the unload, it is answered "already loaded" and sent again.
    """
    calls = pass_.calls(adapter.handle)
    if len(calls) != 1 or not (isinstance(calls[0].action, Unload) and calls[0].action.replacing):
        return False
    may_follow = calls[0].started + FOLLOW
    if adapter.handle in pass_.listed and pass_.now < may_follow:
        pass_.times.append(may_follow)
        return False
    return True


def _busy(pass_: Scratch, adapter: LoRAAdapter) -> Entry:
    return Entry(adapter, Reason.LOADING, pass_.behind)


def _present(pass_: Scratch, adapter: LoRAAdapter) -> Entry:
    uid, path, world = adapter.metadata.uid, adapter.spec.path, pass_.world
    held = pass_.held[adapter.handle]
    pass_.failures.pop(uid, None)
    verdict = reload.judge(
        held, world.paths.get(path), world.hashes.get(path), world.engine, pass_.me
    )
    pass_.held[adapter.handle] = verdict.held
    if verdict.hash:
        pass_.hash.append(path)
    if verdict.reload and held.owned and not pass_.unload_refused():
        refusal = pass_.refusal(world.paths.get(path))
        if refusal:
            kept = f"the files have changed, and the new ones stay out: {refusal.text}"
            return _loaded(pass_, adapter, kept)
        pass_.unloads.append(Unload(uid, adapter.key, adapter.handle, path, replacing=True))
        return Entry(adapter, Reason.LOADING, "new weights: being loaded again")
    return _loaded(pass_, adapter, verdict.text or _tried(pass_, adapter))


def _loaded(pass_: Scratch, adapter: LoRAAdapter, text: str) -> Entry:
    held, world = pass_.held[adapter.handle], pass_.world
    if not world.engine.lists:
        return Entry(adapter, Reason.LOADED_UNVERIFIED, text)
    return Entry(adapter, Reason.ADOPTED if held.adopted else Reason.LOADED, text)


def _tried(pass_: Scratch, adapter: LoRAAdapter) -> str:
    """Have a loaded suspect tried; what is to be said of it until then."""
    suspect = pass_.memory.suspects.of(adapter.metadata.uid)
    if suspect is None:
        return ""
    if pass_.now < suspect.retry_at:
        pass_.times.append(suspect.retry_at)
    else:
        uid, path = adapter.metadata.uid, adapter.spec.path
        pass_.trials.append(Trial(uid, adapter.key, adapter.handle, path, suspect.case))
    return UNTRIED


def _elsewhere(pass_: Scratch, adapter: LoRAAdapter, at: str) -> Entry:
    """The engine holds the handle from another path: replace what is ours, leave what is not."""
    held, buried = pass_.held.get(adapter.handle), pass_.tombstones.get(adapter.handle)
    owned = held.owned if held and held.path == at else buried is not None and buried.covers(at)
    if owned is None:
        return Entry(adapter, Reason.LOADING, "waits for the engine to say what its arguments load")
    if not owned:
        text = f"the engine holds {adapter.handle} from {at}, which was not loaded by lora-sidecar"
        if not at:
            text = (
                f"the engine holds an adapter named {adapter.handle} that lora-sidecar did not load; SGLang before"
                " 0.5.4.post2 cannot say from where"
            )
        return Entry(adapter, Reason.NAME_TAKEN, text)
    refused = pass_.unload_refused()
    if refused:
        return Entry(adapter, Reason.UNLOAD_REFUSED, refused)
    load, why_not = _loadable(pass_, adapter)
    if load is None:
        return replace(why_not, text=f"{why_not.text}; meanwhile {at} stays loaded".lstrip("; "))
    uid, key = adapter.metadata.uid, adapter.key
    pass_.unloads.append(Unload(uid, key, adapter.handle, at, replacing=True))
    return Entry(adapter, Reason.LOADING, pass_.behind or f"replaces {at}")


def _missing(pass_: Scratch, adapter: LoRAAdapter, *, follows: bool = False) -> Entry:
    load, why_not = _loadable(pass_, adapter)
    if load is None:
        return why_not
    limit = pass_.world.engine.info.max_loaded_loras if pass_.world.engine.info else None
    others = len(pass_.listed.keys() - {adapter.handle})
    if limit is not None and others + len(pass_.loads) >= limit:
        evicted = "evicted by SGLang: " if adapter.handle in pass_.held else ""
        text = f"{evicted}the engine holds at most {limit} adapters (--max-loaded-loras)"
        return Entry(adapter, Reason.CAPACITY_EXCEEDED, text)
    if not follows and _needs_unload(pass_, load):
        return _unload_before(pass_, adapter, load)
    if adapter.handle not in pass_.listed and not pass_.waits_for_unload_of(adapter.handle):
        pass_.held.pop(adapter.handle, None)
    pass_.loads.append(replace(load, follows=follows))
    late = LATE if pass_.memory.suspects.of(load.uid) else ""
    return Entry(adapter, Reason.LOADING, pass_.behind or late)


def _needs_unload(pass_: Scratch, load: Load) -> bool:
    failure = pass_.failures.get(load.uid)
    return failure is not None and failure.kind is Kind.INCOMPLETE_UNLOAD


def _unload_before(pass_: Scratch, adapter: LoRAAdapter, load: Load) -> Entry:
    """SGLang 0.5.21 and later refuse a load whose handle's last unload has not ended, until one has."""
    failure = pass_.waiting(unload_key(load.handle))
    if failure:
        return Entry(adapter, Reason.RETRYING, failure.text)
    pass_.unloads.append(Unload(load.uid, load.key, load.handle, load.path))
    text = f"an unload of {load.handle} did not end: it is sent once more before the load"
    return Entry(adapter, Reason.LOADING, pass_.behind or text)


def _loadable(pass_: Scratch, adapter: LoRAAdapter) -> tuple[Load | None, Entry]:
    """The load that an adapter needs, or why it cannot be sent now."""
    uid, path, signature = adapter.metadata.uid, adapter.spec.path, ""
    if not pass_.me.trust_path:
        view = pass_.world.paths.get(path)
        if view is None:
            return None, Entry(adapter, Reason.LOADING)
        if view.state is not PathState.WHOLE:
            return None, Entry(adapter, _BY_PATH[view.state], view.text)
        refusal = pass_.refusal(view)
        if refusal:
            return None, Entry(adapter, refusal.reason, refusal.text)
        signature = view.signature
    load = Load(uid, adapter.key, adapter.handle, path, adapter.pinned, signature, adapter.retry)
    failure = pass_.failures.get(uid)
    if failure and failure.cause != cause(load, pass_.world.engine.boot):
        del pass_.failures[uid]
    held_back = _held_back(pass_, adapter)
    if held_back:
        return None, held_back
    failure = pass_.waiting(uid)
    if failure:
        return None, Entry(adapter, failure.reason, failure.text)
    why_wait = _unsettled(pass_)
    return None if why_wait else load, Entry(adapter, Reason.LOADING, why_wait)


def _unsettled(pass_: Scratch) -> str:
    """What the engine has still to say before any load; "" where it has said it."""
    if not pass_.world.engine.settled:
        return "waits for the engine to say how it was started"
    if pass_.world.base_awaited:
        return "waits for the base model's config.json to be read"
    if pass_.untold:
        return "waits for the engine to name the adapters that it holds"
    return ""


def _held_back(pass_: Scratch, adapter: LoRAAdapter) -> Entry | None:
    """Why an adapter that killed the engine more than once is not loaded now."""
    suspect = pass_.memory.suspects.of(adapter.metadata.uid)
    if suspect is None or not suspect.held_back or pass_.now >= suspect.retry_at:
        return None
    pass_.times.append(suspect.retry_at)
    text = (
        f"the engine died {suspect.deaths} times while this adapter was being loaded or first used; change its files or"
        " its spec, or annotate it with lora-sidecar.llmkube.dev/retry"
    )
    return Entry(adapter, Reason.ENGINE_CRASH_SUSPECT, text)
