"""Which adapters may have killed the engine, and what is known against each. Pure.

SGLang loads an adapter whose tensors do not fit with a 200, and dies when a request first uses it; a client that goes
on asking then kills every process that follows. So what had been loaded shortly before a death is suspected: it comes
last in the next process, one by one, each tried with a one-token request whose answer clears it. Only a death during
an adapter's own load or trial counts against it, and the second one holds it back.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

BLAME: Final = 600.0
"""Seconds after the last load for which a death is blamed on what was loaded."""
DEATHS: Final = 2
"""Deaths during an adapter's own load or trial that hold it back."""
FIRST_HOLD: Final = 300.0
LONGEST_HOLD: Final = 3600.0
TRIAL_PAUSE: Final = 60.0
"""Seconds until a trial that told nothing is repeated."""
DYING: Final = 10.0
"""Seconds after a lost answer in which a list says nothing: SGLang 0.5.21 serves for 5 s more when it dies."""


@dataclass(frozen=True, slots=True)
class Case:
    """What an adapter was when it was loaded: once any of it differs, nothing is held against it."""

    handle: str
    path: str
    signature: str = ""
    retry: str = ""

    def is_of(self, other: "Case") -> bool:
        """Whether both are the same; a signature that is not known is no difference."""
        mine, others = self.signature or other.signature, other.signature or self.signature
        return replace(self, signature=mine) == replace(other, signature=others)


@dataclass(frozen=True, slots=True)
class Suspect:
    """One adapter's case. `retry_at`: not to be loaded, or tried, before (monotonic seconds)."""

    case: Case
    deaths: int = 0
    retry_at: float = 0.0
    cleared: bool = False

    @property
    def held_back(self) -> bool:
        """Whether the engine died often enough over it."""
        return self.deaths >= DEATHS


@dataclass(frozen=True, slots=True)
class Accused:
    """The adapter whose load or trial was left without an answer by engine process `boot`, and since when."""

    uid: str
    case: Case
    boot: str
    since: float


@dataclass(frozen=True, slots=True)
class Suspects:
    """All of them by uid, and what the next death will be judged by (`loaded_at`, `away_since`: monotonic seconds)."""

    by_uid: Mapping[str, Suspect] = field(default_factory=lambda: MappingProxyType({}))
    accused: Accused | None = None
    loaded_at: float | None = None
    away_since: float | None = None

    def of(self, uid: str) -> Suspect | None:
        """The case that is open against an adapter; None where there is none."""
        suspect = self.by_uid.get(uid)
        return None if suspect is None or suspect.cleared else suspect

    def loaded(self, now: float) -> "Suspects":
        """Something was loaded just now."""
        return replace(self, accused=None, loaded_at=now)

    def unanswered(self, uid: str, case: Case, boot: str, now: float) -> "Suspects":
        """The answer to an adapter's load or trial was lost: if the engine has died, it died over this."""
        accused = Accused(uid, case, boot, now)
        return replace(self._postponed(uid, now), accused=accused, loaded_at=now)

    def tried(self, uid: str, now: float, *, cleared: bool) -> "Suspects":
        """A trial was answered, by a token or by something that tells nothing."""
        if not cleared:
            return replace(self._postponed(uid, now), accused=None)
        suspect = self.by_uid.get(uid)
        if suspect is None:
            return self
        return replace(self._with(uid, Suspect(suspect.case, cleared=True)), accused=None)

    def _postponed(self, uid: str, now: float) -> "Suspects":
        suspect = self.by_uid.get(uid)
        if suspect is None:
            return self
        return self._with(uid, replace(suspect, retry_at=now + TRIAL_PAUSE))

    def _with(self, uid: str, suspect: Suspect) -> "Suspects":
        return replace(self, by_uid=MappingProxyType({**self.by_uid, uid: suspect}))

    def seen(self, boot: str, seen_at: float, now: float, dead: Mapping[str, Case]) -> "Suspects":
        """The engine as it is now. `dead` is what an earlier process held that we had loaded, by uid."""
        if not boot:
            waits = self.away_since is not None or (self.loaded_at, self.accused) == (None, None)
            return self if waits else replace(self, away_since=now)
        accused = self.accused
        if dead or (accused and accused.boot != boot):
            return self._died(boot, now, dead)
        if accused and seen_at > accused.since + DYING:
            return replace(self, accused=None, away_since=None)
        return self if self.away_since is None else replace(self, away_since=None)

    def _died(self, boot: str, now: float, dead: Mapping[str, Case]) -> "Suspects":
        died_at = now if self.away_since is None else self.away_since
        by_uid = dict(self.by_uid)
        if self.loaded_at is not None and died_at - self.loaded_at < BLAME:
            for uid, case in dead.items():
                known = by_uid.get(uid)
                if known is None or not known.case.is_of(case):
                    by_uid[uid] = Suspect(case)
        by_uid = {
            uid: replace(suspect, retry_at=suspect.retry_at if suspect.held_back else 0.0)
            for uid, suspect in by_uid.items()
        }
        accused = self.accused
        if accused and accused.boot != boot:
            by_uid[accused.uid] = _after_a_death(by_uid.get(accused.uid), accused, now)
        return Suspects(MappingProxyType(by_uid))

    def still(self, cases: Mapping[str, Case], *, complete: bool) -> "Suspects":
        """Forget those that have changed and, where `cases` are all that there is, those that are gone."""
        left = {
            uid: suspect
            for uid, suspect in self.by_uid.items()
            if (suspect.case.is_of(cases[uid]) if uid in cases else not complete)
        }
        return (
            self if len(left) == len(self.by_uid) else replace(self, by_uid=MappingProxyType(left))
        )


def recalled(told: Iterable[tuple[str, Case, int]], now: float) -> Suspects:
    """Those that an earlier life of the agent suspected: uid, case, deaths."""
    by_uid = {uid: Suspect(case, deaths, _held_until(deaths, now)) for uid, case, deaths in told}
    return Suspects(MappingProxyType(by_uid))


def _after_a_death(known: Suspect | None, accused: Accused, now: float) -> Suspect:
    same = known is not None and known.case.is_of(accused.case)
    deaths = (known.deaths if known and same else 0) + 1
    return Suspect(accused.case, deaths, _held_until(deaths, now))


def _held_until(deaths: int, now: float) -> float:
    if deaths < DEATHS:
        return 0.0
    return now + min(FIRST_HOLD * 2.0 ** min(deaths - DEATHS, 10), LONGEST_HOLD)
