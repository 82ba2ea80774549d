"""Folds what all pods of a service say into the status of one LoRAAdapter.

Pure: an adapter, the view of its service and the time in, a status out. Time only stands in `since` and
`lastTransitionTime`, and both are kept from the adapter's present status for as long as what they date stays, so
that folding again changes nothing. Whether and when a status is written is for `pacing` and `loop`.

`judge` puts the adapter's standing on each pod into a group, and the worst group decides Loaded:

    BROKEN    False    LoadUnsuccessful        SETTLED   True   ReconcileSuccess (STARTING pods are named)
    BEHIND    False    the commonest reason    STARTING  False  EngineStarting
    SILENT    Unknown  NotReported             no pods   False  NoPods
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sidecar.aggregator import words
from sidecar.aggregator.judge import HELD, judge
from sidecar.aggregator.reading import conditions as stated
from sidecar.aggregator.reading import dicts, moment
from sidecar.aggregator.records import Adapter, Entry
from sidecar.aggregator.view import Group, Presence, View
from sidecar.aggregator.words import Placed
from sidecar.api import conditions as api
from sidecar.api import names
from sidecar.api.adapter import PodEntry, Status
from sidecar.api.conditions import ConditionReason, ConditionType, with_condition
from sidecar.api.reasons import Reason, commonest
from sidecar.api.report import TEXT_LIMIT
from sidecar.api.wire import cut, to_wire_time

POD_LIMIT: Final = 50
"""Pods in a status; the rest are counted."""

EXTRAS: Final = ("observedGeneration", "podsLoaded", "pods", "podsOmitted")
"""What we add to the status of the contract; LLMKube's own CRD prunes it."""
KEYS: Final = ("conditions", "lastLoadedAt", "loadedPath", *EXTRAS)
"""All of a status that is ours to write."""

Spoken = frozenset[tuple[str, str, str, str]]
"""What our conditions say, without when: type, status, reason and message of each."""

Verdict = tuple[api.Status, str, str]
"""Status, reason and message of a condition."""

_ERRORS: Final = HELD | {Reason.RETRYING}
_OURS: Final = frozenset(map(str, ConditionType))


def fold(adapter: Adapter, view: View, now: datetime) -> Status:
    """The status that the adapter should have; of its conditions those of our types only, see `wire`.

    Where its service is not opted in, this is the last word on it: Loaded is Unknown, or, where no InferenceService
    can exist, False with what to do about it.
    """
    placed = _places(adapter, view) if view.opted_in else []
    loads = [standing.load for _, standing in placed if standing.load is not None]
    listed = placed[:POD_LIMIT]
    return Status(
        conditions=_conditions(adapter, view, placed, now),
        last_loaded_at=_last_loaded(adapter, loads, now),
        loaded_path=(loads[0].path if loads else "") or _text(adapter.status.get("loadedPath")),
        observed_generation=adapter.generation,
        pods_loaded=f"{len(loads)}/{len(placed)}" if view.opted_in else None,
        pods=_pods(adapter, listed, now),
        pods_omitted=len(placed) - len(listed) or None,
    )


def wire(status: Status, adapter: Adapter) -> dict[str, Any]:
    """The status as the API server should hold it. Conditions of other types stay where and as they are."""
    ours = {condition.type: condition.wire() for condition in status.conditions}
    present = list(dicts(adapter.status.get("conditions")))
    conditions = [ours.pop(str(item.get("type")), item) for item in present]
    body: dict[str, Any] = {
        "conditions": [*conditions, *ours.values()],
        "lastLoadedAt": status.last_loaded_at and to_wire_time(status.last_loaded_at),
        "loadedPath": status.loaded_path,
        "observedGeneration": status.observed_generation,
        "podsLoaded": status.pods_loaded,
        "pods": [_pod_wire(pod) for pod in status.pods] or None,
        "podsOmitted": status.pods_omitted,
    }
    return {key: value for key, value in body.items() if value is not None}


def spoken(status: Mapping[str, Any]) -> Spoken:
    """What our conditions say in a status as it is on the wire."""
    return frozenset(
        (kind, str(item.get("status")), str(item.get("reason")), str(item.get("message")))
        for item in dicts(status.get("conditions"))
        if (kind := str(item.get("type"))) in _OURS
    )


def _places(adapter: Adapter, view: View) -> list[Placed]:
    """The adapter on every pod that counts, worst first; equally bad ones by name, as the view has them."""
    placed = [(pod, judge(adapter, pod, view.namespace)) for pod in view.pods]
    placed.sort(key=lambda item: item[1].rank)
    return placed


# ---- conditions --------------------------------------------------------------------------------


def _conditions(
    adapter: Adapter, view: View, placed: Sequence[Placed], now: datetime
) -> tuple[api.Condition, ...]:
    available = _available(adapter, view)
    if not view.opted_in:
        loaded = _last_word(view)
    elif adapter.deleting:
        loaded = _unloaded(view, placed)
    else:
        loaded = _loaded(view, placed)
    verdicts = {
        ConditionType.AVAILABLE: available,
        ConditionType.LOADED: loaded,
        ConditionType.ERROR: _error(placed, available),
    }
    conditions = stated(adapter.status)
    for kind, (status, reason, message) in verdicts.items():
        conditions = with_condition(
            conditions,
            kind=kind,
            status=status,
            reason=reason,
            message=cut(message, api.MESSAGE_LIMIT),
            generation=adapter.generation,
            now=now,
        )
    return conditions


