"""Where reports go: the API server (faked, over real sockets) and files; that the latest is written, and no more."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sidecar.agent.reporting import REPORTS, ApiDesk, FileDesk, Reporter, WriteFailed
from sidecar.api.reasons import EngineState
from sidecar.api.report import EngineEntry, LoRAPodStatus, ReportSpec, ReportStatus
from sidecar.kube.client import MERGE_PATCH, Client
from tests.fakes import kube_faults as faults
from tests.fakes.kube import FakeKube

SPEC = ReportSpec(pod_name="pod-0", pod_uid="uid-0", node="node", service="svc")
READY = ReportStatus(engine=EngineEntry(state=EngineState.READY))
AWAY = ReportStatus(engine=EngineEntry(state=EngineState.STARTING))


@pytest.fixture
async def kube() -> AsyncIterator[FakeKube]:
    async with FakeKube() as server:
        yield server


@pytest.fixture
async def client(kube: FakeKube) -> AsyncIterator[Client]:
    async with kube.client() as opened:
        yield opened


class TestOnTheApiServer:
    async def test_the_first_write_creates_the_report_owned_by_its_pod(self, kube, client):
        await ApiDesk(client, "ns", SPEC).write(READY)
        stored = await client.request("GET", REPORTS.path("ns", "pod-0"))
        assert stored["status"]["engine"]["state"] == "Ready"
        assert stored["spec"]["podUID"] == "uid-0"
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "pod-0", "uid": "uid-0"}
        assert stored["metadata"]["ownerReferences"] == [owner]

    async def test_later_writes_patch_what_differs_only(self, kube, client):
        desk = ApiDesk(client, "ns", SPEC)
        await desk.write(READY)
        await desk.write(AWAY)
        await desk.write(AWAY)
        methods = [seen.method for seen in kube.seen]
        assert methods == ["POST", "PATCH"]

    async def test_a_restarted_agent_reads_what_it_said_and_patches_it(self, kube, client):
        await ApiDesk(client, "ns", SPEC).write(READY)
        again = ApiDesk(client, "ns", SPEC)
        said = await again.read()
        assert said is not None
        assert said.engine == READY.engine
        await again.write(AWAY)
        assert [seen.method for seen in kube.seen] == ["POST", "GET", "PATCH"]

    async def test_where_there_is_none_nothing_is_remembered(self, client):
        assert await ApiDesk(client, "ns", SPEC).read() is None

    async def test_an_earlier_pods_report_of_the_same_name_is_not_ours(self, kube, client):
        earlier = SPEC.model_copy(update={"pod_uid": "uid-before"})
        await ApiDesk(client, "ns", earlier).write(READY)
        desk = ApiDesk(client, "ns", SPEC)
        assert await desk.read() is None
        with pytest.raises(WriteFailed, match="another pod"):
            await desk.write(AWAY)
        await client.request("DELETE", REPORTS.path("ns", "pod-0"))
        await desk.write(AWAY)

    @pytest.mark.parametrize("owner", ["uid-before", "uid-0"])
    async def test_a_report_is_ours_only_if_it_goes_when_our_pod_goes(self, client, owner):
        body = LoRAPodStatus(name="pod-0", namespace="ns", spec=SPEC, status=READY).wire()
        body["metadata"]["ownerReferences"][0]["uid"] = owner
        await client.request("POST", REPORTS.path("ns"), body=body)
        said = await ApiDesk(client, "ns", SPEC).read()
        assert (said is not None) == (owner == SPEC.pod_uid)

    async def test_the_next_pods_report_of_the_same_name_is_never_written_into(self, kube, client):
        desk = ApiDesk(client, "ns", SPEC)
        await desk.write(READY)
        await client.request("DELETE", REPORTS.path("ns", "pod-0"))
        later = SPEC.model_copy(update={"pod_uid": "uid-later"})
        await ApiDesk(client, "ns", later).write(READY)
        for _ in range(2):
            with pytest.raises(WriteFailed):
                await desk.write(AWAY)
        stored = kube.get(REPORTS, "ns", "pod-0")
        assert (stored["spec"]["podUID"], stored["status"]["engine"]["state"]) == (
            "uid-later",
            "Ready",
        )

    async def test_two_agents_of_one_pod_write_no_more_than_each_alone_would(self, kube, client):
        one, two = ApiDesk(client, "ns", SPEC), ApiDesk(client, "ns", SPEC)
        await one.write(READY)
        await two.write(AWAY)
        for _ in range(10):
            await one.write(READY)
            await two.write(AWAY)
        assert [seen.verb for seen in kube.seen] == ["create", "create", "get", "patch"]

    async def test_what_somebody_else_wrote_is_told_once_and_put_right_by_later_writes(
        self, kube, client, caplog
    ):
        desk = ApiDesk(client, "ns", SPEC)
        await desk.write(READY)
        path = REPORTS.path("ns", "pod-0")
        for beat in (1, 2, 3):
            theirs = {"status": {"loaded": f"{beat}/9"}}
            await client.request("PATCH", path, body=theirs, content_type=MERGE_PATCH)
            await desk.write(READY.model_copy(update={"beat": beat}))
        await desk.write(READY.model_copy(update={"beat": 4}))
        assert "loaded" not in kube.get(REPORTS, "ns", "pod-0")["status"]
        assert [r.getMessage() for r in caplog.records if "somebody else" in r.getMessage()] == [
            "somebody else writes this pod's report too; is there a second agent?"
        ]

    @pytest.mark.parametrize("refusal", [(409, "Conflict"), (422, "Invalid")], ids=str)
    async def test_a_server_that_refuses_every_write_is_not_asked_in_a_circle(
        self, kube, client, refusal
    ):
        desk = ApiDesk(client, "ns", SPEC)
        await desk.write(READY)
        kube.fail(faults.status(*refusal), verb="patch", times=float("inf"))
        with pytest.raises(WriteFailed):
            await desk.write(AWAY)
        assert len(kube.of("patch")) == 1

    async def test_a_report_that_was_deleted_is_made_again(self, client):
        desk = ApiDesk(client, "ns", SPEC)
        await desk.write(READY)
        await client.request("DELETE", REPORTS.path("ns", "pod-0"))
        await desk.write(AWAY)
        stored = await client.request("GET", REPORTS.path("ns", "pod-0"))
        assert stored["status"]["engine"]["state"] == "Starting"

    async def test_a_missing_permission_names_the_verb_and_the_resource(self, kube, client):
        words = 'lorapodstatuses is forbidden: User "x" cannot create resource "lorapodstatuses" in API group'
        kube.fail(faults.status(403, message=words))
        with pytest.raises(WriteFailed, match="may not create lorapodstatuses"):
            await ApiDesk(client, "ns", SPEC).write(READY)

    async def test_a_report_that_nobody_can_read_is_written_anew(self, kube, client):
        body = {
            "metadata": {"namespace": "ns", "name": "pod-0"},
            "spec": {"podName": "pod-0", "podUID": "uid-0"},
            "status": {"engine": {"state": "Nonsense"}},
        }
        kube.put(REPORTS, body)
        desk = ApiDesk(client, "ns", SPEC)
        assert await desk.read() is None
        await desk.write(READY)
        stored = await client.request("GET", REPORTS.path("ns", "pod-0"))
        assert stored["status"]["engine"]["state"] == "Ready"


class TestInAFile:
    async def test_what_is_written_is_read_back(self, tmp_path: Path):
        desk = FileDesk(str(tmp_path / "report.json"))
        assert await desk.read() is None
        await desk.write(READY)
        assert await FileDesk(str(tmp_path / "report.json")).read() == READY
        assert json.loads((tmp_path / "report.json").read_text())["kind"] == "LoRAPodStatus"

    async def test_a_file_that_is_no_report_is_overwritten(self, tmp_path: Path):
        (tmp_path / "report.json").write_text("{")
        desk = FileDesk(str(tmp_path / "report.json"))
        assert await desk.read() is None
        await desk.write(READY)

    async def test_a_place_that_cannot_be_written_is_said(self, tmp_path: Path):
        with pytest.raises(WriteFailed, match="cannot be written"):
            await FileDesk(str(tmp_path / "absent" / "report.json")).write(READY)

    async def test_what_is_wrong_with_manifests_stands_beside_the_status(self, tmp_path: Path):
        invalid = {"ns/a": "a.yaml: spec.path: too short"}
        desk = FileDesk(str(tmp_path / "report.json"), lambda: invalid)
        await desk.write(READY)
        assert json.loads((tmp_path / "report.json").read_text())["invalid"] == invalid
        assert await desk.read() == READY

    async def test_a_reader_never_sees_half_a_report(self, tmp_path: Path, monkeypatch):
        desk = FileDesk(str(tmp_path / "report.json"))
        await desk.write(READY)

        def full(path: Path, *_: object) -> None:
            path.touch()
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "write_text", full)
        with pytest.raises(WriteFailed, match="No space left"):
            await desk.write(AWAY)
        assert await desk.read() == READY


class _Desk:
    """A desk with memory; it fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.written: list[ReportStatus] = []
        self.failures = failures
        self.changed = asyncio.Event()
        self.aside: dict[str, str] = {}

    async def read(self) -> ReportStatus | None:
        return None

    async def write(self, said: ReportStatus) -> None:
        if self.failures:
            self.failures -= 1
            raise WriteFailed("not now")
        self.written.append(said)
        self.changed.set()

    def beside(self) -> dict[str, str]:
        return dict(self.aside)


