"""Reads objects of the API server into records, such that nothing can fail.

Whatever an object holds that makes no sense, by a newer agent's or a person's hand, becomes a problem in words or is
left out: an object that cannot be read must not hide what others say. Equal strings are kept once.
"""

import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from sidecar.aggregator.records import Adapter, Container, Entry, Pod, Report, Service, Webhook
from sidecar.api import names
from sidecar.api.adapter import LoRAAdapter
from sidecar.api.conditions import Condition, ConditionType
from sidecar.api.reasons import EngineState, Reason
from sidecar.api.report import TEXT_LIMIT
from sidecar.api.wanted import path_problem
from sidecar.api.wire import cut, faults

Body = dict[str, Any]

_REASONS: Final[Mapping[str, Reason]] = {str(reason): reason for reason in Reason}
_ENGINE_STATES: Final[Mapping[str, EngineState]] = {str(state): state for state in EngineState}
_OURS: Final = frozenset(map(str, ConditionType))
_FINISHED: Final = ("Succeeded", "Failed")
_KEY_LIMIT: Final = 320


def adapter(body: Body) -> Adapter:
    """Read a LoRAAdapter."""
    meta, spec = _dict(body.get("metadata")), _dict(body.get("spec"))
    ref = _dict(spec.get("inferenceServiceRef"))
    namespace, name = _text(meta.get("namespace")), _text(meta.get("name"))
    path = _text(spec.get("path"))
    return Adapter(
        key=sys.intern(f"{namespace}/{name}"),
        namespace=namespace,
        name=name,
        uid=_text(meta.get("uid")),
        generation=_count(meta.get("generation")),
        resource_version=_text(meta.get("resourceVersion")),
        service=(_text(ref.get("namespace")) or namespace, _text(ref.get("name"))),
        path=path,
        deleting=bool(meta.get("deletionTimestamp")),
        deleted_at=moment(meta.get("deletionTimestamp")),
        finalizers=tuple(map(str, _list(meta.get("finalizers")))),
        problem=_spec_problem(body) or path_problem(path),
        status=_dict(body.get("status")),
    )


def conditions(status: Mapping[str, Any]) -> tuple[Condition, ...]:
    """Those conditions in a status that are of our types and make sense."""
    found = []
    for body in dicts(status.get("conditions")):
        try:
            condition = Condition.model_validate(body)
        except ValidationError:
            continue
        if condition.type in _OURS:
            found.append(condition)
    return tuple(found)


def _spec_problem(body: Body) -> str | None:
    try:
        LoRAAdapter.read({"metadata": body.get("metadata"), "spec": body.get("spec")})
    except ValidationError as error:
        return cut(faults(error), TEXT_LIMIT)
    return None


def report(body: Body) -> Report:
    """Read a LoRAPodStatus."""
    meta, spec, status = (_dict(body.get(part)) for part in ("metadata", "spec", "status"))
    engine = _dict(status.get("engine"))
    return Report(
        key=_key(meta),
        pod_uid=_text(spec.get("podUID")),
        beat=_count(status.get("beat")),
        engine=_ENGINE_STATES.get(_text(engine.get("state"))),
        engine_text=_line(engine.get("text")),
        engine_since=moment(engine.get("since")),
        scope=_text(status.get("scope")),
        allowed=frozenset(
            item for item in _list(status.get("allowedNamespaces")) if isinstance(item, str)
        ),
        truncated=status.get("reportTruncated") is True,
        entries={
            sys.intern(_text(item.get("adapter"))[:_KEY_LIMIT]): _entry(item)
            for item in dicts(status.get("adapters"))
        },
    )


def _entry(body: Body) -> Entry:
    reason = _REASONS.get(_text(body.get("reason")))
    text = _line(body.get("text"))
    if reason is None or reason.state != body.get("state"):
        said = f"{_text(body.get('state'))} {_text(body.get('reason'))}".strip() or "nothing"
        reason, text = None, cut(f"its agent says what is not understood here: {said}", TEXT_LIMIT)
    return Entry(
        uid=sys.intern(_text(body.get("uid"))),  # the same on every pod, as is the path
        generation=_count(body.get("generation")),
        reason=reason,
        text=sys.intern(text),
        path=sys.intern(_text(body.get("path"))),
        loaded_at=moment(body.get("loadedAt")),
    )


