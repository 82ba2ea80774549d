"""Reads what the chart's values.yaml says of each value, for the page that lists them.

A comment stands above the key that it is about; what has none, below a map in a section, has the map's. The file is the
chart's own, so only what it uses is understood: block maps, and values on the line of their key.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_KEY: Final = re.compile(r"^( *)(\w+):(?: (.*))?$")


@dataclass(frozen=True, slots=True)
class Value:
    """One value. `default` is as written, "" where it is a map of others; `sentence` what the comment says."""

    path: tuple[str, ...]
    default: str
    sentence: str


def read(text: str) -> Iterator[Value]:
    """The values and the maps that hold them, in the file's order. ValueError with a line that is not understood."""
    comment: list[str] = []
    path: list[str] = []
    said: dict[tuple[str, ...], str] = {}
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("#"):
            comment.append(bare.removeprefix("#").strip())
            continue
        if bare and (found := _KEY.match(line)):
            indent, key, default = found.groups()
            path = [*path[: len(indent) // 2], key]
            inherited = said[tuple(path[:-1])] if len(path) > 2 else ""
            said[tuple(path)] = " ".join(comment) or inherited
            yield Value(tuple(path), default or "", said[tuple(path)])
        elif bare:
            raise ValueError(f"values.yaml: not understood: {line!r}")
        comment = []
