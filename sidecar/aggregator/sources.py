"""The six informers that feed the index, and what their troubles mean.

Adapters, reports and pods must have been listed before anything may be concluded. InferenceServices and the
injector's webhook may be absent or closed to us: that is known too, and said where it matters.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from sidecar.aggregator import reading
from sidecar.aggregator.index import LABELLED, MARKED, Index
from sidecar.aggregator.records import Pod, Webhook
from sidecar.aggregator.view import Presence
from sidecar.api import names
from sidecar.kube.client import Client, Resource
from sidecar.kube.errors import Forbidden, KubeError, NotFound, Unreachable
from sidecar.kube.informer import Informer
from sidecar.kube.resources import WEBHOOKS

ADAPTERS: Final = Resource(names.INFERENCE_GROUP, names.VERSION, names.ADAPTER_PLURAL)
SERVICES: Final = Resource(names.INFERENCE_GROUP, names.VERSION, names.SERVICE_PLURAL)
REPORTS: Final = Resource(names.PREFIX, names.VERSION, names.REPORT_PLURAL)
PODS: Final = Resource("", "v1", "pods")

_REPORT_PAGE: Final = 10
_POD_PAGE: Final = 100
"""A report of 100 adapters has 30 KiB and a pod 5, and each takes five times as much while it is parsed."""


class Sources:
    """All that is watched. `wake` is called after every change."""

    def __init__(
        self, client: Client, index: Index, wake: Callable[[], None], webhook: str
    ) -> None:
        self._index = index
        self._webhook = webhook
        self._kind: Presence | None = None
        self.adapters = Informer(
            client, ADAPTERS, decode=reading.adapter, wake=wake, on_change=index.on_adapter
        )
        self.reports = Informer(
            client,
            REPORTS,
            decode=reading.report,
            wake=wake,
            on_change=index.on_report,
            limit=_REPORT_PAGE,
        )
        self.labelled = self._pods(client, wake, names.SERVICE_LABEL, LABELLED)
        self.marked = self._pods(client, wake, names.INJECTED_LABEL, MARKED)
        self.services = Informer(
            client, SERVICES, decode=reading.service, wake=wake, on_change=index.on_service
        )
        self.webhooks = Informer(
            client,
            WEBHOOKS,
            decode=reading.webhook,
            wake=wake,
            field_selector=f"metadata.name={webhook}",
        )

    def _pods(
        self, client: Client, wake: Callable[[], None], label: str, source: str
    ) -> Informer[Pod]:
        def changed(key: str, _: Pod | None, new: Pod | None) -> None:
            self._index.on_pod(source, key, new)

        return Informer(
            client,
            PODS,
            decode=reading.pod,
            wake=wake,
            label_selector=label,
            on_change=changed,
            limit=_POD_PAGE,
        )

    @property
    def _all(self) -> Mapping[str, Informer[Any]]:
        return {
            "LoRAAdapters": self.adapters,
            "LoRAPodStatuses": self.reports,
            "pods of services": self.labelled,
            "injected pods": self.marked,
            "InferenceServices": self.services,
            "the injector's webhook": self.webhooks,
        }

    def runs(self) -> dict[str, Coroutine[Any, Any, object]]:
        """What must be running, by name."""
        return {f"watching {what}": informer.run() for what, informer in self._all.items()}

    def missing(self) -> list[str]:
        """What is not known yet, without which nothing may be concluded."""
        must = (self.adapters, self.reports, self.labelled, self.marked)
        absent = [what for what, one in self._all.items() if one in must and not one.synced]
        if self._kind is None:
            absent.append("InferenceServices")
        if not self.webhooks.synced and self.webhooks.problem is None:
            absent.append("the injector's webhook")
        return absent

    def deaf(self) -> bool:
        """Whether the API server cannot be reached, so that what is known may be old."""
        heard = (self.adapters, self.reports, self.labelled, self.marked)
        return any(isinstance(one.problem, Unreachable) for one in heard)

    def tell(self) -> None:
        """Pass on to the index what no single object says."""
        self._kind = _kind(self._kind, self.services.problem, synced=self.services.synced)
        if self._kind is not None:
            self._index.set_kind(self._kind)
        if self.webhooks.synced:
            absent = Webhook(installed=False)
            self._index.set_webhook(self.webhooks.snapshot.get(self._webhook, absent))


def _kind(before: Presence | None, problem: KubeError | None, *, synced: bool) -> Presence | None:
    """Whether InferenceServices are served and can be seen; passing troubles do not change what is known."""
    if isinstance(problem, NotFound):
        return Presence.KIND_ABSENT
    if synced and (problem is None or before is None):
        return Presence.FOUND
    if isinstance(problem, Forbidden) and not synced:
        return Presence.UNREADABLE
    return before
