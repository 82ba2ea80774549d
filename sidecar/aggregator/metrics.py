"""The aggregator's metrics: what it did is counted as it happens, what is true is gathered when somebody asks."""

from collections import Counter as Tally
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sidecar.aggregator import reading
from sidecar.aggregator.index import Index
from sidecar.aggregator.records import Adapter
from sidecar.aggregator.view import PodView
from sidecar.aggregator.writing import Failed, Outcome, Overtaken, Written
from sidecar.api.conditions import ConditionType
from sidecar.kube.errors import NotFound

PREFIX: Final = "lora_sidecar_aggregator"


class Metrics:
    """What `/metrics` tells of the aggregator's work."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.writes = Counter(
            f"{PREFIX}_status_writes",
            "Statuses sent, by how that ended: written, conflict, gone or failed.",
            ["result"],
            registry=registry,
        )
        self.corrections = Counter(
            f"{PREFIX}_status_corrections",
            "Statuses written because somebody else had overwritten ours.",
            registry=registry,
        )
        self.events = Counter(
            f"{PREFIX}_events",
            "Events, by what became of them: sent, failed or dropped (too many).",
            ["result"],
            registry=registry,
        )
        self.lag = Histogram(
            f"{PREFIX}_status_lag_seconds",
            "From the first news that an adapter's status must change to its being written.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=registry,
        )

        self.finalizers = Counter(
            f"{PREFIX}_finalizer_writes",
            "Finalizers put on or taken off LoRAAdapters, by how that ended: written, conflict, gone or failed.",
            ["result"],
            registry=registry,
        )

    def marked(self, outcome: Outcome) -> None:
        """Count a write of finalizers that has ended."""
        self.finalizers.labels(_result(outcome)).inc()

    def wrote(self, outcome: Outcome, *, corrective: bool) -> None:
        """Count a write that has ended."""
        self.writes.labels(_result(outcome)).inc()
        if corrective and isinstance(outcome, Written):
            self.corrections.inc()


def _result(outcome: Outcome) -> str:
    match outcome:
        case Written():
            return "written"
        case Overtaken():
            return "conflict"
        case Failed(error):
            return "gone" if isinstance(error, NotFound) else "failed"


class State(Collector):
    """The adapters, pods and reports that are known, counted at the moment of asking."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def collect(self) -> Iterator[Metric]:
        """Count everything once."""
        adapters = GaugeMetricFamily(
            f"{PREFIX}_adapters",
            "LoRAAdapters by what their Loaded condition says; empty where it is not there.",
            labels=["loaded", "reason"],
        )
        for labels, count in Tally(map(_loaded, self._index.adapters.values())).items():
            adapters.add_metric(labels, count)
        yield adapters
        pods = GaugeMetricFamily(
            f"{PREFIX}_pods",
            "Pods that count, by the engine's state or why it is unknown.",
            labels=["state"],
        )
        seen = (
            pod
            for service in list(self._index.services())
            for pod in self._index.view(service).pods
        )
        for state, count in Tally(map(_state, seen)).items():
            pods.add_metric([state], count)
        yield pods
        yield GaugeMetricFamily(
            f"{PREFIX}_reports", "LoRAPodStatuses known.", value=len(self._index.reports)
        )


def _loaded(adapter: Adapter) -> tuple[str, str]:
    for condition in reading.conditions(adapter.status):
        if condition.type == ConditionType.LOADED:
            return condition.status, condition.reason
    return "", ""


def _state(pod: PodView) -> str:
    if pod.standing is not None:
        return str(pod.standing.reason)
    return str(pod.report.engine) if pod.report is not None else ""
