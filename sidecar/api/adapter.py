"""LoRAAdapter: LLMKube's resource as its users write it, and what the aggregator adds to its status.

The contract is not ours: nothing in it may be renamed, narrowed or made required. So the models read leniently (a
path that makes no sense still parses, and becomes a reason later), and say strictly.
"""

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import AwareDatetime, Field

from sidecar.api import names
from sidecar.api.conditions import Condition
from sidecar.api.wire import Part

HANDLE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


class Metadata(Part):
    """What we read of an object's metadata."""

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: AwareDatetime | None = None
    deletion_timestamp: AwareDatetime | None = None
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()


class ServiceRef(Part):
    """The InferenceService that an adapter is for."""

    name: str
    namespace: str | None = None


class Spec(Part):
    """What the user asks for."""

    inference_service_ref: ServiceRef
    name: Annotated[str, Field(min_length=1, max_length=63, pattern=HANDLE_PATTERN)]
    path: Annotated[str, Field(min_length=1)]


class PodEntry(Part):
    """One pod's line in a LoRAAdapter's status. `kubectl describe` sorts the keys: the pod comes first."""

    pod: str
    pod_node: str | None = None
    reason: str
    since: AwareDatetime | None = None
    state: str
    text: str | None = None


class Status(Part):
    """What is true. Everything after `loaded_path` is our optional addition to the contract."""

    conditions: tuple[Condition, ...] = ()
    last_loaded_at: AwareDatetime | None = None
    loaded_path: str | None = None
    observed_generation: int | None = None
    pods_loaded: str | None = None
    pods: tuple[PodEntry, ...] = ()
    pods_omitted: int | None = None


class LoRAAdapter(Part):
    """One LoRAAdapter, as the API server or a manifest gives it."""

    metadata: Metadata
    spec: Spec
    status: Status = Status()

    @classmethod
    def read(cls, body: dict[str, Any]) -> Self:
        """Read an object of the API server; raises pydantic's ValidationError, which names the field."""
        return cls.model_validate(body)

    @property
    def key(self) -> str:
        """Its "namespace/name"."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def service(self) -> tuple[str, str]:
        """Namespace and name of the InferenceService that it targets."""
        ref = self.spec.inference_service_ref
        return ref.namespace or self.metadata.namespace, ref.name

    @property
    def handle(self) -> str:
        """The name by which SGLang and its clients know the adapter."""
        return self.spec.name

    @property
    def deleting(self) -> bool:
        """Whether the user has asked for its deletion."""
        return self.metadata.deletion_timestamp is not None

    @property
    def created(self) -> datetime | None:
        """When it was created; None in a manifest."""
        return self.metadata.creation_timestamp

    @property
    def pinned(self) -> bool:
        """Whether the engine is asked to keep it from eviction."""
        return self.metadata.annotations.get(names.PINNED) == "true"

    @property
    def retry(self) -> str:
        """The value of the retry annotation; a new one makes the agent forget its failures."""
        return self.metadata.annotations.get(names.RETRY, "")
