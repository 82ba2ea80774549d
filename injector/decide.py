"""Whether a pod is given the agent, and everything that its container shall be: pure, from the pod and our settings.

Answers a `Plan` or a `Skip` with a slug and a sentence. A bad annotation never denies a pod: it is a warning and the
default, but adapter-namespaces, which falls closed to the pod's own namespace. `patch` writes the plan down.
"""

from dataclasses import dataclass
from typing import Any, Final

from injector import engine, mounts
from injector.settings import InjectorSettings
from sidecar.api import names
from sidecar.api.annotations import ANNOTATIONS, Annotation, seconds
from sidecar.api.sentenced import Sentenced
from sidecar.api.settings import AgentSettings

CREDENTIALS: Final = "/var/run/secrets/lora-sidecar"
"""Where the agent finds its token, and the engine's keys."""


class Slug(Sentenced):
    """Why a pod is not given the agent, each declared once with its sentence."""

    NOT_ASKED = ("not-asked", "The pod does not ask for the agent.")
    BAD_INJECT = (
        "bad-inject",
        f'The annotation {names.INJECT} is neither "true" nor "false".',
    )
    ALREADY = ("already-injected", "The pod has the agent's container already.")
    WINDOWS = ("windows", "The pod is one for Windows nodes, which SGLang does not run on.")
    NO_SERVICE = (
        "no-service",
        f"Neither the label {names.SERVICE_LABEL} nor the annotation {names.SERVICE} names the service.",
    )
    NO_ENGINE = ("no-engine", f"No container launches SGLang; {names.CONTAINER} can name it.")
    SEVERAL_ENGINES = (
        "several-engines",
        f"More than one container launches SGLang; {names.CONTAINER} must name one.",
    )
    NO_SUCH_CONTAINER = ("no-such-container", f"The pod lacks the container of {names.CONTAINER}.")
    NAME_TAKEN = ("name-taken", f"The pod has another volume named {names.AGENT_CONTAINER}.")


@dataclass(frozen=True, slots=True)
class Skip:
    """No agent for this pod. `marked`: it had opted in, so the pod shall say why."""

    slug: Slug
    marked: bool
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The agent that a pod is given."""

    container: str
    settings: AgentSettings
    native: bool
    image: str
    pull_policy: str
    pull_secrets: tuple[str, ...]
    requests: dict[str, str]
    limits: dict[str, str]
    shared: mounts.Shared
    api_key: engine.Key | None
    admin_key: engine.Key | None
    warnings: tuple[str, ...]


class Said:
    """The annotations of a pod, read by their table; what is wrong with them gathers in `warnings`."""

    def __init__(self, annotations: dict[str, str]) -> None:
        self.warnings: list[str] = []
        self._good: dict[str, str] = {}
        for declared in ANNOTATIONS:
            self._take(declared, annotations.get(declared.key))

    def _take(self, declared: Annotation, value: str | None) -> None:
        if value is None:
            return
        wrong = declared.check(value)
        if wrong is None or declared.name == "adapter-namespaces":
            self._good[declared.name] = value
        else:
            self.warnings.append(
                f"{declared.key}: {wrong}; using the default ({declared.default or 'none'})"
            )

    def get(self, name: str) -> str | None:
        """What a user said, None where that is nothing or wrong."""
        return self._good.get(name)

    def namespaces(self, own: str) -> tuple[str, ...]:
        """Whose adapters are allowed; bad entries are dropped, and an empty rest is the pod's own namespace."""
        value = self.get("adapter-namespaces")
        if value is None:
            return ("*",)
        check = next(a.check for a in ANNOTATIONS if a.name == "service")
        entries = [part.strip() for part in value.split(",")]
        good = tuple(e for e in entries if e == "*" or ("." not in e and check(e) is None))
        if len(good) < len(entries):
            self.warnings.append(
                f"{names.PREFIX}/adapter-namespaces: what is no namespace is left out; allowed are"
                f" {', '.join(good or (own,))}"
            )
        return good or (own,)


