"""Which LoRAAdapters a pod should have, and in which order: the same answer for agent and aggregator.

Pure: it looks at what users wrote, never at files or engines.
"""

import posixpath
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from sidecar.api.adapter import LoRAAdapter
from sidecar.api.reasons import Reason

ALL_NAMESPACES: Final = "*"
PATH_LIMIT: Final = 4095
"""Bytes: Linux opens no longer path."""


@dataclass(frozen=True, slots=True)
class Want:
    """One adapter that targets a pod; `reason` is None where nothing written speaks against it."""

    adapter: LoRAAdapter
    reason: Reason | None = None
    text: str = ""


def allows(allowed: Collection[str], namespace: str) -> bool:
    """Whether a pod that allows these namespaces takes adapters from that one."""
    return ALL_NAMESPACES in allowed or namespace in allowed


def targeting(
    adapters: Iterable[LoRAAdapter], namespace: str, service: str, allowed: Collection[str]
) -> list[LoRAAdapter]:
    """Those that are for this service and from an allowed namespace, also those being deleted.

    In the order that decides conflicts and capacity: own namespace first, then the oldest, then by name.
    """
    mine = [
        adapter
        for adapter in adapters
        if adapter.service == (namespace, service) and allows(allowed, adapter.metadata.namespace)
    ]
    return sorted(mine, key=lambda adapter: precedence(adapter, namespace))


def precedence(adapter: LoRAAdapter, namespace: str) -> tuple[bool, float, str]:
    """Sort key: who comes first where two adapters want one handle or the last slot."""
    created = adapter.created
    return (
        adapter.metadata.namespace != namespace,
        created.timestamp() if created else 0.0,
        adapter.key,
    )


def wants(ordered: Iterable[LoRAAdapter], base_model: str | None) -> list[Want]:
    """Judge adapters in order of precedence by what they say alone; those being deleted are left out."""
    holders: dict[str, LoRAAdapter] = {}
    answer = []
    for adapter in ordered:
        if adapter.deleting:
            continue
        answer.append(_judge(adapter, base_model, holders.setdefault(adapter.handle, adapter)))
    return answer


def _judge(adapter: LoRAAdapter, base_model: str | None, holder: LoRAAdapter) -> Want:
    if adapter.handle == base_model:
        return Want(
            adapter, Reason.BASE_MODEL_NAME, f"{adapter.handle} is the served model's own name"
        )
    if holder is not adapter:
        text = f"{adapter.handle} is already the name of {holder.key}, which comes first"
        return Want(adapter, Reason.NAME_CONFLICT, text)
    problem = path_problem(adapter.spec.path)
    if problem:
        return Want(adapter, Reason.INVALID_PATH, problem)
    return Want(adapter)


@lru_cache(maxsize=4096)
def path_problem(path: str) -> str | None:
    """Say what is wrong with a path as written, or None. SGLang takes any other path for a Hub id."""
    if len(path.encode("utf-8", "replace")) > PATH_LIMIT:
        return f"path is longer than {PATH_LIMIT} bytes"
    if not path.startswith("/"):
        return f"path {path!r} is not absolute"
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in path):
        return f"path {path!r} holds control characters"
    if ".." in path.split("/"):
        return f"path {path!r} holds '..'"
    normal = posixpath.normpath("/" + path.lstrip("/"))
    if path not in (normal, normal.rstrip("/") + "/"):
        return f"path {path!r} is not in its normal form {normal!r}"
    return None
