"""Which files of a directory SGLang takes for an adapter's weights, and whether each is complete by its own header.

Only headers and directories of archives are read, never weights, and never more of them than `READABLE` bytes. The
rule by which SGLang picks the files was read in SGLang 0.5.21 (its model loader's list of patterns).
"""

import json
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from sidecar.agent.tensors import Collector

SUFFIXES = (".safetensors", ".bin", ".pt")
_TRAINING = ("training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")

HEADER_LIMIT = 100_000_000
"""Bytes: the safetensors format allows no longer header."""
READABLE = 16 * 1024 * 1024
"""Bytes of a header that we parse. About 100,000 tensors; more would not fit into the agent's memory."""

_LFS = b"version https://git-lfs"
_LOCAL, _CENTRAL, _END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
_END64, _LOCATOR64 = b"PK\x06\x06", b"PK\x06\x07"
_END_SIZE, _LOCATOR64_SIZE, _COMMENT_LIMIT = 22, 20, 0xFFFF


def weights_of(names: Iterable[str]) -> tuple[str, ...]:
    """Pick the files that SGLang would read, sorted.

    It globs for one suffix after the other and keeps to the first that finds anything, even if that is nothing but
    leftovers of the training, which it then drops. Hidden names do not match a glob.
    """
    visible = [name for name in names if not name.startswith(".")]
    for suffix in SUFFIXES:
        if matching := [name for name in visible if name.endswith(suffix)]:
            return tuple(sorted(name for name in matching if not name.endswith(_TRAINING)))
    return ()


def shortfall(
    fd: int, name: str, size: int, *, moving: bool, tensors: Collector | None = None
) -> str | None:
    """Say in one sentence what a file lacks, or None if it is complete as far as its own header tells.

    `size` is the file's length in bytes. While it is `moving` the sentence leaves out how long it is by now, so that
    it need not be told anew with every block. `tensors` takes note of each, where the file says. Raises OSError.
    """
    if size == 0:
        return "it is empty"
    head = read(fd, 24, 0)
    if lfs := pointer(head):
        return lfs
    if name.endswith(".safetensors"):
        return _safetensors(fd, head, size, moving, tensors)
    return _archive(fd, head, size)


def pointer(head: bytes) -> str | None:
    """Recognise a file that Git LFS has put in place of the real one, by its first bytes."""
    if head.startswith(_LFS):
        return "it is a Git LFS pointer, not the file itself (git lfs pull fetches that)"
    return None


def read(fd: int, count: int, offset: int) -> bytes:
    """Read `count` bytes at `offset`, fewer only where the file ends before. Raises OSError."""
    got = bytearray()
    while len(got) < count:
        block = os.pread(fd, count - len(got), offset + len(got))
        if not block:
            break
        got += block
    return bytes(got)


def _safetensors(
    fd: int, head: bytes, size: int, moving: bool, tensors: Collector | None
) -> str | None:
    """Check 8 bytes of length (little-endian), a JSON header of that length, and data that ends with the file."""
    if len(head) < 8:
        return _length("at least 8", size, moving)
    (length,) = struct.unpack_from("<Q", head)
    if not 2 <= length <= HEADER_LIMIT:
        return "it does not begin with the header of a safetensors file"
    if 8 + length > size:
        return _length(f"at least {8 + length}", size, moving)
    if length > READABLE:
        if tensors:
            tensors.missed()
        return None  # not known to be wrong
    end = _data_end(read(fd, length, 8), tensors)
    if end is None:
        return "its header is not the JSON of a safetensors file"
    expected = 8 + length + end
    return None if expected == size else _length(str(expected), size, moving)


def _length(expected: str, size: int, moving: bool) -> str:
    if moving:
        return f"it is still being written; its header says {expected} bytes"
    return f"its header says {expected} bytes, it has {size}"


@dataclass(frozen=True, slots=True)
class _Object:
    """What counts of one JSON object: where the data of all tensors in it ends, and its own shape, if it is one."""

    end: int
    shape: tuple[int, ...] | None


def _reduced(tensors: Collector | None, pairs: list[tuple[str, object]]) -> _Object:
    """Reduce a JSON object to what counts of it, so that a long header never stands in memory as a tree."""
    end, shape = 0, None
    for key, value in pairs:
        if isinstance(value, _Object):
            end = max(end, value.end)
            if tensors and value.shape is not None:
                tensors.saw(key, value.shape)
        elif key == "data_offsets" and isinstance(value, list):
            end = max([end, *(offset for offset in value if isinstance(offset, int))])
        elif key == "shape" and isinstance(value, list) and all(type(n) is int for n in value):
            shape = tuple(value)
    return _Object(end, shape)


def _data_end(header: bytes, tensors: Collector | None) -> int | None:
    try:
        top = json.loads(header.decode("utf-8"), object_pairs_hook=partial(_reduced, tensors))
    except (ValueError, RecursionError):
        return None
    return top.end if isinstance(top, _Object) else None


def _archive(fd: int, head: bytes, size: int) -> str | None:
    """Check that a zip archive, as torch.save writes it, has its directory at the end.

    A pickle from before PyTorch 1.6 is no zip and tells nothing about its length: it passes.
    """
    if not head.startswith(_LOCAL[: len(head)]):
        return (
            "it begins with zero bytes: its beginning is not written yet" if not head[0] else None
        )
    span = min(size, _END_SIZE + _COMMENT_LIMIT)
    tail = read(fd, span, size - span)
    at = tail.rfind(_END)
    if at < 0 or not _directory_fits(fd, tail, at, size - span + at):
        return "it is cut short: the directory at the end of the archive is missing"
    return None


def _directory_fits(fd: int, tail: bytes, at: int, end: int) -> bool:
    """Whether the end record at `tail[at]`, byte `end` of the file, ends the file and follows its directory."""
    if len(tail) - at < _END_SIZE:
        return False
    count, length, offset, comment = struct.unpack_from("<HIIH", tail, at + 10)
    if at + _END_SIZE + comment != len(tail):
        return False
    locator = at - _LOCATOR64_SIZE
    if locator >= 0 and tail[locator:].startswith(_LOCATOR64):
        (end,) = struct.unpack_from("<Q", tail, locator + 8)
        record = read(fd, 56, end) if end < 1 << 62 else b""
        if len(record) < 56 or not record.startswith(_END64):
            return False
        count, length, offset = struct.unpack_from("<QQQ", record, 32)
    if not count or offset + length != end:
        return False
    return read(fd, len(_CENTRAL), offset) == _CENTRAL
