"""The life of an engine: refusals, lists and what `/server_info` says, in order (rules 8 and 13)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from sidecar.agent import life
from sidecar.agent.answers import Listing
from sidecar.agent.life import Life
from sidecar.api.reasons import EngineState, Reason
from tests.agent.builders import NOON, info

pytestmark = pytest.mark.rule(8)

LATER = NOON + timedelta(minutes=1)
EMPTY = Listing(loaded={}, base="base", supported=True)


def running(boot: str = "boot-1") -> Life:
    up = life.listed(Life(), EMPTY, 10.0, NOON)
    return life.identified(up, replace(info(), identity=boot), NOON)


def test_a_refusal_everywhere_is_a_start_and_names_the_addresses():
    view = life.refused(running(), "[::1]:30000, 127.0.0.1:30000").view
    assert view.state is EngineState.STARTING
    assert "[::1]:30000" in view.text
    assert view.held is None


def test_the_first_list_makes_it_ready():
    view = life.listed(Life(), EMPTY, 10.0, NOON).view
    assert (view.state, view.since, view.model) == (EngineState.READY, NOON, "base")


def test_two_failed_reads_change_nothing_and_the_third_makes_it_unreachable():
    now = running()
    for _ in range(2):
        now = life.silent(now, "timed out")
        assert now.view == running().view
    assert life.silent(now, "timed out").view.state is EngineState.UNREACHABLE


def test_a_good_read_in_between_starts_the_count_anew():
    now = life.silent(life.silent(running(), "x"), "x")
    now = life.listed(now, EMPTY, 11.0, LATER)
    assert life.silent(now, "x").view.state is EngineState.READY


def test_ready_since_is_when_this_process_was_first_seen_ready():
    again = life.listed(running(), EMPTY, 20.0, LATER)
    assert again.view.since == NOON
    reborn = life.listed(life.refused(running(), "x"), EMPTY, 30.0, LATER)
    assert reborn.view.since == LATER


def test_loads_wait_for_its_identity_but_not_for_ever():
    up = life.listed(Life(), EMPTY, 10.0, NOON)
    assert not up.view.settled
    assert not life.waited(up, 129.0).view.settled
    late = life.waited(up, 130.0)
    assert late.view.settled
    assert late.view.boot


def test_what_it_says_of_itself_does_not_make_it_ready_before_it_has_told_what_it_holds():
    assert life.identified(Life(), info(), NOON) == Life()


def test_its_identity_names_the_process():
    assert running().view.boot == "boot-1"
    assert running().view.settled


def test_a_fixed_seed_is_told_apart_by_the_refusal_in_between():
    reborn = life.listed(life.refused(running(), "x"), EMPTY, 30.0, LATER)
    named = life.identified(reborn, replace(info(), identity="boot-1"), LATER)
    assert named.view.boot == "boot-1.1"
    third = life.listed(life.refused(named, "x"), EMPTY, 40.0, LATER)
    assert life.identified(third, replace(info(), identity="boot-1"), LATER).view.boot == "boot-1.2"


def test_the_same_identity_without_a_refusal_is_the_same_process():
    asked = life.asked_again(running(), 50.0)
    assert not asked.view.settled
    assert life.identified(asked, replace(info(), identity="boot-1"), LATER).view == running().view


def test_another_identity_without_a_refusal_is_a_new_process():
    now = life.identified(
        life.asked_again(running(), 50.0), replace(info(), identity="boot-2"), LATER
    )
    assert (now.view.boot, now.view.since) == ("boot-2", LATER)


def test_a_restarted_agent_recognises_the_process_it_knew():
    up = life.listed(Life(last_boot="boot-1.3"), EMPTY, 10.0, NOON)
    assert life.identified(up, replace(info(), identity="boot-1"), NOON).view.boot == "boot-1.3"


def test_a_key_that_is_refused_is_said_at_once():
    view = life.turned_away(running(), Reason.ENGINE_UNAUTHORIZED, "the api key").view
    assert (view.state, view.reason) == (EngineState.UNREACHABLE, Reason.ENGINE_UNAUTHORIZED)


@pytest.mark.field(37)
@pytest.mark.rule(13)
class TestSetUpsThatCannotLoad:
    @pytest.mark.parametrize(
        ("over", "reason", "word"),
        [
            ({"enable_lora": False}, Reason.LORA_DISABLED, "--enable-lora"),
            ({"tokenizer_worker_num": 2}, Reason.ENGINE_UNSUPPORTED, "--tokenizer-worker-num"),
            ({"node_rank": 1}, Reason.ENGINE_UNSUPPORTED, "node 0"),
            ({"dp_size": 2}, Reason.ENGINE_UNSUPPORTED, "--dp-size"),
            (
                {"dp_size": 2, "enable_dp_attention": True, "version": "0.5.16"},
                Reason.ENGINE_UNSUPPORTED,
                "--dp-size",
            ),
        ],
    )
    def test_are_named_with_the_flag(self, over, reason, word):
        verdict = life.unsupported(info(**over))
        assert verdict is not None
        assert verdict[0] is reason
        assert word in verdict[1]

    @pytest.mark.parametrize(
        "over",
        [
            {},
            {"enable_lora": None, "dp_size": None, "tokenizer_worker_num": None, "node_rank": None},
            {"dp_size": 2, "enable_dp_attention": True, "version": "0.5.21"},
        ],
    )
    def test_unknown_is_not_failure(self, over):
        assert life.unsupported(info(**over)) is None

    def test_make_the_engine_unsupported(self):
        up = life.listed(Life(), EMPTY, 10.0, NOON)
        view = life.identified(up, info(enable_lora=False), NOON).view
        assert (view.state, view.reason) == (EngineState.UNSUPPORTED, Reason.LORA_DISABLED)
