"""Pods as LLMKube's operator makes them, in what counts."""

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
