"""Every name that more than one part must spell alike: groups, kinds, labels, annotations, containers, ports.

Names only: what an annotation means stands in `annotations`, what a reason means in `reasons`.
"""

from typing import Final

PREFIX: Final = "lora-sidecar.llmkube.dev"
"""API group, and prefix of every annotation, label, finalizer and field manager of ours."""

INFERENCE_GROUP: Final = "inference.llmkube.dev"
"""The API group of LLMKube, which owns LoRAAdapter and InferenceService."""

VERSION: Final = "v1alpha1"

ADAPTER_KIND: Final = "LoRAAdapter"
ADAPTER_PLURAL: Final = "loraadapters"
SERVICE_KIND: Final = "InferenceService"
SERVICE_PLURAL: Final = "inferenceservices"
REPORT_KIND: Final = "LoRAPodStatus"
REPORT_PLURAL: Final = "lorapodstatuses"

SERVICE_FIELD: Final = ".spec.inferenceServiceRef.name"
"""The selectable field of LoRAAdapters by which an agent asks for those of its service only."""

SERVICE_LABEL: Final = "inference.llmkube.dev/service"
"""Set by LLMKube (0.8 and later) on the pods of an InferenceService, and by us on reports."""
APP_LABEL: Final = "app"
"""All that LLMKube before 0.8 sets on the pods of an InferenceService."""

INJECTED_LABEL: Final = f"{PREFIX}/injected"
"""Our mark on pods that opted in: "true" where the agent was added, "false" where it was not."""

INJECT: Final = f"{PREFIX}/inject"
SERVICE: Final = f"{PREFIX}/service"
CONTAINER: Final = f"{PREFIX}/container"
INJECTED_VERSION: Final = f"{PREFIX}/injected-version"
INJECTED_CONTAINER: Final = f"{PREFIX}/injected-container"
"""Annotation: the name of the engine's container, as the injector found it."""
SKIPPED: Final = f"{PREFIX}/skipped"
"""Annotation: the slug of why an opted-in pod got no agent."""

PINNED: Final = f"{PREFIX}/pinned"
RETRY: Final = f"{PREFIX}/retry"

WEBHOOK: Final = "lora-sidecar"
"""The injector's MutatingWebhookConfiguration, unless the chart calls it otherwise."""

FINALIZER: Final = f"{PREFIX}/unload"
RELEASED: Final = f"{PREFIX}/released"
"""On the Lease: the uid of the Deployment that is being removed, whose replicas hold no adapter back any more."""
LLMKUBE_FINALIZER: Final = "loraadapter.inference.llmkube.dev/finalizer"

AGENT_MANAGER: Final = "lora-sidecar-agent"
AGGREGATOR_MANAGER: Final = "lora-sidecar-aggregator"

AGENT_CONTAINER: Final = "lora-sidecar"
ENGINE_CONTAINER: Final = "sglang"
"""What LLMKube calls the engine's container."""

ENGINE_PORT: Final = 30000
"""Where SGLang listens unless told otherwise."""
AGENT_PORT: Final = 19494
"""The first port that the agent's HTTP side tries to be given."""

PROBE_HANDLE: Final = "lora-sidecar-probe"
"""A reserved handle that is never loaded: unloading it makes an old SGLang name what it holds."""

SGLANG_RUNTIME: Final = "sglang"
