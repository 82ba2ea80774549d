"""What SGLang's refusals mean: a status and a few words become a `Kind`, and a Kind is what the plan decides by.

SGLang tells its refusals apart by words only (nearly all are a 400; 409 and 422 never occur), and the words changed
with the versions. They stand in one table, read from the source of SGLang 0.4.9 to 0.5.23 and tried on 0.5.9, 0.5.21
and 0.5.23. What is not in it is REJECTED, in the engine's own words.
"""

import re
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """How a load, an unload or a generation ended, named by what can be done about it."""

    OK = "ok"
    """Done. A load is proven only by the list: SGLang may evict what it has just loaded."""
    ALREADY_LOADED = "already loaded"
    """A load of a name that is taken, by this path or another: `loaded` or the list tells."""
    UNKNOWN_NAME = "unknown name"
    """The engine holds nothing of that name: for an unload this is success."""
    INCOMPLETE_UNLOAD = "incomplete unload"
    """An unload of that name did not end (SGLang 0.5.21 and later): unload once more, then load."""
    CAPACITY = "capacity"
    """No slot is free: `max_loaded_loras` (a refusal before 0.5.6 only), or all that may be pinned are."""
    INCOMPATIBLE = "incompatible"
    """The adapter does not fit this engine or this SGLang. Permanent for this engine process and these files."""
    BAD_ADAPTER = "bad adapter"
    """The engine cannot make an adapter of the files. Permanent while they stay as they are."""
    PATH_UNSEEN = "path unseen"
    """The engine does not see, or may not read, what stands at the path; it may be a mount that it lacks."""
    LORA_DISABLED = "lora disabled"
    """The engine was started without LoRA. Permanent for this engine process."""
    UNSUPPORTED = "unsupported"
    """This engine cannot load at run time: no such route, or a set-up that rules it out."""
    UNAUTHORIZED = "unauthorized"
    """The key was refused; nothing was done."""
    REJECTED = "rejected"
    """Refused in words that are not known here. Asking again would give the same answer."""
    TRANSIENT = "transient"
    """A fault of the moment, as far as one can tell: try again later."""
    UNKNOWN = "unknown"
    """No answer, or none that can be understood: it may have been done. Read the list, then decide."""
    REFUSED = "refused"
    """No connection could be made at all: nothing was sent."""


WORDS: Final[tuple[tuple[str, Kind], ...]] = (
    # Said after the new adapter was loaded and registered: the eviction that followed failed.
    ("Didn't find any LoRA adapters when trying to evict", Kind.UNKNOWN),
    ("Error while unloading LRU LoRA adapter", Kind.UNKNOWN),
    ("has an incomplete unload. Retry the unload", Kind.INCOMPLETE_UNLOAD),
    ("does not exist. Loaded LoRAs", Kind.UNKNOWN_NAME),
    ("that has never been loaded", Kind.UNKNOWN_NAME),
    ("requested LoRA adapters are not loaded", Kind.UNKNOWN_NAME),
    ("because it is already loaded", Kind.ALREADY_LOADED),
    ("already exists. Loaded LoRAs", Kind.ALREADY_LOADED),
    ("LoRA is not enabled", Kind.LORA_DISABLED),
    ("Maximum number of loaded LoRA adapters is", Kind.CAPACITY),
    ("It is not allowed to pin all slots", Kind.CAPACITY),
    ("is incompatible with the current LoRA memory pool", Kind.INCOMPATIBLE),
    ("added tokens are not supported yet", Kind.INCOMPATIBLE),
    ("add tokens to the vocabulary", Kind.INCOMPATIBLE),
    ("support DoRA", Kind.INCOMPATIBLE),
    ("can be used as the string for target module", Kind.INCOMPATIBLE),
    ("index out of range", Kind.INCOMPATIBLE),
    ("dp_size must be 1", Kind.UNSUPPORTED),
    ("Unknown load_format", Kind.UNSUPPORTED),
    ("DUMMY load_format should use", Kind.UNSUPPORTED),
    ("[Errno 2]", Kind.PATH_UNSEEN),
    ("[Errno 13]", Kind.PATH_UNSEEN),
    ("[Errno 20]", Kind.PATH_UNSEEN),
    # A path that is not a directory where the engine runs is taken for a name at the Hugging Face hub.
    ("Repo id must", Kind.PATH_UNSEEN),
    ("Repository Not Found", Kind.PATH_UNSEEN),
    ("cached snapshot folder", Kind.PATH_UNSEEN),
    ("LocalEntryNotFound", Kind.PATH_UNSEEN),
    ("Cannot find any model weights with", Kind.BAD_ADAPTER),
    ("Error while deserializing header", Kind.BAD_ADAPTER),
    ("codec can't decode", Kind.BAD_ADAPTER),
    ("PytorchStreamReader", Kind.BAD_ADAPTER),
    ("Weights only load failed", Kind.BAD_ADAPTER),
    ("invalid load key", Kind.BAD_ADAPTER),
    ("out of memory", Kind.TRANSIENT),
    ("annot allocate memory", Kind.TRANSIENT),
    ("[Errno ", Kind.TRANSIENT),
)
"""Parts of the sentences that SGLang refuses with; the first that fits counts."""

PATTERNS: Final[tuple[tuple[re.Pattern[str], Kind], ...]] = (
    (
        re.compile(r"line \d+ column \d+ \(char \d+\)"),
        Kind.BAD_ADAPTER,
    ),  # a JSON parser's complaint
    (re.compile(r"^'\w+'$"), Kind.BAD_ADAPTER),  # a KeyError: what adapter_config.json lacks
    (re.compile(r"^Not supported yet$"), Kind.INCOMPATIBLE),  # embeddings as targets, up to 0.5.6
    (re.compile(r"Already have \d+ pinned adapters"), Kind.CAPACITY),
    (re.compile(r"index \d+ is out of range"), Kind.INCOMPATIBLE),  # more layers than the model
    (re.compile(r"^$"), Kind.BAD_ADAPTER),  # a bare assertion: peft_type is not LORA
)


def by_status(status: int) -> Kind:
    """What a status means by itself, where SGLang did not refuse in words."""
    match status:
        case 401 | 403:
            return Kind.UNAUTHORIZED
        case 404 | 405 | 501:
            return Kind.UNSUPPORTED
        case 408 | 425 | 429:
            return Kind.TRANSIENT
        case _ if status >= 500:
            return Kind.TRANSIENT
        case _ if status >= 400:
            return Kind.REJECTED
    return Kind.UNKNOWN


def by_words(words: str) -> Kind:
    """What the words of a refusal mean."""
    for part, kind in WORDS:
        if part in words:
            return kind
    for pattern, kind in PATTERNS:
        if pattern.search(words.strip()):
            return kind
    return Kind.REJECTED
