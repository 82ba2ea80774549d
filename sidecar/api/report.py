"""LoRAPodStatus: what one pod's agent says, and its memory across its own restarts.

One per injected pod, named as the pod, owned by it; its single writer is the agent of that pod.
"""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import AwareDatetime, Field

from sidecar.api import names
from sidecar.api.reasons import EngineState, Reason, State
from sidecar.api.wire import Part

SCHEMA: Final = 1
"""The version of what a report says; the aggregator reads this one and the one before."""

ENTRY_LIMIT: Final = 1000
"""Adapters in one report; the rest are not loaded."""
TEXT_LIMIT: Final = 256
"""Bytes of a text."""
SIZE_LIMIT: Final = 512 * 1024
"""Bytes of a whole report."""


class AdapterEntry(Part):
    """One adapter on this pod. `adapter` is "namespace/name"."""

    adapter: str
    uid: str = ""
    generation: int = 0
    name: str = ""
    path: str = ""
    state: State
    reason: Reason
    text: Annotated[str, Field(max_length=TEXT_LIMIT)] | None = None
    loaded_at: AwareDatetime | None = None
    owned: bool = False
    signature: str | None = None
    content_hash: str | None = None
    retry: str | None = None


class EngineEntry(Part):
    """The engine as the agent sees it. `since`: when this agent first saw this engine process ready."""

    state: EngineState
    reason: str | None = None
    text: Annotated[str, Field(max_length=TEXT_LIMIT)] | None = None
    since: AwareDatetime | None = None
    boot_id: str | None = None
    version: str | None = None
    model: str | None = None


class UnloadedEntry(Part):
    """A handle that was unloaded and must stay so until its engine process ends; `stuck`: no answer yet."""

    handle: str
    path: str
    boot_id: str
    stuck: bool | None = None


class SuspectEntry(Part):
    """An adapter over whose load or first use the engine died so many times, as it was then. 0: it was only there."""

    uid: str
    handle: str
    path: str
    signature: str = ""
    retry: str = ""
    deaths: int = 0


class ReportStatus(Part):
    """What the agent says and remembers."""

    agent_version: str = ""
    schema_version: int = SCHEMA
    beat: int = 0
    scope: Literal["all", "own"] | None = None
    allowed_namespaces: tuple[str, ...] = ()
    engine: EngineEntry | None = None
    adapters: tuple[AdapterEntry, ...] = ()
    foreign: tuple[str, ...] = ()
    unloaded: tuple[UnloadedEntry, ...] = ()
    suspects: tuple[SuspectEntry, ...] = ()
    loaded: str | None = None
    reason: Reason | None = None
    report_truncated: bool | None = None


class ReportSpec(Part):
    """Whose report it is. Immutable."""

    pod_name: str
    pod_uid: str
    node: str = ""
    service: str = ""


class LoRAPodStatus(Part):
    """One report."""

    name: str
    namespace: str
    resource_version: str = ""
    owner_uids: tuple[str, ...] = ()
    spec: ReportSpec
    status: ReportStatus = ReportStatus()

    @classmethod
    def read(cls, body: dict[str, Any]) -> Self:
        """Read an object of the API server; raises pydantic's ValidationError, which names the field."""
        metadata = body.get("metadata") or {}
        owners = metadata.get("ownerReferences") or []
        return cls.model_validate(
            {
                "name": metadata.get("name", ""),
                "namespace": metadata.get("namespace", ""),
                "resourceVersion": metadata.get("resourceVersion", ""),
                "ownerUids": tuple(str(owner.get("uid", "")) for owner in owners),
                "spec": body.get("spec") or {},
                "status": body.get("status") or {},
            }
        )

    def wire(self) -> dict[str, Any]:
        """The whole object, as the agent creates it."""
        return {
            "apiVersion": f"{names.PREFIX}/{names.VERSION}",
            "kind": names.REPORT_KIND,
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": {names.SERVICE_LABEL: self.spec.service},
                "ownerReferences": [
                    {
                        "apiVersion": "v1",
                        "kind": "Pod",
                        "name": self.spec.pod_name,
                        "uid": self.spec.pod_uid,
                    }
                ],
            },
            "spec": self.spec.model_dump(mode="json", by_alias=True),
            "status": self.status_wire(),
        }

    def status_wire(self) -> dict[str, Any]:
        """Only its status, without what is empty."""
        return self.status.model_dump(mode="json", by_alias=True, exclude_none=True)
