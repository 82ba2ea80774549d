"""What an unload answers, whom it waits for, and what it does not forget."""

import asyncio
from collections.abc import Awaitable
from http import HTTPStatus

from sidecar.agent.answers import Answer
from sidecar.agent.kinds import Kind
from tests.conformance.gallery import Gallery
from tests.conformance.subject import Subject, eventually, fresh

ENVELOPE = {"rid": None, "http_worker_ipc": None}


async def test_an_unload_answers_with_the_rest(plain: Subject, gallery: Gallery) -> None:
    one, two = fresh(), fresh()
    await plain.load(one, gallery.a)
    await plain.load(two, gallery.b)
    assert await plain.unload(one) == (
        200,
        {**ENVELOPE, "success": True, "error_message": "", "loaded_adapters": {two: gallery.b}},
    )
    assert await plain.listed() == {two: gallery.b}
    answer = await plain.client.unload(two)
    assert (answer.kind, answer.loaded) == (Kind.OK, {})


async def test_a_name_that_is_not_there_is_refused_with_those_that_are(
    plain: Subject, gallery: Gallery
) -> None:
    one, two = fresh(), fresh()
    await plain.load(two, gallery.a)
    await plain.load(one, gallery.b)
    status, body = await plain.unload("nobody")
    assert status == HTTPStatus.BAD_REQUEST
    assert body["loaded_adapters"] is None
    said = f"LoRA with name nobody does not exist. Loaded LoRAs: odict_keys(['{two}', '{one}'])"
    assert body["error_message"] == said
    answer = await plain.client.unload("nobody")
    assert (answer.kind, answer.names) == (Kind.UNKNOWN_NAME, {one, two})


async def test_a_second_unload_is_of_an_unknown_name(plain: Subject, gallery: Gallery) -> None:
    name = fresh()
    await plain.load(name, gallery.a)
    assert (await plain.client.unload(name)).ok
    assert (await plain.client.unload(name)).kind is Kind.UNKNOWN_NAME


async def test_an_unload_waits_for_running_requests_and_others_wait_behind_it(
    plain: Subject, gallery: Gallery
) -> None:
    used, other = fresh(), fresh()
    await plain.load(used, gallery.a)
    ended: list[str] = []

    async def note(what: str, call: Awaitable[Answer]) -> Answer:
        answer = await call
        ended.append(what)
        return answer

    async with plain.generating(used, tokens=600) as stream:
        unload = asyncio.ensure_future(note("unload", plain.client.unload(used)))
        await eventually(lambda: _lacks(plain, used))
        load = asyncio.ensure_future(note("load", plain.client.load(other, gallery.b)))
        assert await plain.listed() == {}
        assert ended == [] or stream.is_eof()
        assert b"[DONE]" in await stream.read()
    assert (await unload).ok
    assert (await load).ok
    assert ended == ["unload", "load"]
    assert await plain.listed() == {other: gallery.b}


async def test_a_request_brings_an_unloaded_adapter_back(plain: Subject, gallery: Gallery) -> None:
    name = fresh()
    await plain.load(name, gallery.a)
    before = await plain.generate(name)
    await plain.unload(name)
    assert await plain.listed() == {}
    assert await plain.generate(name) == before
    assert await plain.listed() == {name: gallery.a}


async def test_it_stays_unloaded_when_its_files_are_gone(plain: Subject, gallery: Gallery) -> None:
    name, adapter = fresh(), gallery.copy(seed=5)
    await plain.load(name, str(adapter))
    await plain.unload(name)
    adapter.rename(adapter.with_name(f"{adapter.name}-gone"))
    status, said = await plain.generate(name)
    assert status == HTTPStatus.BAD_REQUEST
    assert said.startswith(f"Failed to implicitly load LoRA adapter {name}: Repo id must")
    assert await plain.listed() == {}


async def test_under_traffic_a_path_is_replaced_without_an_error_seen(
    plain: Subject, gallery: Gallery
) -> None:
    """The load is sent as soon as the handle has left the list, while the unload is still open."""
    name, reference = fresh(), fresh()
    await plain.load(name, gallery.a)
    await plain.load(reference, gallery.b)
    _, new = await plain.generate(reference)
    replaced = asyncio.Event()
    clients = [asyncio.ensure_future(_keep_asking(plain, name, replaced)) for _ in range(4)]
    tries = 0
    while gallery.b != (await plain.listed()).get(name):
        tries += 1
        assert tries <= 10
        await _replace(plain, name, gallery.b)
    replaced.set()
    for statuses, last in await asyncio.gather(*clients):
        assert set(statuses) == {200}
        assert last == new


async def _lacks(
    subject: Subject, name: str, unless: "asyncio.Future[object] | None" = None
) -> bool:
    return (unless is not None and unless.done()) or name not in await subject.listed()


async def _keep_asking(plain: Subject, name: str, until: asyncio.Event) -> tuple[list[int], str]:
    """The statuses of requests one after another, and the text of one that began after `until`."""
    statuses = []
    while not until.is_set():
        statuses.append((await plain.generate(name))[0])
    status, text = await plain.generate(name)
    return [*statuses, status], text


async def _replace(plain: Subject, name: str, path: str) -> None:
    unload = asyncio.ensure_future(plain.client.unload(name))
    await eventually(lambda: _lacks(plain, name, unless=unload))
    load = await plain.client.load(name, path)
    assert load.kind in (Kind.OK, Kind.ALREADY_LOADED)
    await unload
