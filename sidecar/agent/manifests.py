"""LoRAAdapters from files: what a file says, and which files of a directory are to be believed at a moment.

Pure: `directory` looks and reads. An API server tells an edit from a deletion and shows no half-written
object; a directory does neither. So a file is read only once it has kept still, what cannot be understood leaves in
force what the file last said, and a missing file is gone only when it stays away (editors save by renaming, which
leaves none for a moment).
"""

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeGuard

import yaml
from pydantic import ValidationError

from sidecar.api import names
from sidecar.api.adapter import LoRAAdapter
from sidecar.api.wire import faults

SUFFIXES: Final = (".yaml", ".yml", ".json")
SIZE_LIMIT: Final = 1024 * 1024
"""Bytes of one file; etcd, for which such objects are made, takes no more than 1.5 MiB."""
QUIET: Final = 0.2
"""Seconds that a file must have kept still before it is read."""
GONE: Final = 2.0
"""Seconds that a file must have been away before what it said is forgotten."""
RESTLESS: Final = 10.0
"""Seconds after which a file that never keeps still is complained about."""

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_UIDS: Final = uuid.uuid5(uuid.NAMESPACE_DNS, names.PREFIX)
_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Signature = tuple[int, ...]
"""Device, inode, size, mtime and ctime of a file: another one means that it was written."""
NOTHING: Final[Signature] = ()
"""The signature of a file that is listed but cannot be looked at."""


@dataclass(frozen=True, slots=True)
class Content:
    """What one file says.

    `invalid` tells what is wrong, by "namespace/name" where that can be told, else by the file's name and the
    document's number. `others` are the kinds it holds besides. `whole` is False where it may say more than could be
    understood; `certain` is False where nothing known makes up for that.
    """

    adapters: Mapping[str, LoRAAdapter] = field(default_factory=dict)
    invalid: Mapping[str, str] = field(default_factory=dict)
    others: frozenset[str] = frozenset()
    whole: bool = True
    certain: bool = True

    def after(self, before: "Content | None") -> "Content":
        """Add what `before` said wherever this content cannot be understood."""
        if before is None:
            return self
        kept = {
            key: adapter
            for key, adapter in before.adapters.items()
            if key in self.invalid or not self.whole
        }
        return replace(
            self,
            adapters={**kept, **self.adapters},
            certain=self.whole or before.certain,
        )


def unreadable(file: str, problem: str) -> Content:
    """The content of a file that could not be read."""
    return Content(invalid={file: f"{file}: {problem}"}, whole=False, certain=False)


# --- what a file says -------------------------------------------------------------------------


def parse(raw: bytes, file: str, namespace: str) -> Content:
    """Read a file's LoRAAdapters; those without a namespace are in `namespace`. Raises nothing."""
    if len(raw) > SIZE_LIMIT:
        return unreadable(file, f"it is larger than {SIZE_LIMIT} bytes")
    try:
        documents = _documents(raw.decode("utf-8-sig"), file)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return unreadable(file, " ".join(str(error).split()) or type(error).__name__)
    adapters: dict[str, LoRAAdapter] = {}
    invalid: dict[str, str] = {}
    others: set[str] = set()
    whole = True
    for number, document in enumerate(documents, 1):
        try:
            adapter = _read(document, namespace)
        except _OtherKind as other:
            others.add(str(other))
        except _Invalid as problem:
            invalid[problem.key or f"{file}#{number}"] = f"{file}: {problem}"
            whole = whole and bool(problem.key)
        else:
            if adapter.key in adapters:
                invalid[f"{file}#{number}"] = f"{file}: it defines {adapter.key} twice"
            adapters.setdefault(adapter.key, adapter)
    return Content(adapters, invalid, frozenset(others), whole, whole)


class _OtherKind(Exception):  # noqa: N818 - nothing is wrong with it
    """An object of a kind that is not ours to read."""


class _Invalid(Exception):  # noqa: N818 - the object is, not the program
    """What is wrong with an object; `key` where it is known which one it is."""

    def __init__(self, problem: str, key: str = "") -> None:
        super().__init__(problem)
        self.key = key


def _documents(text: str, file: str) -> list[Any]:
    loaded = [json.loads(text)] if file.endswith(".json") else yaml.load_all(text, Loader=_Loader)
    return list(_flat(loaded))


def _flat(documents: Iterable[Any]) -> Iterator[Any]:
    """Every object, also those that `kubectl get -o yaml` has put into a List."""
    for document in documents:
        kind = document.get("kind") if isinstance(document, dict) else None
        if kind in ("List", f"{names.ADAPTER_KIND}List") and isinstance(
            document.get("items"), list
        ):
            yield from document["items"]
        elif document is not None:
            yield document


