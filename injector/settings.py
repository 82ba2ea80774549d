"""What an injector must know: the image that it adds and the resources it asks for, as the chart sets them.

What a user says on a pod by annotation wins over these; `decide` joins the two.
"""

from typing import Final, Literal

from pydantic import Field

from sidecar.api.settings import Settings

NATIVE_SINCE: Final = (1, 29)
"""The first Kubernetes that runs native sidecars without a feature gate."""


class InjectorSettings(Settings):
    """Settings of the injector, read from `LORA_SIDECAR_<FIELD>`."""

    image: str = Field("lora-sidecar:0.1.0", min_length=1, description="The agent's image.")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        "IfNotPresent", description="When the agent's image is pulled."
    )
    pull_secrets: tuple[str, ...] = Field(
        (), description="Pull secrets that pods are given besides their own, comma-separated."
    )
    cpu_request: str = Field("10m", min_length=1, description="CPU that an agent asks for.")
    memory_request: str = Field("64Mi", min_length=1, description="Memory that an agent asks for.")
    cpu_limit: str = Field("500m", min_length=1, description="CPU that an agent may use.")
    memory_limit: str = Field("192Mi", min_length=1, description="Memory that an agent may use.")
    on_error: Literal["deny", "allow"] = Field(
        "deny", description="What becomes of an opted-in pod that we fail on."
    )
    kubernetes_version: str = Field(
        "1.31", pattern=r"^v?\d+\.\d+", description="The cluster's version, for the mode auto."
    )

    def native(self) -> bool:
        """Whether the cluster runs native sidecars."""
        major, minor = self.kubernetes_version.lstrip("v").split(".")[:2]
        digits = "".join(c for c in minor if c.isdigit())
        return (int(major), int(digits)) >= NATIVE_SINCE
