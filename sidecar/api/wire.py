"""How values look on the wire: camelCase keys, RFC 3339 times, texts cut to a number of bytes."""

import re
from datetime import UTC, datetime
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel


def _wire_key(name: str) -> str:
    """Kubernetes writes acronyms of two letters or more in capitals: podUID, bootID."""
    key = to_camel(name)
    for ending in ("Uid", "Id"):
        if key.endswith(ending) and key != ending.lower():
            return key[: -len(ending)] + ending.upper()
    return key


_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
"""An engine's words end up in terminals, where an escape sequence would be obeyed."""


class Part(BaseModel):
    """Base of everything read from the API server: frozen, lenient to unknown fields, camelCase outside."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=_wire_key, populate_by_name=True
    )


def to_wire_time(moment: datetime) -> str:
    """Write a moment as metav1.Time does: whole seconds, in UTC."""
    return moment.astimezone(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")


def cut(text: str, limit: int) -> str:
    """Make a text one line of at most `limit` bytes of UTF-8, without control characters; a cut one ends in "..."."""
    raw = " ".join(_CONTROL.sub(" ", text).split()).encode("utf-8", "replace")
    if len(raw) > limit:
        raw = (raw[: max(0, limit - 3)].decode("utf-8", "ignore") + "...").encode()[:limit]
    return raw.decode("utf-8")


def faults(error: ValidationError) -> str:
    """Say in one line what is wrong with an object, by its fields; values are not repeated."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        f"{'.'.join(str(part) for part in detail['loc'])}: {detail['msg']}" for detail in details
    )


def to_micro_time(moment: datetime) -> str:
    """A moment as a Kubernetes MicroTime, which has exactly six decimals: in Leases and Events."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