def _available(adapter: Adapter, view: View) -> Verdict:
    if adapter.problem:
        return "False", ConditionReason.INVALID_SPEC, adapter.problem
    match view.presence:
        case Presence.KIND_ABSENT:
            text = f"This cluster serves no InferenceServices, so {view} cannot be looked up"
            return "Unknown", ConditionReason.SERVICE_KIND_ABSENT, text
        case Presence.UNREADABLE:
            text = f"InferenceServices cannot be read, so {view} cannot be looked up"
            return "Unknown", ConditionReason.SERVICE_KIND_ABSENT, text
        case Presence.MISSING:
            return "False", ConditionReason.SERVICE_NOT_FOUND, f"{view} does not exist"
        case Presence.FOUND:
            pass
    if view.runtime != names.SGLANG_RUNTIME:
        text = f"{view} runs {view.runtime}, not {names.SGLANG_RUNTIME}"
        return "False", ConditionReason.RUNTIME_MISMATCH, text
    return "True", ConditionReason.RECONCILE_SUCCESS, f"{view} runs {view.runtime}"


def _last_word(view: View) -> Verdict:
    if view.presence is Presence.KIND_ABSENT:
        return "False", ConditionReason.NOT_OPTED_IN, words.not_opted_in(view)
    return "Unknown", ConditionReason.NOT_OPTED_IN, words.left(view)


def _loaded(view: View, placed: Sequence[Placed]) -> Verdict:
    if not placed:
        return "False", ConditionReason.NO_PODS, words.no_pods(view)
    loaded = sum(standing.group is Group.SETTLED for _, standing in placed)
    head = words.counted(loaded, len(placed), "Loaded on")
    message = words.summary(head, placed, view.others)
    match placed[0][1].group:
        case Group.BROKEN:
            return "False", ConditionReason.LOAD_UNSUCCESSFUL, message
        case Group.BEHIND:
            return "False", _commonest(placed), message
        case Group.SILENT:
            return "Unknown", ConditionReason.NOT_REPORTED, message
        case Group.STARTING | Group.SETTLED:
            if loaded:
                return "True", ConditionReason.RECONCILE_SUCCESS, message
            return "False", Reason.ENGINE_STARTING, message


def _unloaded(view: View, placed: Sequence[Placed]) -> Verdict:
    done = sum(standing.group is Group.SETTLED for _, standing in placed)
    head = words.counted(done, len(placed), "Unloaded from")
    message = words.summary(head, placed, 0) if placed else words.no_pods(view)
    match placed[0][1].group if placed else Group.SETTLED:
        case Group.BROKEN:
            return "False", ConditionReason.UNLOAD_UNSUCCESSFUL, message
        case Group.BEHIND:
            return "False", Reason.UNLOADING, message
        case Group.SILENT:
            return "Unknown", ConditionReason.NOT_REPORTED, message
        case Group.STARTING | Group.SETTLED:
            return "False", Reason.UNLOADED, message


def _commonest(placed: Sequence[Placed]) -> str:
    """The reason that most pods are behind for, of equally common ones the worst."""
    behind = (standing.reason for _, standing in placed if standing.group is Group.BEHIND)
    return commonest(reason for reason in behind if isinstance(reason, Reason)) or ""


def _error(placed: Sequence[Placed], available: Verdict) -> Verdict:
    status, reason, message = available
    if status == "False":
        return "True", reason, message
    wrong = [item for item in placed if item[1].group is Group.BROKEN or item[1].reason in _ERRORS]
    if wrong:
        return "True", wrong[0][1].reason, words.trouble(wrong, len(placed))
    return "False", ConditionReason.RECONCILE_SUCCESS, "Nothing failed"


# ---- the rest ----------------------------------------------------------------------------------


def _last_loaded(adapter: Adapter, loads: Sequence[Entry], now: datetime) -> datetime | None:
    """The newest load there ever was. A moment that lies ahead, by a bad clock or hand, is not kept for ever."""
    before = moment(adapter.status.get("lastLoadedAt"))
    known = [before] if before is not None and before <= now else []
    known += [entry.loaded_at for entry in loads if entry.loaded_at is not None]
    return max(known, default=None)


def _pods(adapter: Adapter, listed: Sequence[Placed], now: datetime) -> tuple[PodEntry, ...]:
    before = {str(item.get("pod")): item for item in dicts(adapter.status.get("pods"))}
    entries = []
    for pod, standing in listed:
        state, reason = standing.state, str(standing.reason)
        old = before.get(pod.name, {})
        same = (old.get("state"), old.get("reason")) == (state, reason)
        loaded_at = standing.load.loaded_at if standing.load else None
        entries.append(
            PodEntry(
                pod=pod.name,
                pod_node=pod.node or None,
                reason=reason,
                since=loaded_at or (moment(old.get("since")) if same else None) or now,
                state=state,
                text=cut(standing.text, TEXT_LIMIT) or None,
            )
        )
    return tuple(entries)


def _pod_wire(pod: PodEntry) -> Mapping[str, str]:
    body = {
        "pod": pod.pod,
        "podNode": pod.pod_node,
        "reason": pod.reason,
        "since": pod.since and to_wire_time(pod.since),
        "state": pod.state,
        "text": pod.text,
    }
    return {key: value for key, value in body.items() if value}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
