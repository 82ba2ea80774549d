"""When a directory is quiet, and when to look at it again. Pure: time is an argument.

Complete is not enough: the next file of a copy may be on its way, or the same files may be written once more. So what
was seen is withheld, as SETTLING, until the files have kept still.
"""

from dataclasses import dataclass, replace

from sidecar.agent.pathview import UNSETTLED, PathState, PathView

SLACK = 0.001
"""Seconds after the end of the settle time at which we look, so that it has surely ended."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things may take, and how often we look. Seconds."""

    settle: float = 0.5
    """For how long files keep still before they are handed to the engine."""
    settle_network: float = 5.0
    """The same where another machine may be writing: what we see may be seconds old."""
    timeout: float = 5.0
    """A look that takes longer is told as STUCK."""
    unsettled: float = 1.0
    """Between looks while something is missing or moving."""
    few: float = 5.0
    """Between looks at what is settled, with up to 20 paths."""
    many: float = 30.0
    """The same with 100 and more."""

    def between(self, count: int) -> float:
        """Seconds between looks at `count` settled paths."""
        share = min(1.0, max(0.0, (count - 20) / 80))
        return self.few + share * (self.many - self.few)


STANDARD = Pace()


def settled(
    found: PathView, since: float, now: float, wall: float, pace: Pace
) -> tuple[PathView, float | None]:
    """Answer what to show of a look, and after how many seconds to look again; None: whenever.

    `since` and `now` are readings of our own monotonic clock: when this signature was first seen, and the present.
    `wall` is the wall clock. What was found is shown unless it is a verdict on files that have yet to keep still.
    """
    if found.state not in (PathState.WHOLE, PathState.BAD):
        return found, pace.unsettled if found.state in UNSETTLED else None
    settle = pace.settle if found.local else pace.settle_network
    left = settle_left(found, since, now, wall, settle)
    if not left:
        return found, None
    text = f"its files changed just now: they must keep still for {settle:g} s"
    return replace(found, state=PathState.SETTLING, text=text), left + SLACK


def settle_left(view: PathView, since: float, now: float, wall: float, settle: float) -> float:
    """Say for how many seconds a complete directory has yet to keep still; 0 when it is quiet.

    `since` and `now` are readings of our own monotonic clock: when this signature was first seen, and the present.
    Files of a local disk that are already older than `settle` by the wall clock need no waiting. Times in the future,
    and those of a network file system (another machine's clock), prove nothing: there only our own clock counts.
    """
    left = since + settle - now
    if view.changed_at is None:
        return 0.0
    if view.local:
        left = min(left, view.changed_at + settle - wall)
    return max(0.0, left)
