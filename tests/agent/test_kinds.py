"""What each refusal of SGLang means. The words are those of SGLang's source and of real servers, 0.4.9 to 0.5.23."""

import json

import pytest

from sidecar.agent.answers import read_answer
from sidecar.agent.kinds import Kind, by_status

EVICTION = (
    "Didn't find any LoRA adapters when trying to evict LRU LoRA adapter. LoRA registry is: {}"
)
POOL = (
    "LoRA adapter a with rank 16 is incompatible with the current LoRA memory pool configuration. Please ensure that"
    " the LoRA adapter's rank is within the configured `--max-lora-rank`"
)
PINNED = "Failed to load LoRA adapter a as a pinned adapter. It is not allowed to pin all slots in the LoRA memory pool"

REFUSALS = [
    ("Failed to load LoRA adapter a because it is already loaded", Kind.ALREADY_LOADED),
    ("LoRA with name a already exists. Loaded LoRAs: dict_keys(['a'])", Kind.ALREADY_LOADED),
    ("LoRA with name a does not exist. Loaded LoRAs: odict_keys([])", Kind.UNKNOWN_NAME),
    ("LoRA adapter 'a' has an incomplete unload. Retry the unload before", Kind.INCOMPLETE_UNLOAD),
    ("LoRA is not enabled. Please set `--enable-lora` to enable LoRA.", Kind.LORA_DISABLED),
    ("Maximum number of loaded LoRA adapters is 2. Please unload", Kind.CAPACITY),
    (PINNED, Kind.CAPACITY),
    ("Already have 2 pinned adapters", Kind.CAPACITY),
    (POOL, Kind.INCOMPATIBLE),
    ("Not supported yet", Kind.INCOMPATIBLE),
    ("Failed to load a because LoRA serving currently doesn't support DoRA", Kind.INCOMPATIBLE),
    ("doesn't support adapters that add tokens to the vocabulary", Kind.INCOMPATIBLE),
    ("LoRA with added tokens are not supported yet", Kind.INCOMPATIBLE),
    ("Only 'all' or 'all-linear' can be used as the string for target module", Kind.INCOMPATIBLE),
    ("index 2 is out of range", Kind.INCOMPATIBLE),
    ("list index out of range", Kind.INCOMPATIBLE),
    ("[Errno 2] No such file or directory: '/a/adapter_config.json'", Kind.PATH_UNSEEN),
    ("[Errno 13] Permission denied: '/a/adapter_config.json'", Kind.PATH_UNSEEN),
    ("Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/a'", Kind.PATH_UNSEEN),
    ("Cannot find an appropriate cached snapshot folder for the specified", Kind.PATH_UNSEEN),
    ("Cannot find any model weights with `/a`", Kind.BAD_ADAPTER),
    ("Error while deserializing header: header too large", Kind.BAD_ADAPTER),
    ("Expecting value: line 1 column 1 (char 0)", Kind.BAD_ADAPTER),
    ("Unterminated string starting at: line 3 column 9 (char 40)", Kind.BAD_ADAPTER),
    ("'utf-8' codec can't decode byte 0xff in position 0", Kind.BAD_ADAPTER),
    ("PytorchStreamReader failed reading zip archive", Kind.BAD_ADAPTER),
    ("'target_modules'", Kind.BAD_ADAPTER),
    ("'r'", Kind.BAD_ADAPTER),
    ("", Kind.BAD_ADAPTER),
    ("[Errno 116] Stale file handle: '/a/adapter_config.json'", Kind.TRANSIENT),
    ("CUDA out of memory. Tried to allocate 2 MiB", Kind.TRANSIENT),
    ("Unknown load_format: sharded_state", Kind.UNSUPPORTED),
    (EVICTION, Kind.UNKNOWN),
    ("Error while unloading LRU LoRA adapter 'b': does not exist. Loaded LoRAs", Kind.UNKNOWN),
    ("DP-attention LoRA requires pinned adapters", Kind.REJECTED),
    ("something that no version has said so far", Kind.REJECTED),
]


@pytest.mark.field(51)
@pytest.mark.parametrize(
    ("words", "kind"), REFUSALS, ids=[words[:40] or "-" for words, _ in REFUSALS]
)
def test_a_refusal_is_known_by_its_words(words: str, kind: Kind) -> None:
    body = {"success": False, "error_message": words, "loaded_adapters": None}
    assert read_answer(400, json.dumps(body).encode()).kind is kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (204, Kind.UNKNOWN),
        (302, Kind.UNKNOWN),
        (400, Kind.REJECTED),
        (401, Kind.UNAUTHORIZED),
        (403, Kind.UNAUTHORIZED),
        (404, Kind.UNSUPPORTED),
        (405, Kind.UNSUPPORTED),
        (409, Kind.REJECTED),
        (422, Kind.REJECTED),
        (429, Kind.TRANSIENT),
        (500, Kind.TRANSIENT),
        (501, Kind.UNSUPPORTED),
        (503, Kind.TRANSIENT),
    ],
)
def test_without_known_words_the_status_counts(status: int, kind: Kind) -> None:
    assert by_status(status) is kind


def test_words_outside_of_a_refusal_mean_nothing() -> None:
    """A complaint about the request echoes it, and so may hold any words."""
    body = {"object": "error", "message": "input: 'LoRA is not enabled'", "code": 400}
    assert read_answer(400, json.dumps(body).encode()).kind is Kind.REJECTED


def test_an_assertion_about_replicas_is_a_setup_that_cannot_load() -> None:
    body = b"AssertionError: dp_size must be 1 for dynamic lora loading"
    assert read_answer(500, body).kind is Kind.UNSUPPORTED
    assert read_answer(500, b"Internal Server Error").kind is Kind.TRANSIENT
