"""The annotations by which a pod opts in and sets its agent up: each declared once, with type, default and a sentence.

The injector reads them, `explain` and the documentation print them. Reading never fails: a bad value is a warning
and the default.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from sidecar.api import names


@dataclass(frozen=True, slots=True)
class Annotation:
    """One annotation. `check` answers what is wrong with a value, or None."""

    name: str
    values: str
    default: str
    sentence: str
    check: Callable[[str], str | None]

    @property
    def key(self) -> str:
        """As it stands on a pod."""
        return f"{names.PREFIX}/{self.name}"


_PORT: Final = re.compile(r"[0-9]{1,5}")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SECRET_KEY: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_DURATION_PART: Final = re.compile(r"([0-9]{1,9})([hms])")
_QUANTITY: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")


def _quoted(value: str) -> str:
    return repr(value if len(value) <= 64 else value[:61] + "...")


def _any(value: str) -> str | None:
    return None if value.strip() else "it is empty"


def _name(value: str) -> str | None:
    if _SUBDOMAIN.fullmatch(value) and len(value) <= 63:
        return None
    return f"{_quoted(value)} is not a name that Kubernetes takes"


def _image(value: str) -> str | None:
    return None if value and value.isprintable() and " " not in value else "it is not an image"


def _quantity(value: str) -> str | None:
    if _QUANTITY.fullmatch(value) and value.strip("0.mkMGTPEi"):
        return None
    return f"{_quoted(value)} is not a quantity such as 10m, 0.5 or 64Mi"


def _one_of(*choices: str) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        return None if value in choices else f"{_quoted(value)} is none of {', '.join(choices)}"

    return check


def _port(value: str) -> str | None:
    if _PORT.fullmatch(value) and 1 <= int(value) <= 65535:
        return None
    return f"{_quoted(value)} is not a port from 1 to 65535"


def _secret(value: str) -> str | None:
    name, _, key = value.partition("/")
    if _SUBDOMAIN.fullmatch(name) and len(name) <= 253 and _SECRET_KEY.fullmatch(key):
        return None
    return f"{_quoted(value)} is not of the form secret/key"


def _duration(value: str) -> str | None:
    if seconds(value):
        return None
    return f"{_quoted(value)} is not a duration such as 90s, 10m or 1h"


def seconds(value: str) -> float | None:
    """Read a duration such as "90s", "10m" or "1h30m" as seconds; None where it is none."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0}
    parts = _DURATION_PART.findall(value)
    if not parts or "".join(digits + unit for digits, unit in parts) != value:
        return None
    return sum(int(digits) * units[unit] for digits, unit in parts)


BOOLEAN: Final = _one_of("true", "false")

ANNOTATIONS: Final = (
    Annotation("inject", '"true" or "false"', "", "Opts the pod in.", BOOLEAN),
    Annotation(
        "service",
        "a name",
        "",
        "The InferenceService, where the pod lacks LLMKube's label.",
        _name,
    ),
    Annotation(
        "container",
        "a name",
        "sglang, else the only one that launches SGLang",
        "The engine's container.",
        _name,
    ),
    Annotation(
        "engine-port",
        "1 to 65535",
        "--port in the args, else the port named http, else 30000",
        "Where the engine listens.",
        _port,
    ),
    Annotation(
        "api-key-secret",
        "secret/key",
        "what the engine's args and environment name",
        "SGLang's api key, which the agent needs for reading.",
        _secret,
    ),
    Annotation(
        "admin-key-secret",
        "secret/key",
        "what the engine's args and environment name",
        "SGLang's admin key, which the agent needs for loading and unloading.",
        _secret,
    ),
    Annotation(
        "adapter-namespaces",
        "comma list or *",
        "*",
        "Whose LoRAAdapters may target this pod.",
        _any,
    ),
    Annotation(
        "mode",
        "auto, native or container",
        "auto",
        "Native sidecar (from Kubernetes 1.29) or ordinary container.",
        _one_of("auto", "native", "container"),
    ),
    Annotation(
        "readiness",
        '"true" or "false"',
        "false",
        "No traffic before the adapters are there.",
        BOOLEAN,
    ),
    Annotation(
        "readiness-timeout",
        "a duration",
        "10m",
        "How long one pending adapter may hold the pod's readiness.",
        _duration,
    ),
    Annotation(
        "trust-path", '"true" or "false"', "false", "Load without looking at the files.", BOOLEAN
    ),
    Annotation(
        "reload",
        "auto, on-change or never",
        "auto",
        "Whether new weights at the same path are loaded. auto: from SGLang 0.5.22, below which an"
        " unload may hang for ever.",
        _one_of("auto", "on-change", "never"),
    ),
    Annotation(
        "log-level",
        "debug, info, warning or error",
        "info",
        "What the agent logs.",
        _one_of("debug", "info", "warning", "error"),
    ),
    Annotation("cpu-request", "a quantity", "10m", "CPU that the agent asks for.", _quantity),
    Annotation(
        "memory-request", "a quantity", "64Mi", "Memory that the agent asks for.", _quantity
    ),
    Annotation("cpu-limit", "a quantity", "500m", "CPU that the agent may use.", _quantity),
    Annotation("memory-limit", "a quantity", "192Mi", "Memory that the agent may use.", _quantity),
    Annotation("image", "an image", "the injector's setting", "The agent's image.", _image),
)
"""Those that a user sets on pods, by an InferenceService's spec.podAnnotations."""

ON_ADAPTERS: Final = (
    Annotation(
        "pinned",
        '"true" or "false"',
        "false",
        "SGLang keeps the adapter from eviction; an edit counts at the next load.",
        BOOLEAN,
    ),
    Annotation(
        "retry",
        "anything new",
        "",
        "Forgets failures and quarantine of this adapter, and tries again now.",
        _any,
    ),
)
"""Those that a user sets on a LoRAAdapter."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One label or annotation that the injector leaves on a pod."""

    key: str
    kind: Literal["label", "annotation"]
    values: str
    sentence: str


MARKS: Final = (
    Mark(
        names.INJECTED_LABEL,
        "label",
        '"true" or "false"',
        "Whether the pod, which opted in, was given the agent.",
    ),
    Mark(
        names.INJECTED_VERSION,
        "annotation",
        "a version",
        "The version of the injector that gave it.",
    ),
    Mark(
        names.INJECTED_CONTAINER,
        "annotation",
        "a container's name",
        "The engine's container, as the injector found it.",
    ),
    Mark(
        names.SKIPPED,
        "annotation",
        "a word",
        "Why a pod that opted in was not given the agent.",
    ),
)
"""What the injector writes on pods."""
