"""What an informer knows: the decoded objects by key, and which version of each it has seen.

No I/O. Answers to every change whether what readers see has changed, and names it to `on_change`. An object whose
new version cannot be decoded keeps its last good value: not to understand is not to know that it is gone.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeGuard, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

Change = Callable[[str, T | None, T | None], None]
"""Called with key, old and new value after the snapshot holds the new one; None stands for absent."""

_TEXT_LIMIT = 300


@dataclass(frozen=True, slots=True)
class Record(Generic[T]):
    """One version of one object: its value, or None where it is not wanted or was never understood."""

    uid: str
    version: str
    value: T | None
    error: str | None = None


class Store(Generic[T]):
    """The objects of one scope. `decode` and `accept` are those of `Informer`."""

    def __init__(
        self,
        decode: Callable[[dict[str, Any]], T | None],
        accept: Callable[[dict[str, Any]], bool] | None = None,
        on_change: Change[T] | None = None,
    ) -> None:
        self._decode = decode
        self._accept = accept
        self._on_change = on_change
        self._records: dict[str, Record[T]] = {}
        self._values: dict[str, T] = {}
        self._errors: dict[str, str] = {}
        self.snapshot: Mapping[str, T] = MappingProxyType(self._values)
        self.undecodable: Mapping[str, str] = MappingProxyType(self._errors)

    def read(self, raw: dict[str, Any]) -> tuple[str, Record[T]]:
        """The key and record of an object (see `is_object`), decoded unless this very version is known."""
        key, uid, version = _identity(raw)
        known = self._records.get(key)
        if known is not None and (known.uid, known.version) == (uid, version):
            return key, known
        last = known.value if known is not None and known.uid == uid else None
        try:
            wanted = self._accept is None or self._accept(raw)
            value = self._decode(raw) if wanted else None
        except Exception as error:  # noqa: BLE001 - whatever one object makes `decode` do, the others go on
            text = f"{type(error).__name__}: {error}"[:_TEXT_LIMIT]
            return key, Record(uid, version, last, text)
        # An equal value stays the very same object: most new versions change nothing that is decoded.
        return key, Record(uid, version, last if last == value else value)

    def replace(self, records: Mapping[str, Record[T]]) -> bool:
        """Takes a complete list as the truth; what it lacks is gone."""
        changed = [self._set(key, None) for key in self._records.keys() - records.keys()]
        changed += [self._set(key, record) for key, record in records.items()]
        return any(changed)

    def put(self, raw: dict[str, Any]) -> bool:
        """Takes one object that was added or modified."""
        return self._set(*self.read(raw))

    def drop(self, raw: dict[str, Any]) -> bool:
        """Forgets one object that was deleted."""
        return self._set(_identity(raw)[0], None)

    def _set(self, key: str, record: Record[T] | None) -> bool:
        old, new = self._values.get(key), record.value if record else None
        if record is not None and record.error and record is not self._records.get(key):
            log.warning("%s, version %s, is not understood: %s", key, record.version, record.error)
        _put(self._records, key, record)
        _put(self._errors, key, record.error if record else None)
        if old == new:
            return False
        _put(self._values, key, new)
        if self._on_change is not None:
            self._on_change(key, old, new)
        return True


V = TypeVar("V")


def _put(where: dict[str, V], key: str, value: V | None) -> None:
    if value is None:
        where.pop(key, None)
    else:
        where[key] = value


def is_object(raw: object) -> TypeGuard[dict[str, Any]]:
    """Whether this is an object of Kubernetes: it has metadata with a name."""
    meta = raw.get("metadata") if isinstance(raw, dict) else None
    return isinstance(meta, dict) and isinstance(meta.get("name"), str)


def _identity(raw: dict[str, Any]) -> tuple[str, str, str]:
    meta = raw["metadata"]
    name, namespace = meta["name"], meta.get("namespace")
    key = f"{namespace}/{name}" if namespace else name
    return key, str(meta.get("uid", "")), str(meta.get("resourceVersion", ""))
