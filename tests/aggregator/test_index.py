"""Whom a change concerns, and what is taken together. What is concluded from it is in test_fold."""

import pytest

from sidecar.aggregator import reading
from sidecar.aggregator.index import LABELLED, MARKED, Index
from sidecar.aggregator.records import Service
from sidecar.aggregator.view import SILENCE_LIMIT
from tests.aggregator import worlds
from tests.aggregator.worlds import Json, entry, pod, report

CHAT = ("ml", "chat")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class World:
    """An index, told as the informers would."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.index = Index(self.clock)
        self._reports: dict[str, reading.Report] = {}

    def adapter(self, body: Json) -> None:
        read = reading.adapter(body)
        self.index.on_adapter(read.key, None, read)

    def pod(self, body: Json, source: str = LABELLED) -> None:
        read = reading.pod(body)
        self.index.on_pod(source, read.key, read)

    def report(self, body: Json) -> None:
        read = reading.report(body)
        self.index.on_report(read.key, self._reports.get(read.key), read)
        self._reports[read.key] = read

    def dirty(self) -> set[str]:
        """The adapters that were marked since the last time."""
        marked = set(self.index.dirty)
        self.index.dirty.clear()
        return marked


@pytest.fixture
def world() -> World:
    """A service with two adapters and a pod that reported both; and another's adapter."""
    made = World()
    made.adapter(worlds.adapter("sql"))
    made.adapter(worlds.adapter("law", uid="uid-law"))
    made.adapter(worlds.adapter("other", service="talk"))
    made.pod(pod())
    made.report(report("chat-a", entry(name="sql"), entry(name="law", uid="uid-law")))
    made.index.expire()
    made.dirty()
    return made


def test_what_a_report_says_of_one_adapter_concerns_that_one(world):
    said = (entry("Retrying", name="sql"), entry(name="law", uid="uid-law"))
    world.report(report("chat-a", *said, beat=2))
    assert world.dirty() == {"ml/sql"}


def test_a_beat_alone_concerns_nobody(world):
    said = (entry(name="sql"), entry(name="law", uid="uid-law"))
    world.report(report("chat-a", *said, beat=2))
    assert world.dirty() == set()


def test_what_a_report_says_of_the_engine_concerns_all_adapters_of_the_service(world):
    said = (entry(name="sql"), entry(name="law", uid="uid-law"))
    world.report(report("chat-a", *said, engine="Unreachable", beat=2))
    assert world.dirty() == {"ml/sql", "ml/law"}


def test_an_adapter_of_another_service_in_a_report_is_nobodys(world):
    said = (entry(name="sql"), entry(name="law", uid="uid-law"), entry(name="other"))
    world.report(report("chat-a", *said, beat=2))
    assert world.dirty() == set()


def test_a_report_that_goes_concerns_all_adapters_of_the_service(world):
    world.index.on_report("ml/chat-a", world.index.reports["ml/chat-a"], None)
    assert world.dirty() == {"ml/sql", "ml/law"}


def test_the_service_of_a_report_is_its_pods(world):
    body = report("talk-a", entry(name="other"))
    body["spec"]["service"] = "chat"
    world.report(body)
    assert world.dirty() == set()
    world.pod(pod("talk-a", service="talk"))
    assert world.dirty() == {"ml/other"}


def test_a_pod_concerns_the_adapters_of_its_service(world):
    world.pod(pod("chat-b", version=2))
    assert world.dirty() == {"ml/sql", "ml/law"}
    assert [seen.name for seen in world.index.view(CHAT).pods] == ["chat-a", "chat-b"]


def test_a_pod_that_changes_in_nothing_that_counts_concerns_nobody(world):
    world.pod(pod(version=2))
    assert world.dirty() == set()


def test_a_pod_that_changes_hands_concerns_both_services(world):
    world.pod(pod(service="talk", version=2))
    assert world.dirty() == {"ml/sql", "ml/law", "ml/other"}
    assert world.index.view(CHAT).pods == ()


def test_an_adapter_that_changes_its_service_is_of_the_new_one_only(world):
    moved = worlds.adapter("sql", service="talk")
    moved["metadata"]["resourceVersion"] = "8"
    world.adapter(moved)
    world.dirty()
    world.pod(pod("chat-b", version=2))
    assert world.dirty() == {"ml/law"}


def test_a_pod_told_by_two_informers_is_gone_when_both_say_so(world):
    world.pod(pod(), MARKED)
    world.index.on_pod(LABELLED, "ml/chat-a", None)
    assert len(world.index.view(CHAT).pods) == 1
    world.index.on_pod(MARKED, "ml/chat-a", None)
    assert world.index.view(CHAT).pods == ()


