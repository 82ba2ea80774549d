"""Whose statuses the loop writes, when it writes them, and that nothing is lost on the way.

A fake API server over a real socket, real informers, and a clock that only the test moves. What a status says is in
test_fold; a real API server is in test_real.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from sidecar.aggregator.announcing import Announcer
from sidecar.aggregator.finalizing import Policy
from sidecar.aggregator.index import Index
from sidecar.aggregator.loop import Loop
from sidecar.aggregator.metrics import PREFIX, Metrics, State
from sidecar.aggregator.sources import ADAPTERS, PODS, REPORTS, SERVICES, Sources
from sidecar.aggregator.view import SILENCE_LIMIT
from sidecar.kube.client import Client
from sidecar.kube.informer import Informer
from sidecar.kube.resources import WEBHOOKS
from tests.aggregator import worlds
from tests.aggregator.worlds import OURS, Json, condition, entry, pod, report, says, service
from tests.fakes import kube_faults as faults
from tests.fakes.kube import FakeKube
from tests.fakes.kube_requests import Seen, Target

NOT_OPTED_IN = ("Unknown", "NotOptedIn")
LOADED = ("True", "ReconcileSuccess")
SILENT = ("Unknown", "NotReported")


class Kube(FakeKube):
    """Prunes from a status what `prunes` names, as the structural schema of a CRD does."""

    def __init__(self) -> None:
        super().__init__()
        self.statuses = {ADAPTERS}
        self.prunes: set[str] = set()

    def _write(self, target: Target, seen: Seen) -> web.Response:
        status = {k: v for k, v in seen.body.get("status", {}).items() if k not in self.prunes}
        return super()._write(
            target, dataclasses.replace(seen, body=seen.body | {"status": status})
        )


class Rig:
    """An aggregator at work on a fake API server."""

    def __init__(self, kube: Kube, client: Client) -> None:
        self.kube = kube
        self.now = 1000.0
        self.ticking = False
        self.policy = Policy()
        self.registry = CollectorRegistry()
        self.wake = asyncio.Event()
        self.index = Index(self.clock)
        self.sources = Sources(client, self.index, self.wake.set, "lora-sidecar")
        metrics = Metrics(self.registry)
        self.announcer = Announcer(client, metrics, "me", clock=self.clock, wall=self.wall)
        self.loop = Loop(
            client,
            self.index,
            self.sources,
            metrics,
            self.announcer,
            policy=lambda _: self.policy,
            wake=self.wake,
            clock=self.clock,
            wall=self.wall,
        )
        self.registry.register(State(self.index))
        self._tasks: list[asyncio.Task[Any]] = []

    def clock(self) -> float:
        return self.now + (time.monotonic() if self.ticking else 0.0)

    def wall(self) -> datetime:
        return worlds.NOW + timedelta(seconds=self.now - 1000.0)

    def start(self) -> None:
        events = self.announcer.run()
        runs = {**self.sources.runs(), "loop": self.loop.run(), "events": events}
        self._tasks = [asyncio.create_task(run, name=name) for name, run in runs.items()]

    def watch_no_more(self, what: str) -> None:
        """Ends one informer: its watch is far behind."""
        (task,) = [task for task in self._tasks if task.get_name() == f"watching {what}"]
        task.cancel()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    # ---- the world ----------------------------------------------------------------------------------

    def put(self, *bodies: Json) -> None:
        for body in bodies:
            kinds = {"LoRAAdapter": ADAPTERS, "LoRAPodStatus": REPORTS}
            self.kube.put(kinds.get(body.get("kind", ""), PODS), body)

    def serve(self, body: Json | None = None) -> None:
        self.kube.put(SERVICES, body or service())

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        self.wake.set()

    async def watch_anew(self) -> None:
        """The API server ends all watches, after a time of quiet."""
        adapters = self._informers[0]
        before = adapters.watches
        self.now += 100
        self.kube.end_streams()
        await self.until(lambda: adapters.watches > before)

    # ---- what became of it --------------------------------------------------------------------------

    def status(self, name: str = "sql") -> Json:
        return (self.kube.get(ADAPTERS, "ml", name) or {}).get("status", {})

    def loaded(self, name: str = "sql") -> tuple[str, str] | None:
        status = self.status(name)
        return says(status) if status.get("conditions") else None

    @property
    def writes(self) -> list[str]:
        """The names of the adapters whose status was written, in that order."""
        targets = [Target.of(seen.path) for seen in self.kube.of("patch")]
        return [target.name or "" for target in targets if target.subresource == "status"]

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not holds():  # noqa: ASYNC110 - the fake server tells nobody what it stores
                await asyncio.sleep(0.002)

    async def idle(self) -> None:
        """Waits until the loop has seen everything that the server holds, and has nothing under way.

        Each watch tells in order: who has seen a mark come and go has seen all that was before it.
        """
        marks = (
            worlds.adapter("mark", service="nobody"),
            report("mark"),
            pod("mark", service=None),
        )
        self.put(*marks)
        self.serve(service("mark"))
        await self.until(lambda: all("ml/mark" in one.snapshot for one in self._informers))
        for resource in (ADAPTERS, REPORTS, PODS, SERVICES):
            self.kube.delete(resource, "ml", "mark")
        await self.until(lambda: not any("ml/mark" in one.snapshot for one in self._informers))
        for _ in range(2):  # the first may have begun before the mark went
            seen = self.loop.passes
            self.wake.set()
            await self.until(lambda seen=seen: self.loop.passes > seen and not self.loop.busy)

    @property
    def _informers(self) -> tuple[Informer[Any], ...]:
        all_ = self.sources
        return all_.adapters, all_.reports, all_.labelled, all_.marked, all_.services

    def finalizers(self, name: str = "sql") -> list[str] | None:
        """None where the adapter is not there."""
        found = self.kube.get(ADAPTERS, "ml", name)
        return found["metadata"].get("finalizers", []) if found else None

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"{PREFIX}_{name}", labels) or 0.0


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with Kube() as kube, kube.client() as client:
        made = Rig(kube, client)
        yield made
        await made.stop()


def of_status(seen: Seen) -> bool:
    return seen.path.endswith("/status")


async def started(rig: Rig, *bodies: Json) -> Rig:
    """An aggregator that has done all there was to do in this world."""
    rig.serve()
    rig.put(*bodies)
    rig.start()
    await rig.idle()
    return rig


# ---- whose statuses are written -------------------------------------------------------------------------


async def test_a_report_becomes_a_status(rig):
    await started(rig, worlds.adapter(), pod(), report("chat-a", entry()))
    assert rig.loaded() == LOADED
    assert rig.status()["podsLoaded"] == "1/1"


async def test_adapters_of_services_that_are_not_opted_in_are_never_written(rig):
    await started(rig, worlds.adapter(), pod(opted_in=False, agent=False))
    assert (rig.writes, rig.status()) == ([], {})


async def test_an_adapter_is_written_from_the_first_opted_in_pod_on(rig):
    await started(rig, worlds.adapter())
    assert rig.writes == []
    rig.put(pod())
    await rig.until(lambda: rig.loaded() == SILENT)


async def test_when_a_service_leaves_its_adapters_are_written_once_more_and_then_never(rig):
    await started(rig, worlds.adapter(), pod(), report("chat-a", entry()))
    rig.put(pod("chat-b", opted_in=False, agent=False))
    rig.kube.delete(PODS, "ml", "chat-a")
    rig.pass_by(10)
    await rig.until(lambda: rig.loaded() == NOT_OPTED_IN)
    assert rig.status().keys().isdisjoint({"pods", "podsLoaded"})
    before = len(rig.writes)
    rig.put(worlds.adapter(path="/adapters/new"))
    rig.put(pod("chat-c", opted_in=False, agent=False))
    rig.pass_by(10)
    await rig.idle()
    assert len(rig.writes) == before


async def test_the_last_word_is_tried_until_it_is_written(rig):
    await started(rig, worlds.adapter(), pod(), report("chat-a", entry()))
    rig.kube.fail(faults.status(503), verb="patch")
    rig.put(pod(opted_in=False, agent=False, version=2))
    rig.pass_by(10)
    await rig.until(lambda: rig.metric("finalizer_writes_total", result="failed"))
    rig.kube.fail(faults.status(503), verb="patch", when=of_status)
    rig.pass_by(10)
    await rig.until(lambda: rig.metric("status_writes_total", result="failed"))
    rig.pass_by(10)
    await rig.until(lambda: rig.loaded() == NOT_OPTED_IN)
    assert rig.finalizers() == []


async def test_an_adapter_that_moves_to_a_service_of_nobody_gets_a_last_word(rig):
    await started(rig, worlds.adapter(), pod(), report("chat-a", entry()))
    rig.put(worlds.adapter(service="talk"))
    rig.pass_by(10)
    await rig.until(lambda: rig.loaded() == NOT_OPTED_IN)


async def test_while_its_pods_are_replaced_a_service_stays_ours(rig):
    await started(rig, worlds.adapter(), pod(), report("chat-a", entry()))
    rig.kube.delete(PODS, "ml", "chat-a")
    rig.pass_by(10)
    await rig.until(lambda: rig.loaded() == ("False", "NoPods"))
    assert rig.status()["podsLoaded"] == "0/0"


async def test_without_inference_services_in_the_cluster_every_adapter_is_told_so(rig):
    rig.kube.missing.add(SERVICES)
    rig.put(worlds.adapter(), worlds.adapter("law", uid="uid-law", service="talk"))
    rig.put(pod(), report("chat-a", entry()))
    rig.start()
    await rig.until(lambda: rig.loaded() == LOADED and rig.loaded("law") == ("False", "NotOptedIn"))
    assert says(rig.status(), "Available") == ("Unknown", "InferenceServiceKindAbsent")


async def test_inference_services_that_may_not_be_read_are_no_reason_to_wait(rig):
    rig.kube.forbidden = lambda seen: "inferenceservices" in seen.path
    rig.put(worlds.adapter(), worlds.adapter("law", uid="uid-law", service="talk"))
    rig.put(pod(), report("chat-a", entry()))
    rig.start()
    await rig.until(lambda: rig.loaded() == LOADED)
    assert rig.loaded("law") is None


async def test_nothing_is_concluded_before_everything_was_listed(rig):
    rig.kube.forbidden = lambda seen: "lorapodstatuses" in seen.path
    rig.serve()
    rig.put(worlds.adapter(), pod())
    rig.start()
    await rig.until(lambda: rig.sources.missing() == ["LoRAPodStatuses"])
    assert (rig.writes, rig.loop.ready()) == ([], (False, "not listed yet: LoRAPodStatuses"))


async def test_the_injectors_webhook_says_why_a_pod_has_no_agent(rig):
    meta = {"name": "lora-sidecar", "creationTimestamp": "2026-05-01T11:00:00Z"}
    rig.kube.put(WEBHOOKS, {"metadata": meta})
    await started(rig, worlds.adapter(), pod(agent=False))
    assert "older than the injector" in condition(rig.status())["message"]


# ---- what is written, and when ------------------------------------------------------------------------------


@pytest.mark.field(107)
async def test_when_nothing_changes_nothing_is_written(rig):
    await started(rig, worlds.adapter(), pod(), report("chat-a", entry()))
    rig.put(report("chat-a", entry(), beat=2))
    rig.pass_by(100)
    await rig.idle()
    assert rig.writes == ["sql"]


async def test_an_aggregator_that_starts_anew_finds_its_statuses_true(rig):
    await started(rig, worlds.adapter(), pod(), report("chat-a", entry("PathNotFound", "no")))
    async with rig.kube.client() as client:
        other = Rig(rig.kube, client)
        other.now += 500
        other.start()
        await other.until(lambda: other.loop.passes)
        await other.idle()
        await other.stop()
    assert rig.writes == ["sql"]


async def test_what_changes_on_one_pod_is_one_write_for_each_adapter_that_it_concerns(rig):
    adapters = [worlds.adapter(f"a{n}", uid=f"uid-{n}") for n in range(5)]
    entries = [entry(name=f"a{n}", uid=f"uid-{n}") for n in range(5)]
    pods = [pod(f"chat-{n}") for n in range(4)]
    await started(rig, *adapters, *pods, *(report(f"chat-{n}", *entries) for n in range(4)))
    before = len(rig.writes)
    entries[2] = entry("Retrying", name="a2", uid="uid-2")
    rig.put(report("chat-1", *entries, beat=2))
    rig.pass_by(10)
    await rig.idle()
    assert rig.writes[before:] == ["a2"]
    rig.put(report("chat-1", engine="Starting", engine_text="refused", beat=3))
    rig.pass_by(10)
    await rig.idle()
    assert sorted(rig.writes[before + 1 :]) == ["a0", "a1", "a2", "a3", "a4"]


async def test_a_second_change_within_a_second_waits_for_its_end(rig):
    await started(rig, worlds.adapter(), pod(), report("chat-a", entry("PathNotFound", "no")))
    rig.pass_by(10)
    rig.put(report("chat-a", entry("Loading"), beat=2))
    await rig.until(lambda: rig.loaded() == ("False", "Loading"))
    rig.put(report("chat-a", entry(), beat=3))
    await rig.idle()
    assert rig.loaded() == ("False", "Loading")
    rig.pass_by(1.0)
    await rig.until(lambda: rig.loaded() == LOADED)


async def test_a_re_created_adapter_gets_a_status_of_its_own_at_once(rig):
    await started(rig, worlds.adapter(), pod(), report("chat-a", entry()))
    rig.kube.delete(ADAPTERS, "ml", "sql")
    rig.pass_by(2)
    await rig.until(lambda: rig.kube.get(ADAPTERS, "ml", "sql") is None)
    rig.put(worlds.adapter(uid="uid-new"))
    await rig.until(lambda: rig.loaded() == SILENT)


async def test_an_adapter_re_created_while_the_old_one_is_written_is_not_forgotten(rig):
    def replaced(seen: Seen) -> bool:
        if rig.kube.get(ADAPTERS, "ml", "sql")["metadata"]["uid"] == "uid-sql":
            rig.kube.delete(ADAPTERS, "ml", "sql")
            rig.put(worlds.adapter(uid="uid-new"))
        return False

    rig.kube.fail(faults.status(500), verb="patch", when=replaced)
    await started(rig, worlds.adapter(), pod(), report("chat-a", entry()))
    await rig.until(lambda: rig.loaded() == SILENT)


async def test_a_write_names_the_version_it_was_folded_from_and_its_manager(rig):
    stored = rig.kube.put(ADAPTERS, worlds.adapter(finalizers=OURS))
    await started(rig, pod())
    (seen,) = rig.kube.of("patch")
    assert seen.path.endswith("/namespaces/ml/loraadapters/sql/status")
    assert seen.headers["Content-Type"] == "application/merge-patch+json"
    assert seen.params == {"fieldManager": "lora-sidecar-aggregator"}
    assert seen.body["metadata"] == {"resourceVersion": stored["metadata"]["resourceVersion"]}


async def test_the_report_of_another_services_pod_says_nothing_here(rig):
    await started(rig, worlds.adapter(), pod(), pod("talk-a", service="talk"))
    rig.put(report("talk-a", entry("Incompatible")))
    rig.pass_by(10)
    await rig.idle()
    assert rig.loaded() == SILENT


# ---- silence ----------------------------------------------------------------------------------------------


async def test_an_agent_that_falls_silent_is_noticed_without_any_news(rig):
    await started(rig, worlds.adapter(), pod(), report("chat-a", entry()))
    rig.pass_by(SILENCE_LIMIT)
    await rig.until(lambda: rig.loaded() == SILENT)
    rig.put(report("chat-a", entry(), beat=2))
    rig.pass_by(10)
    await rig.until(lambda: rig.loaded() == LOADED)


async def test_the_moment_of_silence_is_waited_for_and_no_longer(rig):
    rig.ticking = True
    await started(rig, worlds.adapter(), pod(), report("chat-a", entry()))
    rig.pass_by(SILENCE_LIMIT - 0.5)
    await rig.until(lambda: rig.loaded() == SILENT)


async def test_agents_do_not_fall_silent_because_we_could_not_hear_them(rig):
    await started(rig, worlds.adapter(), pod(), report("chat-a", entry()))
    await rig.kube.stop()
    await rig.until(rig.sources.deaf)
    rig.pass_by(SILENCE_LIMIT)
    rig.put(report("chat-a", entry(), beat=2))
    await rig.kube.start()
    await rig.until(lambda: not rig.sources.deaf())
    await rig.idle()
    assert (rig.loaded(), rig.writes) == (LOADED, ["sql"])


# ---- writes that fail -----------------------------------------------------------------------------------------


async def test_on_a_conflict_the_adapter_is_read_and_folded_anew(rig):
    def meddle(seen: Seen) -> bool:
        if not meddled:
            meddled.append(seen)
            rig.put(worlds.adapter(path="/adapters/new"))
        return False

    meddled: list[Seen] = []
    rig.kube.fail(faults.status(500), verb="patch", when=meddle)
    await started(rig, worlds.adapter(finalizers=OURS), pod(), report("chat-a", entry()))
    await rig.until(lambda: rig.loaded() == SILENT)
    assert rig.status()["observedGeneration"] == 2
    assert rig.metric("status_writes_total", result="conflict") == 1


async def test_after_a_conflict_nobody_waits_for_the_watch(rig):
    await started(rig, worlds.adapter(), pod(), report("chat-a", entry("PathNotFound")))
    rig.watch_no_more("LoRAAdapters")
    rig.put(worlds.adapter(annotations="somebody edits it"))
    rig.put(report("chat-a", entry(), beat=2))
    rig.pass_by(10)
    await rig.until(lambda: rig.loaded() == SILENT)
    assert rig.metric("status_writes_total", result="conflict") == 1


async def test_the_next_write_is_based_on_what_the_last_one_was_answered(rig):
    await started(rig, worlds.adapter(), pod(), report("chat-a", entry("PathNotFound")))
    rig.watch_no_more("LoRAAdapters")
    for beat, reason in enumerate(("Loading", "Retrying", "Loaded")):
        rig.put(report("chat-a", entry(reason), beat=beat + 2))
        rig.pass_by(10)
        await rig.until(lambda reason=reason: rig.status()["pods"][0]["reason"] == reason)
    assert rig.metric("status_writes_total", result="conflict") == 0


@pytest.mark.parametrize(
    "answer",
    [
        faults.status(403, reason="Forbidden"),
        faults.status(503),
        faults.status(422),
        faults.page(502),
    ],
    ids=["refused", "unavailable", "invalid", "answered by a proxy"],
)
async def test_a_write_that_failed_is_tried_again_after_a_pause(rig, answer):
    rig.kube.fail(answer, verb="patch")
    await started(rig, worlds.adapter(finalizers=OURS), pod(), report("chat-a", entry()))
    assert rig.metric("status_writes_total", result="failed") == 1
    assert rig.loaded() is None
    rig.pass_by(1.0)
    await rig.until(lambda: rig.loaded() == LOADED)


async def test_after_a_failure_what_is_true_then_is_written(rig):
    rig.kube.fail(faults.status(503), verb="patch")
    await started(
        rig, worlds.adapter(finalizers=OURS), pod(), report("chat-a", entry("PathNotFound"))
    )
    rig.put(report("chat-a", entry(), beat=2))
    await rig.idle()
    rig.pass_by(1.0)
    await rig.until(lambda: rig.loaded() == LOADED)
    assert len(rig.writes) == 2


async def test_an_adapter_that_goes_while_it_is_written_is_forgotten(rig):
    def remove(seen: Seen) -> bool:
        if rig.kube.get(ADAPTERS, "ml", "sql"):
            rig.kube.delete(ADAPTERS, "ml", "sql")
        return False

    rig.kube.fail(faults.status(500), verb="patch", when=remove)
    await started(rig, worlds.adapter(), pod())
    assert rig.metric("finalizer_writes_total", result="gone") == 1
    rig.pass_by(100)
    await rig.idle()
    assert (rig.writes, rig.index.adapters) == ([], {})


# ---- finalizers ---------------------------------------------------------------------------------------------------

LLMKUBES = "loraadapter.inference.llmkube.dev/finalizer"


def deleted(*finalizers: str, seconds_ago: float = 0.0, **over: Any) -> Json:
    body = worlds.adapter(finalizers=finalizers or OURS, **over)
    moment = worlds.NOW - timedelta(seconds=seconds_ago)
    body["metadata"]["deletionTimestamp"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    return body


def unloaded(state: str = "Unloaded") -> Json:
    return report("chat-a", entry(state), beat=2)


async def test_an_adapter_of_ours_is_held_and_one_of_nobodys_is_not(rig):
    nobodys = worlds.adapter("other", service="nobody", uid="uid-other")
    await started(rig, worlds.adapter(finalizers=["example.com/theirs"]), nobodys, pod())
    assert rig.finalizers() == ["example.com/theirs", *OURS]
    assert rig.finalizers("other") == []


@pytest.mark.field(109)
async def test_a_deletion_waits_for_its_pods_and_no_longer(rig):
    await started(rig, deleted(), pod(), report("chat-a", entry()))
    assert rig.finalizers() == list(OURS)
    rig.put(unloaded())
    rig.pass_by(2)
    await rig.until(lambda: rig.finalizers() is None)


@pytest.mark.field(109)
async def test_a_deletion_that_nobody_answers_ends_after_a_minute(rig):
    await started(rig, deleted(), pod(), report("chat-a", entry()))
    rig.pass_by(58)
    await rig.idle()
    assert rig.finalizers() == list(OURS)
    rig.pass_by(3)
    await rig.until(lambda: rig.finalizers() is None)


async def test_a_deletion_that_began_long_ago_ends_at_once(rig):
    await started(rig, deleted(seconds_ago=61), pod(), report("chat-a", entry()))
    assert rig.finalizers() is None


async def test_where_the_clocks_differ_a_deletion_still_ends_after_a_minute(rig):
    await started(rig, deleted(seconds_ago=-7200), pod(), report("chat-a", entry()))
    rig.pass_by(61)
    await rig.until(lambda: rig.finalizers() is None)


async def test_finalizers_that_could_not_be_written_are_tried_again(rig):
    rig.kube.fail(faults.status(503), verb="patch")
    await started(rig, worlds.adapter(), pod())
    assert rig.finalizers() == []
    rig.pass_by(10)
    await rig.until(lambda: rig.finalizers() == list(OURS))


async def test_a_finalizer_of_somebody_else_put_on_meanwhile_is_kept(rig):
    def meanwhile(seen: Seen) -> bool:
        if rig.finalizers() == []:
            rig.put(worlds.adapter(finalizers=["example.com/theirs"]))
        return False

    rig.kube.fail(faults.status(500), verb="patch", when=meanwhile)
    await started(rig, worlds.adapter(), pod())
    assert rig.finalizers() == ["example.com/theirs", *OURS]


@pytest.mark.field(109)
async def test_once_everything_was_let_go_nothing_is_held_again(rig):
    rig.policy = Policy(released=True)
    await started(rig, worlds.adapter(finalizers=OURS), pod(), report("chat-a", entry()))
    assert (rig.finalizers(), rig.loaded()) == ([], LOADED)


async def test_llmkubes_finalizer_is_taken_off_where_we_have_taken_over(rig):
    await started(rig, worlds.adapter(finalizers=[LLMKUBES]), pod())
    assert rig.finalizers() == [LLMKUBES, *OURS]
    rig.policy = Policy(takes_over=True)
    rig.index.touch([("ml", "chat")])
    rig.pass_by(2)
    await rig.until(lambda: rig.finalizers() == list(OURS))


async def test_llmkubes_controller_that_was_quicker_than_the_policy_is_kept_off_soon(rig):
    rig.policy = Policy(takes_over=True)
    llmkubes = worlds.adapter(finalizers=[LLMKUBES])
    await started(rig, llmkubes, pod(), report("chat-a", entry()))
    for _ in range(3):
        rig.pass_by(1)
        rig.put(rig.kube.get(ADAPTERS, "ml", "sql") | {"metadata": metadata_with_llmkubes(rig)})
        overwrite(rig)
        await rig.idle()
    rig.pass_by(1)
    await rig.until(lambda: (rig.finalizers(), rig.loaded()) == (list(OURS), LOADED))


def metadata_with_llmkubes(rig: Rig) -> dict[str, Any]:
    held = rig.kube.get(ADAPTERS, "ml", "sql") or {}
    return {**held["metadata"], "finalizers": [*OURS, LLMKUBES]}


async def test_no_race_is_run_with_a_controller_that_puts_its_finalizer_on_again(rig):
    rig.policy = Policy(takes_over=True)
    await started(rig, worlds.adapter(finalizers=[LLMKUBES]), pod())
    assert rig.finalizers() == list(OURS)
    for _ in range(20):
        rig.put(worlds.adapter(finalizers=[LLMKUBES, *OURS]))
        rig.pass_by(2)
        await rig.idle()
    assert rig.finalizers() == [LLMKUBES, *OURS]
    rig.pass_by(30)
    await rig.until(lambda: rig.finalizers() == list(OURS))


# ---- other writers, other schemas --------------------------------------------------------------------------------


def overwrite(rig: Rig) -> None:
    """What LLMKube's own controller does to an adapter that it believes in."""
    held = rig.kube.get(ADAPTERS, "ml", "sql") or {}
    for one in held["status"]["conditions"]:
        one |= {"status": "False", "reason": "LoadFailed", "message": "HTTP 400"}
    rig.kube.put(ADAPTERS, held)


