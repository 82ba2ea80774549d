"""Whether a pod is given the agent, and everything that its container shall be: pure, from the pod and our settings.

Answers a `Plan` or a `Skip` with a slug and a sentence. A bad annotation never denies a pod: it is a warning and the
default, but adapter-namespaces, which falls closed to the pod's own namespace. `patch` writes the plan down.
"""

from dataclasses import dataclass
from typing import Any

from injector import engine, mounts, resources
from injector.annotated import Said
from injector.settings import InjectorSettings
from sidecar.api import names
from sidecar.api.annotations import seconds
from sidecar.api.sentenced import Sentenced
from sidecar.api.settings import AgentSettings


class Slug(Sentenced):
    """Why a pod is not given the agent, each declared once with its sentence."""

    NOT_ASKED = (
        "not-asked",
        f'The pod does not ask for the agent: the annotation {names.INJECT} is not "true".',
    )
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
    names_port: bool
    """Whether the container names its port for Prometheus. In the node's network that would reserve it on the node."""
    image: str
    pull_policy: str
    pull_secrets: tuple[str, ...]
    requests: dict[str, str]
    limits: dict[str, str]
    shared: mounts.Shared
    api_key: engine.Key | None
    admin_key: engine.Key | None
    warnings: tuple[str, ...]


def told(decision: Plan | Skip) -> tuple[str, str, str]:
    """A decision in one word, a slug and a sentence."""
    if isinstance(decision, Skip):
        return "skip", decision.slug.value, decision.slug.sentence
    kind = "a native sidecar" if decision.native else "an ordinary container"
    return "inject", "injected", f"The agent is added beside {decision.container} as {kind}."


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
    line = engine.Line(container)
    keys = {name: _key(line, name, said) for name in ("api-key", "admin-key")}
    requests, limits = resources.read(said, settings)
    resources.tell_class(spec, requests, limits, said)
    resources.tell_room(spec, requests, said)
    agent = _agent(spec, container, line, said, keys, taken)
    agent |= {"service": service, "adapter_namespaces": said.namespaces(namespace)}
    native = _native(said, settings)
    if not taken.mounts and not agent["trust_path"]:
        said.warnings.append(
            "the agent can share none of the engine's mounts, so it sees no adapter's files;"
            f" {names.PREFIX}/trust-path loads without looking"
        )
    return Plan(
        container=container["name"],
        settings=AgentSettings.model_validate(agent),
        native=native,
        names_port=spec.get("hostNetwork") is not True,
        image=said.get("image") or settings.image,
        pull_policy=settings.image_pull_policy,
        pull_secrets=settings.pull_secrets,
        requests=requests,
        limits=limits,
        shared=taken,
        api_key=keys["api-key"],
        admin_key=keys["admin-key"],
        warnings=(*said.warnings, *taken.warnings),
    )


def _agent(
    spec: dict[str, Any],
    container: dict[str, Any],
    line: engine.Line,
    said: Said,
    keys: dict[str, engine.Key | None],
    taken: mounts.Shared,
) -> dict[str, Any]:
    port = _engine_port(container, line, said)
    certificate = line.read("--ssl-certfile")
    agent: dict[str, Any] = {
        "engine_port": port,
        "engine_scheme": "https" if certificate else "http",
        "engine_certificate": (certificate.value if certificate else "") or "",
        "credentials": mounts.CREDENTIALS,
        "listen_port": _free_port(spec, line, port),
        "shared": tuple(m["mountPath"] for m in taken.mounts),
        # The agent's own root would else stand for the mounts.
        "shared_root": "/" if taken.mounts else "none",
        "trust_path": said.get("trust-path") == "true",
        "readiness": said.get("readiness") == "true",
        "readiness_timeout": seconds(said.get("readiness-timeout") or "10m"),
        "reload": said.get("reload") or "auto",
        "log_level": said.get("log-level") or "info",
    }
    for name, key in keys.items():
        if key and key.secret:
            agent[f"{name.replace('-', '_')}_file"] = f"{mounts.CREDENTIALS}/{name}"
    return agent


def _key(line: engine.Line, name: str, said: Said) -> engine.Key | None:
    named = said.get(f"{name}-secret")
    if named:
        secret, _, item = named.partition("/")
        return engine.Key(secret=(secret, item))
    option = f"--{'admin-' if name == 'admin-key' else ''}api-key"
    key = line.key(option)
    if key is None or key.known:
        return key
    said.warnings.append(
        f"the engine's {option} cannot be told from the pod, so the agent lacks it;"
        f" {names.PREFIX}/{name}-secret can name the Secret"
    )
    return None


def _engine_port(container: dict[str, Any], line: engine.Line, said: Said) -> int:
    if value := said.get("engine-port"):
        return int(value)
    port, option = engine.port(container, line), line.read("--port")
    if option and not engine.is_port(option.value):
        said.warnings.append(
            f"the engine's --port cannot be told from the pod, {port} is assumed;"
            f" {names.PREFIX}/engine-port can say it"
        )
    return port


def _free_port(spec: dict[str, Any], line: engine.Line, engine_port: int) -> int:
    taken = {p.get("containerPort") for c in _containers(spec) for p in c.get("ports") or []}
    for name in ("--nccl-port", "--dist-init-addr"):
        option = line.read(name)
        digits = ((option.value if option else "") or "").rpartition(":")[2]
        taken.add(int(digits) if engine.is_port(digits) else None)
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
