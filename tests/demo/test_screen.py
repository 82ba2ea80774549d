"""What the demo shows, without anything running."""

import io
from typing import Any, cast

import pytest

from tests.demo import __main__ as demo
from tests.demo.scene import Look, NotSeenError, Scene
from tests.demo.screen import PLAIN, Screen, aligned, cells, clip
from tests.demo.steps import STEPS, Step
from tests.demo.table import Table

EARLY = """\
NAME   SERVICE   LOADED   PODS   AGE   REASON
sql    chat                      0s
"""
WAITING = """\
NAME   SERVICE   LOADED   PODS   AGE   REASON
sql    chat      False    0/2    1s    PathNotFound
"""
LATER = WAITING.replace("1s ", "59s")


class Stream(io.StringIO):
    """A stream that may be a terminal, of some encoding."""

    def __init__(self, *, terminal: bool, encoding: str = "utf-8") -> None:
        super().__init__()
        self._terminal = terminal
        self._encoding = encoding

    @property
    def encoding(self) -> str:
        return self._encoding

    def isatty(self) -> bool:
        return self._terminal


def everything(screen: Screen) -> None:
    screen.headline("A headline")
    screen.prose("word " * 60)
    screen.command("kubectl get lora")
    screen.output("x" * 300)
    screen.copyable(["y" * 300])
    screen.head("NAME")
    screen.row(1.25, "sql", ["what there is to say of it"])
    screen.seen("loaded", 2)
    screen.failed("not loaded")


def test_a_table_is_read_by_where_its_columns_begin_so_empty_cells_stay_empty():
    assert cells(EARLY) == [
        {"NAME": "sql", "SERVICE": "chat", "LOADED": "", "PODS": "", "AGE": "0s", "REASON": ""}
    ]


def test_cells_stand_below_one_another_whatever_is_in_them():
    widths = {"NAME": 4, "LOADED": 7, "PODS": 4}
    first = aligned({"NAME": "sql", "LOADED": "", "PODS": "0/2"}, widths)
    second = aligned({"NAME": "sql", "LOADED": "Unknown", "PODS": "0/2"}, widths)
    assert first.index("0/2") == second.index("0/2")


@pytest.mark.parametrize(
    ("line", "width", "cut"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdef", 5, "abcd…"),
        ("abcdef", 1, "…"),
        ("abcdef", None, "abcdef"),
    ],
)
def test_a_line_is_cut_to_the_width(line: str, width: int | None, cut: str):
    assert clip(line, width) == cut


def test_into_a_file_it_is_plain_and_whole():
    out = Stream(terminal=False)
    screen = Screen.on(out, {"TERM": "xterm"})
    with screen.working("something slow"):
        everything(screen)
    text = out.getvalue()
    assert "\x1b" not in text
    assert "\r" not in text
    assert "something slow" not in text
    assert "x" * 300 in text


def test_on_a_terminal_it_is_coloured_and_cut_but_for_what_one_may_copy():
    out = Stream(terminal=True)
    everything(Screen.on(out, {"TERM": "xterm", "COLUMNS": "80"}))
    text = out.getvalue()
    assert "\x1b[1mA headline\x1b[0m" in text
    assert "x" * 300 not in text
    assert "y" * 300 in text


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_where_none_is_wanted(environment: dict[str, str]):
    out = Stream(terminal=True)
    everything(Screen.on(out, environment))
    assert "\x1b[1m" not in out.getvalue()
    assert "\x1b[32m" not in out.getvalue()


def test_a_stream_that_cannot_say_it_gets_other_marks():
    out = Stream(terminal=False, encoding="ascii")
    everything(Screen.on(out, {}))
    assert out.getvalue().isascii()
    assert f"{PLAIN['seen']} loaded (2.0 s)" in out.getvalue()


