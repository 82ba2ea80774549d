"""What a flow asks of an engine directly, past the agent: what it holds, what it was asked, how it must misbehave."""

import json
import urllib.request
from typing import Any

from tests.rig.engines import EngineProcess


def call(engine: EngineProcess, method: str, path: str, body: Any = None) -> Any:
    """One request; the answer as JSON, None where it has no body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        engine.url + path, data, {"Content-Type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        raw = answer.read()
    return json.loads(raw) if raw else None


def held(engine: EngineProcess) -> dict[str, str]:
    """What the engine lists: handle to path."""
    cards = call(engine, "GET", "/v1/models")["data"]
    return {card["id"]: card["root"] for card in cards if card["parent"] is not None}


def requests(engine: EngineProcess, path: str) -> list[dict[str, Any]]:
    """What the simulated engine was asked at one route, oldest first."""
    told = call(engine, "GET", "/_sim")
    return [one for one in told["requests"] if one["path"] == path]


def loads(engine: EngineProcess) -> list[str]:
    """The paths of all load requests, oldest first."""
    return [one["body"]["lora_path"] for one in requests(engine, "/load_lora_adapter")]


def misbehave(engine: EngineProcess, path: str, **fault: Any) -> None:
    """Let the simulated engine do something wrong at one route."""
    call(engine, "POST", "/_sim", {"fault": {"path": path, **fault}})


def generate(engine: EngineProcess, adapter: str | None = None) -> str:
    """Six greedy tokens after "hello", through an adapter or the base model."""
    model = f"tiny-base:{adapter}" if adapter else "tiny-base"
    body = {"model": model, "prompt": "hello", "temperature": 0, "max_tokens": 6}
    return str(call(engine, "POST", "/v1/completions", body)["choices"][0]["text"])
