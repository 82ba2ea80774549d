"""What the simulated SGLang generates: greedy nonsense that depends on the prompt and on the weights in use.

Another adapter, or other weights of the same one, give another text, and the same ones the same: enough to tell which
weights answer.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to generate."""

    prompt: str
    adapter: str | None
    tokens: int
    parallel: int = 1
    stream: bool = False


def read_native(body: Any) -> Asked:
    """Read the body of `/generate`; there `lora_path` is the adapter's name."""
    body = body if isinstance(body, dict) else {}
    sampling = body.get("sampling_params") or {}
    prompt = body.get("text") or json.dumps(body.get("input_ids"))
    tokens, parallel = sampling.get("max_new_tokens", 128), sampling.get("n", 1)
    stream = bool(body.get("stream"))
    return Asked(prompt, body.get("lora_path"), tokens, parallel, stream)


def read_openai(body: Any, *, colon: bool) -> Asked:
    """Read the body of an OpenAI route. A model that is only an adapter's name does not select it."""
    body = body if isinstance(body, dict) else {}
    prompt = body.get("prompt") or json.dumps(body.get("messages"))
    adapter = body.get("lora_path")
    _, separator, after = str(body.get("model")).partition(":")
    if colon and separator:
        adapter = after
    return Asked(prompt, adapter, body.get("max_tokens", 16), body.get("n", 1))


def text(content: str, prompt: str, tokens: int) -> str:
    """That many printable characters."""
    letters, block = "", hashlib.sha256(f"{content}/{prompt}".encode()).digest()
    while len(letters) < tokens:
        letters += "".join(chr(33 + byte % 94) for byte in block)
        block = hashlib.sha256(block).digest()
    return letters[:tokens]


def native(asked: Asked, answer: str) -> Any:
    """The answer of `/generate`: a list where several were asked for."""
    one = {
        "text": answer,
        "output_ids": [ord(letter) - 30 for letter in answer],
        "meta_info": {
            "id": uuid4().hex,
            "finish_reason": {"type": "length", "length": len(answer)},
            "prompt_tokens": len(asked.prompt),
            "completion_tokens": len(answer),
        },
    }
    return one if asked.parallel == 1 else [one] * asked.parallel


def event(asked: Asked, answer: str) -> bytes:
    """One event of a stream: all that has been generated until then."""
    return b"data: " + json.dumps(native(asked, answer)).encode() + b"\n\n"


def openai(body: Mapping[str, Any], answer: str, *, chat: bool) -> dict[str, Any]:
    """The answer of an OpenAI route."""
    said = {"message": {"role": "assistant", "content": answer}} if chat else {"text": answer}
    return {
        "id": uuid4().hex,
        "object": "chat.completion" if chat else "text_completion",
        "model": body.get("model"),
        "choices": [{"index": 0, **said, "finish_reason": "length"}],
    }


def openai_error(message: str) -> dict[str, Any]:
    """The refusal of an OpenAI route."""
    return {
        "object": "error",
        "message": message,
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    }
