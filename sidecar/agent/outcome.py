"""What an outcome teaches: the memory after a call to the engine has ended. Pure.

A call without an answer teaches nothing but doubt: the next list decides (SGLang goes on with a load whose client has
gone). A permanent failure waits for its cause to change; every other one backs off by itself.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from sidecar.agent.answers import Kind
from sidecar.agent.state import (
    UNNAMED,
    Failure,
    Held,
    Load,
    Memory,
    Outcome,
    Tombstone,
    Trial,
    Unload,
    with_item,
    without,
)
from sidecar.agent.suspects import Case, Suspects
from sidecar.api.reasons import Reason

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
RECHECK: Final = 900.0
"""Seconds after which a permanent failure is tried again all the same."""
RACES: Final = 10
"""How often in a row a load that lost its handle to a client's request is sent again at once."""

SAFE_UNLOAD: Final = (0, 5, 22)
"""From this SGLang on an unload cannot hang for ever: its usage counters no longer leak."""

_PERMANENT: Final = {
    Kind.LORA_DISABLED: Reason.LORA_DISABLED,
    Kind.INCOMPATIBLE: Reason.INCOMPATIBLE,
    Kind.BAD_ADAPTER: Reason.INVALID_ADAPTER,
    Kind.REJECTED: Reason.ENGINE_REJECTED,
    Kind.UNSUPPORTED: Reason.ENGINE_UNSUPPORTED,
}


def cause(load: Load, boot: str) -> tuple[str, ...]:
    """What a failure depends on: once any of it differs, a permanent failure is worth another try."""
    return (load.handle, load.path, load.signature, boot, load.retry)


def unload_key(handle: str) -> str:
    """Where the failure to unload a handle is remembered: apart from loads, which go by uid."""
    return f"unload/{handle}"


def pause(tries: int, salt: str) -> float:
    """Seconds to wait after that many failures: 1 doubling to 60, less up to a quarter by `salt`."""
    whole = min(FIRST_PAUSE * 2.0 ** min(tries - 1, 10), LONGEST_PAUSE)
    digest = hashlib.blake2b(f"{salt}/{tries}".encode(), digest_size=2).digest()
    return whole * (1.0 - int.from_bytes(digest, "big") / 65535 / 4)


def remember(
    memory: Memory, outcome: Outcome, now: float, pod: str, version: tuple[int, ...]
) -> Memory:
    """The memory after an outcome. `pod` spreads the pauses of many pods; `version` is SGLang's."""
    match outcome.action:
        case Load() as load:
            return _after_load(memory, load, outcome, now, f"{pod}/{load.key}")
        case Unload() as unload:
            return _after_unload(memory, unload, outcome, now, f"{pod}/{unload.key}", version)
        case Trial() as trial:
            return _after_trial(memory, trial, outcome, now)


def _after_load(memory: Memory, load: Load, outcome: Outcome, now: float, salt: str) -> Memory:
    answer = outcome.answer
    there = (answer.loaded or {}).get(load.handle)
    if answer.kind in (Kind.OK, Kind.ALREADY_LOADED) and there == load.path:
        return _loaded(memory, load, outcome, now)
    if answer.kind is Kind.OK and answer.loaded is None:
        return _loaded(memory, load, outcome, now)
    failed = _failure(memory, load, outcome, now, salt)
    memory = replace(memory, failures=with_item(memory.failures, load.uid, failed))
    if answer.kind is not Kind.UNKNOWN:
        return memory
    case = Case(load.handle, load.path, load.signature, load.retry)
    suspects = _unanswered(memory.suspects, load.uid, case, outcome.boot, now)
    return _doubted(replace(memory, suspects=suspects), load, outcome, now)


def _doubted(memory: Memory, action: Load | Unload, outcome: Outcome, now: float) -> Memory:
    """A call without an answer may have been carried out, now or later: what it leaves behind is known as ours."""
    before = memory.tombstones.get(action.handle)
    stones = memory.tombstones
    if before is None or not before.covers(action.path):
        stone = Tombstone(action.path, outcome.boot, older=before.path if before else "")
        stones = with_item(stones, action.handle, stone)
    doubtful = with_item(memory.doubtful, action.handle, now)
    return replace(memory, doubtful=doubtful, tombstones=stones)


def _after_trial(memory: Memory, trial: Trial, outcome: Outcome, now: float) -> Memory:
    """Any answer that the engine lived to give clears, but one that shows that the adapter was not used."""
    suspects, kind = memory.suspects, outcome.answer.kind
    if kind is Kind.UNKNOWN:
        suspects = _unanswered(suspects, trial.uid, trial.case, outcome.boot, now)
    else:
        cleared = kind not in (Kind.REFUSED, Kind.UNKNOWN_NAME)
        suspects = suspects.tried(trial.uid, now, cleared=cleared)
    return replace(memory, suspects=suspects)


