"""What this process owns in the cluster, its Lease and its ConfigMap, and whose they are in turn: the Deployment's.

The Deployment is asked for before either is written, so that both go with it. Its uid also tells whether a mark on the
Lease, that everything was let go, is meant for us or for an installation before us.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from sidecar.aggregator.opting import OptIns
from sidecar.api.names import RELEASED
from sidecar.kube.client import Client
from sidecar.kube.errors import KubeError
from sidecar.kube.lease import Lease, LostError
from sidecar.kube.owning import owner_references

log = logging.getLogger(__name__)

RETRY: Final = 2.0


class Owned:
    """Lease and ConfigMap, where there are any, of the Deployment `deployment`, where one is named."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        deployment: str,
        opt_ins: OptIns | None,
        lease: Lease | None,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._deployment = deployment
        self._opt_ins = opt_ins
        self._lease = lease
        self._sleep = sleep
        self._owners: Sequence[Mapping[str, Any]] = ()

    @property
    def released(self) -> bool:
        """Whether our own Deployment is being removed, so that nothing may be held back any more."""
        if self._lease is None or not self._owners:
            return False
        return bool(self._lease.annotations.get(RELEASED) == self._owners[0]["uid"])

    async def work(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Learn whose we are, then work, where there is a Lease while it is held. Returns when it is lost."""
        self._owners = await self._asked()
        if self._opt_ins is not None:
            self._opt_ins.owners = self._owners
        if self._lease is None:
            await run()
        else:
            self._lease.owners = self._owners
            try:
                await self._lease.run(run)
            except LostError as error:
                log.warning("%s: this replica ends, and begins anew", error)

    async def _asked(self) -> Sequence[Mapping[str, Any]]:
        told = ""
        while True:
            try:
                return await owner_references(self._client, self._namespace, self._deployment)
            except KubeError as error:
                if str(error) != told:
                    log.warning("the Deployment %s cannot be read: %s", self._deployment, error)
                told = str(error)
                await self._sleep(RETRY)
