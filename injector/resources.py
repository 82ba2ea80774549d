"""What the agent's container asks for and may use: the annotations before our settings, and never one above the other.

Kubernetes refuses a pod whose request is above its limit, and a bad value shall not deny a pod: what a user said stands
and the other follows; where a user said both, the limit stands.
"""

import functools
import re
from decimal import Decimal
from typing import Any, Final

from injector.annotated import Said
from injector.settings import InjectorSettings
from sidecar.api import names

EPHEMERAL: Final = ("16Mi", "64Mi")
"""Request and limit of ephemeral storage; the agent writes nothing, but quotas ask for the words."""

_CLASS: Final = ("cpu", "memory")
"""What decides on a pod's QoS class."""
_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-zA-Z]*)")
_UNITS: Final = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{u: Decimal(1000) ** n for n, u in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{u: Decimal(1024) ** n for n, u in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}


def read(said: Said, settings: InjectorSettings) -> tuple[dict[str, str], dict[str, str]]:
    """Requests and limits. What had to give way is told in `said.warnings`."""
    cpu = _pair("cpu", settings.cpu_request, settings.cpu_limit, said)
    memory = _pair("memory", settings.memory_request, settings.memory_limit, said)
    pairs = {"cpu": cpu, "memory": memory, "ephemeral-storage": EPHEMERAL}
    return {what: p[0] for what, p in pairs.items()}, {what: p[1] for what, p in pairs.items()}


def _pair(what: str, usual_request: str, usual_limit: str, said: Said) -> tuple[str, str]:
    asked, bound = said.get(f"{what}-request"), said.get(f"{what}-limit")
    request, limit = asked or usual_request, bound or usual_limit
    if amount(request) <= amount(limit):
        return request, limit
    if asked and not bound:
        said.warnings.append(
            f"{names.PREFIX}/{what}-request: {request} is above the limit {limit}, which follows it"
        )
        return request, request
    said.warnings.append(
        f"{names.PREFIX}/{what}-limit: {limit} is below the request {request}, which follows it"
    )
    return limit, limit


def tell_class(
    spec: dict[str, Any], requests: dict[str, str], limits: dict[str, str], said: Said
) -> None:
    """Say so in `said.warnings` where the agent costs the pod its class Guaranteed, and with it cores of its own."""
    kept = all(requests[what] == limits[what] for what in _CLASS)
    others = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    if not kept and all(map(_is_guaranteed, others)):
        said.warnings.append(
            "the pod's QoS class becomes Burstable; it stays Guaranteed where"
            f" {names.PREFIX}/cpu-request and memory-request are what the limits are"
        )


def tell_room(spec: dict[str, Any], requests: dict[str, str], said: Said) -> None:
    """Say so in `said.warnings` where the pod as a whole asks for too little to hold the agent, and is refused."""
    whole = (spec.get("resources") or {}).get("requests") or {}
    for what in sorted(whole.keys() & requests.keys()):
        shares = [((c.get("resources") or {}).get("requests") or {}) for c in spec["containers"]]
        try:
            taken = sum(amount(share[what]) for share in shares if what in share)
            full = taken + amount(requests[what]) > amount(whole[what])
        except ValueError:
            continue  # in a notation that we do not read; Kubernetes will say what it thinks of it
        if full:
            said.warnings.append(
                f"the pod's own {what} request, {whole[what]}, leaves no room for the agent's {requests[what]}:"
                " Kubernetes refuses such a pod until it is raised"
            )


def _is_guaranteed(container: dict[str, Any]) -> bool:
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    requests = limits | (resources.get("requests") or {})
    return all(what in limits and requests[what] == limits[what] for what in _CLASS)


@functools.lru_cache(256)
def amount(quantity: str) -> Decimal:
    """A quantity as a number. Raises ValueError where it is none."""
    match = _QUANTITY.fullmatch(quantity)
    if match is None or match[2] not in _UNITS:
        raise ValueError("not a quantity")
    return Decimal(match[1]) * _UNITS[match[2]]
