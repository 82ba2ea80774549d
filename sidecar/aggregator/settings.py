"""The aggregator's settings."""

from typing import Literal

from pydantic import Field

from sidecar.api import names
from sidecar.api.settings import DEFAULT_CREDENTIALS, Settings


class AggregatorSettings(Settings):
    """What the aggregator must know."""

    kubeconfig: str = Field("", description="A kubeconfig to use instead of the credentials.")
    credentials: str = Field(
        DEFAULT_CREDENTIALS, description="Directory with the token, ca.crt and namespace files."
    )
    listen_port: int = Field(
        names.AGENT_PORT, ge=0, le=65535, description="Port of /livez, /readyz and /metrics."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="What is logged."
    )
    lease: str = Field(
        "",
        description="Name of the Lease by which one of several replicas is chosen to work;"
        " without it every replica works.",
    )
    services: str = Field(
        "",
        description="Name of the ConfigMap that keeps which services are opted in;"
        " without it that is known only while a pod is there to tell.",
    )
    owner: str = Field(
        "", description="The Deployment with which Lease and ConfigMap go; by default they stay."
    )
    takeover: bool = Field(
        True,
        description="Whether LLMKube's finalizer is taken off the adapters of services that are opted in, once the"
        " ConfigMap names them, by which the chart's policy keeps LLMKube's own controller off.",
    )
    namespace: str = Field(
        "", description="Namespace of Lease and ConfigMap; by default that of the credentials."
    )
    identity: str = Field(
        "", description="What this replica calls itself in the Lease; by default the host's name."
    )
    webhook: str = Field(
        names.WEBHOOK,
        description="Name of the injector's MutatingWebhookConfiguration, which says why a pod has no agent.",
    )