def test_what_is_waited_for_is_shown_and_goes_when_it_is_over():
    out = Stream(terminal=True)
    screen = Screen.on(out, {"TERM": "xterm", "NO_COLOR": "1"})
    with screen.working("for the engine"):
        screen.output("in between")
    shown = [line.split("\x1b[2K")[-1] for line in out.getvalue().split("\n")]
    assert "    in between" in shown
    assert shown[-1] == ""
    assert "for the engine 0 s" in out.getvalue()


def test_when_nobody_reads_any_more_it_ends():
    class Closed(Stream):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    screen = Screen(Closed(terminal=False))
    with pytest.raises(SystemExit):
        screen.headline("nobody sees this")
    screen.headline("and this is no error on the way out")


def test_a_row_that_says_nothing_new_but_its_age_is_not_shown():
    out = io.StringIO()
    table = Table(Screen(out), "kubectl get lora")
    table.show(WAITING, ["chat-0: PathNotFound"], 1)
    table.show(LATER, ["chat-0: PathNotFound"], 59)
    assert out.getvalue().count("PathNotFound\n") == 2  # the row and its note
    table.show(LATER, ["chat-0: PathNotFound: it does not exist"], 60)
    assert "it does not exist" in out.getvalue()


def test_each_wait_has_a_header_and_says_at_least_how_it_ended():
    out = io.StringIO()
    table = Table(Screen(out), "kubectl get lora")
    table.show(WAITING, [], 1)
    table.begin()
    table.show(LATER, [], 2)
    assert out.getvalue().count("NAME") == 1
    table.show(LATER, [], 3, again=True)
    assert out.getvalue().count("NAME") == 2
    assert "+3.0 s sql" in out.getvalue()


def test_a_status_that_is_not_there_yet_says_nothing():
    assert Look.at({"metadata": {}}) == Look()


def test_a_status_is_read_with_a_note_on_each_pod_that_is_behind():
    status = {
        "conditions": [
            {"type": "Loaded", "status": "False", "reason": "PathNotFound"},
            {"type": "Error", "status": "False", "reason": "ReconcileSuccess"},
        ],
        "podsLoaded": "1/2",
        "pods": [
            {"pod": "chat-1", "state": "Pending", "reason": "PathNotFound", "text": "not there"},
            {"pod": "chat-0", "state": "Loaded", "reason": "Loaded"},
        ],
    }
    assert Look.at({"status": status}) == Look(
        "False", "1/2", "PathNotFound", notes=("chat-1: PathNotFound: not there",)
    )


def test_it_stays_only_where_somebody_looks_or_asks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdout", Stream(terminal=False))
    assert not demo.parse([]).keep
    assert demo.parse(["--keep"]).keep
    monkeypatch.setattr("sys.stdout", Stream(terminal=True))
    assert demo.parse([]).keep
    assert not demo.parse(["--no-keep"]).keep


class EmptyStack:
    """A stack in which nothing runs."""

    pods = ()
    aggregator = None


def played(monkeypatch: pytest.MonkeyPatch, *steps: Step) -> tuple[int, str]:
    monkeypatch.setattr(demo, "STEPS", steps)
    out = io.StringIO()
    code = demo.play(Scene(cast(Any, EmptyStack()), Screen(out)), keep=False)
    return code, out.getvalue()


def test_a_step_that_is_not_seen_is_named_and_ends_it(monkeypatch: pytest.MonkeyPatch):
    def fails(_: Scene) -> None:
        raise NotSeenError("not seen within 30 s: loaded on both")

    shown = Step("First", "It matters.", lambda scene: scene.screen.seen("it"))
    code, told = played(monkeypatch, shown, Step("Second", "It matters.", fails), shown)
    assert code == 1
    assert "step 2, 'Second': not seen within 30 s: loaded on both" in told
    assert "3/3" not in told


def test_only_what_was_all_seen_ends_well(monkeypatch: pytest.MonkeyPatch):
    code, told = played(monkeypatch, Step("First", "It matters.", lambda _: None))
    assert code == 0
    assert "All 1 steps were seen" in told


def test_each_step_says_what_happens_and_why_it_matters():
    assert all(step.title and step.why.endswith(".") for step in STEPS)
