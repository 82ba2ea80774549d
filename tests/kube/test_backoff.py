"""Delays between tries."""

import random

from sidecar.kube.backoff import Backoff


def test_the_delay_doubles_up_to_its_limit() -> None:
    backoff = Backoff(0.5, 30.0, lambda: 1.0)
    assert [backoff.next() for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_the_delay_begins_anew_after_a_success() -> None:
    backoff = Backoff(0.5, 30.0, lambda: 1.0)
    backoff.next()
    backoff.next()
    backoff.reset()
    assert backoff.next() == 0.5


def test_many_that_fail_together_come_back_spread_over_the_whole_delay() -> None:
    dice = random.Random(7).random
    delays = []
    for _ in range(200):
        backoff = Backoff(0.5, 30.0, dice)
        delays.append([backoff.next() for _ in range(7)][-1])
    assert min(delays) < 3
    assert max(delays) > 27
    assert max(sum(start <= delay < start + 3 for delay in delays) for start in range(27)) < 40


def test_what_the_server_asks_for_is_waited_for_with_a_little_jitter() -> None:
    assert Backoff(0.5, 30.0, lambda: 0.0).next(at_least=10.0) == 10.0
    assert Backoff(0.5, 30.0, lambda: 1.0).next(at_least=10.0) == 12.0
    assert Backoff(20.0, 30.0, lambda: 1.0).next(at_least=1.0) == 20.0