def _unanswered(suspects: Suspects, uid: str, case: Case, boot: str, now: float) -> Suspects:
    """Only the loss of a process that has said who it is can be told from its late word."""
    known = boot and not boot.startswith(UNNAMED)
    return suspects.unanswered(uid, case, boot, now) if known else suspects


def _loaded(memory: Memory, load: Load, outcome: Outcome, now: float) -> Memory:
    held = Held(
        uid=load.uid,
        key=load.key,
        handle=load.handle,
        path=load.path,
        boot=outcome.boot,
        owned=True,
        loaded_at=outcome.at,
        signature=load.signature if load.signature == outcome.after else "",
    )
    return replace(
        memory,
        held=with_item(memory.held, load.handle, held),
        failures=without(memory.failures, load.uid),
        tombstones=without(memory.tombstones, load.handle),
        doubtful=without(memory.doubtful, load.handle),
        suspects=memory.suspects.loaded(now),
    )


def _failure(memory: Memory, load: Load, outcome: Outcome, now: float, salt: str) -> Failure:
    answer, because = outcome.answer, cause(load, outcome.boot)
    before = memory.failures.get(load.uid)
    tries = before.tries + 1 if before and before.cause == because else 1
    reason, permanent, wait = Reason.RETRYING, False, pause(tries, salt)
    if answer.kind in _PERMANENT:
        reason, permanent, wait = _PERMANENT[answer.kind], True, RECHECK
    elif answer.kind is Kind.OK:
        reason, permanent, wait = Reason.NOT_LISTED, True, RECHECK
    elif answer.kind is Kind.PATH_UNSEEN:
        reason = Reason.PATH_NOT_SHARED
    elif answer.kind is Kind.CAPACITY:
        reason = Reason.CAPACITY_EXCEEDED
    elif answer.kind is Kind.UNAUTHORIZED:
        reason, wait = Reason.ENGINE_UNAUTHORIZED, LONGEST_PAUSE
    elif (answer.kind is Kind.ALREADY_LOADED and tries <= RACES) or (
        answer.kind is Kind.INCOMPLETE_UNLOAD and tries == 1
    ):
        wait = 0.0
    text = answer.text or reason.sentence
    return Failure(reason, text, permanent, tries, now + wait, because, answer.kind)


def _after_unload(
    memory: Memory,
    unload: Unload,
    outcome: Outcome,
    now: float,
    salt: str,
    version: tuple[int, ...],
) -> Memory:
    kind = outcome.answer.kind
    if kind in (Kind.OK, Kind.UNKNOWN_NAME):
        return _buried(memory, unload, outcome.boot, now, version)
    if kind is Kind.UNKNOWN:
        memory = _doubted(memory, unload, outcome, now)
    before = memory.failures.get(unload_key(unload.handle))
    tries = before.tries + 1 if before else 1
    failed = Failure(
        reason=Reason.UNLOADING,
        text=outcome.answer.text,
        permanent=False,
        tries=tries,
        retry_at=now + pause(tries, salt),
        cause=(),
    )
    return replace(memory, failures=with_item(memory.failures, unload_key(unload.handle), failed))


def _buried(
    memory: Memory, unload: Unload, boot: str, now: float, version: tuple[int, ...]
) -> Memory:
    held = memory.held.get(unload.handle)
    gone = held is not None and held.path == unload.path
    stone = next_tombstone(memory.tombstones, unload.handle, unload.path, boot, now, version)
    stuck = memory.stuck if memory.stuck and memory.stuck.handle != unload.handle else None
    return replace(
        memory,
        stuck=stuck,
        held=without(memory.held, unload.handle) if gone else memory.held,
        failures=_unloaded(memory.failures, unload),
        tombstones=with_item(memory.tombstones, unload.handle, stone),
        doubtful=without(memory.doubtful, unload.handle),
    )


def _unloaded(failures: Mapping[str, Failure], unload: Unload) -> Mapping[str, Failure]:
    """No failure to unload it is left, and a load that waited for that may be sent."""
    left = without(failures, unload_key(unload.handle))
    waiting = left.get(unload.uid)
    if waiting is None or waiting.kind is not Kind.INCOMPLETE_UNLOAD:
        return left
    return with_item(left, unload.uid, replace(waiting, kind=Kind.TRANSIENT))


def next_tombstone(
    tombstones: Mapping[str, Tombstone],
    handle: str,
    path: str,
    boot: str,
    now: float,
    version: tuple[int, ...],
) -> Tombstone:
    """The tombstone after one more unload; its next unload waits longer where an unload may hang."""
    before = tombstones.get(handle)
    if before is None or before.boot != boot:
        return Tombstone(path, boot)
    first, longest = (5.0, 300.0) if version >= SAFE_UNLOAD else (60.0, 3600.0)
    wait = min(first * 2.0 ** min(before.tries, 10), longest)
    return Tombstone(path, boot, before.tries + 1, now + wait)
