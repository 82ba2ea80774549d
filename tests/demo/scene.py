"""The demo's stage: a service with two pods, seen through kubectl, and waits that end when something was seen.

What is waited for is judged by what the API server answers; what is shown is what kubectl prints of the same moment.
The story is told by `steps`.
"""

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from sidecar.api import names
from tests.demo.screen import Screen
from tests.demo.table import Table
from tests.flows.engine_control import generate
from tests.rig.engines import READY_SECONDS
from tests.rig.stack import REPORTS, ServedPod, Stack

T = TypeVar("T")

BOUND_SECONDS = 30.0
"""How long anything may take that does not wait for an engine to start."""
POLL_SECONDS = 0.05
RELOAD = f"{names.PREFIX}/reload"


class NotSeenError(Exception):
    """What had to be seen was not, within its bound."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a LoRAAdapter's status says at one moment."""

    loaded: str = ""
    pods: str = ""
    reason: str = ""
    error: str = ""
    """The reason of the Error condition, where it is True."""
    notes: tuple[str, ...] = ()
    """A line on each pod that has more to say than that the adapter is loaded."""

    @classmethod
    def at(cls, adapter: dict[str, Any]) -> Self:
        """Read it; what is not there yet is empty."""
        status = adapter.get("status") or {}
        conditions = {c["type"]: c for c in status.get("conditions", [])}
        loaded, error = conditions.get("Loaded", {}), conditions.get("Error", {})
        pods = status.get("pods", [])
        return cls(
            loaded=loaded.get("status", ""),
            pods=status.get("podsLoaded", ""),
            reason=loaded.get("reason", ""),
            error=error.get("reason", "") if error.get("status") == "True" else "",
            notes=tuple(_note(pod) for pod in pods if pod["state"] != "Loaded" or "text" in pod),
        )


def _note(pod: dict[str, str]) -> str:
    return ": ".join(pod[key] for key in ("pod", "reason", "text") if pod.get(key))


@dataclass(slots=True)
class Scene:
    """Stage and screen. `began` is when the latest cause of something was set."""

    stack: Stack
    screen: Screen
    began: float = field(default_factory=time.monotonic)
    tables: dict[str, Table] = field(default_factory=dict)
    """What was shown last of each command."""

    @property
    def first(self) -> ServedPod:
        return self.stack.pods[0]

    @property
    def second(self) -> ServedPod:
        return self.stack.pods[1]

    @property
    def engine_seconds(self) -> float:
        """How long an engine may take to start, and all that follows from it."""
        return READY_SECONDS[self.stack.kind] + BOUND_SECONDS

    def path(self, adapter: str) -> Path:
        """Where an adapter's weights belong."""
        return self.stack.adapters / adapter

    def mark(self) -> None:
        """From here on seconds are counted: something was done whose effect will be seen."""
        self.began = time.monotonic()

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def let_go(self, pod: ServedPod) -> None:
        """Let a pod that was held back have its agent, and be ready."""
        self.stack.start_agent(pod)
        self.stack.kubelet.start(pod.handle, ready=True)

    # --- kubectl --------------------------------------------------------------------------------

    def kubectl(self, *words: str) -> None:
        """Run a command and show it with its output."""
        self.screen.command(shlex.join(["kubectl", *words]))
        self.screen.output(self.stack.controlplane.kubectl(*words))

    def apply(self, manifest: str) -> None:
        """Show a manifest and apply it."""
        self.screen.command(f"kubectl apply -f - <<EOF\n{manifest.rstrip()}\nEOF")
        done = self.stack.controlplane.kubectl("apply", "-f", "-", input=manifest)
        self.mark()
        self.screen.output(done)

    # --- waiting until something is seen --------------------------------------------------------

    def follow(
        self,
        adapter: str,
        what: str,
        wanted: Callable[[Look], bool],
        within: float = BOUND_SECONDS,
    ) -> Look:
        """Show every state of a LoRAAdapter until it is as wanted."""

        def look() -> Look:
            return Look.at(self.stack.get_adapter(adapter))

        words = ("get", "lora", adapter, "-o", "wide")
        return self._until(words, look, wanted, what, within)

    def follow_contents(
        self,
        adapter: str,
        what: str,
        wanted: Callable[[dict[str, str | None]], bool],
        within: float = BOUND_SECONDS,
    ) -> dict[str, str | None]:
        """Show which content of an adapter each pod has loaded, by pod, until it is as wanted."""
        entry = ".status.adapters[0]"  # the only one, as long as there is one LoRAAdapter
        columns = f"POD:.metadata.name,STATE:{entry}.state,CONTENT:{entry}.contentHash"
        words = ("get", "lorapods", "-o", f"custom-columns={columns}")
        return self._until(words, lambda: self.contents(adapter), wanted, what, within)

    def contents(self, adapter: str) -> dict[str, str | None]:
        """The hash of the weights that each pod says it has loaded; None where it has none or does not know."""
        where = f"{REPORTS}/namespaces/{self.stack.namespace}/{names.REPORT_PLURAL}"
        return {
            report["metadata"]["name"]: entry.get("contentHash")
            if entry["state"] == "Loaded"
            else None
            for report in self.stack.controlplane.api("GET", where)["items"]
            for entry in (report.get("status") or {}).get("adapters", [])
            if entry["name"] == adapter
        }

    def _until(
        self,
        words: Sequence[str],
        look: Callable[[], T],
        wanted: Callable[[T], bool],
        what: str,
        within: float,
    ) -> T:
        end = time.monotonic() + within
        command = shlex.join(["kubectl", *words])
        table = self.tables.setdefault(command, Table(self.screen, command))
        table.begin()
        seen: T | None = None
        with self.screen.working(f"waiting: {what}"):
            while True:
                now = look()
                if now != seen:
                    text = self.stack.controlplane.kubectl(*words)
                    if look() == now:  # text and judgement are of one moment
                        notes = now.notes if isinstance(now, Look) else ()
                        table.show(text, notes, self.elapsed(), again=wanted(now))
                        seen = now
                if now == seen and wanted(now):
                    break
                if time.monotonic() > end:
                    raise NotSeenError(f"not seen within {within:g} s: {what}")
                time.sleep(POLL_SECONDS)
        self.screen.seen(what, self.elapsed())
        return now

    # --- asking the models ----------------------------------------------------------------------

    def ask(self, adapter: str) -> tuple[str, str]:
        """Let the base model and the adapter answer the same prompt on the first pod, greedily, and show both."""
        engine = self.first.engine
        simulated = "; it is simulated: nonsense, but made of prompt and weights"
        how = f"greedily{simulated if self.stack.kind == 'simulated' else ''}"
        self.screen.prose(f'What {self.first.name} answers to the prompt "hello" ({how}):')
        answers = generate(engine), generate(engine, adapter)
        models = ("tiny-base", f"tiny-base:{adapter}")
        lines = [
            f"model {m:<{len(models[1])}}  {a!r}" for m, a in zip(models, answers, strict=True)
        ]
        self.screen.output("\n".join(lines))
        return answers
