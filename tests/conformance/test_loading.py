"""What a load answers, and what it refuses in which words."""

import asyncio
import os
from http import HTTPStatus

import pytest

from sidecar.agent.kinds import Kind
from tests.conformance.gallery import Gallery
from tests.conformance.subject import Subject, fresh
from tests.fakes.sglang.options import since

ENVELOPE = {"rid": None, "http_worker_ipc": None}
HUB = "cached snapshot folder"

REFUSALS = [
    pytest.param("missing", "Repo id must be in the form", Kind.PATH_UNSEEN, id="a missing folder"),
    pytest.param("a/adapter_config.json", "Repo id must", Kind.PATH_UNSEEN, id="a file"),
    pytest.param("no-config", "[Errno 2] No such file", Kind.PATH_UNSEEN, id="no configuration"),
    pytest.param(
        "no-weights", "Cannot find any model weights with `", Kind.BAD_ADAPTER, id="no weights"
    ),
    pytest.param(
        "corrupt-weights", "header: header too large", Kind.BAD_ADAPTER, id="corrupt weights"
    ),
    pytest.param("empty-weights", "header: header too small", Kind.BAD_ADAPTER, id="empty weights"),
    pytest.param(
        "truncated-weights",
        "header: incomplete metadata, file not fully covered",
        Kind.BAD_ADAPTER,
        id="half-written weights",
    ),
    pytest.param(
        "truncated-config", "Unterminated string", Kind.BAD_ADAPTER, id="half a configuration"
    ),
    pytest.param("without-r", "'r'", Kind.BAD_ADAPTER, id="no rank"),
    pytest.param("without-lora_alpha", "'lora_alpha'", Kind.BAD_ADAPTER, id="no alpha"),
    pytest.param("without-target_modules", "'target_modules'", Kind.BAD_ADAPTER, id="no targets"),
    pytest.param("without-peft_type", "'peft_type'", Kind.BAD_ADAPTER, id="no type"),
    pytest.param("prompt-tuning", "", Kind.BAD_ADAPTER, id="another type than LORA"),
    pytest.param(
        "rank-16", "with rank 16 is incompatible with", Kind.INCOMPATIBLE, id="too high a rank"
    ),
    pytest.param(
        "other-module", "with rank 4 is incompatible with", Kind.INCOMPATIBLE, id="another module"
    ),
    pytest.param(
        "regex-target", "Only 'all' or 'all-linear'", Kind.INCOMPATIBLE, id="targets by pattern"
    ),
    pytest.param("new-tokens", "add tokens to the vocabulary", Kind.INCOMPATIBLE, id="new tokens"),
    pytest.param("dora", "support DoRA", Kind.INCOMPATIBLE, id="DoRA"),
]

REFUSED_SINCE = {"dora": "0.5.11", "regex-target": "0.5.10"}


async def test_a_load_answers_with_all_that_is_held(plain: Subject, gallery: Gallery) -> None:
    one, two = fresh(), fresh()
    assert await plain.load(one, gallery.a) == (
        200,
        {**ENVELOPE, "success": True, "error_message": "", "loaded_adapters": {one: gallery.a}},
    )
    answer = await plain.client.load(two, gallery.b)
    assert answer.kind is Kind.OK
    assert answer.loaded == {one: gallery.a, two: gallery.b}


async def test_what_is_loaded_is_listed_with_its_path_below_the_base_model(
    plain: Subject, gallery: Gallery
) -> None:
    name = fresh()
    await plain.load(name, gallery.a)
    status, body = await plain.get("/v1/models")
    base, adapter = body["data"]
    assert status == HTTPStatus.OK
    assert (base["id"], base["root"], base["parent"]) == ("tiny-base", "tiny-base", None)
    assert (adapter["id"], adapter["root"]) == (name, gallery.a)
    assert (adapter["parent"], adapter["max_model_len"]) == ("tiny-base", None)
    listing = await plain.client.models()
    assert (listing.base, listing.loaded, listing.supported) == (
        "tiny-base",
        {name: gallery.a},
        True,
    )


@pytest.mark.parametrize("path", ["a", "b"], ids=["the same path", "another path"])
async def test_a_name_that_is_taken_is_refused_and_stays_as_it_was(
    plain: Subject, gallery: Gallery, path: str
) -> None:
    name = fresh()
    await plain.load(name, gallery.a)
    status, body = await plain.load(name, gallery[path])
    assert status == HTTPStatus.BAD_REQUEST
    assert body == {
        **ENVELOPE,
        "success": False,
        "error_message": f"Failed to load LoRA adapter {name} because it is already loaded",
        "loaded_adapters": {name: gallery.a},
    }
    answer = await plain.client.load(name, gallery[path])
    assert (answer.kind, answer.loaded) == (Kind.ALREADY_LOADED, {name: gallery.a})


