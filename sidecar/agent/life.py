"""The life of an engine as answers and refusals tell it: each function makes the next view of the last one. Pure.

A refusal everywhere ends an engine process; the first list after it begins another. What names a process (`boot`) comes
from `/server_info`; with a fixed seed two lives of one engine look alike, so a refusal seen in between counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from sidecar.agent.answers import Listing, ServerInfo
from sidecar.agent.state import UNNAMED, EngineView
from sidecar.api.reasons import EngineState, Reason

SILENT_READS: Final = 3
"""Reads in a row that must fail before an engine that connects is called unreachable."""
FIRST_WAIT: Final = 120.0
"""Seconds that the first load waits for `/server_info`, which queues behind SGLang's warm-up."""
LATER_WAIT: Final = 10.0
"""The same when a running engine is asked again."""

_ATTENTION_DP: Final = ((0, 5, 17), (0, 5, 22))
"""From, and before, which SGLang `dp_size` may also mean attention-DP, which can load adapters."""


@dataclass(frozen=True, slots=True)
class Life:
    """The view, and what leads to the next: `settle_by` is when loads stop waiting for `/server_info` (monotonic)."""

    view: EngineView = field(default_factory=EngineView)
    last_boot: str = ""
    refused: bool = False
    silent: int = 0
    settle_by: float | None = None
    unnamed: int = 0

    @property
    def unidentified(self) -> bool:
        """Whether `/server_info` is to be asked."""
        return self.settle_by is not None


def refused(life: Life, addresses: str) -> Life:
    """Nobody listens: no engine process is there, or it is still loading its model."""
    view = EngineView(state=EngineState.STARTING, text=f"nothing listens on {addresses}")
    return replace(life, view=view, refused=True, silent=0, settle_by=None)


def silent(life: Life, text: str) -> Life:
    """A read failed although the engine connects."""
    count = life.silent + 1
    if count < SILENT_READS:
        return replace(life, silent=count)
    return replace(life, silent=count, view=_away(life.view, None, text))


def turned_away(life: Life, reason: Reason, text: str) -> Life:
    """The engine answers, and will not let us read: a wrong key, or a server without these routes."""
    return replace(life, view=_away(life.view, reason, text))


def _away(view: EngineView, reason: Reason | None, text: str) -> EngineView:
    state = EngineState.UNREACHABLE
    if reason is Reason.ENGINE_UNSUPPORTED:
        state = EngineState.UNSUPPORTED
    return replace(view, state=state, reason=reason, text=text)


def listed(life: Life, listing: Listing, now: float, wall: datetime) -> Life:
    """The engine told what it holds. The first time in its life, it is Ready from now on."""
    view = life.view
    first = view.since is None
    view = replace(
        view,
        names=None if listing.supported else view.names,
        since=view.since or wall,
        model=listing.base,
        held=listing.loaded,
        lists=listing.supported,
        listed_at=now,
    )
    settle_by = now + FIRST_WAIT if first else life.settle_by
    return replace(life, view=_judged(view), silent=0, settle_by=settle_by)


def changed(life: Life, held: Mapping[str, str]) -> Life:
    """The answer to a load or unload told what the engine holds now."""
    if life.view.held is None:
        return life
    return replace(life, view=replace(life.view, held=held))


def named(life: Life, names: frozenset[str] | None, now: float) -> Life:
    """An engine that cannot list told the handles that it holds; None: they may have changed since."""
    if life.view.lists or (names is None and life.view.names is None):
        return life
    if names is None:
        return replace(life, view=replace(life.view, names=None))
    return replace(life, view=replace(life.view, names=names, named_at=now))


def asked_again(life: Life, now: float) -> Life:
    """Another process may be answering: no loads before it has said who it is, or failed to in time."""
    if life.unidentified or life.view.since is None:
        return life
    return replace(life, view=replace(life.view, settled=False), settle_by=now + LATER_WAIT)


def identified(life: Life, info: ServerInfo, wall: datetime) -> Life:
    """`/server_info` has answered. Before the first list of a process that counts for nothing: it is asked again."""
    if life.view.since is None:
        return life
    boot = _boot(life, info.identity)
    moved = life.view.boot not in ("", boot)
    view = replace(
        life.view, info=info, boot=boot, settled=True, since=wall if moved else life.view.since
    )
    if moved:
        view = replace(view, names=None)
    return replace(life, view=_judged(view), last_boot=boot, refused=False, settle_by=None)


def waited(life: Life, now: float) -> Life:
    """Let loads begin once `/server_info` has been waited for long enough; it is still asked."""
    if life.settle_by is None or now < life.settle_by or life.view.settled:
        return life
    view, unnamed = life.view, life.unnamed
    if not view.boot:
        unnamed += 1
        view = replace(view, boot=f"{UNNAMED}{unnamed}")
    return replace(life, view=replace(view, settled=True), unnamed=unnamed)


def _boot(life: Life, identity: str) -> str:
    name, _, count = life.last_boot.partition(".")
    if name != identity:
        return identity
    if not life.refused:
        return life.last_boot
    return f"{identity}.{int(count or 0) + 1}"


def _judged(view: EngineView) -> EngineView:
    """Ready, unless its set-up cannot load adapters."""
    verdict = unsupported(view.info) if view.info else None
    if verdict is None:
        return replace(view, state=EngineState.READY, reason=None, text="")
    return replace(view, state=EngineState.UNSUPPORTED, reason=verdict[0], text=verdict[1])


def unsupported(info: ServerInfo) -> tuple[Reason, str] | None:
    """Why an engine cannot load adapters at run time, with what to change; None where nothing speaks against it."""
    if info.enable_lora is False:
        return Reason.LORA_DISABLED, Reason.LORA_DISABLED.sentence
    if (info.tokenizer_worker_num or 1) > 1:
        text = (
            f"--tokenizer-worker-num is {info.tokenizer_worker_num}: each worker knows only the adapters that it"
            " loaded itself; set it to 1"
        )
        return Reason.ENGINE_UNSUPPORTED, text
    if (info.node_rank or 0) > 0:
        text = (
            f"node {info.node_rank} of several: only node 0 of a multi-node engine loads adapters"
        )
        return Reason.ENGINE_UNSUPPORTED, text
    first, last = _ATTENTION_DP
    if (info.dp_size or 1) > 1 and not (
        info.enable_dp_attention and first <= info.version_numbers < last
    ):
        text = (
            f"--dp-size is {info.dp_size}: SGLang loads adapters at run time only with one replica"
        )
        return Reason.ENGINE_UNSUPPORTED, text
    return None
