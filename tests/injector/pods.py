"""Pods as LLMKube's operator makes them, and RFC 6902's add, which is all that the injector uses."""

import copy
from typing import Any

from sidecar.api import names


def pod(*args: str, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    line = ["--model-path", "/models/m", "--host", "::", *args]
    return {
        "metadata": {
            "generateName": "chat-5d9f-",
            "labels": {"app": "chat", names.SERVICE_LABEL: "chat"},
            "annotations": {names.INJECT: "true"}
            | {f"{names.PREFIX}/{name}": value for name, value in (annotations or {}).items()},
        },
        "spec": {
            "containers": [
                {
                    "name": "sglang",
                    "image": "lmsysorg/sglang:v0.5.21",
                    "command": ["python3", "-m", "sglang.launch_server"],
                    "args": line,
                    "ports": [{"name": "http", "containerPort": 30000}],
                    "volumeMounts": [{"name": "adapters", "mountPath": "/adapters"}],
                }
            ],
            "volumes": [{"name": "adapters", "persistentVolumeClaim": {"claimName": "adapters"}}],
        }
        | spec,
    }


def apply(document: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    result: Any = copy.deepcopy(document)
    for operation in operations:
        assert operation["op"] == "add"
        *way, last = [
            p.replace("~1", "/").replace("~0", "~") for p in operation["path"][1:].split("/")
        ]
        target = result
        for part in way:
            target = target[part]
        if isinstance(target, list):
            assert last == "-"
            target.append(copy.deepcopy(operation["value"]))
        else:
            target[last] = copy.deepcopy(operation["value"])
    return dict(result)
