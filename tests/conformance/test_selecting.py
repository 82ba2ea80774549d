"""Which weights answer a request."""

from http import HTTPStatus
from typing import Any

import pytest

from sidecar.agent.kinds import Kind
from tests.conformance.gallery import Gallery
from tests.conformance.subject import Subject, fresh


async def _complete(subject: Subject, model: str, **more: Any) -> str:
    body = {"model": model, "prompt": "hello", "max_tokens": 16, "temperature": 0, **more}
    status, told = await subject.post("/v1/completions", body)
    assert status == HTTPStatus.OK
    return str(told["choices"][0]["text"])


async def _chat(subject: Subject, model: str) -> str:
    messages = [{"role": "user", "content": "hello"}]
    body = {"model": model, "messages": messages, "max_tokens": 16, "temperature": 0}
    status, told = await subject.post("/v1/chat/completions", body)
    assert status == HTTPStatus.OK
    return str(told["choices"][0]["message"]["content"])


async def test_greedy_answers_differ_between_the_base_model_and_each_adapter(
    plain: Subject, gallery: Gallery
) -> None:
    a, b = fresh(), fresh()
    await plain.load(a, gallery.a)
    await plain.load(b, gallery.b)
    answers = [
        await _complete(plain, model) for model in ("tiny-base", f"tiny-base:{a}", f"tiny-base:{b}")
    ]
    again = [
        await _complete(plain, model) for model in ("tiny-base", f"tiny-base:{a}", f"tiny-base:{b}")
    ]
    assert len(set(answers)) == 3
    assert answers == again


async def test_the_same_weights_answer_the_same_under_another_name(
    plain: Subject, gallery: Gallery
) -> None:
    one, two = fresh(), fresh()
    await plain.load(one, gallery.a)
    await plain.load(two, gallery.a)
    assert await plain.generate(one) == await plain.generate(two)


@pytest.mark.field(22)
@pytest.mark.field(50)
async def test_the_openai_routes_select_by_base_and_name_or_by_a_field(
    plain: Subject, gallery: Gallery
) -> None:
    name = fresh()
    await plain.load(name, gallery.a)
    selected = await _complete(plain, f"tiny-base:{name}")
    assert await _complete(plain, "tiny-base", lora_path=name) == selected
    assert await _chat(plain, f"tiny-base:{name}") != await _chat(plain, "tiny-base")


async def test_a_bare_name_is_answered_by_the_base_model(plain: Subject, gallery: Gallery) -> None:
    name = fresh()
    await plain.load(name, gallery.a)
    assert await _complete(plain, name) == await _complete(plain, "tiny-base")


@pytest.mark.parametrize("route", ["/v1/completions", "/v1/chat/completions"])
async def test_an_adapter_that_was_never_loaded_is_refused(plain: Subject, route: str) -> None:
    body = {
        "model": "tiny-base:nobody",
        "prompt": "x",
        "messages": [{"role": "user", "content": "x"}],
    }
    status, told = await plain.post(route, body)
    assert status == HTTPStatus.BAD_REQUEST
    assert told["message"].startswith("Got LoRA adapter that has never been loaded: nobody\n")
    assert (told["object"], told["code"]) == ("error", 400)


async def test_one_token_through_an_adapter_tells_that_it_works(
    plain: Subject, gallery: Gallery
) -> None:
    name = fresh()
    await plain.load(name, gallery.a)
    assert (await plain.client.generate_one(name)).kind is Kind.OK
    assert (await plain.client.generate_one("nobody")).kind is Kind.UNKNOWN_NAME
