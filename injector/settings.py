"""What an injector must know, as the chart sets it: what pods are given, and how the webhook itself is served.

What a user says on a pod by annotation wins over the former; `decide` joins the two.
"""

from typing import Final, Literal

from pydantic import Field

from sidecar import __version__
from sidecar.api import names
from sidecar.api.settings import DEFAULT_CREDENTIALS, Settings

NATIVE_SINCE: Final = (1, 29)
"""The first Kubernetes that runs native sidecars without a feature gate."""
_QUANTITY: Final = r"^[0-9]{1,15}(\.[0-9]{1,9})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"


class InjectorSettings(Settings):
    """Settings of the injector, read from `LORA_SIDECAR_<FIELD>`."""

    image: str = Field(
        f"lora-sidecar:{__version__}", min_length=1, description="The agent's image."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        "IfNotPresent", description="When the agent's image is pulled."
    )
    pull_secrets: tuple[str, ...] = Field(
        (), description="Pull secrets that pods are given besides their own, comma-separated."
    )
    cpu_request: str = Field("10m", pattern=_QUANTITY, description="CPU that an agent asks for.")
    memory_request: str = Field(
        "64Mi", pattern=_QUANTITY, description="Memory that an agent asks for."
    )
    cpu_limit: str = Field("500m", pattern=_QUANTITY, description="CPU that an agent may use.")
    memory_limit: str = Field(
        "192Mi", pattern=_QUANTITY, description="Memory that an agent may use."
    )
    on_error: Literal["deny", "allow"] = Field(
        "deny", description="What becomes of an opted-in pod that we fail on."
    )
    kubernetes_version: str = Field(
        "1.31", pattern=r"^v?\d+\.\d+", description="The cluster's version, for the mode auto."
    )
    webhook: str = Field(
        names.WEBHOOK, description="Name of the MutatingWebhookConfiguration that calls us."
    )
    webhook_port: int = Field(9443, ge=0, le=65535, description="Port of the webhook itself.")
    service: str = Field(
        "lora-sidecar-injector", description="The Service by which the API server calls us."
    )
    hosts: tuple[str, ...] = Field(
        (),
        description="Host names by which the API server calls us, comma-separated, instead of the Service's.",
    )
    namespace: str = Field(
        "", description="Namespace of Service and Secret; by default that of the credentials."
    )
    secret: str = Field(
        "lora-sidecar-injector-tls",
        min_length=1,
        description="The Secret in which we keep our own authority and certificate.",
    )
    owner: str = Field(
        "", description="The Deployment with which that Secret goes; by default it stays."
    )
    certificates: str = Field(
        "",
        description="Directory with tls.crt and tls.key of somebody else, such as cert-manager, instead of our own.",
    )
    listen_port: int = Field(
        names.AGENT_PORT, ge=0, le=65535, description="Port of /livez, /readyz and /metrics."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="What is logged."
    )
    credentials: str = Field(
        DEFAULT_CREDENTIALS, description="Directory with the token, ca.crt and namespace files."
    )
    kubeconfig: str = Field("", description="A kubeconfig to use instead of the credentials.")

    def native(self) -> bool:
        """Whether the cluster runs native sidecars."""
        major, minor = self.kubernetes_version.lstrip("v").split(".")[:2]
        digits = "".join(c for c in minor if c.isdigit())
        return (int(major), int(digits)) >= NATIVE_SINCE

    def host_names(self, namespace: str) -> tuple[str, ...]:
        """The host names that the certificate must hold where the Service is in `namespace`."""
        name = f"{self.service}.{namespace}.svc"
        return self.hosts or (name, f"{name}.cluster.local")