@pytest.mark.field(104)
async def test_what_another_writer_overwrote_is_set_right_once_and_then_once_a_minute(rig):
    await started(rig, worlds.adapter(), pod(), report("chat-a", entry()))
    await rig.idle()
    rig.pass_by(10)
    overwrite(rig)
    await rig.until(lambda: rig.loaded() == LOADED)
    for _ in range(3):
        overwrite(rig)
        rig.pass_by(10)
        await rig.idle()
    assert (rig.loaded(), len(rig.writes)) == (("False", "LoadFailed"), 2)
    rig.pass_by(30)
    await rig.until(lambda: rig.loaded() == LOADED)
    assert rig.metric("status_corrections_total") == 2


def events(rig: Rig) -> list[tuple[str, str]]:
    created = [seen.body for seen in rig.kube.of("create")]
    return [(body["reason"], body["regarding"]["kind"]) for body in created]


async def test_another_writer_is_told_in_one_event(rig):
    await started(rig, worlds.adapter(), pod(), report("chat-a", entry()))
    for _ in range(2):
        await rig.idle()
        rig.pass_by(70)
        overwrite(rig)
        await rig.until(lambda: rig.loaded() == LOADED)
    await rig.until(lambda: rig.metric("events_total", result="sent") == 3)
    assert events(rig) == [("Loaded", "LoRAAdapter"), ("ConditionsOverwritten", "LoRAAdapter")]


