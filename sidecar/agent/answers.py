"""What SGLang answers, read into values: its list of adapters, what it says of itself, the end of a load or unload.

Pure: bytes in, values out. `sglang` moves the bytes, `kinds` knows what refusals mean. Bodies are read with tolerance
for what does not matter and none for what does: half a list is no list.
"""

import ast
import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from sidecar.agent.kinds import Kind, by_status, by_words

__all__ = ["Answer", "Kind", "Listing", "ServerInfo", "one_line", "read_answer", "read_generation"]

TEXT_LIMIT: Final = 256
"""How many bytes of the engine's words are kept."""
NO_WORDS: Final = "the engine gave no reason; it does so where peft_type is not LORA"
_KEYS = re.compile(r"(?:o?dict)_keys\((\[.*?\])\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Answer:
    """How a load, an unload or a generation ended."""

    kind: Kind
    text: str = ""
    """The engine's words (or ours, where it said nothing): one line, at most 256 bytes, without secrets."""
    loaded: Mapping[str, str] | None = None
    """Handle → path of all that the engine holds after it, where the answer tells."""
    names: frozenset[str] | None = None
    """The handles that an UNKNOWN_NAME of an unload names as loaded (SGLang 0.5.1 and later)."""
    status: int | None = None
    """The HTTP status, where there was an answer."""

    @property
    def ok(self) -> bool:
        """Whether the engine says that it is done."""
        return self.kind is Kind.OK


@dataclass(frozen=True, slots=True)
class Listing:
    """What the engine holds, by its own list."""

    loaded: Mapping[str, str]
    """Handle → path, as it was given at the load."""
    base: str | None
    """The served name of the base model."""
    supported: bool
    """Whether this SGLang lists adapters at all: before 0.5.4.post2 `loaded` is empty whatever it holds."""

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Read the body of `/v1/models`. ValueError where it is not the list of an engine."""
        document = _document(body)
        cards = document.get("data") if isinstance(document, dict) else None
        if not isinstance(cards, list) or not cards or not all(map(_is_card, cards)):
            raise ValueError("not a list of models")
        supported = any("parent" in card for card in cards)
        bases = [card["id"] for card in cards if card.get("parent") is None]
        loaded = {
            card["id"]: _string(card.get("root")) or ""
            for card in cards
            if card.get("parent") is not None
        }
        return cls(loaded=loaded, base=bases[0] if bases else None, supported=supported)


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What an engine process says of itself: the start flags that matter to adapters. Holds no secret.

    None is a flag that this SGLang does not tell, or an unset one. Source: `/server_info` of SGLang 0.4.9 to 0.5.23.
    """

    version: str
    model_path: str | None
    served_model_name: str | None
    enable_lora: bool | None
    max_loras_per_batch: int | None
    max_loaded_loras: int | None
    max_lora_rank: int | None
    """The flag; None also where the engine takes it from its start-up adapters."""
    lora_target_modules: tuple[str, ...] | None
    """The flag; None also where the engine takes it from its start-up adapters. ("all",) from 0.5.11."""
    startup_adapters: Mapping[str, str]
    """Handle → path of `--lora-paths`: the start-up arguments, never updated."""
    dp_size: int | None
    tp_size: int | None
    nnodes: int | None
    node_rank: int | None
    tokenizer_worker_num: int | None
    enable_dp_attention: bool | None
    load_format: str | None
    overrides_model: bool
    """Whether `--json-model-override-args` changes what the base model's config.json says."""
    frontend: str | None
    """"python" from 0.5.21; anything else serves no adapters."""
    random_seed: int | None
    startup_time: str | None
    """The durations of the start (0.5.17 and later), as JSON: they differ from process to process."""
    identity: str
    """A hash of seed, durations and start-up ids: another one is another process; the same one proves nothing
    where the seed is fixed."""

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Read the body of `/server_info`. ValueError where it is not what an engine says of itself."""
        told = _document(body)
        if not isinstance(told, dict) or "model_path" not in told:
            raise ValueError("not a server's information")
        modules = told.get("lora_target_modules")
        startup = _startup(told.get("lora_paths"))
        seed, took = _integer(told.get("random_seed")), _canonical(told.get("startup_time"))
        return cls(
            version=_string(told.get("version")) or "",
            model_path=_string(told.get("model_path")),
            served_model_name=_string(told.get("served_model_name")),
            enable_lora=_boolean(told.get("enable_lora")),
            max_loras_per_batch=_integer(told.get("max_loras_per_batch")),
            max_loaded_loras=_integer(told.get("max_loaded_loras")),
            max_lora_rank=_integer(told.get("max_lora_rank")),
            lora_target_modules=tuple(map(str, modules)) if isinstance(modules, list) else None,
            startup_adapters={name: path for name, path, _ in startup},
            dp_size=_integer(told.get("dp_size")),
            tp_size=_integer(told.get("tp_size")),
            nnodes=_integer(told.get("nnodes")),
            node_rank=_integer(told.get("node_rank")),
            tokenizer_worker_num=_integer(told.get("tokenizer_worker_num")),
            enable_dp_attention=_boolean(told.get("enable_dp_attention")),
            load_format=_string(told.get("load_format")),
            overrides_model=told.get("json_model_override_args") not in (None, "", "{}"),
            frontend=_string(told.get("frontend")),
            random_seed=seed,
            startup_time=took,
            identity=_digest(seed, took, sorted(ident for _, _, ident in startup)),
        )

    @property
    def version_numbers(self) -> tuple[int, ...]:
        """The version as numbers that compare as versions do: 0.5.4.post2 is (0, 5, 4, 2); () while unknown."""
        return numbers(self.version)


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers that compare as it does.

    A pre-release or a build from source comes just before the release that it leads to: it may lack what that brings.
    () is what tells nothing, such as 0.0.0.
    """
    found = re.match(r"v?(\d+)\.(\d+)\.(\d+)(?:\.?post(\d+))?(\.?(?:dev|rc|a|b)\d*)?", version)
    if found is None:
        return ()
    parts = [int(part) for part in found.groups()[:4] if part is not None]
    if not any(parts):
        return ()
    if found[5] is None:
        return tuple(parts)
    while parts[-1] == 0:
        parts.pop()
    return (*parts[:-1], parts[-1] - 1, 999)


def read_answer(status: int, body: bytes, *, secrets: Collection[str] = ()) -> Answer:
    """Read the answer to a load or an unload."""
    document = _document(body)
    said = _said(document)
    words = said if said is not None else body.decode(errors="replace")
    loaded, names = None, None
    if isinstance(document, dict):
        loaded = _adapters(document.get("loaded_adapters"))
    kind = _kind(status, document, words)
    if kind is Kind.UNKNOWN_NAME:
        names = _named(words)
    return Answer(kind, _tell(status, kind, words, secrets), loaded, names, status)


def read_generation(status: int, body: bytes, *, secrets: Collection[str] = ()) -> Answer:
    """Read the answer to a generation: OK where there is one."""
    document = _document(body)
    if (
        status == 200
        and isinstance(document, dict)
        and ("text" in document or "output_ids" in document)
    ):
        return Answer(Kind.OK, status=status)
    words = _said(document)
    kind = by_status(status)
    if status == 400 and words:
        kind = by_words(words)
    return Answer(
        kind, _tell(status, kind, words or body.decode(errors="replace"), secrets), status=status
    )


def one_line(text: str, *, secrets: Collection[str] = (), limit: int = TEXT_LIMIT) -> str:
    """`text` fit for a status field: one printable line of at most `limit` bytes of UTF-8, secrets blotted out."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    text = text.encode(errors="replace").decode()
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    whole = text.encode()
    if len(whole) <= limit:
        return text
    return whole[: limit - 3].decode(errors="ignore").rstrip() + "…"


def _kind(status: int, document: Any, words: str) -> Kind:
    told = document.get("success") if isinstance(document, dict) else None
    if status == 200 and told is True:
        return Kind.OK
    if status in (200, 400) and told is False:
        return by_words(words)
    if status >= 500 and "dp_size must be 1" in words:
        return Kind.UNSUPPORTED
    return by_status(status)


def _said(document: Any) -> str | None:
    """The message in a body, in each of the forms that SGLang and FastAPI use; None where there is none."""
    if not isinstance(document, dict):
        return None
    error = document.get("error")
    if isinstance(error, dict):
        error = error.get("message")
    for said in (
        document.get("error_message"),
        document.get("message"),
        error,
        document.get("detail"),
    ):
        if isinstance(said, str):
            return said
    return "" if "success" in document else None


def _tell(status: int, kind: Kind, words: str, secrets: Collection[str]) -> str:
    text = one_line(words, secrets=secrets)
    if kind is Kind.OK:
        return ""
    if kind is Kind.BAD_ADAPTER and not text:
        return NO_WORDS
    return text if status in (200, 400) and text else one_line(f"HTTP {status} {text}")


def _named(words: str) -> frozenset[str] | None:
    """The names in `Loaded LoRAs: odict_keys(['a', 'b'])`."""
    found = _KEYS.search(words)
    if found is None:
        return None
    try:
        return frozenset(str(name) for name in ast.literal_eval(found[1]))
    except (ValueError, SyntaxError):
        return None


def _startup(told: Any) -> list[tuple[str, str, str]]:
    """Name, path and id of each start-up adapter: a list of objects, or up to 0.4.10 a map or the bare arguments."""
    if isinstance(told, dict):
        told = [{"lora_name": name, "lora_path": path} for name, path in told.items()]
    adapters = []
    for item in told if isinstance(told, list) else []:
        if isinstance(item, str):
            name, _, path = item.partition("=")
            item = {"lora_name": name, "lora_path": path or name}
        if isinstance(item, dict) and isinstance(item.get("lora_name"), str):
            path, ident = _string(item.get("lora_path")) or "", _string(item.get("lora_id")) or ""
            adapters.append((item["lora_name"], path, ident))
    return adapters


def _adapters(told: Any) -> dict[str, str] | None:
    if not isinstance(told, dict):
        return None
    return {name: _string(path) or "" for name, path in told.items()}


def _is_card(card: Any) -> bool:
    return isinstance(card, dict) and isinstance(card.get("id"), str)


def _document(body: bytes) -> Any:
    """The JSON in a body; None where there is none, whatever stands there instead."""
    try:
        return json.loads(body.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _canonical(value: Any) -> str | None:
    return None if value is None else json.dumps(value, sort_keys=True)


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
