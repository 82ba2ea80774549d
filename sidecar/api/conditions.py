"""Conditions of a LoRAAdapter, as Kubernetes means them, and the reasons that only a whole adapter can have.

What happens on one pod has its reasons in `reasons`. Time is an argument everywhere.
"""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, Field

from sidecar.api.sentenced import Sentenced
from sidecar.api.wire import Part, to_wire_time

Status = Literal["True", "False", "Unknown"]

MESSAGE_LIMIT: Final = 8192
"""Bytes of a message of ours; the contract allows 32,768 characters."""


class ConditionType(StrEnum):
    """The three conditions of the contract."""

    AVAILABLE = "Available"
    LOADED = "Loaded"
    ERROR = "Error"


class ConditionReason(Sentenced):
    """Why a condition of a LoRAAdapter is what it is, where no reason of one pod says it."""

    RECONCILE_SUCCESS = ("ReconcileSuccess", "Everything is as the LoRAAdapter says.")
    SERVICE_NOT_FOUND = ("InferenceServiceNotFound", "The target InferenceService does not exist.")
    SERVICE_KIND_ABSENT = (
        "InferenceServiceKindAbsent",
        "This cluster does not serve InferenceServices, so the target cannot be looked up.",
    )
    RUNTIME_MISMATCH = ("RuntimeMismatch", "The target InferenceService does not run SGLang.")
    INVALID_SPEC = ("InvalidSpec", "The spec makes no sense, although the API server let it pass.")
    LOAD_UNSUCCESSFUL = ("LoadUnsuccessful", "At least one pod cannot have the adapter.")
    UNLOAD_UNSUCCESSFUL = ("UnloadUnsuccessful", "At least one engine still holds the adapter.")
    NOT_REPORTED = ("NotReported", "A pod is up, but its agent has not said anything that counts.")
    NOT_INJECTED = ("NotInjected", "A pod opted in but runs without the agent.")
    NO_PODS = ("NoPods", "The service has no pods.")
    NOT_OPTED_IN = (
        "NotOptedIn",
        "No pod of the service opted in: set the annotation lora-sidecar.llmkube.dev/inject to"
        ' "true" in its spec.podAnnotations.',
    )


class Condition(Part):
    """One metav1.Condition, with the bounds of the contract."""

    type: Annotated[str, Field(max_length=316)]
    status: Status
    reason: Annotated[
        str,
        Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
    ]
    message: Annotated[str, Field(max_length=32768)]
    last_transition_time: AwareDatetime
    observed_generation: Annotated[int, Field(ge=0)] | None = None

    def wire(self) -> dict[str, object]:
        """As the API server stores it."""
        body: dict[str, object] = {
            "type": self.type,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "lastTransitionTime": to_wire_time(self.last_transition_time),
        }
        if self.observed_generation is not None:
            body["observedGeneration"] = self.observed_generation
        return body


def with_condition(
    conditions: Iterable[Condition],
    *,
    kind: str,
    status: Status,
    reason: str,
    message: str,
    generation: int,
    now: datetime,
) -> tuple[Condition, ...]:
    """Return the conditions with one set; its transition time moves only if its status changes.

    Conditions of other types, also those of other writers, keep their place and content.
    """
    before = tuple(conditions)
    old = next((c for c in before if c.type == kind), None)
    moved = old is None or old.status != status
    new = Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=now if moved or old is None else old.last_transition_time,
        observed_generation=generation,
    )
    if old is None:
        return (*before, new)
    return tuple(new if c is old else c for c in before)