async def test_a_failing_pod_is_told_of_adapter_and_pod_and_nothing_in_a_steady_state(rig):
    failing = report("chat-a", entry("Incompatible", "r=64"))
    await started(rig, worlds.adapter(), pod(), failing)
    await rig.until(lambda: rig.metric("events_total", result="sent") == 3)
    expected = [
        ("LoadUnsuccessful", "LoRAAdapter"),
        ("Incompatible", "LoRAAdapter"),
        ("Incompatible", "Pod"),
    ]
    assert events(rig) == expected
    rig.pass_by(100)
    await rig.idle()
    assert events(rig) == expected


async def test_an_aggregator_that_starts_anew_tells_nothing(rig):
    failing = report("chat-a", entry("Incompatible", "r=64"))
    await started(rig, worlds.adapter(), pod(), failing)
    await rig.until(lambda: rig.metric("events_total", result="sent") == 3)
    async with rig.kube.client() as client:
        other = Rig(rig.kube, client)
        other.start()
        await other.until(lambda: other.loop.passes)
        await other.idle()
        await other.stop()
    assert len(events(rig)) == 3


async def test_what_the_installed_crd_prunes_is_not_written_for_ever(rig):
    rig.kube.prunes = {"pods", "podsLoaded", "podsOmitted", "observedGeneration"}
    await started(rig, worlds.adapter(), pod(), report("chat-a", entry()))
    for text in ("warm", "warmer"):
        rig.put(report("chat-a", entry(), engine_text=text, beat=len(text)))
        rig.pass_by(100)
        await rig.idle()
    assert rig.writes == ["sql"]
    assert rig.loaded() == LOADED
    assert rig.status().keys() == {"conditions", "lastLoadedAt", "loadedPath"}


