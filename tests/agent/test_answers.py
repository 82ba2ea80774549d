"""How SGLang's answers are read: what is understood, what is not, and what never gets into a text."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.agent.answers import (
    TEXT_LIMIT,
    Listing,
    ServerInfo,
    numbers,
    one_line,
    read_answer,
    read_generation,
)
from sidecar.agent.kinds import Kind

BASE = {"id": "base", "object": "model", "root": "base", "parent": None}
ADAPTER = {"id": "a", "object": "model", "root": "/adapters/a", "parent": "base"}


def body(document: Any) -> bytes:
    return json.dumps(document).encode()


def info(**told: Any) -> ServerInfo:
    return ServerInfo.read(body({"model_path": "/models/base", "version": "0.5.21", **told}))


class TestAnswer:
    def test_a_success_tells_what_is_held(self) -> None:
        told = {"rid": None, "success": True, "error_message": "", "loaded_adapters": {"a": "/a"}}
        answer = read_answer(200, body(told))
        assert (answer.kind, answer.text, answer.loaded, answer.ok) == (
            Kind.OK,
            "",
            {"a": "/a"},
            True,
        )

    def test_a_refusal_keeps_its_words_and_what_is_held(self) -> None:
        told = {"success": False, "error_message": "'r'", "loaded_adapters": {"b": "/b"}}
        answer = read_answer(400, body(told))
        assert (answer.text, answer.loaded, answer.ok) == ("'r'", {"b": "/b"}, False)

    def test_a_refusal_without_words_says_what_is_known_of_it(self) -> None:
        answer = read_answer(
            400, body({"success": False, "error_message": "", "loaded_adapters": {}})
        )
        assert "peft_type" in answer.text

    @pytest.mark.parametrize(
        "garbage",
        [
            b"",
            b"ok",
            b"<html><body>200 OK</body></html>",
            b"null",
            b"[]",
            b"{}",
            b'{"success": "yes"}',
            b'{"success": true',
            b"\xff\xfe\x00",
            b"[" * 100_000,
        ],
        ids=lambda garbage: repr(garbage[:20]),
    )
    def test_a_200_that_is_not_understood_may_be_either(self, garbage: bytes) -> None:
        assert read_answer(200, garbage).kind is Kind.UNKNOWN

    def test_a_plain_500_is_told_with_its_status(self) -> None:
        answer = read_answer(500, b"Internal Server Error")
        assert (answer.kind, answer.text) == (Kind.TRANSIENT, "HTTP 500 Internal Server Error")

    def test_an_html_page_in_its_place_is_cut_to_one_line(self) -> None:
        answer = read_answer(502, b"<html>\n<h1>Bad Gateway</h1>\n" + b"x" * 1000)
        assert answer.text.startswith("HTTP 502 <html> <h1>Bad Gateway</h1> xxx")
        assert len(answer.text.encode()) <= TEXT_LIMIT

    def test_a_complaint_about_the_request_is_a_refusal_in_its_words(self) -> None:
        told = {"object": "error", "message": "1 validation error:\n  missing", "code": 400}
        answer = read_answer(400, body(told))
        assert (answer.kind, answer.text) == (Kind.REJECTED, "1 validation error: missing")

    def test_an_unknown_name_comes_with_those_that_are_known(self) -> None:
        """Also where there are more of them than the text has room for."""
        handles = [f"handle-{number}" for number in range(100)]
        words = f"LoRA with name x does not exist. Loaded LoRAs: odict_keys({handles})"
        answer = read_answer(400, body({"success": False, "error_message": words}))
        assert answer.names == set(handles)
        assert len(answer.text) <= TEXT_LIMIT

    @pytest.mark.parametrize("keys", ["dict_keys(['it''s', \"it's\"])", "dict_keys([oops])", "{}"])
    def test_names_that_cannot_be_read_are_not_guessed(self, keys: str) -> None:
        words = f"LoRA with name x does not exist. Loaded LoRAs: {keys}"
        answer = read_answer(400, body({"success": False, "error_message": words}))
        assert answer.kind is Kind.UNKNOWN_NAME
        assert answer.names in (None, {"its", "it's"})

    def test_a_generation_is_ok_when_there_is_one(self) -> None:
        assert read_generation(200, body({"text": "x", "output_ids": [3]})).ok
        assert read_generation(200, b"x").kind is Kind.UNKNOWN
        refusal = {"error": {"message": "Got LoRA adapter that has never been loaded: x"}}
        assert read_generation(400, body(refusal)).kind is Kind.UNKNOWN_NAME
        assert read_generation(500, b"").kind is Kind.TRANSIENT


class TestText:
    @pytest.mark.field(6)
    def test_secrets_are_blotted_out_before_it_is_cut(self) -> None:
        secret = "s" * 100
        text = one_line("x" * 200 + secret, secrets=[secret, ""])
        assert "s" not in text

    def test_it_is_one_printable_line(self) -> None:
        assert one_line(" a\n\tb\x00\x1b[31m  c\u2028d ") == "a b [31m c d"

    @pytest.mark.field(6)
    @given(st.text(), st.integers(min_value=3, max_value=300))
    def test_it_keeps_its_limit_and_is_always_utf_8(self, text: str, limit: int) -> None:
        line = one_line(text, limit=limit)
        assert len(line.encode()) <= limit
        assert line.isprintable()

    def test_half_a_surrogate_pair_does_no_harm(self) -> None:
        told = b'{"success": false, "error_message": "\\ud800", "loaded_adapters": null}'
        assert read_answer(400, told).text == "?"


class TestListing:
    def test_an_adapter_is_what_has_a_parent(self) -> None:
        listing = Listing.read(body({"object": "list", "data": [BASE, ADAPTER]}))
        assert listing == Listing({"a": "/adapters/a"}, "base", supported=True)

    def test_a_list_without_parents_does_not_tell(self) -> None:
        old = {"id": "base", "object": "model", "root": "base"}
        assert Listing.read(body({"data": [old]})) == Listing({}, "base", supported=False)

    @pytest.mark.parametrize(
        "garbage",
        [
            b"",
            b"[]",
            b"{}",
            b'{"data": []}',
            b'{"data": {}}',
            b'{"data": [1]}',
            b'{"data": [{"id": 1}]}',
            b"<html></html>",
            body({"data": [BASE, ADAPTER]})[:-10],
        ],
        ids=repr,
    )
    def test_half_a_list_is_no_list(self, garbage: bytes) -> None:
        with pytest.raises(ValueError, match="not a list of models"):
            Listing.read(garbage)


class TestServerInfo:
    def test_what_is_not_told_is_unknown(self) -> None:
        bare = info()
        assert (bare.enable_lora, bare.max_lora_rank, bare.lora_target_modules) == (
            None,
            None,
            None,
        )
        assert (bare.startup_adapters, bare.random_seed, bare.startup_time) == ({}, None, None)

    def test_what_is_told_in_another_type_is_unknown(self) -> None:
        odd = info(max_lora_rank="16", dp_size=True, enable_lora=1, served_model_name=["x"])
        assert (odd.max_lora_rank, odd.dp_size, odd.enable_lora) == (None, None, None)
        assert odd.served_model_name is None

    @pytest.mark.parametrize(
        "told",
        [
            [{"lora_id": "1", "lora_name": "a", "lora_path": "/a", "pinned": False}],
            {"a": "/a"},
            ["a=/a"],
        ],
        ids=["objects", "a map, up to 0.4.10", "arguments"],
    )
    def test_start_up_adapters_are_read_in_each_form(self, told: Any) -> None:
        assert info(lora_paths=told).startup_adapters == {"a": "/a"}

    def test_a_bare_path_among_the_arguments_is_its_own_name(self) -> None:
        assert info(lora_paths=["/a"]).startup_adapters == {"/a": "/a"}

    @pytest.mark.parametrize("told", [None, [], 3, [3], [{"lora_name": None}]], ids=repr)
    def test_no_start_up_adapters_are_none(self, told: Any) -> None:
        assert info(lora_paths=told).startup_adapters == {}

    def test_no_secret_is_kept(self) -> None:
        told = {
            "api_key": "S3CRET",
            "admin_api_key": "S3CRET",
            "launch_command": "--api-key S3CRET",
        }
        assert "S3CRET" not in repr(info(**told, internal_states=[{"api_key": "S3CRET"}]))

    def test_another_process_has_another_identity(self) -> None:
        same = info(random_seed=1, startup_time={"a": 0.1, "b": {"c": 2}})
        assert same.identity == info(startup_time={"b": {"c": 2}, "a": 0.1}, random_seed=1).identity
        others = [
            info(random_seed=2, startup_time={"a": 0.1, "b": {"c": 2}}),
            info(random_seed=1, startup_time={"a": 0.2}),
            info(random_seed=1, lora_paths=[{"lora_id": "x", "lora_name": "a", "lora_path": "/a"}]),
            info(random_seed=1, lora_paths=[{"lora_id": "y", "lora_name": "a", "lora_path": "/a"}]),
        ]
        assert len({same.identity, *(other.identity for other in others)}) == 5

    @pytest.mark.parametrize("garbage", [b"", b"[]", b"{}", b'{"version": "0.5.21"}'], ids=repr)
    def test_something_else_is_not_taken_for_it(self, garbage: bytes) -> None:
        with pytest.raises(ValueError, match="not a server's information"):
            ServerInfo.read(garbage)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.5.21", (0, 5, 21)),
        ("0.5.4.post2", (0, 5, 4, 2)),
        ("v0.5.9", (0, 5, 9)),
        ("0.5.21+cu129", (0, 5, 21)),
        ("0.5.22.dev5+gabc", (0, 5, 21, 999)),
        ("0.5.22rc1", (0, 5, 21, 999)),
        ("0.6.0rc1", (0, 5, 999)),
        ("0.5.4.post2.dev3", (0, 5, 4, 1, 999)),
        ("0.0.0.dev1", ()),
        ("unknown", ()),
        ("", ()),
    ],
)
def test_versions_compare_as_numbers_do(version: str, expected: tuple[int, ...]) -> None:
    assert numbers(version) == expected


def test_what_leads_to_a_release_comes_before_it_and_after_all_that_came_before() -> None:
    ordered = [
        "0.5.4",
        "0.5.4.post2.dev1",
        "0.5.4.post2",
        "0.5.21.post1",
        "0.5.22rc1",
        "0.5.22",
        "0.6.0rc1",
        "0.6.0",
    ]
    assert sorted(ordered, key=numbers) == ordered
