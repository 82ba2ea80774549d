"""One figure, one JSON line: what every bench prints, and what decides whether a budget is met."""

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure against its budget. `limit` is the number, `budget` the words it comes from."""

    name: str
    n: int
    unit: str
    limit: float
    budget: str
    value: float | None = None
    p50: float | None = None
    p99: float | None = None
    max: float | None = None

    @property
    def met(self) -> bool:
        """Whether what the budget bounds is within its limit."""
        measured = self.value if self.value is not None else self.p99
        return measured is not None and measured <= self.limit

    def line(self) -> str:
        """As JSON."""
        told = {
            "name": self.name,
            "n": self.n,
            **{
                key: round(number, 3)
                for key in ("p50", "p99", "max", "value")
                if (number := getattr(self, key)) is not None
            },
            "unit": self.unit,
            "limit": round(self.limit, 3),
            "budget": self.budget,
            "met": self.met,
        }
        return json.dumps(told)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of all lie; of few values the nearest one."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(
    name: str, values: Sequence[float], *, limit: float, budget: str, unit: str = "ms"
) -> Figure:
    """A figure of many measurements, bounded at its 99th percentile."""
    return Figure(
        name,
        len(values),
        unit,
        limit,
        budget,
        p50=statistics.median(values),
        p99=quantile(values, 0.99),
        max=max(values),
    )


def tell(*figures: Figure) -> int:
    """Print them; answer how many budgets were missed."""
    for figure in figures:
        sys.stdout.write(figure.line() + "\n")
    sys.stdout.flush()
    return sum(not figure.met for figure in figures)
