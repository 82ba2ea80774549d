"""What the aggregator keeps of each object of the API server, as small frozen records.

A cluster may hold 100,000 (pod, adapter) pairs, so these are not the models of `sidecar.api`: only what the fold
looks at is kept. `reading` makes them; what they mean is for `view`, `judge` and `fold` to say.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sidecar.api.reasons import EngineState, Reason


@dataclass(frozen=True, slots=True)
class Adapter:
    """One LoRAAdapter. `problem` says what is wrong with its spec; `status` is as the API server holds it."""

    key: str
    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    service: tuple[str, str]
    path: str
    deleting: bool = False
    deleted_at: datetime | None = None
    finalizers: tuple[str, ...] = ()
    problem: str | None = None
    status: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod, as its kubelet last said."""

    running: bool = False
    ready: bool = False
    started_at: datetime | None = None
    why: str = ""
    """Why it does not run, in the kubelet's word: CrashLoopBackOff, OOMKilled, ..."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod. `agent` is None where the pod has no such container, `engine` where nothing says which it is."""

    key: str
    namespace: str
    name: str
    uid: str
    node: str
    service: str
    opted_in: bool
    agent: Container | None = None
    engine: Container | None = None
    waiting: str = ""
    """Why it has not begun to run, where the scheduler or the kubelet says so."""
    lost: bool = False
    """Its node no longer reports, so that what is said of its containers is old."""
    terminating: bool = False
    finished: bool = False
    created: datetime | None = None
    skipped: str = ""
    resource_version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """What one pod says of one adapter. Without `reason` it makes no sense, and `text` says why."""

    uid: str
    generation: int
    reason: Reason | None
    text: str
    path: str
    loaded_at: datetime | None


@dataclass(frozen=True, slots=True)
class Report:
    """What one pod's agent says. `entries` is by "namespace/name"; `engine` is None where that makes no sense."""

    key: str
    pod_uid: str
    beat: int
    engine: EngineState | None
    engine_text: str
    engine_since: datetime | None
    scope: str
    allowed: frozenset[str]
    truncated: bool
    entries: Mapping[str, Entry]


@dataclass(frozen=True, slots=True)
class Service:
    """One InferenceService."""

    key: str
    runtime: str


@dataclass(frozen=True, slots=True)
class Webhook:
    """What the injector's MutatingWebhookConfiguration says about which pods it is asked for."""

    installed: bool = True
    created: datetime | None = None
    excluded: frozenset[str] = frozenset()
    """Namespaces that it leaves out by name."""
