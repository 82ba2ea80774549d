"""The pods of one service: which count, which are up, and which are heard, judged once for all its adapters.

Pure. Building a view costs as much as the service has pods, and folding an adapter into it as much again, so that
1,000 pods with 100 adapters are looked at 1,000 and 100,000 times, never more. What is the same for every adapter on
a pod (no agent in it, nothing heard from it) is decided here; what the report says of one adapter is for `fold`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from sidecar.aggregator.records import Container, Entry, Pod, Report, Webhook
from sidecar.api.conditions import ConditionReason
from sidecar.api.reasons import EngineState, Reason, State, badness

SILENCE_LIMIT: Final = 660.0
"""Seconds without a new beat after which a report no longer counts; agents beat every 300."""

_ORDINARY: Final = ("", "PodInitializing", "ContainerCreating")
"""Why the containers of every pod do not run at first."""

UNKNOWN_STATE: Final = "Unknown"
"""The state shown of a pod that nothing is heard from."""


class Group(IntEnum):
    """What an adapter's standing on a pod means for the adapter as a whole, worst first."""

    BROKEN = 0
    """It cannot be as asked without somebody doing something."""
    BEHIND = 1
    """An engine is up and does not have it (or, on its deletion, still has it)."""
    SILENT = 2
    """An engine is up, and whether it has it was not said."""
    STARTING = 3
    """No engine is up."""
    SETTLED = 4
    """As asked."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How one adapter stands on one pod."""

    group: Group
    reason: Reason | ConditionReason
    text: str = ""
    load: Entry | None = None
    """Where the engine has it: what its agent says of that."""

    @property
    def state(self) -> str:
        """In the words of the pods list."""
        if isinstance(self.reason, Reason):
            return str(self.reason.state)
        return str(State.FAILED) if self.group is Group.BROKEN else UNKNOWN_STATE

    @property
    def rank(self) -> tuple[int, int, int]:
        """Sort key that puts the worst first; what is no agent's word comes after what is."""
        if isinstance(self.reason, Reason):
            return (self.group, *badness(self.reason))
        return (self.group, len(State), 0)


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod that counts. Either `standing` is that of every adapter on it, or `report` says each one's."""

    name: str
    node: str
    up: bool
    report: Report | None = None
    standing: Standing | None = None


class Presence(Enum):
    """Whether the InferenceService is there."""

    FOUND = "found"
    MISSING = "missing"
    KIND_ABSENT = "kind absent"
    """The cluster does not serve InferenceServices at all."""
    UNREADABLE = "unreadable"
    """They are served, but we are not let to see them."""


@dataclass(frozen=True, slots=True)
class View:
    """One service at one moment. `pods` are those that count, by name; `others` run without having opted in."""

    namespace: str
    name: str
    presence: Presence
    runtime: str
    opted_in: bool
    pods: tuple[PodView, ...]
    others: int

    def __str__(self) -> str:
        return f"InferenceService {self.namespace}/{self.name}"


def opted_in(before: bool, pods: Iterable[Pod], presence: Presence) -> bool:
    """Whether a service is opted in; where nothing can be seen, the last word stands.

    GPU services have no pods while they roll out, so having none says nothing. Pods that ended long ago may lie
    about for ever, so they say nothing either; one that is just going still does.
    """
    seen = [pod.opted_in for pod in pods if not pod.finished]
    if seen:
        return any(seen)
    return before and presence is not Presence.MISSING


def view(
    service: tuple[str, str],
    pods: Iterable[Pod],
    reports: Mapping[str, Report],
    *,
    alive: Callable[[str], bool],
    opted_in: bool,
    presence: Presence = Presence.FOUND,
    runtime: str = "sglang",
    webhook: Webhook | None = None,
) -> View:
    """Look at a service and its pods. `reports` and `alive` (is the beat recent?) go by the pod's "namespace/name"."""
    here = sorted(
        (pod for pod in pods if not pod.terminating and not pod.finished),
        key=lambda pod: pod.name,
    )
    counting = tuple(
        _look(pod, reports.get(pod.key), alive(pod.key), webhook) for pod in here if pod.opted_in
    )
    return View(
        namespace=service[0],
        name=service[1],
        presence=presence,
        runtime=runtime,
        opted_in=opted_in,
        pods=counting,
        others=len(here) - len(counting),
    )


def _look(pod: Pod, report: Report | None, alive: bool, webhook: Webhook | None) -> PodView:
    ready = pod.engine is not None and pod.engine.ready
    if pod.agent is None:
        text = _why_not_injected(pod, webhook)
        standing = Standing(Group.BROKEN, ConditionReason.NOT_INJECTED, text)
        return PodView(pod.name, pod.node, ready, standing=standing)
    silence = _silence(pod, pod.agent, report, alive)
    if silence or report is None:
        standing = _unheard(pod, ready, silence)
        return PodView(pod.name, pod.node, ready, standing=standing)
    up = ready or report.engine in (EngineState.READY, EngineState.UNREACHABLE)
    return PodView(pod.name, pod.node, up, report=report)


def _why_not_injected(pod: Pod, webhook: Webhook | None) -> str:
    if pod.skipped:
        return f"the injector skipped it: {pod.skipped}"
    if webhook is not None:
        if not webhook.installed:
            return "the injector is not installed"
        if pod.namespace in webhook.excluded:
            return f"namespace {pod.namespace} is excluded from injection"
        if pod.created and webhook.created and pod.created < webhook.created:
            return "it is older than the injector: delete it, so that it is made anew"
    return "the injector did not answer when it was made: delete it, so that it is made anew"


def _silence(pod: Pod, agent: Container, report: Report | None, alive: bool) -> str:
    """Why the pod's report does not count, or nothing where it does."""
    if not agent.running:
        if pod.waiting and agent.why in _ORDINARY:
            return f"the pod does not run yet: {agent.why or pod.waiting}"
        return _stopped("the agent's container", agent)
    if pod.lost:
        return "its node does not report"
    if report is None or report.pod_uid != pod.uid:
        return "its agent has not reported yet"
    if not alive:
        return "its agent has been silent for more than 11 minutes"
    if report.engine is None:
        return "its report does not say how the engine is"
    return _outdated(pod.engine, report)


def _outdated(engine: Container | None, report: Report) -> str:
    """What the kubelet knows better of an engine that the report calls ready: same node, same clock."""
    if report.engine is not EngineState.READY or engine is None:
        return ""
    if not engine.running:
        return _stopped("the engine's container", engine)
    if engine.started_at is None:
        return ""
    if report.engine_since is None or report.engine_since < engine.started_at:
        return "its agent has not reported since the engine was restarted"
    return ""


def _stopped(what: str, container: Container) -> str:
    return f"{what} does not run: {container.why}" if container.why else f"{what} does not run"


def _unheard(pod: Pod, up: bool, silence: str) -> Standing:
    if up:
        return Standing(Group.SILENT, ConditionReason.NOT_REPORTED, silence)
    if pod.waiting or (pod.engine is not None and not pod.engine.running):
        return Standing(Group.STARTING, Reason.ENGINE_STARTING, silence)
    return Standing(Group.STARTING, ConditionReason.NOT_REPORTED, silence)
