"""Whatever users write, disks hold and engines answer: each adapter has a state, and nothing forbidden is sent.

`test_model` walks through histories that can happen. Here nothing needs to make sense: each world is drawn by itself.
"""

import json
import string
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.agent.answers import Listing, ServerInfo, read_answer, read_generation
from sidecar.agent.pathview import AdapterFacts, PathState, PathView
from sidecar.agent.plan import plan
from sidecar.agent.report import Says, recall, report
from sidecar.agent.state import (
    Held,
    Load,
    Me,
    Memory,
    Plan,
    Stuck,
    Tombstone,
    Trial,
    Unload,
    World,
)
from sidecar.api.reasons import EngineState, State
from tests.agent.builders import NOON, adapter, engine, world

HANDLES = ("a", "b", "base", "startup")
PATHS = (
    "/adapters/p",
    "/adapters/q",
    "/adapters/q/",
    "/adapters/../etc",
    "//adapters/p",
    "org/name",
    "/",
)
BOOTS = ("boot-1", "boot-0", "")
STARTUP = {"startup": "/adapters/p"}

handles, paths = st.sampled_from(HANDLES), st.sampled_from(PATHS)
written = st.builds(
    adapter,
    name=st.sampled_from(string.ascii_lowercase[:6]),
    handle=handles,
    path=paths | st.text("/.*[]\n é\0", min_size=1, max_size=6),
    namespace=st.sampled_from(["ns", "other"]),
    deleting=st.booleans(),
    retry=st.sampled_from(["", "1"]),
    pinned=st.booleans(),
)
facts = st.builds(
    AdapterFacts,
    rank=st.integers(1, 1000),
    target_modules=st.sampled_from([("q_proj",), ("all-linear",), ("x",), ()]),
    peft_type=st.sampled_from(["LORA", "IA3", ""]),
    use_dora=st.booleans(),
    lora_alpha=st.just(1.0),
)
views = st.builds(
    PathView,
    state=st.sampled_from(PathState),
    text=st.just("as it is"),
    signature=st.sampled_from(["", "s1", "s2"]),
    config=st.none() | facts,
)
engines = st.builds(
    engine,
    held=st.dictionaries(handles | st.just("foreign"), paths),
    version=st.sampled_from(["0.5.23", "0.5.21", "0.5.9", "0.5.0", "0.4.9", ""]),
    boot=st.sampled_from(BOOTS),
    state=st.sampled_from([EngineState.READY, EngineState.READY, *EngineState]),
    settled=st.sampled_from([True, True, False]),
    max_loaded_loras=st.none() | st.integers(-1, 3),
    startup_adapters=st.sampled_from([{}, STARTUP]),
)
helds = st.builds(
    Held,
    uid=st.sampled_from(["uid-a", "uid-b", "uid-z"]),
    key=st.sampled_from(["ns/a", "ns/b", "other/z"]),
    handle=handles,
    path=paths,
    boot=st.sampled_from(BOOTS),
    owned=st.sampled_from([True, False, None]),
    adopted=st.booleans(),
    loaded_at=st.none() | st.just(NOON),
    signature=st.sampled_from(["", "s1"]),
    content=st.sampled_from(["", "c1"]),
    missed=st.booleans(),
)
stones = st.builds(Tombstone, path=paths, boot=st.sampled_from(BOOTS), older=st.just("") | paths)
stucks = st.builds(
    Stuck,
    uid=st.just("uid-a"),
    key=st.just("ns/a"),
    handle=handles,
    path=paths,
    boot=st.sampled_from(BOOTS),
)
memories = st.builds(
    lambda held, stones, stuck, losing, doubtful: Memory(
        held={one.handle: one for one in held},
        tombstones=stones,
        stuck=stuck,
        losing=losing,
        doubtful=doubtful,
    ),
    st.lists(helds, max_size=4),
    st.dictionaries(handles, stones, max_size=3),
    st.none() | stucks,
    st.booleans(),
    st.dictionaries(handles, st.floats(0, 200), max_size=2),
)
mes = st.builds(
    Me,
    pod=st.just("pod-0"),
    namespace=st.just("ns"),
    reload=st.sampled_from(["auto", "on-change", "never"]),
    trust_path=st.booleans(),
    preflight=st.booleans(),
)


