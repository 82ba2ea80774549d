"""One look at an adapter's directory: is it whole, what would the engine read, which signature has it.

Everything here blocks and may hang with its file system: `paths` calls it in threads of its own. Only what stands on
the disk at this moment is told; whether it has been still for long enough is for `paths` to say. Nothing but
headers is read (`weights`), and no error escapes `inspect`.

What SGLang reads of a directory was taken from SGLang 0.5.21: adapter_config.json, added_tokens.json where there is
one, and the weights; not recursively. It globs for the weights without escaping the path, and takes a path that is
no directory for the name of a repository on the Hugging Face Hub.
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from sidecar.agent.facts import CONFIG, LIMIT, read_facts
from sidecar.agent.mounts import MountTable, Shared, leads_outside
from sidecar.agent.pathview import AdapterFacts, PathState, PathView
from sidecar.agent.refusals import LOOKING, printable, refuse, refused
from sidecar.agent.tensors import Collector
from sidecar.agent.weights import pointer, read, shortfall, weights_of

ADDED_TOKENS = "added_tokens.json"

STALLED = 10.0
"""Seconds without a write after which an incomplete file is told with its present length."""

_GLOB = re.compile(r"[*?]|\[(?=.*\])", re.DOTALL)


@dataclass(frozen=True, slots=True)
class File:
    """A file that counts: its name in the directory, where that leads, and its status when it was looked at."""

    name: str
    path: str
    status: os.stat_result

    @property
    def changed_at(self) -> float:
        """Wall clock of its last change, in seconds."""
        return max(self.status.st_mtime, self.status.st_ctime)


@dataclass(frozen=True, slots=True)
class Contents:
    """What the engine would read of a directory."""

    real: str
    files: tuple[File, ...]

    @property
    def signature(self) -> str:
        """Tell this state of the files from any other without reading them: 24 hexadecimal digits."""
        digest = hashlib.blake2b(os.fsencode(self.real), digest_size=12)
        for file in self.files:
            now = file.status
            line = (file.path, now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino)
            digest.update(repr((file.name, *line)).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def inspect(
    path: str,
    shared: Shared,
    now_wall: float,
    last: PathView | None = None,
    table: Callable[[], MountTable] = MountTable.read,
) -> PathView:
    """Look at a path. Never raises, never answers SETTLING or STUCK.

    `now_wall` is the wall clock in seconds. `last` is the view of an earlier look at the same path that was found
    whole and quiet: where its signature still holds, no file is opened again. `table` is asked for the mounts.
    """
    try:
        contents = find(path, shared)
    except LOOKING as error:
        return refused(error, PathView)
    signature = contents.signature
    if last is not None and last.state is PathState.WHOLE and last.signature == signature:
        return last
    view = partial(
        PathView,
        signature=signature,
        bytes=sum(file.status.st_size for file in contents.files),
        local=table().local(contents.real),
        changed_at=max((file.changed_at for file in contents.files), default=None),
    )
    try:
        return view(PathState.WHOLE, config=_check(contents, now_wall))
    except LOOKING as error:
        return refused(error, view)


def signature(path: str, shared: Shared) -> str:
    """Give the signature alone; "" where the files cannot be seen. Never raises."""
    try:
        return find(path, shared).signature
    except LOOKING:
        return ""


def find(path: str, shared: Shared) -> Contents:
    """Find the directory and the files in it that count, without opening any.

    Raises NotWholeError where it is not there, not shared or no directory; OSError where the file system refuses.
    """
    if fault := _fault(path):
        refuse(PathState.INVALID, fault)
    real = _directory(path, shared)
    if _status(f"{real}/{CONFIG}") is None:  # before all else: a heap of files is not listed
        return Contents(real, ())
    with os.scandir(real) as listing:
        entries = {entry.name: entry for entry in listing}
    names = [name for name in (CONFIG, ADDED_TOKENS) if name in entries]
    files = [_file(entries[name], shared) for name in (*names, *weights_of(entries))]
    return Contents(real, tuple(file for file in files if file is not None))


def open_file(file: File) -> int:
    """Open a file that counts and answer its descriptor. Raises OSError, or NotWholeError if it is no file now.

    A FIFO that has taken its place does not hold us: O_NONBLOCK.
    """
    fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        refuse(PathState.BAD, f"{printable(file.name)} is not a regular file")
    return fd


def _fault(path: str) -> str | None:
    """Say why a path can never work, whatever is on the disk."""
    normal = "/" + os.path.normpath(path).lstrip("/")
    faults = (
        (
            not path.startswith("/"),
            "it is not absolute: SGLang would take it for a repository's name on the Hub",
        ),
        ("\0" in path, "it contains a NUL character"),
        (_unwritable(path), "it contains characters that no file name can have"),
        (".." in path.split("/"), "it contains '..'"),
        # A slash at the end is harmless, to SGLang too.
        (path.rstrip("/") != normal.rstrip("/"), f"its normal form is {printable(normal)}"),
    )
    if text := next((text for wrong, text in faults if wrong), None):
        return text
    if found := _GLOB.search(path):
        return f"it contains {found[0]!r}: SGLang takes that for a pattern, not for the name"
    return None


def _unwritable(path: str) -> bool:
    """Whether it holds surrogates, as JSON may."""
    return path.encode("utf-8", "replace").decode("utf-8") != path


def _directory(path: str, shared: Shared) -> str:
    if not shared.holds(path):
        roots = ", ".join(sorted(shared.roots)[:4]) or "none"
        refuse(PathState.NOT_SHARED, f"it lies in no mount shared with the engine ({roots})")
    real = os.path.realpath(path)
    if leads_outside(real, shared):
        refuse(PathState.NOT_SHARED, f"it leads out of the shared mounts, to {printable(real)}")
    found = _status(real)
    if found is None:
        direct = real == (path.rstrip("/") or "/")
        refuse(PathState.MISSING, "it does not exist" if direct else "it is a link to nothing")
    if not stat.S_ISDIR(found.st_mode):
        refuse(PathState.INVALID, "it is not a directory")
    return real


def _file(entry: os.DirEntry[str], shared: Shared) -> File | None:
    """Follow one name of the directory; None where it was removed meanwhile."""
    name, link = printable(entry.name), entry.is_symlink()
    path = os.path.realpath(entry.path) if link else entry.path
    if link and leads_outside(path, shared):
        refuse(PathState.NOT_SHARED, f"{name} leads out of the shared mounts")
    status = _status(path)
    if status is None and link:
        refuse(PathState.PARTIAL, f"{name} is a link to nothing")
    if status is not None and not stat.S_ISREG(status.st_mode):
        refuse(PathState.BAD, f"{name} is not a regular file")
    return File(entry.name, path, status) if status is not None else None


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 - called for every file at every look; a Path costs more than the call
    except FileNotFoundError:
        return None


def _check(contents: Contents, now_wall: float) -> AdapterFacts:
    """Open what counts: the facts of config and weights, or NotWholeError."""
    by_name = {file.name: file for file in contents.files}
    if CONFIG not in by_name:
        refuse(PathState.PARTIAL, f"there is no {CONFIG}")
    facts = _config(by_name[CONFIG])
    weights = weights_of(by_name)
    if not weights:
        refuse(PathState.PARTIAL, "there are no weights (*.safetensors, *.bin or *.pt)")
    tensors = Collector()
    for name in weights:
        _weights(by_name[name], now_wall, tensors)
    told = weights[0].endswith(".safetensors")
    return replace(facts, tensors=tensors.facts()) if told else facts


def _config(file: File) -> AdapterFacts:
    fd = open_file(file)
    try:
        raw = read(fd, LIMIT + 1, 0)
    finally:
        os.close(fd)
    if lfs := pointer(raw):
        refuse(PathState.PARTIAL, f"{CONFIG}: {lfs}")
    return read_facts(raw)


def _weights(file: File, now_wall: float, tensors: Collector) -> None:
    fd = open_file(file)
    try:
        moving = now_wall - file.changed_at < STALLED
        lack = shortfall(fd, file.name, os.fstat(fd).st_size, moving=moving, tensors=tensors)
    finally:
        os.close(fd)
    if lack:
        refuse(PathState.PARTIAL, f"{printable(file.name)}: {lack}")
