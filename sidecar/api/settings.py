"""The settings of our processes: each written once, read from environment or command line, written by the injector.

A bad value never stops a process: it becomes a warning and the default. Secrets are only ever read from files or
from the environment, never from the command line.
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sidecar.api import names
from sidecar.api.wanted import ALL_NAMESPACES

ENV_PREFIX: Final = "LORA_SIDECAR_"
SECRET_FIELDS: Final = frozenset({"api_key", "admin_key"})

DEFAULT_CREDENTIALS: Final = "/var/run/secrets/kubernetes.io/serviceaccount"

_PART: Final = re.compile(r"(?:\\.|[^,\\])+", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


class Settings(BaseModel):
    """Settings of one of our processes. Each field is `LORA_SIDECAR_<FIELD>` and, but for secrets, `--<field>`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @classmethod
    def lenient(cls, values: Mapping[str, str]) -> tuple[Self, list[str]]:
        """Build settings from texts; each bad value becomes a warning, and its default is used."""
        prepared: dict[str, Any] = {
            name: _split(value) if cls._is_list(name) else value
            for name, value in values.items()
            if name in cls.model_fields
        }
        warnings: list[str] = []
        while True:
            try:
                return cls.model_validate(prepared), warnings
            except ValidationError as error:
                for detail in error.errors():
                    name = str(detail["loc"][0])
                    if prepared.pop(name, None) is not None:
                        default = cls.model_fields[name].default
                        warnings.append(
                            f"{ENV_PREFIX}{name.upper()}: {detail['msg']}; using {default!r}"
                        )

    def to_env(self) -> dict[str, str]:
        """The environment that says these settings; what is at its default is left out."""
        fields = type(self).model_fields
        # All values at once: the injector does this for each pod.
        return {
            ENV_PREFIX + name.upper(): _text(value)
            for name, value in self.__dict__.items()
            if value != fields[name].default
        }

    @classmethod
    def from_env(cls, env: Mapping[str, str], **over: str) -> tuple[Self, list[str]]:
        """Read the environment; `over` (the command line) wins. Answers settings and warnings.

        An empty value is as good as none, but for lists: an empty list says that nothing is meant.
        """
        values = {name: env.get(ENV_PREFIX + name.upper()) for name in cls.model_fields}
        said = {name: value for name, value in values.items() if value or cls._is_list(name)}
        return cls.lenient({n: v for n, v in said.items() if v is not None} | over)

    @classmethod
    def from_command_line(
        cls, prog: str, description: str, arguments: Sequence[str] | None, env: Mapping[str, str]
    ) -> tuple[Self, list[str]]:
        """Read command line (None: that of the process) and environment; answers settings and warnings.

        Ends the process where an argument is unknown or help is asked for, as argparse does.
        """
        parser = argparse.ArgumentParser(prog=prog, description=description)
        for name, field in cls.model_fields.items():
            if name not in SECRET_FIELDS:
                flag = "--" + name.replace("_", "-")
                parser.add_argument(flag, help=f"{field.description} (default: {field.default!r})")
        given = vars(parser.parse_args(arguments))
        return cls.from_env(env, **{n: v for n, v in given.items() if v is not None})

    @classmethod
    def _is_list(cls, name: str) -> bool:
        return cls.model_fields[name].annotation == tuple[str, ...]


class AgentSettings(Settings):
    """What an agent must know."""

    pod_name: str = Field("", description="The pod's name.")
    pod_namespace: str = Field("default", description="The pod's namespace.")
    pod_uid: str = Field("", description="The pod's uid.")
    pod_ip: str = Field("", description="The pod's address, tried where loopback refuses.")
    node_name: str = Field("", description="The node's name.")
    service: str = Field("", description="The InferenceService whose adapters are loaded.")
    engine_port: int = Field(names.ENGINE_PORT, ge=1, le=65535, description="Where SGLang listens.")
    engine_hosts: tuple[str, ...] = Field(
        ("::1", "127.0.0.1"),
        min_length=1,
        description="Addresses of the engine, comma-separated, first tried first.",
    )
    engine_scheme: Literal["http", "https"] = Field(
        "http", description="How the engine is spoken to."
    )
    engine_certificate: str = Field(
        "",
        description="The engine's certificate file, to which https is pinned where it is readable.",
    )
    api_key_file: str = Field("", description="File with SGLang's api key, for reading.")
    admin_key_file: str = Field("", description="File with SGLang's admin key, for changing.")
    api_key: str = Field("", description="SGLang's api key itself.", repr=False)
    admin_key: str = Field("", description="SGLang's admin key itself.", repr=False)
    adapter_namespaces: tuple[str, ...] = Field(
        (ALL_NAMESPACES,), description="Whose LoRAAdapters may target this pod, comma-separated."
    )
    shared: tuple[str, ...] = Field(
        (), description="Mount points that the agent shares with the engine, comma-separated."
    )
    shared_root: str = Field(
        "/",
        description="Stands for the mounts where none are named, as outside Kubernetes;"
        " what is no absolute path stands for no mounts at all.",
    )
    trust_path: bool = Field(False, description="Load without looking at the files.")
    preflight: bool = Field(
        True,
        description="Whether adapters that are certain to fail in this engine are held back before a load.",
    )
    reload: Literal["auto", "on-change", "never"] = Field(
        "auto", description="Whether new weights at the same path are loaded."
    )
    readiness: bool = Field(False, description="Whether /readyz waits for the adapters.")
    readiness_timeout: float = Field(
        600.0,
        gt=0,
        allow_inf_nan=False,
        description="Seconds that one pending adapter may hold it.",
    )
    drift_interval: float = Field(
        4.0,
        ge=0.1,
        allow_inf_nan=False,
        description="Seconds between two looks at what the engine lists.",
    )
    settle: float = Field(
        0.5,
        ge=0,
        allow_inf_nan=False,
        description="Seconds that files must keep still on local disks before a load.",
    )
    listen_port: int = Field(
        names.AGENT_PORT,
        ge=0,
        le=65535,
        description="Port of /livez, /readyz, /metrics and /state.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="What is logged."
    )
    credentials: str = Field(
        DEFAULT_CREDENTIALS, description="Directory with the token, ca.crt and namespace files."
    )
    kubeconfig: str = Field("", description="A kubeconfig to use instead of the credentials.")
    manifests: str = Field(
        "", description="Directory of LoRAAdapter YAML files to use instead of the API server."
    )
    report_file: str = Field(
        "", description="Where the report is written as JSON when adapters come from manifests."
    )

    def allowed_namespaces(self) -> tuple[str, ...]:
        """Whose adapters are taken; bad or empty lists fall closed to the pod's own namespace."""
        return self.adapter_namespaces or (self.pod_namespace,)


def _split(value: str) -> tuple[str, ...]:
    r"""Read a comma list; a backslash takes the meaning from a comma, which a mount's path may hold."""
    parts = (_ESCAPED.sub(r"\1", part).strip() for part in _PART.findall(value))
    return tuple(part for part in parts if part)


def _text(value: bool | float | str | Sequence[str]) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    return ",".join(part.replace("\\", r"\\").replace(",", r"\,") for part in value)