@st.composite
def worlds(draw: Any) -> World:
    """A world of any adapters, each path in any state, and an engine in any mood."""
    adapters = draw(st.lists(written, max_size=6, unique_by=lambda one: one.metadata.uid))
    looked_at = [a.spec.path for a in adapters if draw(st.integers(0, 3))]
    seen = {path: draw(views) for path in looked_at}
    return world(
        *adapters,
        engine=draw(engines),
        paths=seen,
        partial=draw(st.booleans()),
        scope=draw(st.sampled_from(["all", "own"])),
        base_awaited=not draw(st.integers(0, 3)),
    )


@settings(max_examples=400)
@given(worlds(), memories, mes)
def test_each_adapter_has_a_state_and_a_reason_and_nothing_forbidden_is_sent(
    seen: World, memory: Memory, me: Me
) -> None:
    decided = plan(seen, memory, me, 100.0)
    assert seen.adapters is not None
    assert [entry.adapter for entry in decided.entries] == list(seen.adapters)
    assert all(entry.state in State and "\n" not in entry.text for entry in decided.entries)
    assert len(decided.actions) <= 1
    for action in decided.actions:
        match action:
            case Load():
                _may_load(action, seen, me)
            case Unload():
                _may_unload(action, seen, memory, decided)
            case Trial():
                raise AssertionError("nobody is suspected")


def _may_load(load: Load, seen: World, me: Me) -> None:
    """Never a path that is missing or could be taken for a Hub id, never a handle that is there."""
    assert load.path.startswith("/")
    assert ".." not in load.path.split("/")
    assert "\0" not in load.path
    assert me.trust_path or seen.paths[load.path].state is PathState.WHOLE
    assert load.handle not in (seen.engine.held or {})
    assert load.handle != seen.engine.model
    assert seen.engine.state is EngineState.READY


def _may_unload(unload: Unload, seen: World, memory: Memory, decided: Plan) -> None:
    """Never what others loaded: it is ours by memory, by adoption, or one that we unloaded before."""
    at = (seen.engine.held or {}).get(unload.handle)
    held = memory.held.get(unload.handle) or decided.memory.held.get(unload.handle)
    stone = memory.tombstones.get(unload.handle)
    ours = held is not None and held.path == at and held.owned is not False
    adopted = any(
        a.handle == unload.handle and a.spec.path == at for a in seen.adapters or () if a.deleting
    )
    buried = stone is not None and stone.covers(at)
    probe = memory.stuck is not None and memory.stuck.handle == unload.handle
    assert ours or adopted or buried or probe
    assert seen.engine.startup_handles.get(unload.handle) != at or buried or probe


@given(worlds(), memories, mes)
def test_whatever_was_decided_can_be_reported_and_recalled(
    seen: World, memory: Memory, me: Me
) -> None:
    decided = plan(seen, memory, me, 100.0)
    said = report(Says("test", ("*",)), decided, seen.engine, seen.scope)
    assert len(said.adapters) >= len(seen.adapters or ())
    plan(seen, recall(said, 0.0), me, 100.0)


@given(worlds(), memories, mes)
def test_before_the_first_list_nothing_is_sent(seen: World, memory: Memory, me: Me) -> None:
    unlisted = World(adapters=None, engine=seen.engine, paths=seen.paths)
    decided = plan(unlisted, memory, me, 100.0)
    assert (decided.actions, decided.entries) == ((), ())


# --- what engines answer ----------------------------------------------------------------------

_KEYS = st.sampled_from(
    [
        "data",
        "id",
        "parent",
        "root",
        "success",
        "error_message",
        "loaded_adapters",
        "message",
        "error",
        "detail",
        "model_path",
        "version",
        "lora_paths",
        "lora_name",
        "lora_path",
        "lora_id",
        "lora_target_modules",
        "startup_time",
        "random_seed",
        "json_model_override_args",
        "text",
    ]
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS | st.text(), inner),
    max_leaves=20,
)
bodies = st.binary() | anything.map(lambda told: json.dumps(told).encode())


@given(st.integers(100, 599), bodies)
def test_any_answer_is_read(status: int, body: bytes) -> None:
    for answer in (read_answer(status, body), read_generation(status, body)):
        assert len(answer.text.encode()) <= 256
        assert answer.text.isprintable()


@given(bodies)
def test_any_list_or_information_is_read_or_refused(body: bytes) -> None:
    for read in (Listing.read, ServerInfo.read):
        with suppress(ValueError):
            read(body)
