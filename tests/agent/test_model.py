"""The plan against a model of everything around it: thousands of random steps, and what must hold after each.

The model is an engine (handles, limit, eviction, implicit loads, restarts), directories, adapters that come, change and
go, and calls that succeed, fail or lose their answer. It says what happens; `plan`, `remember`, `report` and `recall`
decide. A seed makes a whole history, so that a failure is seen again by its number. Sockets and threads are left to
the tests of the loop.
"""

import random
from dataclasses import replace

import pytest

from sidecar.agent.answers import Answer, Kind
from sidecar.agent.outcome import remember
from sidecar.agent.pathview import PathState, PathView
from sidecar.agent.plan import plan
from sidecar.agent.report import Says, recall, report
from sidecar.agent.state import Action, Load, Memory, Outcome, Plan, Running, Trial, Unload
from sidecar.api.adapter import LoRAAdapter
from sidecar.api.reasons import EngineState, Reason, State
from sidecar.api.report import TEXT_LIMIT
from tests.agent.builders import ME, NOON, adapter, engine, info, whole, world

NAMES = ("a", "b", "c", "d")
HANDLES = ("h", "i", "j")
PATHS = tuple(f"/adapters/{name}" for name in "pqrs")
STARTUP = ("startup", "/adapters/startup")
BY_HAND = ("h", "/by-hand")
KILLERS = ("s7", "s8")
STEPS = 100


