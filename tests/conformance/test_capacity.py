"""What `--max-loaded-loras` does: it never refuses, it evicts."""

from tests.conformance.gallery import Gallery
from tests.conformance.subject import Subject, fresh


async def test_a_load_too_many_evicts_the_least_recently_used(
    limited: Subject, gallery: Gallery
) -> None:
    first, second, third, fourth = (fresh() for _ in range(4))
    for name, path in ((first, gallery.a), (second, gallery.b), (third, gallery.c)):
        await limited.client.load(name, path)
    await limited.generate(first)
    answer = await limited.client.load(fourth, gallery.a)
    left = {first: gallery.a, third: gallery.c, fourth: gallery.a}
    assert answer.ok
    assert answer.loaded == left
    assert await limited.listed() == left


async def test_a_request_for_the_evicted_one_evicts_another(
    limited: Subject, gallery: Gallery
) -> None:
    names = [fresh() for _ in range(4)]
    for name in names:
        await limited.client.load(name, gallery.a)
    assert names[0] not in await limited.listed()
    assert (await limited.generate(names[0]))[0] == 200
    assert set(await limited.listed()) == {names[2], names[3], names[0]}


async def test_pinned_ones_are_never_evicted(limited: Subject, gallery: Gallery) -> None:
    pinned, last = [fresh("pinned") for _ in range(2)], fresh()
    for name in pinned:
        await limited.client.load(name, gallery.a, pinned=True)
    for name in (fresh(), fresh(), last):
        await limited.client.load(name, gallery.b)
    assert set(await limited.listed()) == {*pinned, last}


async def test_the_engine_tells_its_limit(limited: Subject) -> None:
    info = await limited.client.server_info()
    assert (info.max_loaded_loras, info.max_loras_per_batch) == (3, 3)
