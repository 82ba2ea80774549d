"""The annotations by which a pod opts in and sets its agent up: each declared once, with type, default and a sentence.

The injector reads them, `explain` and the documentation print them. Reading never fails: a bad value is a warning
and the default.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

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


def _any(value: str) -> str | None:
    return None if value.strip() else "it is empty"


def _one_of(*choices: str) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        return None if value in choices else f"{value!r} is none of {', '.join(choices)}"

    return check


def _port(value: str) -> str | None:
    if value.isascii() and value.isdigit() and 1 <= int(value) <= 65535:
        return None
    return f"{value!r} is not a port from 1 to 65535"


def _secret(value: str) -> str | None:
    name, _, key = value.partition("/")
    return None if name and key and "/" not in key else f"{value!r} is not of the form secret/key"


def _duration(value: str) -> str | None:
    return (
        None
        if seconds(value) is not None
        else f"{value!r} is not a duration such as 90s, 10m or 1h"
    )


def seconds(value: str) -> float | None:
    """Read a duration such as "90s", "10m" or "1h30m" as seconds; None where it is none."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0}
    total, digits = 0.0, ""
    for letter in value:
        if letter.isascii() and letter.isdigit():
            digits += letter
        elif digits and letter in units:
            total, digits = total + int(digits) * units[letter], ""
        else:
            return None
    return total if value and not digits else None


BOOLEAN: Final = _one_of("true", "false")

ANNOTATIONS: Final = (
    Annotation("inject", '"true" or "false"', "", "Opts the pod in.", BOOLEAN),
    Annotation(
        "service",
        "a name",
        "",
        "The InferenceService, where the pod lacks LLMKube's label.",
        _any,
    ),
    Annotation(
        "container",
        "a name",
        "sglang, else the only one that launches SGLang",
        "The engine's container.",
        _any,
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
    Annotation("cpu-request", "a quantity", "10m", "CPU that the agent asks for.", _any),
    Annotation("memory-request", "a quantity", "64Mi", "Memory that the agent asks for.", _any),
    Annotation("cpu-limit", "a quantity", "500m", "CPU that the agent may use.", _any),
    Annotation("memory-limit", "a quantity", "192Mi", "Memory that the agent may use.", _any),
    Annotation("image", "an image", "the injector's setting", "The agent's image.", _any),
)
