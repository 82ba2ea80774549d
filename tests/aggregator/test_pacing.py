"""When a status is looked at and written, by the clock alone. That the loop keeps to it is in test_loop."""

from sidecar.aggregator.pacing import Pace


def written(pace: Pace, now: float, *, corrective: bool = False) -> Pace:
    return pace.look(now).write(now, corrective=corrective)


def may(pace: Pace, now: float, *, pods: int = 3, urgent: bool = False, corrective: bool = False):
    return pace.may_write(now, pods=pods, urgent=urgent, corrective=corrective)


def test_the_first_change_is_looked_at_and_written_at_once():
    pace = Pace().stir(100.0)
    assert (pace.next, may(pace, 100.0)) == (100.0, 100.0)


def test_a_change_after_a_quiet_second_is_written_at_once_however_many_pods_there_are():
    pace = written(Pace().stir(100.0), 100.0).stir(101.0)
    assert (pace.next, may(pace, 101.0, pods=1000)) == (101.0, 101.0)


def test_what_comes_with_it_does_not_hold_up_the_change_that_ended_the_quiet():
    pace = written(Pace().stir(100.0), 100.0).stir(102.0).stir(102.05)
    assert may(pace.look(102.1), 102.1, pods=1000) == 102.1


def test_a_change_within_the_second_waits_until_a_second_after_the_write():
    pace = written(Pace().stir(100.0), 100.0).stir(100.4)
    assert pace.next == 101.0
    assert may(pace.look(101.0), 101.0) == 101.0


def test_in_a_storm_a_thousand_pods_mean_one_write_in_ten_seconds():
    pace = written(Pace().stir(100.0), 100.0)
    for tenth in range(1, 40):
        pace = pace.stir(100.0 + tenth / 10)
    assert pace.next == 101.0
    pace = pace.look(101.0)
    assert may(pace, 101.0, pods=1000) == 110.0


def test_in_a_storm_the_change_of_a_conditions_status_waits_a_second_at_most():
    pace = written(Pace().stir(100.0), 100.0).stir(100.5).look(101.0)
    assert may(pace, 101.0, pods=1000, urgent=True) == 101.0


def test_in_a_storm_it_is_looked_at_once_a_second():
    pace = written(Pace().stir(100.0), 100.0).stir(100.1).look(101.0).wait(110.0)
    assert pace.stir(101.05).next == 102.0


def test_what_waits_for_its_time_is_not_put_off_by_further_changes():
    pace = written(Pace().stir(100.0), 100.0).stir(100.9).look(101.0).wait(101.5)
    assert pace.stir(101.4).next == 101.5


def test_a_change_while_a_write_is_under_way_is_looked_at_after_it():
    pace = Pace().stir(100.0).look(100.0).stir(100.2)
    pace = pace.write(100.3, corrective=False)
    assert pace.next == 101.0


def test_nothing_differs_so_there_is_nothing_to_do_until_something_changes():
    assert Pace().stir(100.0).look(100.0).settle().next is None


def test_the_work_of_another_writer_is_undone_once_a_minute():
    pace = Pace().stir(100.0).look(100.0)
    assert may(pace, 100.0, corrective=True) == 100.0
    pace = pace.write(100.0, corrective=True).stir(105.0).look(105.0)
    assert may(pace, 105.0, corrective=True) == 160.0
    assert may(pace, 105.0) == 105.0


def test_pauses_after_failures_double_up_to_a_minute():
    pace, pauses = Pace().stir(0.0), []
    for _ in range(8):
        pace = pace.look(0.0).fail(0.0)
        pauses.append(pace.next)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_a_change_does_not_shorten_the_pause_after_a_failure():
    pace = Pace().stir(0.0).look(0.0).fail(0.0).look(1.0).fail(1.0).stir(2.5)
    assert may(pace, 2.5, urgent=True) == 3.0


def test_a_server_that_asks_for_more_time_gets_it():
    assert Pace().stir(0.0).look(0.0).fail(0.0, at_least=30.0).next == 30.0


def test_a_write_that_went_well_ends_the_growing_of_the_pauses():
    pace = Pace().stir(0.0).look(0.0).fail(0.0).fail(1.0).write(5.0, corrective=False)
    assert pace.look(9.0).fail(9.0).next == 10.0


def test_a_conflict_is_looked_at_at_once_unless_it_goes_on():
    pace, nexts = Pace().stir(0.0), []
    for _ in range(5):
        pace = pace.look(0.0).conflict(0.0)
        nexts.append(pace.next)
    assert nexts == [0.0, 0.0, 0.0, 8.0, 16.0]
