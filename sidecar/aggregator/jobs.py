"""What the loop remembers of each adapter, and what follows from it. Pure."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from sidecar.aggregator.finalizing import DEADLINE, Policy, wanted
from sidecar.aggregator.fold import Spoken
from sidecar.aggregator.pacing import CORRECTION, NEVER, Pace
from sidecar.aggregator.records import Adapter
from sidecar.aggregator.view import Presence, View
from sidecar.api.names import FINALIZER, LLMKUBE_FINALIZER

IN_FORCE: Final = 3.0
"""Seconds after which the policy that forbids LLMKube's finalizer counts, by API servers that notice a change of its
parameter within one. A controller that is quicker puts its finalizer on again, once."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is remembered of one adapter of one uid."""

    uid: str
    pace: Pace = field(default_factory=Pace)
    ours: bool = False
    """Its service was opted in when it was last looked at, or its last word is not written yet."""
    said: Spoken | None = None
    """What was last written."""
    since: float | None = None
    """When the first news came that is not written yet."""
    leaving: float | None = None
    """When it was first seen to be deleted, or was by the API server's word if that is earlier."""
    taken_over: float = NEVER
    """When LLMKube's finalizer was last taken off."""
    takeovers: int = 0
    """How often it was."""

    def concerns(self, adapter: Adapter, view: View) -> bool:
        """Whether an adapter of this service is ours to write, or was until now."""
        was_ours = self.ours or FINALIZER in adapter.finalizers
        return view.opted_in or was_ours or view.presence is Presence.KIND_ABSENT

    def took_over(self, now: float) -> "Job":
        """LLMKube's finalizer is being taken off, so what its controller wrote may be corrected at once."""
        pace = replace(self.pace, corrected=NEVER)
        return replace(self, pace=pace, taken_over=now, takeovers=self.takeovers + 1)

    def seen(self, adapter: Adapter, view: View, now: float, wall: datetime) -> "Job":
        """Remember whose it is and since when it has been going, as it is seen now (monotonic, and by the wall)."""
        ours = self.ours or view.opted_in or FINALIZER in adapter.finalizers
        return replace(self, ours=ours, leaving=self._left_at(adapter, now, wall))

    def _left_at(self, adapter: Adapter, now: float, wall: datetime) -> float | None:
        if not adapter.deleting or self.leaving is not None:
            return self.leaving if adapter.deleting else None
        if adapter.deleted_at is None:
            return now
        return now - max(0.0, (wall - adapter.deleted_at).total_seconds())

    def finalizers(
        self, adapter: Adapter, view: View, policy: Policy, now: float
    ) -> tuple[tuple[str, ...], float | None]:
        """The finalizers that the adapter should have now, and when that may change by itself (monotonic)."""
        times = []
        if policy.takes_over and LLMKUBE_FINALIZER in adapter.finalizers:
            free = self.taken_over + (CORRECTION if self.takeovers > 1 else IN_FORCE)
            if now < free:  # something puts it on again: no race is run with it
                policy = replace(policy, takes_over=False)
                times.append(free)
        waited = 0.0
        if self.leaving is not None:
            waited = now - self.leaving
            if FINALIZER in adapter.finalizers and waited < DEADLINE:
                times.append(self.leaving + DEADLINE)
        return wanted(adapter, view, policy, waited), min(times, default=None)