class Model:
    """One history. `engine` and `paths` are the truth; `seen` is what the agent has been told of the engine."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 100.0
        self.born = 0
        self.limit = self.random.choice((None, None, 3))
        self.adapters: dict[str, LoRAAdapter] = {}
        self.named: set[tuple[str, str]] = set()
        self.paths: dict[str, PathView] = {path: whole("s0") for path in PATHS}
        self.life = 0
        self.memory = Memory()
        self.running: list[Running] = []
        self.sent: list[Action] = []
        self.last: Plan | None = None
        self.start()

    # --- the engine ---

    def start(self) -> None:
        """A new process, which knows its arguments only; the calls to the old one are lost."""
        self.life += 1
        self.up = True
        self.held = dict([STARTUP])
        self.known = dict(self.held)
        while self.running:
            self.end(Answer(Kind.UNKNOWN))
        self.list()

    def list(self) -> None:
        self.seen = engine(
            dict(self.held),
            boot=f"boot-{self.life}",
            listed_at=self.now,
            max_loaded_loras=self.limit,
            startup_adapters=dict([STARTUP]),
        )
        if not self.up:
            self.seen = replace(self.seen, state=EngineState.STARTING, held=None)

    def put(self, handle: str, path: str) -> None:
        if self.limit is not None and len(self.held) >= self.limit:
            del self.held[self.random.choice(sorted(self.held))]
        self.held[handle] = self.known[handle] = path

    def carry_out(self, action: Action) -> Answer:
        """What SGLang does and answers."""
        there = action.handle in self.held
        match action:
            case Load() if there:
                kind = Kind.ALREADY_LOADED
            case Load() if self.paths[action.path].state is not PathState.WHOLE:
                return Answer(Kind.BAD_ADAPTER, text="bad " * 200, status=400)
            case Load():
                self.put(action.handle, action.path)
                kind = Kind.OK
            case Trial() if there and self.kills(action.path):
                self.start()
                return Answer(Kind.UNKNOWN)
            case Trial():
                return Answer(Kind.OK if there else Kind.UNKNOWN_NAME, status=200)
            case Unload():
                kind = Kind.OK if there else Kind.UNKNOWN_NAME
                self.held.pop(action.handle, None)
        return Answer(kind, loaded=dict(self.held), status=200)

    def kills(self, path: str) -> bool:
        """Whether the engine dies at the first use of these files."""
        return path in self.paths and self.paths[path].signature in KILLERS

    def end(self, answer: Answer) -> None:
        """The first call that is open is answered, where the engine's death has not ended it already."""
        if not self.running:
            return
        action = self.running.pop(0).action
        after = self.paths[action.path].signature if action.path in self.paths else ""
        outcome = Outcome(action, answer, NOON, self.seen.boot, after)
        self.memory = remember(self.memory, outcome, self.now, ME.pod, (0, 5, 23))
        if answer.loaded is not None:
            self.seen = replace(self.seen, held=answer.loaded)

    # --- what may happen ---

    def answered(self) -> None:
        if self.running:
            self.end(self.carry_out(self.running[0].action))

    def answer_lost(self) -> None:
        if self.running:
            if self.random.random() < 0.5:
                self.carry_out(self.running[0].action)
            self.end(Answer(Kind.UNKNOWN))

    def written(self) -> None:
        name = self.random.choice(NAMES)
        old = self.adapters.get(name)
        if old is None or old.deleting:
            self.born += 1
        self.adapters[name] = adapter(
            name,
            handle=self.random.choice(HANDLES),
            path=self.random.choice(PATHS),
            uid=old.metadata.uid if old and not old.deleting else f"uid-{self.born}",
        )
        self.named.add((self.adapters[name].handle, self.adapters[name].spec.path))

    def deleted(self) -> None:
        if self.adapters:
            name = self.random.choice(sorted(self.adapters))
            old = self.adapters.pop(name)
            if self.random.random() < 0.5:
                gone = adapter(
                    name,
                    handle=old.handle,
                    path=old.spec.path,
                    uid=old.metadata.uid,
                    deleting=True,
                )
                self.adapters[name] = gone

    def files_moved(self) -> None:
        state = self.random.choice((PathState.WHOLE, PathState.MISSING, PathState.PARTIAL))
        view = PathView(state, signature=f"s{self.random.randrange(9)}", local=True, text="é" * 400)
        self.paths[self.random.choice(PATHS)] = view

    def asked_by_a_client(self) -> None:
        """A request for a handle makes SGLang load what it knew by that name."""
        handle = self.random.choice(sorted(self.known))
        if self.up and handle not in self.held:
            self.put(handle, self.known[handle])
        if self.up and self.kills(self.held[handle]):
            self.start()

    def loaded_by_hand(self) -> None:
        if self.up and BY_HAND[0] not in self.held:
            self.put(*BY_HAND)

    def engine_restarted(self) -> None:
        self.start()

    def engine_down(self) -> None:
        self.up = False
        self.held = {}
        while self.running:
            self.end(Answer(Kind.UNKNOWN))
        self.list()

    def agent_restarted(self) -> None:
        if self.last is not None and not self.running:
            said = report(Says("1", ()), self.last, self.seen, "all")
            self.memory = recall(said, self.now)

    def step(self) -> None:
        self.now += self.random.choice((0.01, 0.5, 5.0, 70.0))
        happen = (
            *[self.answered] * 8,
            self.answer_lost,
            *[self.written] * 2,
            self.deleted,
            self.files_moved,
            self.asked_by_a_client,
            self.loaded_by_hand,
            self.agent_restarted,
        )
        rare = (self.engine_restarted, self.engine_down)
        self.random.choice(happen if self.random.random() < 0.97 else rare)()
        if not self.up and self.random.random() < 0.3:
            self.start()
        if self.random.random() < 0.5:
            self.list()
        self.decide()

    # --- what must hold ---

    def decide(self) -> Plan:
        seen = world(
            *self.adapters.values(),
            engine=self.seen,
            paths=dict(self.paths),
            running=tuple(self.running),
        )
        decided = plan(seen, self.memory, ME, self.now)
        self.memory, self.last = decided.memory, decided
        assert [e.adapter.metadata.uid for e in decided.entries] == [
            a.metadata.uid for a in self.adapters.values()
        ]
        said = report(Says("1", ()), decided, self.seen, "all")
        assert all(len((entry.text or "").encode()) <= TEXT_LIMIT for entry in said.adapters)
        assert len(decided.actions) <= 1
        for action in decided.actions:
            self.may_be_sent(action)
            self.running.append(Running(action, self.now))
            self.sent.append(action)
        if decided.list_now or decided.identify:
            self.list()
        return decided

    def may_be_sent(self, action: Action) -> None:
        listed = self.seen.held or {}
        assert self.seen.state is EngineState.READY
        if self.running:
            (first,) = self.running
            assert isinstance(action, Load)
            assert isinstance(first.action, Unload)
            assert first.action.replacing
            assert first.action.handle == action.handle
        if isinstance(action, Trial):
            assert listed.get(action.handle) == action.path
            assert not self.running
        elif isinstance(action, Load):
            assert self.paths[action.path].state is PathState.WHOLE
            assert action.handle not in listed or self.running
        else:
            stuck = self.memory.stuck
            probes = stuck is not None and (stuck.handle, stuck.path) == (
                action.handle,
                action.path,
            )
            assert listed.get(action.handle) == action.path or probes
            assert (action.handle, action.path) in self.named, "it is nobody's of ours"
            assert (action.handle, action.path) != STARTUP

    def stand_still(self) -> None:
        """Nothing changes any more: what is wanted is there, what is not wanted is not, and then there is peace."""
        if not self.up:
            self.start()
        self.paths = {path: whole("last") for path in PATHS}
        self.rest(1500.0)
        self.sent.clear()
        decided = self.rest(1200.0)
        assert self.sent == []
        wanted = {(a.handle, a.spec.path) for a in self.adapters.values() if not a.deleting}
        assert set(self.held.items()) - wanted <= {STARTUP, BY_HAND}
        for entry in decided.entries:
            self.is_right(entry.adapter, entry.reason)

    def rest(self, seconds: float) -> Plan:
        until = self.now + seconds
        while self.now < until:
            self.now += 5.0
            while self.running:
                self.answered()
            self.list()
            decided = self.decide()
        return decided

    def is_right(self, of: LoRAAdapter, reason: Reason) -> None:
        if reason.state is State.LOADED:
            assert self.held[of.handle] == of.spec.path
        elif reason is Reason.NAME_TAKEN:
            first = [a for a in self.adapters.values() if a.handle == of.handle and not a.deleting]
            assert len(first) > 1 or self.held[of.handle] == BY_HAND[1]
        elif reason is Reason.CAPACITY_EXCEEDED:
            assert self.limit is not None
        else:
            assert of.deleting or reason.state is State.FAILED, reason
            assert not of.deleting or reason.state is State.UNLOADED, reason


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_whatever_happens_nothing_forbidden_is_sent_and_in_peace_all_is_as_wanted(first: int):
    for seed in range(first, first + 20):
        model = Model(seed)
        try:
            for _ in range(STEPS):
                model.step()
            model.stand_still()
        except AssertionError as error:
            error.add_note(f"seed {seed}, last sent: {model.sent[-3:]}")
            raise


def test_the_builders_know_the_limit_that_the_model_sets():
    assert info(max_loaded_loras=3).max_loaded_loras == 3
