"""Values for the tests of the agent's pure parts: everything has a default but what a test is about."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sidecar.agent.answers import Answer, Kind, ServerInfo
from sidecar.agent.pathview import PathState, PathView
from sidecar.agent.state import EngineView, Me, World
from sidecar.api.adapter import LoRAAdapter
from sidecar.api.reasons import EngineState
from sidecar.api.wanted import wants

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ME = Me(pod="pod-0", namespace="ns")


def adapter(
    name: str = "a",
    *,
    handle: str | None = None,
    path: str | None = None,
    namespace: str = "ns",
    uid: str | None = None,
    generation: int = 1,
    deleting: bool = False,
    created: datetime = NOON,
    retry: str = "",
    pinned: bool = False,
) -> LoRAAdapter:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "generation": generation,
        "creationTimestamp": created.isoformat(),
        "annotations": {},
    }
    if deleting:
        metadata["deletionTimestamp"] = NOON.isoformat()
    if retry:
        metadata["annotations"]["lora-sidecar.llmkube.dev/retry"] = retry
    if pinned:
        metadata["annotations"]["lora-sidecar.llmkube.dev/pinned"] = "true"
    return LoRAAdapter.read(
        {
            "metadata": metadata,
            "spec": {
                "inferenceServiceRef": {"name": "svc", "namespace": "ns"},
                "name": handle or name,
                "path": path or f"/adapters/{name}",
            },
        }
    )


def info(version: str = "0.5.23", **over: Any) -> ServerInfo:
    values: dict[str, Any] = {
        "model_path": "/models/base",
        "served_model_name": "base",
        "enable_lora": True,
        "max_loras_per_batch": 8,
        "max_loaded_loras": None,
        "max_lora_rank": 16,
        "lora_target_modules": ("q_proj",),
        "startup_adapters": {},
        "dp_size": 1,
        "tp_size": 1,
        "nnodes": 1,
        "node_rank": 0,
        "tokenizer_worker_num": 1,
        "enable_dp_attention": False,
        "load_format": "auto",
        "overrides_model": False,
        "frontend": "python",
        "random_seed": 1,
        "startup_time": None,
        "identity": "boot-1",
    }
    return ServerInfo(version=version, **(values | over))


def engine(
    held: Mapping[str, str] | None = None,
    *,
    version: str = "0.5.23",
    boot: str = "boot-1",
    state: EngineState = EngineState.READY,
    listed_at: float = 0.0,
    settled: bool = True,
    **over: Any,
) -> EngineView:
    return EngineView(
        state=state,
        since=NOON,
        boot=boot,
        model="base",
        held=held or {},
        listed_at=listed_at,
        info=info(version, **over),
        settled=settled,
    )


def whole(signature: str = "s1") -> PathView:
    return PathView(PathState.WHOLE, signature=signature, local=True)


def world(*adapters: LoRAAdapter, **over: Any) -> World:
    """A world whose engine is ready and holds nothing, and where every path is whole."""
    values: dict[str, Any] = {
        "engine": engine(),
        "paths": {a.spec.path: whole() for a in adapters},
    }
    told = values | over
    judged = tuple(wants(adapters, told["engine"].model))
    return World(adapters=adapters, wants=judged, **told)


def ok(loaded: Mapping[str, str] | None = None) -> Answer:
    return Answer(Kind.OK, loaded=loaded, status=200)
