"""Names that carry a sentence for people: declared once, said in statuses and answers, printed by the documentation."""

from enum import StrEnum
from typing import Self


class Sentenced(StrEnum):
    """A set of names; each member is written `MEMBER = (name, sentence)` and is its name."""

    sentence: str

    def __new__(cls, name: str, sentence: str) -> Self:
        """Make the member: its value is `name`, with `sentence` beside it."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.sentence = sentence
        return member
