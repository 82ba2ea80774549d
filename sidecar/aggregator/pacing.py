"""When an adapter is looked at and when what was found is written: at once in quiet, bounded in a storm.

Pure: each function takes one adapter's pace and the monotonic time, and answers. The rules:

* A change after a quiet second is looked at and written at once. Further changes are looked at once a second.
* In a storm one write per max(1 s, pods / 100 s), as every write goes to every pod of the service; where the status
  of a condition changes, people wait for it, and it waits a second at most.
* What only undoes another writer's work is written once a minute: two writers must not chase one another.
* What was refused is tried again after growing pauses, whatever happens meanwhile.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

QUIET: Final = 1.0
PODS_A_SECOND: Final = 100.0
CORRECTION: Final = 60.0
_CONFLICTS: Final = 3
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0

NEVER: Final = -math.inf


@dataclass(frozen=True, slots=True)
class Pace:
    """What is remembered of one adapter. `next` is when to look at it again; None: when something changes."""

    next: float | None = None
    calm: bool = False
    stirred: float = NEVER
    looked: float = NEVER
    written: float = NEVER
    corrected: float = NEVER
    held_until: float = NEVER
    failures: int = 0

    def stir(self, now: float) -> "Pace":
        """Something changed that may concern the adapter."""
        calm = now - max(self.stirred, self.written) >= QUIET
        look = now if calm else max(now, self.looked + QUIET)
        when = look if self.next is None else min(self.next, look)
        return replace(self, next=when, calm=self.calm or calm, stirred=now)

    def look(self, now: float) -> "Pace":
        """It was looked at; unless something differs, that was all."""
        return replace(self, next=None, looked=now)

    def settle(self) -> "Pace":
        """Nothing differs."""
        return replace(self, next=None, calm=False, failures=0)

    def may_write(self, now: float, *, pods: int, urgent: bool, corrective: bool) -> float:
        """The earliest moment at which a difference may be written; `now` where that is at once.

        `pods`: of the service. `urgent`: a condition's status changes. `corrective`: it would only restore what
        this process had written before.
        """
        if corrective:
            when = self.corrected + CORRECTION
        elif self.calm:
            when = now
        else:
            when = self.written + (QUIET if urgent else max(QUIET, pods / PODS_A_SECOND))
        return max(now, when, self.held_until)

    def again(self, now: float) -> "Pace":
        """What was written was a step on the way: look again at once."""
        return replace(self, next=now, held_until=NEVER, failures=0)

    def wait(self, until: float) -> "Pace":
        """It differs, but may not be written before then."""
        return replace(self, next=until)

    def write(self, now: float, *, corrective: bool) -> "Pace":
        """It was written."""
        return replace(
            self,
            calm=False,
            written=now,
            corrected=now if corrective else self.corrected,
            held_until=NEVER,
            failures=0,
        )

    def conflict(self, now: float) -> "Pace":
        """Somebody else wrote it first: look again, at once unless that goes on."""
        if self.failures >= _CONFLICTS:
            return self.fail(now)
        return replace(self, next=now, failures=self.failures + 1)

    def fail(self, now: float, at_least: float = 0.0) -> "Pace":
        """It could not be written; the server may have asked for `at_least` so many seconds."""
        pause = max(at_least, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**self.failures))
        until = now + pause
        return replace(self, next=until, held_until=until, failures=min(self.failures + 1, 10))
