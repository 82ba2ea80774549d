"""One table of kubectl's as it changes: its command and header once per wait, and only rows that say something new."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.demo.screen import Screen, aligned, cells

MOVES: Final = "AGE"
"""The column that changes without anything having happened."""
ROOM: Final = {"LOADED": 7, "AGE": 4, "REASON": 16, "STATE": 9}
"""How wide what comes later may be, so that rows stand below one another."""


@dataclass(slots=True)
class Table:
    """What one command prints, over time."""

    screen: Screen
    command: str
    _last: list[object] = field(default_factory=list)
    _headed: bool = False

    def begin(self) -> None:
        """Another wait begins: the next row has a header above it."""
        self._headed = False

    def show(self, text: str, notes: Sequence[str], elapsed: float, *, again: bool = False) -> None:
        """Show what the command has printed and what there is to say about its last row.

        Not where it has said so before; but with `again` once in each wait.
        """
        rows = cells(text)
        said = [*({k: v for k, v in row.items() if k != MOVES} for row in rows), *notes]
        if not rows or (said == self._last and (self._headed or not again)):
            return
        self._last = said
        widths = {
            name: max(len(name), ROOM.get(name, 0), *(len(row[name]) for row in rows))
            for name in rows[0]
        }
        if not self._headed:
            self.screen.command(self.command)
            self.screen.head(aligned({name: name for name in widths}, widths))
            self._headed = True
        for row in rows[:-1]:
            self.screen.row(elapsed, aligned(row, widths))
        self.screen.row(elapsed, aligned(rows[-1], widths), notes)
