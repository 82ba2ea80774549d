"""What of a written status is worth an event: transitions of Loaded, pods that begin to fail, another writer. Pure.

The status that stood before and the one that was written are compared, so that an aggregator that starts anew, or a
steady state, tells nothing. How often events are sent, and as what objects, is for `announcing`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sidecar.aggregator.judge import HELD
from sidecar.aggregator.reading import dicts
from sidecar.api.conditions import ConditionReason, ConditionType
from sidecar.api.reasons import Reason, State

POD_LIMIT: Final = 5
"""Pods of one status that get an event each; the message of Loaded counts all."""

OVERWRITTEN: Final = "ConditionsOverwritten"
_OVERWRITTEN_NOTE: Final = (
    "another controller writes this LoRAAdapter's conditions; they are set right once a minute at the most. If it is"
    " LLMKube's, see the takeover in the documentation"
)

_HELD: Final = {*map(str, HELD), str(ConditionReason.NOT_INJECTED)}
_CALM: Final = {str(ConditionReason.NOT_OPTED_IN), str(Reason.UNLOADED)}
"""Reasons of a Loaded that is not True and that somebody asked for."""
_ALWAYS: Final = {
    str(ConditionReason.LOAD_UNSUCCESSFUL),
    str(ConditionReason.UNLOAD_UNSUCCESSFUL),
    *_CALM,
}
"""Reasons that are told even where Loaded was not True before."""


@dataclass(frozen=True, slots=True)
class News:
    """One thing to tell of an adapter; `pod` is the name of the pod that it concerns, "" for all of them."""

    reason: str
    note: str
    warning: bool
    pod: str = ""


def news(
    before: Mapping[str, Any], written: Mapping[str, Any], *, corrective: bool
) -> tuple[News, ...]:
    """What is new in a status as it was written, compared with the one that stood before; most important first."""
    if corrective:
        return (News(OVERWRITTEN, _OVERWRITTEN_NOTE, warning=True),)
    return (*_of_loaded(_loaded(before), _loaded(written)), *_of_pods(before, written))


def _loaded(status: Mapping[str, Any]) -> tuple[str, str, str]:
    for item in dicts(status.get("conditions")):
        if item.get("type") == ConditionType.LOADED:
            return str(item.get("status")), str(item.get("reason")), str(item.get("message"))
    return "", "", ""


def _of_loaded(before: tuple[str, str, str], now: tuple[str, str, str]) -> list[News]:
    status, reason, note = now
    if before[:2] == (status, reason):
        return []
    if status == "True":
        return [News(str(Reason.LOADED), note, warning=False)]
    if before[0] == "True" or reason in _ALWAYS:
        return [News(reason, note, warning=reason not in _CALM)]
    return []


def _of_pods(before: Mapping[str, Any], written: Mapping[str, Any]) -> list[News]:
    """Pods that fail since this status. Where the CRD keeps no list of pods, nothing is known of before."""
    if before.get("conditions") and "podsLoaded" not in before:
        return []
    old = {item.get("pod"): item.get("reason") for item in dicts(before.get("pods"))}
    failed = [
        News(
            str(item["reason"]), str(item.get("text") or ""), warning=True, pod=str(item.get("pod"))
        )
        for item in dicts(written.get("pods"))
        if item.get("state") == State.FAILED or item.get("reason") in _HELD
        if old.get(item.get("pod")) != item.get("reason")
    ]
    return failed[:POD_LIMIT]
