"""The agent's metrics. A gauge of an adapter falls to 0 when it is not loaded, and goes when the adapter does."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge

from sidecar.agent.answers import Answer
from sidecar.agent.state import Action, EngineView, Entry
from sidecar.api.reasons import EngineState, State


class Metrics:
    """What `/metrics` tells of one agent."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._loaded = Gauge(
            "lora_sidecar_adapter_loaded",
            "1 where the engine holds the adapter as it should, else 0.",
            ["adapter", "handle"],
            registry=registry,
        )
        self._states = Gauge(
            "lora_sidecar_adapters", "Adapters of this pod by state.", ["state"], registry=registry
        )
        self._engine = Gauge(
            "lora_sidecar_engine",
            "1 for the state that the engine is in.",
            ["state"],
            registry=registry,
        )
        self._calls = Counter(
            "lora_sidecar_engine_calls",
            "Loads and unloads by how they ended.",
            ["call", "result"],
            registry=registry,
        )
        self._shown: set[tuple[str, str]] = set()

    def called(self, action: Action, answer: Answer) -> None:
        """Count a call that has ended."""
        self._calls.labels(type(action).__name__.lower(), answer.kind.value).inc()

    def show(self, entries: Iterable[Entry], engine: EngineView) -> None:
        """Show what is true now."""
        counts = dict.fromkeys(State, 0)
        shown = set()
        for entry in entries:
            counts[entry.state] += 1
            labels = (entry.adapter.key, entry.adapter.handle)
            shown.add(labels)
            self._loaded.labels(*labels).set(entry.state is State.LOADED)
        for labels in self._shown - shown:
            self._loaded.remove(*labels)
        self._shown = shown
        for state, count in counts.items():
            self._states.labels(state.value).set(count)
        for engine_state in EngineState:
            self._engine.labels(engine_state.value).set(engine_state is engine.state)
