"""How the demo looks: headlines, prose, commands with what they print, rows with the seconds until they were seen.

On a terminal there are colours (unless NO_COLOR is set), one line that says what is being waited for, and pauses to
read in; lines are cut to its width. Elsewhere it is plain text that comes at once and in full. What is shown, and
whether it is true, is for others.
"""

import io
import re
import shutil
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Self, TextIO

CODES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
ERASE: Final = "\r\x1b[2K"
PROSE: Final = 96
"""Columns that prose takes at most."""
MARGIN: Final = 9
"""Columns before a row, where its seconds stand."""
PAUSE_SECONDS: Final = 1.5
REDRAW_SECONDS: Final = 0.25

FANCY: Final = {"seen": "✓", "not seen": "✗", "working": "…", "note": "└", "cut": "…"}
PLAIN: Final = {"seen": "ok", "not seen": "FAILED", "working": "...", "note": "-", "cut": "~"}


def seconds(elapsed: float) -> str:
    """Seconds as the demo writes them."""
    return f"{elapsed:.1f} s"


def clip(line: str, width: int | None, mark: str = "…") -> str:
    """Cut a line to so many columns; None leaves it whole."""
    if width is None or len(line) <= width:
        return line
    return line[: max(width - len(mark), 0)] + mark


def cells(table: str) -> list[dict[str, str]]:
    """The rows of a table of kubectl's, by column: each begins where its name stands in the header."""
    head, *rows = table.splitlines()
    starts = [found.start() for found in re.finditer(r"\S+", head)]
    ends = [*starts[1:], None]
    return [
        {head[at:to].strip(): row[at:to].strip() for at, to in zip(starts, ends, strict=True)}
        for row in rows
    ]


def aligned(row: Mapping[str, str], widths: Mapping[str, int]) -> str:
    """Cells as one line, each as wide as told and three apart, as kubectl has them."""
    return "   ".join(f"{text:<{widths[name]}}" for name, text in row.items()).rstrip()


class Screen:
    """Writes to `out`. `live`: it is a terminal. `width`: where its lines end, None for nowhere."""

    def __init__(
        self,
        out: TextIO,
        *,
        colour: bool = False,
        live: bool = False,
        width: int | None = None,
        marks: Mapping[str, str] = FANCY,
    ) -> None:
        self.live = live
        self._out = out
        self._colour = colour
        self._width = width
        self._marks = marks
        self._lock = threading.Lock()
        self._status: Callable[[], str] | None = None

    @classmethod
    def on(cls, out: TextIO, environment: Mapping[str, str]) -> Self:
        """The screen that suits a stream."""
        live = out.isatty() and environment.get("TERM") != "dumb"
        return cls(
            out,
            colour=live and not environment.get("NO_COLOR"),
            live=live,
            width=shutil.get_terminal_size((100, 24)).columns if live else None,
            marks=FANCY if (out.encoding or "").lower().startswith("utf") else PLAIN,
        )

    # --- what is written ------------------------------------------------------------------------

    def headline(self, text: str) -> None:
        """Begin something new."""
        self._write("", self._paint(text, "bold"))

    def prose(self, text: str) -> None:
        """A paragraph: what happens, and why it matters."""
        width = min(PROSE, (self._width or PROSE) - 1)
        self._write(*self._wrapped(text, width, "  "))

    def command(self, text: str) -> None:
        """What is being run, as one would type it."""
        first, *rest = text.splitlines()
        lines = [f"  $ {first}", *(f"    {line}" for line in rest)]
        self._write("", *(self._paint(line, "cyan") for line in lines))

    def output(self, text: str) -> None:
        """What a command has printed."""
        self._write(*(self._cut(f"    {line}") for line in text.rstrip().splitlines()))

    def copyable(self, lines: Iterable[str]) -> None:
        """Lines that somebody may want to copy, so whole ones."""
        self._write(*(f"    {line}".rstrip() for line in lines))

    def head(self, line: str) -> None:
        """The header of the rows that follow."""
        self._write(self._paint(self._cut(" " * MARGIN + line), "dim"))

    def row(self, elapsed: float, line: str, notes: Iterable[str] = ()) -> None:
        """One row of a table, seen so many seconds after what caused it, and what is said about it."""
        when = f"+{seconds(elapsed)}"
        row = self._cut(f"{when:>{MARGIN - 1}} {line}")
        width = (self._width or PROSE + MARGIN) - 1
        before, after = " " * MARGIN + self._marks["note"] + " ", " " * (MARGIN + 2)
        for note in notes:
            row += "".join(
                f"\n{self._paint(part, 'dim')}"
                for part in self._wrapped(note, width, before, after)
            )
        self._write(row)

    def seen(self, text: str, elapsed: float | None = None) -> None:
        """Something has come about."""
        after = "" if elapsed is None else f" ({seconds(elapsed)})"
        self._write(f"  {self._paint(self._marks['seen'], 'green')} {text}{after}")

    def failed(self, text: str) -> None:
        """Something has not."""
        self._write("", f"  {self._paint(self._marks['not seen'], 'red')} {text}")

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Meanwhile say, on a terminal, what is being waited for and for how long."""
        if not self.live:
            yield
            return
        began, done = time.monotonic(), threading.Event()

        def status() -> str:
            line = f"  {self._marks['working']} {text} {time.monotonic() - began:.0f} s"
            return self._paint(self._cut(line), "yellow")

        def redraw() -> None:
            while not done.wait(REDRAW_SECONDS):
                self._write()

        self._status = status
        thread = threading.Thread(target=redraw, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self._status = None
            self._write()

    def pause(self) -> None:
        """Leave time to read, where somebody does."""
        if self.live:
            time.sleep(PAUSE_SECONDS)

    # --- how ------------------------------------------------------------------------------------

    def _write(self, *lines: str) -> None:
        with self._lock:
            text = "".join(f"{line}\n" for line in lines)
            if self.live:
                text = ERASE + text + (self._status() if self._status else "")
            try:
                self._out.write(text)
                self._out.flush()
            except BrokenPipeError:
                self._out = io.StringIO()
                raise SystemExit(1) from None  # nobody reads any more

    def _paint(self, text: str, colour: str) -> str:
        return f"\x1b[{CODES[colour]}m{text}\x1b[0m" if self._colour and text else text

    def _cut(self, line: str) -> str:
        return clip(line, self._width and self._width - 1, self._marks["cut"])

    @staticmethod
    def _wrapped(text: str, width: int, before: str, after: str | None = None) -> list[str]:
        return textwrap.wrap(
            text,
            max(width, 40),
            initial_indent=before,
            subsequent_indent=before if after is None else after,
            break_long_words=False,
            break_on_hyphens=False,
        )
