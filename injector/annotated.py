"""What a pod's annotations say, read by their table: bad values are warnings and the default.

But for adapter-namespaces, which falls closed to the pod's own namespace.
"""

from typing import Final

from sidecar.api import names
from sidecar.api.annotations import ANNOTATIONS, Annotation

_DECLARED: Final = {declared.key: declared for declared in ANNOTATIONS}


class Said:
    """The annotations of a pod, read by their table; what is wrong with them gathers in `warnings`."""

    def __init__(self, annotations: dict[str, str]) -> None:
        self.warnings: list[str] = []
        self._good: dict[str, str] = {}
        for key in sorted(annotations.keys() & _DECLARED.keys()):
            self._take(_DECLARED[key], annotations[key])

    def _take(self, declared: Annotation, value: str) -> None:
        wrong = declared.check(value)
        if wrong is None or declared.name == "adapter-namespaces":
            self._good[declared.name] = value
        else:
            self.warnings.append(
                f"{declared.key}: {wrong}; using the default ({declared.default or 'none'})"
            )

    def get(self, name: str) -> str | None:
        """What a user said, None where that is nothing or wrong."""
        return self._good.get(name)

    def namespaces(self, own: str) -> tuple[str, ...]:
        """Whose adapters are allowed; bad entries are dropped, and an empty rest is the pod's own namespace."""
        value = self.get("adapter-namespaces")
        if value is None:
            return ("*",)
        check = _DECLARED[names.SERVICE].check
        entries = [part.strip() for part in value.split(",")]
        good = tuple(e for e in entries if e == "*" or ("." not in e and check(e) is None))
        if len(good) < len(entries):
            self.warnings.append(
                f"{names.PREFIX}/adapter-namespaces: what is no namespace is left out; allowed are"
                f" {', '.join(good or (own,))}"
            )
        return good or (own,)
