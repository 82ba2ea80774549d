"""Which pods a Kubernetes object makes: read from its manifest, as its controller would make them.

Values in, values out. A pod has no name of its own yet when it is reviewed, so it is called after its maker.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sidecar.api import names

_TEMPLATES: Final = {
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "Job": ("spec", "template"),
    "PodTemplate": ("template",),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
_AS_LLMKUBE: Final = "The pod is made as LLMKube makes it, but for the model's volume and what else it adds by itself."


@dataclass(frozen=True, slots=True)
class Made:
    """A pod and who makes it. `remark` is what a reader should know about how it was read."""

    maker: str
    namespace: str
    pod: dict[str, Any]
    remark: str = ""


class NotAnObjectError(ValueError):
    """A document that is no Kubernetes object; the words say what is wrong."""


def pods(document: Any, namespace: str) -> Iterator[Made | str]:
    """The pods of a document; of an object that makes none, its name. `namespace` counts where none is said.

    Raises NotAnObjectError.
    """
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise NotAnObjectError("a document is no Kubernetes object: it has no kind")
    kind = document["kind"]
    if kind.endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from pods(_typed(item, kind), namespace)
        return
    metadata = _part(document, "metadata")
    maker = f"{kind} {metadata.get('name') or metadata.get('generateName') or 'without a name'}"
    where = str(metadata.get("namespace") or namespace)
    if kind == "Pod":
        yield Made(maker, where, document, _misplaced(document, document, ""))
    elif kind in _TEMPLATES:
        pod = _from_template(document, _TEMPLATES[kind])
        yield Made(maker, where, pod, _misplaced(document, pod, "its pod template"))
    elif kind == names.SERVICE_KIND and _part(document, "spec").get("runtime") == "sglang":
        pod = _of_service(document)
        wrong = _misplaced(document, pod, "spec.podAnnotations")
        yield Made(maker, where, pod, wrong or _AS_LLMKUBE)
    else:
        yield maker


def _misplaced(document: dict[str, Any], pod: dict[str, Any], right: str) -> str:
    """Where the wish for an agent was written, if not where it counts: the commonest reason for having none."""
    metadata = _part(pod, "metadata")
    if names.INJECT in _part(metadata, "annotations"):
        return ""
    if names.INJECT in _part(metadata, "labels"):
        return f"{names.INJECT} is a label of the pod; it must be an annotation."
    if right and names.INJECT in _part(document, "metadata", "annotations"):
        return f"{names.INJECT} stands on the {document['kind']} itself; it belongs in {right}."
    return ""


def _typed(item: Any, kind: str) -> Any:
    """The items of a PodList and its like need not name their kind."""
    if kind == "List" or not isinstance(item, dict) or "kind" in item:
        return item
    return {"kind": kind.removesuffix("List"), **item}


def _part(document: Any, *way: str) -> dict[str, Any]:
    """An object within an object; raises NotAnObjectError where there is something else."""
    for step in way:
        document = document.get(step)
        if document is None:
            return {}
        if not isinstance(document, dict):
            raise NotAnObjectError(f"{step} is no object")
    return dict(document)


def _from_template(document: dict[str, Any], way: tuple[str, ...]) -> dict[str, Any]:
    template = _part(document, *way)
    name = _part(document, "metadata").get("name") or "unnamed"
    metadata = {"generateName": f"{name}-", **_part(template, "metadata")}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": _part(template, "spec"),
    }


def _of_service(document: dict[str, Any]) -> dict[str, Any]:
    """The pod of an InferenceService, in what counts for a decision."""
    spec, name = _part(document, "spec"), str(_part(document, "metadata").get("name") or "unnamed")
    port = spec.get("containerPort") or _part(spec, "endpoint").get("port") or names.ENGINE_PORT
    ours = {"app": name, names.SERVICE_LABEL: name, "inference.llmkube.dev/runtime": "sglang"}
    container = {
        "name": names.ENGINE_CONTAINER,
        "image": spec.get("image") or "lmsysorg/sglang",
        "command": ["python3", "-m", "sglang.launch_server"],
        "args": ["--port", str(port), "--host", "::", *(spec.get("extraArgs") or [])],
        "ports": [{"name": "http", "containerPort": port}],
        "env": list(spec.get("env") or []),
        "volumeMounts": list(spec.get("extraVolumeMounts") or []),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{name}-",
            "labels": _part(spec, "podLabels") | ours,
            "annotations": _part(spec, "podAnnotations"),
        },
        "spec": {"containers": [container], "volumes": list(spec.get("extraVolumes") or [])},
    }
