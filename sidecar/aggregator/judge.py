"""How one adapter stands on one pod, by what the pod's report says and what else is known of the pod.

Pure. An agent's word is taken as it is, except where something else is known better: an engine that does not answer
holds nothing for sure, an engine that is not up holds nothing at all, and what was said of another uid or generation
was not said of this adapter.
"""

from typing import Final

from sidecar.aggregator.records import Adapter, Entry, Report
from sidecar.aggregator.view import Group, PodView, Standing
from sidecar.api.conditions import ConditionReason
from sidecar.api.reasons import EngineState, Reason, State
from sidecar.api.wanted import allows

HELD: Final = frozenset({Reason.UNLOAD_STUCK, Reason.UNLOAD_REFUSED})
"""The engine keeps the adapter although it should not."""

_UNCONFIRMED: Final = "its agent has not confirmed the unload yet"


def judge(adapter: Adapter, pod: PodView, namespace: str) -> Standing:
    """How the adapter stands on the pod, which is in `namespace`."""
    report = pod.report
    if report is None:
        assert pod.standing is not None
        return _leaving_unheard(pod.standing) if adapter.deleting else pod.standing
    outside = _outside(adapter, report, namespace)
    if adapter.deleting:
        return (
            Standing(Group.SETTLED, Reason.UNLOADED) if outside else _leaving(adapter, pod, report)
        )
    if outside:
        return Standing(Group.BROKEN, Reason.NAMESPACE_NOT_ALLOWED, outside)
    entry = report.entries.get(adapter.key)
    if report.engine is EngineState.UNSUPPORTED and not _failed(entry):
        return Standing(Group.BROKEN, Reason.ENGINE_UNSUPPORTED, report.engine_text)
    if entry is None or entry.uid != adapter.uid or entry.generation != adapter.generation:
        return _unmentioned(adapter, pod, report)
    if entry.reason is None:
        group = Group.SILENT if pod.up else Group.STARTING
        return Standing(group, ConditionReason.NOT_REPORTED, entry.text)
    if entry.reason.state is State.FAILED:
        return Standing(Group.BROKEN, entry.reason, entry.text)
    return _said(entry, entry.reason, report) if pod.up else _starting(entry, report)


def _said(entry: Entry, reason: Reason, report: Report) -> Standing:
    """An engine is up, and its agent's word stands unless the agent cannot speak to it."""
    loaded = reason.state is State.LOADED
    if report.engine is EngineState.READY:
        if loaded:
            return Standing(Group.SETTLED, reason, entry.text, entry)
        return Standing(Group.BEHIND, reason, entry.text)
    if loaded or report.engine is EngineState.STARTING:
        return Standing(Group.BEHIND, Reason.ENGINE_UNREACHABLE, report.engine_text)
    return Standing(Group.BEHIND, reason, entry.text)


def _starting(entry: Entry, report: Report) -> Standing:
    if entry.reason is not None and entry.reason.state is State.PENDING:
        return Standing(Group.STARTING, entry.reason, entry.text)
    return Standing(Group.STARTING, Reason.ENGINE_STARTING, report.engine_text)


def _unmentioned(adapter: Adapter, pod: PodView, report: Report) -> Standing:
    if not pod.up:
        return Standing(Group.STARTING, Reason.ENGINE_STARTING, report.engine_text)
    if report.truncated:
        text = "the service has more adapters than one report can hold"
        return Standing(Group.BEHIND, Reason.CAPACITY_EXCEEDED, text)
    text = f"its agent has not reported on generation {adapter.generation} yet"
    return Standing(Group.SILENT, ConditionReason.NOT_REPORTED, text)


def _failed(entry: Entry | None) -> bool:
    return entry is not None and entry.reason is not None and entry.reason.state is State.FAILED


def _outside(adapter: Adapter, report: Report, namespace: str) -> str:
    """Why the pod's agent cannot take the adapter at all, or nothing where it can."""
    if report.scope == "own" and adapter.namespace != namespace:
        return "its agent may read LoRAAdapters of its own namespace only"
    if report.allowed and not allows(report.allowed, adapter.namespace):
        return f"the pod takes adapters from {', '.join(sorted(report.allowed))} only"
    return ""


def _leaving(adapter: Adapter, pod: PodView, report: Report) -> Standing:
    """The adapter is being deleted: it is settled once the agent has said so of this very deletion."""
    entry = report.entries.get(adapter.key)
    if entry is None or entry.uid != adapter.uid:
        if report.truncated:
            return Standing(Group.SETTLED, Reason.UNLOADED)
        return _unconfirmed(pod, _UNCONFIRMED)
    if entry.reason is None:
        return Standing(Group.SILENT, ConditionReason.NOT_REPORTED, entry.text)
    if entry.reason in HELD:
        return Standing(Group.BROKEN, entry.reason, entry.text)
    if entry.reason is Reason.UNLOADED and entry.generation == adapter.generation:
        return Standing(Group.SETTLED, entry.reason, entry.text)
    return _unconfirmed(pod, entry.text if entry.reason is Reason.UNLOADING else _UNCONFIRMED)


def _unconfirmed(pod: PodView, text: str) -> Standing:
    if not pod.up:
        return Standing(Group.SETTLED, Reason.UNLOADED, "the engine is not up")
    return Standing(Group.BEHIND, Reason.UNLOADING, text)


def _leaving_unheard(standing: Standing) -> Standing:
    """Where no agent is, none has loaded anything, and an engine that is not up holds nothing."""
    if standing.group is Group.SILENT:
        return standing
    return Standing(Group.SETTLED, Reason.UNLOADED, standing.text)
