"""A request to the fake API server, and what its path names."""

from dataclasses import dataclass
from typing import Any

from sidecar.kube.client import Resource


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]
    body: Any
    peer: Any = None
    """Address of the connection's other end."""

    @property
    def watch(self) -> bool:
        return self.params.get("watch") == "true"

    @property
    def verb(self) -> str:
        """What happened, for a person: list, watch, get, create, patch, replace or delete."""
        if self.method == "GET":
            return "watch" if self.watch else "get" if self._named else "list"
        return {"POST": "create", "PATCH": "patch", "PUT": "replace", "DELETE": "delete"}[
            self.method
        ]

    @property
    def _named(self) -> bool:
        return Target.of(self.path).name is not None


@dataclass(frozen=True)
class Target:
    """What a path names."""

    resource: Resource
    namespace: str | None = None
    name: str | None = None
    subresource: str | None = None

    @classmethod
    def of(cls, path: str) -> "Target":
        parts = path.strip("/").split("/")
        group, rest = ("", parts[1:]) if parts[0] == "api" else (parts[1], parts[2:])
        version, rest = rest[0], rest[1:]
        namespace = None
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        return cls(Resource(group, version, rest[0]), namespace, *rest[1:3])
