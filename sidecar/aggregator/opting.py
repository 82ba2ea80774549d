"""Keeps which services are opted in, in a ConfigMap.

GPU services have no pods while they roll out, nor while nobody watches, and what was said of them last must outlive
this process. Keys are `<namespace>.<service>`. It is read before anything is concluded; what it holds is a last word
only, which a service's own pods overrule. Who works writes it, when it differs; a write that fails is tried again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from sidecar.aggregator.index import Index, ServiceKey
from sidecar.api import names
from sidecar.kube.apply import create, difference, merge_patch
from sidecar.kube.client import Client, Resource
from sidecar.kube.errors import Conflict, Forbidden, KubeError, NotFound
from sidecar.kube.informer import Informer

log = logging.getLogger(__name__)

CONFIG_MAPS: Final = Resource("", "v1", "configmaps")

GAP: Final = 1.0
"""Seconds between two writes."""
RETRY: Final = 10.0
"""Seconds after a write that failed."""


class OptIns:
    """The ConfigMap `name`, and the index that knows better. `wake` is called when somebody has changed it."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        index: Index,
        wake: Callable[[], None],
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._index = index
        self._sleep = sleep
        self._due = asyncio.Event()
        self._wanted: Mapping[str, str] = {}
        self._told = ""
        self.owners: Sequence[Mapping[str, Any]] = ()
        """With whom it goes; set before it is first written."""
        self.informer = Informer(
            client,
            CONFIG_MAPS,
            decode=_data,
            namespace=namespace,
            field_selector=f"metadata.name={name}",
            wake=wake,
            on_change=self._changed,
        )

    @property
    def unknown(self) -> bool:
        """Whether it has yet to be read. One that may not be read is done without."""
        return not self.informer.synced and not isinstance(
            self.informer.problem, Forbidden | NotFound
        )

    def keeps(self, service: ServiceKey) -> bool:
        """Whether the ConfigMap names a service, as it is stored now."""
        return f"{service[0]}.{service[1]}" in (self._stored or {})

    def tell(self) -> None:
        """Have it written if the index says otherwise; to be called when the index is whole, by who works."""
        self._wanted = {f"{namespace}.{name}": "" for namespace, name in self._index.opted_in()}
        if self._wanted != self._stored:
            self._due.set()

    async def run(self) -> None:
        """Write what is to be written, for ever."""
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self._write()
                self._told = ""
                await self._sleep(GAP)
            except KubeError as error:
                self._complain(str(error))
                await self._sleep(RETRY)
                self._due.set()

    @property
    def _stored(self) -> Mapping[str, str] | None:
        return self.informer.snapshot.get(f"{self._namespace}/{self._name}")

    async def _write(self) -> None:
        stored = self._stored
        try:
            if stored is None:
                await create(self._client, CONFIG_MAPS, self._namespace, self._body())
            else:
                patch = difference({"data": stored}, {"data": self._wanted})
                await merge_patch(
                    self._client,
                    CONFIG_MAPS,
                    self._namespace,
                    self._name,
                    patch,
                    manager=names.AGGREGATOR_MANAGER,
                )
        except (Conflict, NotFound):
            pass  # somebody made or removed it meanwhile: the watch tells, and the next pass looks again

    def _body(self) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        if self.owners:
            metadata["ownerReferences"] = [dict(owner) for owner in self.owners]
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": dict(self._wanted),
        }

    def _changed(
        self, _: str, old: Mapping[str, str] | None, new: Mapping[str, str] | None
    ) -> None:
        stored = [key for key in map(_service, new or ()) if key is not None]
        self._index.remember_opted_in(stored)
        self._index.touch(key for key in stored if f"{key[0]}.{key[1]}" not in (old or {}))

    def _complain(self, text: str) -> None:
        if text != self._told:
            log.warning(
                "the services that are opted in cannot be kept in ConfigMap %s/%s: %s",
                self._namespace,
                self._name,
                text,
            )
        self._told = text


def _data(body: dict[str, Any]) -> Mapping[str, str]:
    data = body.get("data")
    return {str(key): str(value) for key, value in data.items()} if isinstance(data, dict) else {}


def _service(key: str) -> ServiceKey | None:
    namespace, _, name = key.partition(".")
    return (namespace, name) if namespace and name else None
