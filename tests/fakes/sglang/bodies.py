"""The bodies of the simulated SGLang's answers, key by key as each version has them; and how it reads a request."""

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

from tests.fakes.sglang.loras import Ref, Result
from tests.fakes.sglang.options import Options
from tests.rig.sglang.model import CONTEXT


def document(body: bytes) -> Any:
    """The JSON in a body, or None."""
    try:
        return json.loads(body)
    except ValueError:
        return None


async def read(request: web.Request, fields: Mapping[str, type]) -> dict[str, Any] | web.Response:
    """The request's body, or the refusal of one that is not of that form: a 400, never a 422."""
    raw = await request.read()
    if not raw:
        return _invalid([{"type": "missing", "loc": ("body",), "msg": "Field required"}])
    if request.content_type != "application/json":
        return _invalid(
            [{"type": "dict_type", "loc": ("body",), "msg": "Input should be a valid dictionary"}]
        )
    try:
        body = json.loads(raw)
    except ValueError:
        return _invalid([{"type": "json_invalid", "loc": ("body", 1), "msg": "JSON decode error"}])
    if not isinstance(body, dict):
        return _invalid(
            [{"type": "dict_type", "loc": ("body",), "msg": "Input should be a valid dictionary"}]
        )
    errors = [error for name, kind in fields.items() if (error := _complaint(body, name, kind))]
    return _invalid(errors) if errors else body


def _complaint(body: Mapping[str, Any], name: str, kind: type) -> dict[str, Any] | None:
    if name not in body:
        missing = {"type": "missing", "loc": ("body", name), "msg": "Field required"}
        return missing if kind is str else None
    if isinstance(body[name], kind):
        return None
    word = {str: "string", bool: "boolean"}[kind]
    return {
        "type": f"{word}_type",
        "loc": ("body", name),
        "msg": f"Input should be a valid {word}",
        "input": body[name],
    }


def _invalid(errors: list[dict[str, Any]]) -> web.Response:
    count = f"{len(errors)} validation error{'s' if len(errors) > 1 else ''}"
    message = "\n".join([f"{count}:", *(f"  {error}" for error in errors)])
    body = {
        "object": "error",
        "message": message,
        "type": "Bad Request",
        "param": None,
        "code": 400,
    }
    return web.json_response(body, status=400)


def server_error() -> web.Response:
    """What an assertion in a handler becomes."""
    return web.Response(status=500, text="Internal Server Error", content_type="text/plain")


def result(options: Options, ended: Result) -> dict[str, Any]:
    """The answer to a load or an unload."""
    told: dict[str, Any] = {}
    if options.since("0.5.3"):
        told["rid"] = None
    if options.since("0.5.4"):
        told["http_worker_ipc"] = None
    return told | {
        "success": ended.error is None,
        "error_message": ended.error or "",
        "loaded_adapters": ended.loaded,
    }


def models(options: Options, refs: Iterable[Ref]) -> dict[str, Any]:
    """The list of models; before 0.5.4.post2 it has neither adapters nor the key that would tell them apart."""
    served = options.served_model_name
    cards = [_card(served, served, None, CONTEXT)]
    if options.since("0.5.4.post2"):
        cards += [_card(ref.name, ref.path, served, None) for ref in refs]
    else:
        del cards[0]["parent"]
    return {"object": "list", "data": cards}


def _card(ident: str, root: str, parent: str | None, length: int | None) -> dict[str, Any]:
    return {
        "id": ident,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "sglang",
        "root": root,
        "parent": parent,
        "max_model_len": length,
    }


def server_info(options: Options, seed: int, took: Mapping[str, float]) -> dict[str, Any]:
    """What the server says of itself, both keys in clear included."""
    adapters = [
        {
            "lora_id": f"{at:032x}",
            "lora_name": adapter.name,
            "lora_path": adapter.path,
            "pinned": adapter.pinned,
        }
        for at, adapter in enumerate(options.lora_paths)
    ]
    told: dict[str, Any] = {
        "model_path": options.model_path,
        "served_model_name": options.served_model_name,
        "enable_lora": options.enable_lora or None,
        "max_loras_per_batch": options.max_loras_per_batch,
        "max_loaded_loras": options.max_loaded_loras,
        "max_lora_rank": options.max_lora_rank if options.enable_lora else None,
        "lora_target_modules": list(options.lora_target_modules) if options.enable_lora else None,
        "lora_paths": adapters if options.enable_lora else None,
        "api_key": options.api_key,
        "admin_api_key": options.admin_api_key,
        "dp_size": 1,
        "tp_size": 1,
        "nnodes": 1,
        "node_rank": 0,
        "tokenizer_worker_num": 1,
        "enable_dp_attention": False,
        "json_model_override_args": "{}",
        "load_format": "auto",
        "random_seed": seed,
        "internal_states": [{"api_key": options.api_key}],
        "version": options.version,
    }
    if options.since("0.5.17"):
        told["startup_time"] = took
    if options.since("0.5.21"):
        told["frontend"] = "python"
    return {**told, **options.told}
