"""Reads adapter_config.json as SGLang does (SGLang 0.5.21: its LoRAConfig requires four keys and ignores most others).

A file that does not parse may be half-written and is waited for; one that parses and lacks a key is a bad adapter.
"""

import json
import math
from typing import Any, NoReturn

from sidecar.agent.pathview import AdapterFacts, PathState
from sidecar.agent.refusals import refuse

CONFIG = "adapter_config.json"

LIMIT = 4 * 1024 * 1024
"""Bytes of an adapter_config.json that we parse; real ones have a few thousand."""

_REQUIRED = ("target_modules", "r", "lora_alpha", "peft_type")


def read_facts(raw: bytes) -> AdapterFacts:
    """Parse the file's bytes. Raises NotWholeError: PARTIAL where it is no JSON, BAD where a key lacks or is wrong."""
    if len(raw) > LIMIT:
        _bad(f"is larger than {LIMIT} bytes")
    try:
        config = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        refuse(PathState.PARTIAL, f"{CONFIG} is not JSON, or not written to its end")
    if not isinstance(config, dict):
        _bad("is not a JSON object")
    if lacking := [key for key in _REQUIRED if key not in config]:
        _bad(f"lacks {', '.join(lacking)}")
    return AdapterFacts(
        rank=_rank(config["r"]),
        target_modules=_modules(config["target_modules"]),
        peft_type=_peft_type(config["peft_type"]),
        use_dora=bool(config.get("use_dora")),
        lora_alpha=_alpha(config["lora_alpha"]),
    )


def _rank(value: Any) -> int:
    if type(value) is not int or value < 1:
        _bad("has an r that is not a whole number above 0")
    return value


def _modules(value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        _bad("has target_modules that are not a list of names")
    return tuple(dict.fromkeys(names))


def _peft_type(value: Any) -> str:
    if not isinstance(value, str):
        _bad("has a peft_type that is not a name")
    return value


def _alpha(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) < math.inf or abs(value) > 1e300:
        _bad("has a lora_alpha that is not a number")
    return float(value)


def _bad(what: str) -> NoReturn:
    refuse(PathState.BAD, f"{CONFIG} {what}")