def pod(body: Body) -> Pod:
    """Read a Pod."""
    meta, spec, status = (_dict(body.get(part)) for part in ("metadata", "spec", "status"))
    labels, annotations = _dict(meta.get("labels")), _dict(meta.get("annotations"))
    states = {
        _text(item.get("name")): item
        for part in ("initContainerStatuses", "containerStatuses")
        for item in dicts(status.get(part))
    }
    ordinary = [_text(item.get("name")) for item in dicts(spec.get("containers"))]
    present = {*ordinary, *(_text(item.get("name")) for item in dicts(spec.get("initContainers")))}
    agent = names.AGENT_CONTAINER
    engine = _engine_name(annotations, [name for name in ordinary if name != agent])
    return Pod(
        key=_key(meta),
        namespace=_text(meta.get("namespace")),
        name=_text(meta.get("name")),
        uid=_text(meta.get("uid")),
        node=_text(spec.get("nodeName")),
        service=_text(labels.get(names.SERVICE_LABEL)) or _text(annotations.get(names.SERVICE)),
        opted_in=annotations.get(names.INJECT) == "true" or names.INJECTED_LABEL in labels,
        agent=_container(states.get(agent)) if agent in present else None,
        engine=_container(states[engine]) if engine in states else None,
        waiting=_waiting(status),
        lost=_lost(spec, status),
        terminating=bool(meta.get("deletionTimestamp")),
        finished=status.get("phase") in _FINISHED,
        created=moment(meta.get("creationTimestamp")),
        skipped=_line(annotations.get(names.SKIPPED)),
        resource_version=_text(meta.get("resourceVersion")),
    )


def _engine_name(annotations: Body, containers: list[str]) -> str:
    """The injector's word first, then the user's, then LLMKube's name, then the only container there is."""
    wishes = (annotations.get(names.INJECTED_CONTAINER), annotations.get(names.CONTAINER))
    for name in (*wishes, names.ENGINE_CONTAINER):
        if name in containers:
            return str(name)
    return containers[0] if len(containers) == 1 else ""


def _container(status: Body | None) -> Container:
    state = _dict((status or {}).get("state"))
    running, ended = _dict(state.get("running")), _dict(state.get("terminated"))
    reason = _dict(state.get("waiting")).get("reason") or ended.get("reason")
    return Container(
        running="running" in state,
        ready="running" in state and (status or {}).get("ready") is True,
        started_at=moment(running.get("startedAt")),
        why=_line(reason),
    )


def _waiting(status: Body) -> str:
    if status.get("phase") not in (None, "Pending"):
        return ""
    for condition in dicts(status.get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _line(condition.get("reason")) or "it is not scheduled"
    return _text(status.get("phase"))


def _lost(spec: Body, status: Body) -> bool:
    """Whether the pod's node has stopped reporting.

    The node life-cycle controller then sets the pod's Ready to False and leaves everything else as it was (function
    MarkPodsNotReady of Kubernetes' pkg/controller/util/node; older ones set Unknown), whereas a kubelet derives
    Ready from ContainersReady and the readiness gates.
    """
    said = {str(item.get("type")): item.get("status") for item in dicts(status.get("conditions"))}
    if said.get("Ready") == "Unknown":
        return True
    contradicts = said.get("Ready") == "False" and said.get("ContainersReady") == "True"
    return contradicts and not spec.get("readinessGates")


def service(body: Body) -> Service:
    """Read an InferenceService; LLMKube's default runtime is llamacpp."""
    runtime = _text(_dict(body.get("spec")).get("runtime"))
    return Service(key=_key(_dict(body.get("metadata"))), runtime=runtime or "llamacpp")


def webhook(body: Body) -> Webhook:
    """Read a MutatingWebhookConfiguration."""
    excluded: set[str] = set()
    for hook in dicts(body.get("webhooks")):
        for rule in dicts(_dict(hook.get("namespaceSelector")).get("matchExpressions")):
            if rule.get("key") == "kubernetes.io/metadata.name" and rule.get("operator") == "NotIn":
                excluded.update(v for v in _list(rule.get("values")) if isinstance(v, str))
    created = moment(_dict(body.get("metadata")).get("creationTimestamp"))
    return Webhook(created=created, excluded=frozenset(excluded))


def moment(value: object) -> datetime | None:
    """Read a time as Kubernetes writes it; None where it is none."""
    if not isinstance(value, str):
        return None
    try:
        read = datetime.fromisoformat(value)
        return read.astimezone(UTC) if read.tzinfo else None
    except (ValueError, OverflowError):
        return None


def dicts(value: object) -> Iterable[Body]:
    """The objects in what should be a list of objects."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: object) -> Body:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return sys.intern(value) if type(value) is str else ""


def _line(value: object) -> str:
    return cut(value, TEXT_LIMIT) if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if type(value) is int and value >= 0 else 0


def _key(metadata: Body) -> str:
    return sys.intern(f"{_text(metadata.get('namespace'))}/{_text(metadata.get('name'))}")