async def test_a_crd_that_prunes_no_longer_gets_everything(rig):
    rig.kube.prunes = {"pods", "podsLoaded", "podsOmitted", "observedGeneration"}
    others = (worlds.adapter("law", uid="uid-law"), report("chat-a", entry()))
    await started(rig, worlds.adapter(), pod(), *others)
    rig.kube.prunes = set()
    rig.put(report("chat-a", entry("Retrying"), beat=2))
    rig.pass_by(100)
    await rig.until(lambda: "podsLoaded" in rig.status("sql") and "podsLoaded" in rig.status("law"))


async def test_a_crd_that_is_replaced_in_quiet_gets_everything_as_well(rig):
    rig.kube.prunes = {"pods", "podsLoaded", "podsOmitted", "observedGeneration"}
    await started(rig, worlds.adapter(), pod(), report("chat-a", entry()))
    rig.kube.prunes = set()
    await rig.watch_anew()
    await rig.until(lambda: rig.status("sql").get("podsLoaded") == "1/1")


async def test_each_new_watch_tries_once_what_the_crd_prunes(rig):
    rig.kube.prunes = {"pods", "podsLoaded", "podsOmitted", "observedGeneration"}
    await started(rig, worlds.adapter(), pod(), report("chat-a", entry()))
    for tries in (2, 3):
        await rig.watch_anew()
        await rig.until(lambda: len(rig.writes) == tries)  # noqa: B023
        await rig.idle()
    assert rig.writes == ["sql"] * 3


# ---- metrics ----------------------------------------------------------------------------------------------------


async def test_metrics_tell_what_there_is_and_what_was_done(rig):
    worldly = (pod("chat-a"), pod("chat-b"), pod("chat-c", agent=False))
    await started(rig, worlds.adapter(), *worldly, report("chat-a", entry()))
    assert rig.metric("adapters", loaded="False", reason="LoadUnsuccessful") == 1
    assert rig.metric("pods", state="Ready") == 1
    assert rig.metric("pods", state="NotReported") == 1
    assert rig.metric("pods", state="NotInjected") == 1
    assert rig.metric("reports") == 1
    assert rig.metric("status_writes_total", result="written") == 1
    assert rig.metric("status_lag_seconds_count") == 1
