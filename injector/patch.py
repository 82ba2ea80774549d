"""A decision written down as RFC 6902 operations on the raw pod: built directly, so that unknown fields survive.

Adds one container, one projected volume, the marks and the pull secrets, and nothing else; for a pod that has all of
it there is nothing to do.
"""

from typing import Any, Final

from injector.decide import Plan, Skip
from injector.engine import Key
from injector.mounts import CREDENTIALS
from sidecar import __version__
from sidecar.api import names
from sidecar.api.settings import ENV_PREFIX

USER: Final = 65532
_DOWNWARD: Final = {
    "POD_NAME": "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "POD_UID": "metadata.uid",
    "POD_IP": "status.podIP",
    "NODE_NAME": "spec.nodeName",
}

Operation = dict[str, Any]


def patch(pod: dict[str, Any], decision: Plan | Skip) -> list[Operation]:
    """The operations that carry a decision out; none where nothing is to be done."""
    if isinstance(decision, Skip):
        if not decision.marked:
            return []
        labels = {names.INJECTED_LABEL: "false"}
        return _marks(pod, labels, {names.SKIPPED: decision.slug.value})
    spec = pod.get("spec") or {}
    annotations = {
        names.INJECTED_VERSION: __version__,
        names.INJECTED_CONTAINER: decision.container,
    }
    field = "initContainers" if decision.native else "containers"
    have = {s.get("name") for s in spec.get("imagePullSecrets") or []}
    secrets = [{"name": n} for n in dict.fromkeys(decision.pull_secrets) if n not in have]
    stale = names.SKIPPED in ((pod.get("metadata") or {}).get("annotations") or {})
    return [
        *_append(spec, field, [_container(decision)]),
        *_append(spec, "volumes", [_volume(decision)]),
        *_append(spec, "imagePullSecrets", secrets),
        *_marks(pod, {names.INJECTED_LABEL: "true"}, annotations),
        # Of an earlier look at the same pod, before another webhook added what was missing.
        *([{"op": "remove", "path": f"/metadata/annotations/{_escaped(names.SKIPPED)}"}] * stale),
    ]


def _append(spec: dict[str, Any], field: str, items: list[dict[str, Any]]) -> list[Operation]:
    if not items:
        return []
    have = spec.get(field)
    if have is None:
        return [{"op": "add", "path": f"/spec/{field}", "value": items}]
    if not isinstance(have, list):
        raise TypeError(f"{field} is no list")
    return [{"op": "add", "path": f"/spec/{field}/-", "value": item} for item in items]


def _marks(
    pod: dict[str, Any], labels: dict[str, str], annotations: dict[str, str]
) -> list[Operation]:
    metadata = pod.get("metadata") or {}
    operations: list[Operation] = []
    for field, wanted in (("labels", labels), ("annotations", annotations)):
        have = metadata.get(field)
        if have is None:
            operations.append({"op": "add", "path": f"/metadata/{field}", "value": wanted})
            continue
        operations += [
            {"op": "add", "path": f"/metadata/{field}/{_escaped(name)}", "value": value}
            for name, value in wanted.items()
            if have.get(name) != value
        ]
    return operations


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _container(plan: Plan) -> dict[str, Any]:
    own = {"name": names.AGENT_CONTAINER, "mountPath": CREDENTIALS, "readOnly": True}
    container: dict[str, Any] = {
        "name": names.AGENT_CONTAINER,
        "image": plan.image,
        "imagePullPolicy": plan.pull_policy,
        "command": ["python", "-m", "sidecar.agent"],
        "env": _env(plan),
        "resources": {"requests": plan.requests, "limits": plan.limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsGroup": USER,
            "runAsNonRoot": True,
            "runAsUser": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [own, *plan.shared.mounts],
    }
    if plan.names_port:
        port = {"name": names.AGENT_CONTAINER, "containerPort": plan.settings.listen_port}
        container["ports"] = [port | {"protocol": "TCP"}]
    if plan.native:
        container["restartPolicy"] = "Always"
    if plan.settings.readiness:
        probe = {"path": "/readyz", "port": plan.settings.listen_port}
        container["readinessProbe"] = {"httpGet": probe, "periodSeconds": 2}
    return container


def _env(plan: Plan) -> list[dict[str, Any]]:
    env: list[dict[str, Any]] = [
        {"name": ENV_PREFIX + name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in _DOWNWARD.items()
    ]
    env += [_literal(name, value) for name, value in plan.settings.to_env().items()]
    for name, key in (("API_KEY", plan.api_key), ("ADMIN_KEY", plan.admin_key)):
        if key and key.source:
            env.append({"name": ENV_PREFIX + name, "valueFrom": key.source})
        elif key and key.value:
            env.append(_literal(ENV_PREFIX + name, key.value))
    return [*env, *plan.shared.env]


def _literal(name: str, value: str) -> dict[str, Any]:
    # Kubernetes expands $(NAME) in values; "$$" is how it is told a plain "$".
    return {"name": name, "value": value.replace("$", "$$")}


def _volume(plan: Plan) -> dict[str, Any]:
    field = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
    root = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    sources: list[dict[str, Any]] = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
        {"configMap": root},
        {"downwardAPI": {"items": [field]}},
    ]
    sources += _secret("api-key", plan.api_key) + _secret("admin-key", plan.admin_key)
    return {"name": names.AGENT_CONTAINER, "projected": {"sources": sources}}


def _secret(path: str, key: Key | None) -> list[dict[str, Any]]:
    if not key or not key.secret:
        return []
    name, item = key.secret
    items = [{"key": item, "path": path}]
    return [{"secret": {"name": name, "optional": True, "items": items}}]
