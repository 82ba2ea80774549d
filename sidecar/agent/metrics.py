"""The agent's metrics, made when they are asked for: a pass only hands over what is true.

The gauge of an adapter is 0 while it is not loaded, and goes when the adapter does.
"""

from collections import Counter as Tally
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sidecar.agent.answers import Answer
from sidecar.agent.state import Action, EngineView, Entry
from sidecar.api.reasons import EngineState, State


class Metrics(Collector):
    """What `/metrics` tells of one agent."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._entries: tuple[Entry, ...] = ()
        self._engine = EngineView()
        self._calls = Counter(
            "lora_sidecar_engine_calls",
            "Loads, unloads and trials by how they ended.",
            ["call", "result"],
            registry=registry,
        )
        registry.register(self)

    def called(self, action: Action, answer: Answer) -> None:
        """Count a call that has ended."""
        self._calls.labels(type(action).__name__.lower(), answer.kind.value).inc()

    def show(self, entries: tuple[Entry, ...], engine: EngineView) -> None:
        """What is true now."""
        self._entries, self._engine = entries, engine

    def collect(self) -> Iterable[Metric]:
        """The gauges, as prometheus_client asks for them."""
        loaded = GaugeMetricFamily(
            "lora_sidecar_adapter_loaded",
            "1 where the engine holds the adapter as it should, else 0.",
            labels=["adapter", "handle"],
        )
        tally: Tally[State] = Tally()
        for entry in self._entries:
            tally[entry.state] += 1
            labels = (entry.adapter.key, entry.adapter.handle)
            loaded.add_metric(labels, float(entry.state is State.LOADED))
        states = GaugeMetricFamily(
            "lora_sidecar_adapters", "Adapters of this pod by state.", labels=["state"]
        )
        for state in State:
            states.add_metric((state.value,), float(tally[state]))
        engine = GaugeMetricFamily(
            "lora_sidecar_engine", "1 for the state that the engine is in.", labels=["state"]
        )
        for engine_state in EngineState:
            engine.add_metric((engine_state.value,), float(engine_state is self._engine.state))
        return (loaded, states, engine)
