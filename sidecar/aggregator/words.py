"""The messages of a LoRAAdapter's conditions: one line each, counts first, then the worst pods by name and node.

Pure, and stable: the same world gives the same words, so no times, no counters that move by themselves, and one
order. Bounded: 256 bytes a pod and 8 KiB in all, with the number of pods that found no place.
"""

from collections.abc import Sequence
from typing import Final

from sidecar.aggregator.view import Group, PodView, Standing, View
from sidecar.api import names
from sidecar.api.conditions import MESSAGE_LIMIT
from sidecar.api.report import TEXT_LIMIT
from sidecar.api.wire import cut

Placed = tuple[PodView, Standing]
"""A pod, and how the adapter stands on it."""

_TAIL: Final = 64
"""Bytes kept free for what ends a message."""


def counted(number: int, total: int, what: str) -> str:
    """E.g. "Loaded on 2 of 3 pods"."""
    return f"{what} {number} of {total} {'pod' if total == 1 else 'pods'}"


def summary(head: str, placed: Sequence[Placed], others: int) -> str:
    """The whole story: a head with the counts, then every pod that is not as asked, worst first."""
    message = head
    behind = [item for item in placed if item[1].group is not Group.SETTLED]
    for position, item in enumerate(behind):
        longer = f"{message}; {on_pod(item)}"
        if len(longer.encode()) > MESSAGE_LIMIT - _TAIL:
            message += f"; +{len(behind) - position} more"
            break
        message = longer
    return f"{message}; +{others} not opted in" if others else message


def on_pod(item: Placed) -> str:
    """One pod's part of a message, at most 256 bytes of it."""
    pod, standing = item
    said = f"{where(pod)}: {standing.reason}"
    return cut(f"{said}: {standing.text}" if standing.text else said, TEXT_LIMIT)


def where(pod: PodView) -> str:
    """Which pod, and on which node."""
    return f"{pod.name} on {pod.node}" if pod.node else pod.name


def trouble(placed: Sequence[Placed], total: int) -> str:
    """On how many pods something is wrong, and the worst of it in its own words. `placed`: worst first."""
    more = f"; +{len(placed) - 1} more" if len(placed) > 1 else ""
    return f"{counted(len(placed), total, 'Trouble on')}; {on_pod(placed[0])}{more}"


def no_pods(view: View) -> str:
    """Why nothing can be said where no pod counts."""
    return f"{view} has no pods"


def not_opted_in(view: View) -> str:
    """What to do so that this project does anything at all."""
    pods = f" ({view.others} without it)" if view.others else ""
    return (
        f"No pod of {view} has opted in{pods}: set the annotation"
        f' {names.INJECT}: "true" in spec.podAnnotations'
    )


def left(view: View) -> str:
    """The last word on an adapter that is no longer ours."""
    return f"{view} is no longer opted in, so lora-sidecar does not look after this adapter"
