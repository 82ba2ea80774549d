"""The CRDs of sidecar/api/crds as schemas: validation as the API server does it, and a walk through their objects."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from pydantic import BaseModel

import sidecar.api

CRDS = Path(sidecar.api.__file__).parent / "crds"

Schema = dict[str, Any]


def crd(plural: str) -> Schema:
    body: Schema = yaml.safe_load((CRDS / f"{plural}.yaml").read_text())
    return body


def schema(plural: str) -> Schema:
    """The schema of the CRD's only version."""
    (version,) = crd(plural)["spec"]["versions"]
    answer: Schema = version["schema"]["openAPIV3Schema"]
    return answer


def faults(plural: str, body: object) -> list[str]:
    """What the API server would refuse, by field. Unknown fields are pruned there, and so are no fault."""
    checker = jsonschema.FormatChecker(formats=[])
    checker.checks("date-time", raises=ValueError)(_is_time)
    validator = jsonschema.Draft4Validator(_go(schema(plural)), format_checker=checker)
    return sorted(".".join(map(str, error.path)) or "." for error in validator.iter_errors(body))


def _is_time(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


def _go(part: Any) -> Any:
    """A schema whose patterns mean in Python what they mean in Go, where `$` is the very end."""
    if isinstance(part, dict):
        return {
            key: re.sub(r"\$$", r"\\Z", value)
            if key == "pattern" and isinstance(value, str)
            else _go(value)
            for key, value in part.items()
        }
    return [_go(item) for item in part] if isinstance(part, list) else part


def of_model(model: type[BaseModel]) -> Schema:
    """A model's schema as the API server would write it: references resolved, and no null, which it prunes."""
    whole = model.model_json_schema(by_alias=True)
    return _plain(whole, whole.get("$defs", {}))


def _plain(part: Schema, definitions: dict[str, Schema]) -> Schema:
    if "$ref" in part:
        return _plain(definitions[part["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in part:
        (kept,) = [choice for choice in part["anyOf"] if choice.get("type") != "null"]
        return _plain(kept, definitions)
    answer = dict(part)
    if "properties" in part:
        answer["properties"] = {
            key: _plain(value, definitions) for key, value in part["properties"].items()
        }
    if "items" in part:
        answer["items"] = _plain(part["items"], definitions)
    return answer


def pairs(ours: Schema, theirs: Schema, where: str = "") -> Iterator[tuple[str, Schema, Schema]]:
    """Every place of two schemas, with both; the first that only one of them has ends the walk there."""
    yield where, ours, theirs
    if "items" in ours and "items" in theirs:
        yield from pairs(ours["items"], theirs["items"], f"{where}[]")
    both = ours.get("properties", {}).keys() & theirs.get("properties", {}).keys()
    for key in sorted(both):
        yield from pairs(ours["properties"][key], theirs["properties"][key], f"{where}.{key}")
