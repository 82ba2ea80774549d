"""Lets every LoRAAdapter go before we are removed: `python -m sidecar.aggregator release`.

Without an aggregator our finalizer would keep adapters, and with them namespaces, for ever. So the Lease is taken from
whoever works, and marked: replicas of the same Deployment that work afterwards put no finalizer on. Then all of ours
are taken off, again and again until a whole list shows none, since a write of a replica may have been under way.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from sidecar.aggregator import reading
from sidecar.aggregator.sources import ADAPTERS
from sidecar.aggregator.writing import Failed, Marking, Written, mark
from sidecar.api.names import FINALIZER
from sidecar.kube.client import Client
from sidecar.kube.errors import KubeError, NotFound

log = logging.getLogger(__name__)

PATIENCE: Final = 120.0
"""Seconds after which it is given up."""
PAUSE: Final = 1.0
_PAGE: Final = 100
_AT_ONCE: Final = 8


async def release(
    client: Client,
    *,
    patience: float = PATIENCE,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> bool:
    """Take our finalizer off every LoRAAdapter; whether none has it any more. Raises nothing of the API server's."""
    try:
        async with asyncio.timeout(patience):
            while not await _round(client):
                await sleep(PAUSE)
    except TimeoutError:
        return False
    return True


async def _round(client: Client) -> bool:
    """Take it off wherever a list shows it; True where the list showed none."""
    clean = True
    try:
        async for page in _pages(client):
            ours = [reading.adapter(body) for body in page]
            markings = [
                Marking(one, tuple(name for name in one.finalizers if name != FINALIZER))
                for one in ours
                if FINALIZER in one.finalizers
            ]
            clean = clean and not markings
            for start in range(0, len(markings), _AT_ONCE):
                some = markings[start : start + _AT_ONCE]
                outcomes = await asyncio.gather(*(mark(client, one) for one in some))
                for marking, outcome in zip(some, outcomes, strict=True):
                    _tell(marking, outcome)
    except NotFound:
        return True  # the kind itself is gone
    except KubeError as error:
        log.warning("LoRAAdapters cannot be listed: %s", error)
        return False
    return clean


async def _pages(client: Client) -> AsyncIterator[list[dict[str, Any]]]:
    token = ""
    while True:
        more = {"continue": token} if token else {}
        params = {"limit": str(_PAGE), **more}
        body = await client.request("GET", ADAPTERS.path(None), params=params)
        yield [item for item in body.get("items") or [] if isinstance(item, dict)]
        token = (body.get("metadata") or {}).get("continue") or ""
        if not token:
            return


def _tell(marking: Marking, outcome: object) -> None:
    if isinstance(outcome, Written):
        log.info("%s: let go", marking.adapter.key)
    elif isinstance(outcome, Failed) and not isinstance(outcome.error, NotFound):
        log.warning("%s: not let go: %s", marking.adapter.key, outcome.error)