class TestTheReporter:
    async def test_writes_the_latest_and_counts_its_beats(self):
        desk = _Desk()
        reporter = Reporter(desk, clock=lambda: 0.0, jitter=0.0)
        reporter.start_from(ReportStatus(beat=41))
        reporter.say(lambda: AWAY)
        reporter.say(lambda: READY)
        task = asyncio.create_task(reporter.run())
        await desk.changed.wait()
        task.cancel()
        assert [(said.engine, said.beat) for said in desk.written] == [(READY.engine, 42)]

    async def test_tries_again_what_could_not_be_written(self, monkeypatch):
        monkeypatch.setattr("sidecar.agent.reporting.FIRST_RETRY", 0.001)
        desk = _Desk(failures=3)
        reporter = Reporter(desk, clock=lambda: 0.0, jitter=0.0)
        reporter.say(lambda: READY)
        task = asyncio.create_task(reporter.run())
        await desk.changed.wait()
        task.cancel()
        assert len(desk.written) == 1
        assert reporter.problem == ""

    async def test_at_the_end_writes_what_was_not_written(self):
        desk = _Desk()
        reporter = Reporter(desk, clock=lambda: 0.0, jitter=0.0)
        await reporter.finish()
        assert desk.written == []
        reporter.say(lambda: READY)
        await reporter.finish()
        await reporter.finish()
        assert len(desk.written) == 1

    async def test_what_a_desk_writes_besides_is_news_too_and_no_beat(self):
        now, desk, beaten = [0.0], _Desk(), asyncio.Event()
        reporter = Reporter(desk, clock=lambda: now[0], jitter=0.0)
        reporter.beaten = beaten.set
        reporter.say(lambda: READY)
        task = asyncio.create_task(reporter.run())
        await desk.changed.wait()
        desk.changed.clear()
        desk.aside["ns/a"] = "a.yaml: it is broken"
        now[0] = 1.0
        reporter.say(lambda: READY)
        await desk.changed.wait()
        await reporter.finish()
        task.cancel()
        assert [said.beat for said in desk.written] == [1, 2]
        assert not beaten.is_set()

    async def test_a_beat_asks_the_engine_who_it_is(self):
        now, desk, beaten = [0.0], _Desk(), asyncio.Event()
        reporter = Reporter(desk, clock=lambda: now[0], jitter=0.0)
        reporter.beaten = beaten.set
        reporter.say(lambda: READY)
        task = asyncio.create_task(reporter.run())
        await desk.changed.wait()
        assert not beaten.is_set()
        now[0] = 301.0
        reporter.say(lambda: READY)
        await beaten.wait()
        task.cancel()
        assert [said.beat for said in desk.written] == [1, 2]