@pytest.mark.parametrize(("adapter", "words", "kind_of_refusal"), REFUSALS)
async def test_what_cannot_be_loaded_is_refused_in_known_words(
    plain: Subject,
    gallery: Gallery,
    version: str,
    adapter: str,
    words: str,
    kind_of_refusal: Kind,
) -> None:
    floor = REFUSED_SINCE.get(adapter, "0")
    if not since(version, floor):
        pytest.skip(f"refused from {floor} on")
    name = fresh()
    status, body = await plain.load(name, gallery[adapter])
    assert (status, body["success"], body["loaded_adapters"]) == (400, False, {})
    assert words in body["error_message"]
    assert bool(words) == bool(body["error_message"])
    answer = await plain.client.load(name, gallery[adapter])
    assert (answer.kind, answer.loaded) == (kind_of_refusal, {})
    assert answer.text
    assert await plain.listed() == {}


async def test_a_name_of_the_hub_cannot_be_had_offline(plain: Subject) -> None:
    answer = await plain.client.load(fresh(), "organisation/adapter")
    assert answer.kind is Kind.PATH_UNSEEN
    assert HUB in answer.text


async def test_not_every_slot_may_be_pinned(plain: Subject, gallery: Gallery) -> None:
    for _ in range(2):
        assert (await plain.client.load(fresh(), gallery.a, pinned=True)).ok
    answer = await plain.client.load(fresh(), gallery.a, pinned=True)
    assert answer.kind is Kind.CAPACITY
    assert "as a pinned adapter. It is not allowed to pin all slots" in answer.text


@pytest.mark.parametrize(
    "raw",
    [
        "{}",
        "",
        "{",
        "[]",
        '{"lora_name": 1, "lora_path": "/x"}',
        '{"lora_name": "x", "lora_path": "/x", "pinned": "perhaps"}',
    ],
    ids=["no fields", "nothing", "bad JSON", "a list", "a number for a name", "no boolean"],
)
async def test_a_malformed_request_is_a_400_of_another_form(plain: Subject, raw: str) -> None:
    status, body = await plain.post("/load_lora_adapter", raw=raw)
    assert status == HTTPStatus.BAD_REQUEST
    assert (body["object"], body["type"], body["code"]) == ("error", "Bad Request", 400)
    assert "validation error" in body["message"]


@pytest.mark.parametrize("name", ["", "a:b", "a/b", "a b", "x" * 300], ids=repr)
async def test_the_engine_takes_any_name(plain: Subject, gallery: Gallery, name: str) -> None:
    answer = await plain.client.load(name, gallery.a)
    assert answer.loaded == {name: gallery.a}


async def test_an_unknown_field_is_passed_over(plain: Subject, gallery: Gallery) -> None:
    status, _ = await plain.load(fresh(), gallery.a, colour="blue")
    assert status == HTTPStatus.OK


async def test_a_relative_path_is_taken_from_the_engines_folder(
    plain: Subject, gallery: Gallery
) -> None:
    path = os.path.relpath(gallery.a, plain.process.log.parent)  # noqa: ASYNC240
    assert (await plain.client.load(fresh(), path)).ok


async def test_loading_is_a_post_without_a_version_in_its_path(plain: Subject) -> None:
    assert (await plain.get("/load_lora_adapter"))[0] == HTTPStatus.METHOD_NOT_ALLOWED
    assert (await plain.get("/unload_lora_adapter"))[0] == HTTPStatus.METHOD_NOT_ALLOWED
    assert (await plain.post("/v1/load_lora_adapter", {}))[0] == HTTPStatus.NOT_FOUND


async def test_of_four_simultaneous_loads_of_one_name_one_succeeds(
    plain: Subject, gallery: Gallery
) -> None:
    name = fresh()
    answers = await asyncio.gather(*(plain.client.load(name, gallery.a) for _ in range(4)))
    kinds = sorted(answer.kind for answer in answers)
    assert kinds == [*[Kind.ALREADY_LOADED] * 3, Kind.OK]


@pytest.mark.field(47)
async def test_changed_files_count_only_after_an_unload_and_a_load(
    plain: Subject, gallery: Gallery
) -> None:
    reference, name, adapter = fresh(), fresh(), gallery.copy(seed=1)
    await plain.load(reference, gallery.b)
    await plain.load(name, str(adapter))
    before = await plain.generate(name)
    (adapter / "adapter_model.safetensors").write_bytes(
        (gallery.folder / "b" / "adapter_model.safetensors").read_bytes()
    )
    assert await plain.generate(name) == before
    await plain.unload(name)
    await plain.load(name, str(adapter))
    assert await plain.generate(name) == await plain.generate(reference) != before