def test_of_two_informers_the_one_that_lags_behind_does_not_take_news_back(world):
    world.pod(pod(version=10, deleting=True), LABELLED)
    world.pod(pod(version=9), MARKED)
    assert world.index.view(CHAT).pods == ()


def test_an_older_adapter_than_the_one_just_written_is_not_taken(world):
    stored = worlds.adapter("sql", status={"loadedPath": "/new"})
    stored["metadata"]["resourceVersion"] = "12"
    world.index.learn(reading.adapter(stored))
    late = worlds.adapter("sql")
    late["metadata"]["resourceVersion"] = "9"
    world.adapter(late)
    assert world.index.adapters["ml/sql"].status == {"loadedPath": "/new"}
    assert world.dirty() == set()


def test_an_inference_service_concerns_its_adapters(world):
    world.index.on_service("ml/talk", None, Service("ml/talk", "sglang"))
    assert world.dirty() == {"ml/other"}


# ---- beats ------------------------------------------------------------------------------------------


def heard(world: World) -> bool:
    return world.index.view(CHAT).pods[0].report is not None


def test_a_beat_that_stands_still_for_eleven_minutes_is_heard_no_longer(world):
    world.clock.now += SILENCE_LIMIT - 1
    assert world.index.expire() == world.clock.now + 1
    assert (heard(world), world.dirty()) == (True, set())
    world.clock.now += 1
    assert world.index.expire() is None
    assert (heard(world), world.dirty()) == (False, {"ml/sql", "ml/law"})


def test_a_beat_that_moves_is_heard_again(world):
    world.clock.now += SILENCE_LIMIT
    world.index.expire()
    world.dirty()
    said = (entry(name="sql"), entry(name="law", uid="uid-law"))
    world.report(report("chat-a", *said, beat=2))
    assert (heard(world), world.dirty()) == (True, {"ml/sql", "ml/law"})


def test_new_words_without_a_new_beat_do_not_make_a_silent_agent_heard(world):
    world.clock.now += SILENCE_LIMIT
    world.index.expire()
    world.report(report("chat-a", entry(name="sql")))
    assert not heard(world)


def test_each_beat_gives_eleven_minutes(world):
    world.clock.now += 600.0
    world.report(report("chat-a", entry(name="sql"), beat=2))
    world.clock.now += 600.0
    world.index.expire()
    assert heard(world)


def test_after_we_could_not_hear_agents_get_a_moment_to_be_heard(world):
    world.clock.now += SILENCE_LIMIT + 100
    world.index.forgive(5.0)
    assert world.index.expire() == world.clock.now + 5.0
    assert heard(world)
    world.clock.now += 5.0
    world.index.expire()
    assert not heard(world)


# ---- opted in -----------------------------------------------------------------------------------------


def serve(world: World) -> None:
    world.index.on_service("ml/chat", None, Service("ml/chat", "sglang"))


def gone(world: World, name: str = "chat-a") -> None:
    world.index.on_pod(LABELLED, f"ml/{name}", None)


def test_a_service_is_opted_in_by_its_first_pod_that_is(world):
    assert world.index.view(CHAT).opted_in
    assert not world.index.view(("ml", "talk")).opted_in


def test_without_pods_the_last_word_stands(world):
    serve(world)
    gone(world)
    assert world.index.view(CHAT).opted_in


def test_without_pods_and_service_it_is_over(world):
    gone(world)
    assert not world.index.view(CHAT).opted_in


def test_the_last_word_stands_also_if_nobody_asked_before(world):
    serve(world)
    world.pod(pod("talk-a", service="talk"))
    gone(world, "talk-a")
    world.index.on_service("ml/talk", None, Service("ml/talk", "sglang"))
    assert world.index.view(("ml", "talk")).opted_in


def test_with_pods_of_which_none_is_opted_in_it_is_over(world):
    serve(world)
    gone(world)
    world.pod(pod("chat-b", opted_in=False, agent=False))
    assert not world.index.view(CHAT).opted_in
    gone(world, "chat-b")
    assert not world.index.view(CHAT).opted_in


def test_an_opted_in_pod_that_is_terminating_still_speaks_and_a_finished_one_does_not(world):
    serve(world)
    world.pod(pod("chat-b", opted_in=False, agent=False))
    world.pod(pod(deleting=True, version=2))
    assert world.index.view(CHAT).opted_in
    world.pod(pod(phase="Failed", version=3))
    assert not world.index.view(CHAT).opted_in