def decide(pod: dict[str, Any], namespace: str, settings: InjectorSettings) -> Plan | Skip:
    """Decide on a pod about to be created in `namespace`."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    asked = annotations.get(names.INJECT, "false")
    if asked == "false":
        return Skip(Slug.NOT_ASKED, marked=False)
    if asked != "true":
        return Skip(Slug.BAD_INJECT, marked=False, warnings=(Slug.BAD_INJECT.sentence,))
    said = Said(annotations)
    service = (metadata.get("labels") or {}).get(names.SERVICE_LABEL) or said.get("service")
    found = engine.find(spec.get("containers") or [], said.get("container"))
    slug = _unfit(spec) or _unclear(service, found, said)
    if slug is Slug.ALREADY:
        return Skip(slug, marked=False)
    if slug:
        return Skip(slug, marked=True, warnings=(slug.sentence, *said.warnings))
    return _plan(spec, found[0], str(service), namespace, said, settings)


def _unfit(spec: dict[str, Any]) -> Slug | None:
    if any(c.get("name") == names.AGENT_CONTAINER for c in _containers(spec)):
        return Slug.ALREADY
    if (spec.get("os") or {}).get("name") == "windows":
        return Slug.WINDOWS
    taken = any(v.get("name") == names.AGENT_CONTAINER for v in spec.get("volumes") or [])
    return Slug.NAME_TAKEN if taken else None


def _containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]


def _unclear(service: str | None, found: list[dict[str, Any]], said: Said) -> Slug | None:
    if not service:
        return Slug.NO_SERVICE
    if not found:
        return Slug.NO_SUCH_CONTAINER if said.get("container") else Slug.NO_ENGINE
    return Slug.SEVERAL_ENGINES if len(found) > 1 else None


def _plan(
    spec: dict[str, Any],
    container: dict[str, Any],
    service: str,
    namespace: str,
    said: Said,
    settings: InjectorSettings,
) -> Plan:
    taken = mounts.shared(container, spec.get("volumes") or [])
    keys = {name: _key(container, name, said) for name in ("api-key", "admin-key")}
    agent = _agent(spec, container, said, keys, taken)
    agent |= {"service": service, "adapter_namespaces": said.namespaces(namespace)}
    native = _native(said, settings)
    return Plan(
        container=container["name"],
        settings=AgentSettings.model_validate(agent),
        native=native,
        image=said.get("image") or settings.image,
        pull_policy=settings.image_pull_policy,
        pull_secrets=settings.pull_secrets,
        requests={
            "cpu": said.get("cpu-request") or settings.cpu_request,
            "memory": said.get("memory-request") or settings.memory_request,
            "ephemeral-storage": "16Mi",
        },
        limits={
            "cpu": said.get("cpu-limit") or settings.cpu_limit,
            "memory": said.get("memory-limit") or settings.memory_limit,
            "ephemeral-storage": "64Mi",
        },
        shared=taken,
        api_key=keys["api-key"],
        admin_key=keys["admin-key"],
        warnings=(*said.warnings, *taken.warnings),
    )


def _agent(
    spec: dict[str, Any],
    container: dict[str, Any],
    said: Said,
    keys: dict[str, engine.Key | None],
    taken: mounts.Shared,
) -> dict[str, Any]:
    port = int(said.get("engine-port") or engine.port(container))
    certificate = engine.certificate(container)
    agent: dict[str, Any] = {
        "engine_port": port,
        "engine_scheme": "https" if certificate else "http",
        "engine_certificate": certificate or "",
        "credentials": CREDENTIALS,
        "listen_port": _free_port(spec, container, port),
        "shared": tuple(m["mountPath"] for m in taken.mounts),
        "trust_path": said.get("trust-path") == "true",
        "readiness": said.get("readiness") == "true",
        "readiness_timeout": seconds(said.get("readiness-timeout") or "10m"),
        "reload": said.get("reload") or "auto",
        "log_level": said.get("log-level") or "info",
    }
    for name, key in keys.items():
        if key and key.secret:
            agent[f"{name.replace('-', '_')}_file"] = f"{CREDENTIALS}/{name}"
    return agent


def _key(container: dict[str, Any], name: str, said: Said) -> engine.Key | None:
    named = said.get(f"{name}-secret")
    if named:
        secret, _, item = named.partition("/")
        return engine.Key(secret=(secret, item))
    return engine.key(container, f"--{'admin-' if name == 'admin-key' else ''}api-key")


def _free_port(spec: dict[str, Any], container: dict[str, Any], engine_port: int) -> int:
    taken = {p.get("containerPort") for c in _containers(spec) for p in c.get("ports") or []}
    line = engine.words(container)
    for name in ("--nccl-port", "--dist-init-addr"):
        digits = (engine.option(line, name) or "").rpartition(":")[2]
        taken.add(int(digits) if digits.isdecimal() else None)
    taken.add(engine_port)
    port = names.AGENT_PORT
    while port in taken:
        port += 1
    return port


def _native(said: Said, settings: InjectorSettings) -> bool:
    mode = said.get("mode") or "auto"
    if mode == "native" and not settings.native():
        said.warnings.append(
            f"{names.PREFIX}/mode: native sidecars need Kubernetes 1.29; using an ordinary container"
        )
    return mode != "container" and settings.native()
