"""Where a path lies: in a mount that the engine has too, on which kind of file system, and below which directories.

`Shared` is pure and asks nothing of the disk. The functions that do may hang with it: they are called in the
probes' threads only.
"""

import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

_NETWORK = re.compile(
    r"(nfs|cifs|smb|fuse|lustre|ceph|gpfs|mmfs|9p|virtiofs|beegfs|glusterfs|afs|pvfs|orangefs|wekafs|panfs|davfs)"
)
_OCTAL = re.compile(r"\\([0-7]{3})")


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _within(path: str, root: str) -> bool:
    return root == "/" or path == root or path.startswith(root + "/")


@dataclass(frozen=True, slots=True)
class Shared:
    """The mount points that this container shares with the engine's, at the same places."""

    roots: tuple[str, ...]
    """Absolute and normal, the longest first; "/" stands for everything."""

    @classmethod
    def of(cls, roots: Iterable[str]) -> Self:
        """Take mount points as they are written; what is not absolute is no mount point and is left out."""
        normal = {"/" + os.path.normpath(root).lstrip("/") for root in roots if root[:1] == "/"}
        return cls(tuple(sorted(normal, key=lambda root: (-len(root), root))))

    def holds(self, path: str) -> bool:
        """Whether the path, as it is written, lies in a shared mount."""
        return any(_within(path, root) for root in self.roots)

    def group(self, path: str) -> str:
        """Name the part of the file tree that is likely to hang together with this path.

        That is its mount; where everything is shared the mounts are unknown, and the parent directory stands for it.
        """
        root = next((root for root in self.roots if _within(path, root)), "/")
        return root if root != "/" else _parent(path.rstrip("/"))


def leads_outside(real: str, shared: Shared) -> bool:
    """Whether a resolved path has left the shared mounts. A mount point may itself be written through a link."""
    if shared.holds(real):
        return False
    return not any(_within(real, os.path.realpath(root)) for root in shared.roots)


@dataclass(frozen=True, slots=True)
class MountTable:
    """The file systems of this process, by mount point."""

    kinds: Mapping[str, str]

    @classmethod
    def read(cls, source: str = "/proc/self/mountinfo") -> Self:
        """Read the kernel's table (proc_pid_mountinfo(5)); an empty one where there is none."""
        kinds = {}
        try:
            with open(source, encoding="utf-8", errors="surrogateescape") as lines:  # noqa: PTH123
                for line in lines:
                    left, _, right = line.partition(" - ")
                    point = _OCTAL.sub(lambda code: chr(int(code[1], 8)), left.split(" ")[4])
                    kinds[point] = right.split(" ")[0]  # a later mount covers the earlier one
        except (OSError, IndexError):
            return cls({})
        return cls(kinds)

    def local(self, path: str) -> bool:
        """Whether a resolved path lies on a file system of this machine. What is not known is not local."""
        while path not in self.kinds and path != "/":
            path = _parent(path)
        kind = self.kinds.get(path, "")
        return bool(kind) and not _NETWORK.match(kind)


@dataclass(frozen=True, slots=True)
class Place:
    """A directory to watch. Its inode tells it from another one that has taken its name."""

    path: str
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class Spots:
    """Where a change may concern a path: local directories to watch, and which of their events count."""

    places: frozenset[Place] = field(default_factory=frozenset)
    concerns: frozenset[str] = field(default_factory=frozenset)
    """An event counts if its path, or the directory it happened in, is among these."""


def spots(path: str, table: MountTable) -> Spots:
    """Find what to watch for an absolute, normal path: each link on the road, the last name, and what it leads to.

    Where a name is missing that is where the road ends, so the deepest directory that exists is among the places.
    """
    places: set[Place] = set()
    concerns: set[str] = set()
    here = "/"
    names = path.strip("/").split("/")
    for depth, name in enumerate(names):
        step = f"{here.rstrip('/')}/{name}"
        found = _identity(step, follow=False)
        if found is None or stat.S_ISLNK(found.st_mode) or depth == len(names) - 1:
            concerns.add(step)
            _add(places, here, table)
        if found is None:
            break
        here = os.path.realpath(step) if stat.S_ISLNK(found.st_mode) else step
    else:
        concerns.add(here)
        _add(places, here, table)
    return Spots(frozenset(places), frozenset(concerns))


def _identity(path: str, *, follow: bool) -> os.stat_result | None:
    try:
        return Path(path).stat(follow_symlinks=follow)
    except (OSError, ValueError):
        return None


def _add(places: set[Place], directory: str, table: MountTable) -> None:
    if not table.local(directory):
        return
    found = _identity(directory, follow=True)
    if found is not None and stat.S_ISDIR(found.st_mode):
        places.add(Place(directory, found.st_dev, found.st_ino))
