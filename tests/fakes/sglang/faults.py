"""What the simulated SGLang is told to do wrong, once or more often, at one of its routes."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

Act = Literal["answer", "drop", "hang", "delay"]


@dataclass(slots=True)
class Fault:
    """One misbehaviour at the requests for `path`, for the next `times` of them; -1 is until it is taken back.

    answer  give `status`, `body` and `content_type` instead
    drop    close the connection without an answer
    hang    never answer
    delay   answer rightly, only later

    Before all of them `seconds` pass.
    """

    path: str
    act: Act = "answer"
    times: int = 1
    status: int = 500
    body: str = "Internal Server Error"
    content_type: str = "text/plain"
    seconds: float = 0.0
    executed: bool = False
    """Whether the request is carried out all the same, before it goes wrong."""

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Self:
        """Make one of what came over HTTP."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in told.items() if name in known})


class Faults:
    """Those that wait for their request, in the order in which they were told."""

    def __init__(self) -> None:
        self._waiting: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Expect it."""
        self._waiting.append(fault)

    def clear(self) -> None:
        """Behave again."""
        self._waiting.clear()

    def take(self, path: str) -> Fault | None:
        """The fault that befalls this request, used up by one."""
        for fault in self._waiting:
            if fault.path == path:
                if fault.times > 0:
                    fault.times -= 1
                    if not fault.times:
                        self._waiting.remove(fault)
                return fault
        return None