def _read(document: Any, namespace: str) -> LoRAAdapter:
    if not isinstance(document, dict):
        raise _Invalid("it is not an object")
    api, kind = document.get("apiVersion"), document.get("kind")
    if not isinstance(api, str) or not isinstance(kind, str):
        raise _Invalid("it has no apiVersion and kind")
    group, _, version = api.partition("/")
    if (group, kind.lower()) != (names.INFERENCE_GROUP, names.ADAPTER_KIND.lower()):
        raise _OtherKind(f"{api} {kind}")
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name, home = metadata.get("name"), metadata.get("namespace") or namespace
    if not _is_name(name, 253) or not _is_name(home, 63):
        raise _Invalid("its metadata.name or metadata.namespace is none that Kubernetes takes")
    key = f"{home}/{name}"
    if (version, kind) != (names.VERSION, names.ADAPTER_KIND):
        expected = f"{names.INFERENCE_GROUP}/{names.VERSION} {names.ADAPTER_KIND}"
        raise _Invalid(f"{api} {kind} is not {expected}", key)
    return _adapter(key, name, home, metadata.get("annotations") or {}, document.get("spec"))


def _is_name(value: object, limit: int) -> TypeGuard[str]:
    return isinstance(value, str) and len(value) <= limit and bool(_NAME.fullmatch(value))


def _adapter(key: str, name: str, namespace: str, annotations: Any, spec: Any) -> LoRAAdapter:
    """Make the object as an API server would show it: with a uid that lasts and a generation that follows its spec."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": str(uuid.uuid5(_UIDS, key)),
        "annotations": annotations,
    }
    try:
        adapter = LoRAAdapter.read({"metadata": metadata, "spec": spec})
    except ValidationError as error:
        raise _Invalid(faults(error), key) from error
    digest = hashlib.sha256(adapter.spec.model_dump_json().encode()).digest()
    generation = 1 + int.from_bytes(digest[:6], "big")
    return adapter.model_copy(
        update={"metadata": adapter.metadata.model_copy(update={"generation": generation})}
    )


# --- which files are to be believed -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class File:
    """One file over time: when it was first seen, since when its signature stands and since when it is missing.

    `content` is what it was `read` as. `old` files were there at the first look: whatever they said before that, an
    engine may hold.
    """

    signature: Signature
    born: float
    since: float
    old: bool
    content: Content | None = None
    read: Signature | None = None
    missing: float | None = None

    def due(self, now: float) -> bool:
        """Whether it is to be read now: it differs from what was read, and has kept still."""
        return self.missing is None and self.read != self.signature and now - self.since >= QUIET

    def with_content(self, content: Content) -> "File":
        """The file, read as it stands."""
        return replace(self, content=content.after(self.content), read=self.signature)

    def with_failure(self, content: Content) -> "File":
        """The file, which could not be read; the next look finds it changed, and it is tried again."""
        return replace(self.with_content(content), signature=NOTHING, read=NOTHING)


Files = Mapping[str, File]


def after_look(
    files: Files, seen: Mapping[str, Signature], now: float, *, first: bool
) -> dict[str, File]:
    """The files after a look at the directory, `now` in monotonic seconds."""
    answer = {}
    for name, signature in seen.items():
        file = files.get(name) or File(signature, now, now, first)
        if file.signature != signature:
            file = replace(file, signature=signature, since=now)
        answer[name] = replace(file, missing=None)
    for name in files.keys() - seen.keys():
        missing = files[name].missing
        missing = now if missing is None else missing
        if now - missing < GONE:
            answer[name] = replace(files[name], missing=missing)
    return answer


def restless(files: Files) -> bool:
    """Whether some file is still to be read or forgotten, so that the next look should come soon."""
    return any(file.read != file.signature or file.missing is not None for file in files.values())


@dataclass(frozen=True, slots=True)
class Definitions:
    """What all files say together. `partial`: an old file may have said more than could be read since."""

    adapters: tuple[LoRAAdapter, ...] = ()
    invalid: Mapping[str, str] = field(default_factory=dict)
    partial: bool = False


def combine(files: Files, now: float) -> Definitions:
    """Put the files together: of two that define one adapter, the first by name is believed.

    A missing file comes last and without complaint, as a renamed one is there under both names for a while.
    """
    adapters: dict[str, tuple[str, LoRAAdapter]] = {}
    invalid: dict[str, str] = {}
    for name in sorted(files, key=lambda name: (files[name].missing is not None, name)):
        content, present = _content(name, files[name], now), files[name].missing is None
        invalid.update(content.invalid if present else {})
        for key, adapter in content.adapters.items():
            holder, _ = adapters.setdefault(key, (name, adapter))
            if holder != name and present:
                invalid[f"{name}#{key}"] = f"{name}: {key} is already defined by {holder}"
    return Definitions(
        adapters=tuple(adapter for _, adapter in adapters.values()),
        invalid=invalid,
        partial=any(
            file.old and (file.content is None or not file.content.certain)
            for file in files.values()
        ),
    )


def _content(name: str, file: File, now: float) -> Content:
    if file.content is not None:
        return file.content
    if now - file.born < RESTLESS:
        return Content()
    return unreadable(name, "it does not stop changing, so it has not been read yet")
