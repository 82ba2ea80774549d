"""Which of the engine's mounts the agent is given too, read-only: those that adapters and models can lie in.

Never secrets, tokens or the node's own directories and sockets: the agent sees no more than it needs.
"""

import functools
import posixpath
import re
from dataclasses import dataclass
from typing import Any, Final

from injector.engine import environment

CREDENTIALS: Final = "/var/run/secrets/lora-sidecar"
"""Where the agent finds its token, and the engine's keys."""

_SAFE: Final = frozenset(
    {"persistentVolumeClaim", "nfs", "image", "configMap", "emptyDir", "ephemeral"}
)
_SECRETIVE: Final = frozenset({"secrets-store.csi.k8s.io", "csi.cert-manager.io", "csi.spiffe.io"})
"""CSI drivers whose volumes are secrets."""
_VAULT: Final = "/vault/secrets"
"""Where Vault's injector mounts secrets, which it keeps in an emptyDir."""
_NODE_OWN: Final = ("/dev", "/proc", "/sys", "/run", "/var/run")
_CLOSED: Final = ("/usr/local/lib", "/usr/local/bin", "/run/secrets/lora-sidecar")
_OURS: Final = (
    *_CLOSED,
    "/usr/lib",
    "/usr/bin",
    "/usr/local/bin",
    "/usr/local/lib",
    "/lib",
    "/lib64",
    "/bin",
    "/etc",
    "/opt/lora-sidecar",
)
"""Directories of the agent's own container that it cannot do without; in the former no other mount may lie."""
_OWN_NAMES: Final = re.compile(r"LORA_SIDECAR_|PYTHON|LD_|PATH$|HOME$|SSL_|KUBERNETES_")
"""Variables that mean something to the agent itself."""
_VARIABLE: Final = re.compile(r"\$\((\w+)\)")


@dataclass(frozen=True, slots=True)
class Shared:
    """The agent's mounts, the environment that their subPathExpr needs, and what a user should know."""

    mounts: tuple[dict[str, Any], ...]
    env: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]


def shared(container: dict[str, Any], volumes: list[dict[str, Any]]) -> Shared:
    """Choose among the mounts of the engine's container."""
    by_name = {volume["name"]: volume for volume in volumes}
    entries = environment(container)
    mounts: list[dict[str, Any]] = []
    env: dict[str, dict[str, Any]] = {}
    warnings: list[str] = []
    for mount in container.get("volumeMounts") or []:
        if not _may(by_name.get(mount["name"], {})) or _real(mount["mountPath"]) == _VAULT:
            continue
        if _covers_ours(mount["mountPath"]):
            warnings.append(
                f"the mount {mount['mountPath']} is not shared with the agent: it would cover the agent's own files"
            )
            continue
        needed = _VARIABLE.findall(mount.get("subPathExpr", ""))
        unknown = [name for name in needed if not _copyable(name, entries)]
        if unknown:
            warnings.append(
                f"the mount {mount['mountPath']} is not shared with the agent: its subPathExpr needs {unknown[0]},"
                " which is neither a literal nor a fieldRef that the agent can be given"
            )
            continue
        env |= {name: entries[name] for name in needed}
        kept = {k: mount[k] for k in ("name", "mountPath", "subPath", "subPathExpr") if k in mount}
        mounts.append(kept | {"readOnly": True})
    return Shared(tuple(mounts), tuple(env.values()), tuple(warnings))


def _may(volume: dict[str, Any]) -> bool:
    if "hostPath" in volume:
        return _host_path(volume["hostPath"])
    if "csi" in volume:
        return volume["csi"].get("driver") not in _SECRETIVE
    if "projected" in volume:
        sources = volume["projected"].get("sources") or []
        return all(set(source) <= {"configMap", "downwardAPI"} for source in sources)
    return bool(_SAFE & set(volume))


def _host_path(source: dict[str, Any]) -> bool:
    if source.get("type") not in (None, "", "Directory", "DirectoryOrCreate"):
        return False
    path = "/" + posixpath.normpath(source["path"]).lstrip("/")
    own = any(path == top or path.startswith(f"{top}/") for top in _NODE_OWN)
    return path != "/" and not own and not path.endswith(".sock")


@functools.lru_cache(1024)
def _covers_ours(path: str) -> bool:
    """Whether a mount hides what the agent needs, or lies in it."""
    path = _real(path)
    hides = any(path == "/" or f"{own}/".startswith(f"{path}/") for own in _OURS)
    return hides or any(path.startswith(f"{own}/") for own in _CLOSED)


def _real(path: str) -> str:
    """Normal, and with what is a link in most images followed."""
    path = "/" + posixpath.normpath(path).lstrip("/")
    return path.removeprefix("/var") if f"{path}/".startswith("/var/run/") else path


def _copyable(name: str, entries: dict[str, dict[str, Any]]) -> bool:
    entry = entries.get(name)
    if entry is None or _OWN_NAMES.match(name):
        return False
    if "valueFrom" in entry:
        return set(entry["valueFrom"]) == {"fieldRef"}
    return "$(" not in entry.get("value", "")
