"""What the fake API server remembers: objects with uid, version and generation, and the events that led to them."""

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sidecar.kube.client import Resource

Object = dict[str, Any]
Key = tuple[Resource, str | None, str]


@dataclass(frozen=True)
class Event:
    """A change of one object. `version` is that of the change, also where it is a deletion."""

    version: int
    resource: Resource
    namespace: str | None
    old: Object | None
    new: Object | None

    @property
    def shown(self) -> Object:
        """The object as a watch shows it: a deleted one with its last content, and the deletion's version."""
        item = copy.deepcopy(self.new or self.old or {})
        item["metadata"]["resourceVersion"] = str(self.version)
        return item


class Memory:
    """The objects. Every write makes an event, unless it changes nothing."""

    def __init__(self) -> None:
        self.oldest = 0
        """A watch from an earlier version is answered with 410."""
        self._version = 100
        self._uids = itertools.count(1)
        self._objects: dict[Key, Object] = {}
        self._events: list[Event] = []
        self._listeners: list[Callable[[Event], None]] = []

    @property
    def version(self) -> str:
        return str(self._version)

    def subscribe(self, listener: Callable[[Event], None]) -> None:
        self._listeners.append(listener)

    def forget_events(self) -> None:
        """What etcd's compaction does: watches from before now are too old."""
        self._version += 1
        self.oldest = self._version

    def since(self, resource: Resource, version: int) -> Iterator[Event]:
        return (e for e in self._events if e.resource == resource and e.version > version)

    def objects(self, resource: Resource) -> list[Object]:
        found = (item for key, item in self._objects.items() if key[0] == resource)
        return [copy.deepcopy(item) for item in found]

    def get(self, resource: Resource, namespace: str | None, name: str) -> Object | None:
        return copy.deepcopy(self._objects.get((resource, namespace, name)))

    def put(self, resource: Resource, body: Object) -> Object:
        meta = body["metadata"]
        key = (resource, meta.get("namespace"), meta["name"])
        old, new = self._objects.get(key), copy.deepcopy(body)
        if old is None:
            new["metadata"].setdefault("uid", f"uid-{next(self._uids)}")
            new["metadata"].setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
            new["metadata"]["generation"] = 1
        else:
            kept = {k: v for k, v in old["metadata"].items() if k not in new["metadata"]}
            fixed = {k: old["metadata"][k] for k in ("uid", "generation", "resourceVersion")}
            new["metadata"] |= kept | fixed
            if new == old:
                return copy.deepcopy(old)
            new["metadata"]["generation"] += new.get("spec") != old.get("spec")
        self._version += 1
        new["metadata"]["resourceVersion"] = self.version
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            self._remove(key)
        else:
            self._objects[key] = new
            self._emit(key, old, new)
        return copy.deepcopy(new)

    def delete(self, resource: Resource, namespace: str | None, name: str) -> None:
        """Raises KeyError where there is none. With finalizers it is only marked."""
        key = (resource, namespace, name)
        item = copy.deepcopy(self._objects[key])
        if item["metadata"].get("finalizers"):
            item["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:01Z"
            self.put(resource, item)
        else:
            self._version += 1
            self._remove(key)

    def _remove(self, key: Key) -> None:
        self._emit(key, self._objects.pop(key), None)

    def _emit(self, key: Key, old: Object | None, new: Object | None) -> None:
        event = Event(self._version, key[0], key[1], copy.deepcopy(old), copy.deepcopy(new))
        self._events.append(event)
        for listener in self._listeners:
            listener(event)


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def applied(target: Any, patch: Any) -> Any:
    """Server-side apply, as far as it is used here: lists are merged by the name of their items."""
    if isinstance(patch, dict) and isinstance(target, dict):
        return target | {name: applied(target.get(name), value) for name, value in patch.items()}
    if isinstance(patch, list) and isinstance(target, list):
        sent = {item["name"]: item for item in patch}
        return [applied(item, sent.get(item["name"], {})) for item in target]
    return copy.deepcopy(patch)


def selected(item: Object, path: str) -> str:
    """The value of a selectable field; empty where it is not set."""
    value: Any = item
    for part in path.lstrip(".").split("."):
        value = value.get(part, {}) if isinstance(value, dict) else {}
    return "" if value == {} else str(value)
