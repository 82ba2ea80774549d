"""How long to wait before the next try: doubling up to a limit, anywhere below it (full jitter).

Jitter over the whole range is what keeps a thousand pods from coming back to a restarted API server all at once.
"""

from collections.abc import Callable


class Backoff:
    """Delays in seconds: at random up to `first`, then up to twice that, and so on up to `limit`."""

    def __init__(self, first: float, limit: float, dice: Callable[[], float]) -> None:
        self._first = first
        self._limit = limit
        self._dice = dice
        self._ceiling = first

    def next(self, at_least: float | None = None) -> float:
        """The next delay; not below `at_least`, which gets a fifth of itself in jitter on top."""
        delay = self._dice() * self._ceiling
        self._ceiling = min(self._limit, self._ceiling * 2)
        return delay if at_least is None else max(delay, at_least * (1 + self._dice() / 5))

    def reset(self) -> None:
        """Begin anew: it went well."""
        self._ceiling = self._first
