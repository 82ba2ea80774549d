"""Which finalizers a LoRAAdapter should have. Pure.

Ours keeps an adapter that is being deleted until its pods have let it go, so that `kubectl delete` returns when the
engines no longer hold it; but not for long: a pod that does not answer must not keep a namespace from going.

LLMKube's own is taken off where a service is opted in: its controller does nothing to an adapter that it cannot put
its finalizer on (the chart's policy sees to that), and with it we are the only writer.
"""

from dataclasses import dataclass
from typing import Final

from sidecar.aggregator.judge import judge
from sidecar.aggregator.records import Adapter
from sidecar.aggregator.view import Group, View
from sidecar.api.names import FINALIZER, LLMKUBE_FINALIZER

DEADLINE: Final = 60.0
"""Seconds for which a deletion waits for its pods at the most."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What holds for all adapters of a service. `released`: nothing is held back any more, as we are being removed.

    `takes_over`: LLMKube's controller is kept off the service, so that its finalizer would not come back.
    """

    released: bool = False
    takes_over: bool = False


def wanted(adapter: Adapter, view: View, policy: Policy, waited: float) -> tuple[str, ...]:
    """The adapter's finalizers as they should be. `waited`: for how many seconds it has been being deleted.

    Those of others stay as they are, and no finalizer comes to an adapter that is being deleted.
    """
    holds = _holds(adapter, view, policy, waited)
    drops = set() if holds else {FINALIZER}
    if view.opted_in and policy.takes_over:
        drops.add(LLMKUBE_FINALIZER)
    kept = tuple(name for name in adapter.finalizers if name not in drops)
    if holds and FINALIZER not in kept and not adapter.deleting:
        return (*kept, FINALIZER)
    return kept


def _holds(adapter: Adapter, view: View, policy: Policy, waited: float) -> bool:
    if policy.released or not view.opted_in:
        return False
    return not adapter.deleting or (waited < DEADLINE and not _acknowledged(adapter, view))


def _acknowledged(adapter: Adapter, view: View) -> bool:
    """Whether every pod whose agent is heard says that it has let go, or why it cannot."""
    waiting = (Group.BEHIND, Group.SILENT)
    return not any(
        pod.report is not None and judge(adapter, pod, view.namespace).group in waiting
        for pod in view.pods
    )
