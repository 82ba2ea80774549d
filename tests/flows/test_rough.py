"""The rest that users meet: names that swap, objects that come back, limits, keys, addresses, and rest itself."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.flows.engine_control import call, held, loads, misbehave, requests
from tests.rig.adapters import make_adapter
from tests.rig.polling import until
from tests.rig.stack import INFERENCE, REPORTS, Stack

pytestmark = pytest.mark.cluster

MERGE = "application/merge-patch+json"


def edit(stack: Stack, adapter: str, /, **spec: str) -> None:
    url = f"{INFERENCE}/namespaces/{stack.namespace}/loraadapters/{adapter}"
    stack.controlplane.api("PATCH", url, {"spec": spec}, MERGE)


def control(stack: Stack, **told: Any) -> None:
    call(stack.pods[0].engine, "POST", "/_sim", told)


def test_two_adapters_may_swap_their_paths(stack: Stack):
    one, two = (str(make_adapter(stack.adapters / n, seed=s)) for s, n in enumerate("ab"))
    stack.adapter("one", path=one)
    stack.adapter("two", path=two)
    pod = stack.add_pod("swap-0")
    stack.until_reported(pod, {"one": "Loaded", "two": "Loaded"})
    edit(stack, "one", path=two)
    edit(stack, "two", path=one)
    until(lambda: held(pod.engine) == {"one": two, "two": one}, "the paths are swapped")
    stack.until_reported(pod, {"one": "Loaded", "two": "Loaded"})


def test_two_adapters_may_swap_their_handles(stack: Stack):
    a, b = (str(make_adapter(stack.adapters / n, seed=s)) for s, n in enumerate("ab"))
    stack.adapter("one", path=a, handle="x")
    stack.adapter("two", path=b, handle="y")
    pod = stack.add_pod("names-0")
    stack.until_reported(pod, {"one": "Loaded", "two": "Loaded"})
    edit(stack, "one", name="y")
    edit(stack, "two", name="x")
    until(lambda: held(pod.engine) == {"y": a, "x": b}, "the handles are swapped")
    stack.until_reported(pod, {"one": "Loaded", "two": "Loaded"})


def test_an_adapter_deleted_and_made_again_is_there_at_once(stack: Stack):
    path = str(make_adapter(stack.adapters / "sql"))
    stack.adapter("sql")
    pod = stack.add_pod("phoenix-0")
    stack.until_reported(pod, {"sql": "Loaded"})
    uid = stack.report(pod)["adapters"][0]["uid"]
    stack.delete_adapter("sql")
    stack.adapter("sql")

    def reborn() -> bool:
        entries = stack.report(pod)["adapters"]
        return [(e["uid"] != uid, e["state"]) for e in entries] == [(True, "Loaded")]

    until(reborn, "the new adapter is loaded")
    assert held(pod.engine) == {"sql": path}


def test_an_adapter_that_somebody_holds_back_from_deletion_ends_unloaded(stack: Stack):
    make_adapter(stack.adapters / "sql")
    stack.adapter("sql")
    pod = stack.add_pod("kept-0")
    stack.until_reported(pod, {"sql": "Loaded"})
    url = f"{INFERENCE}/namespaces/{stack.namespace}/loraadapters/sql"
    theirs = {"metadata": {"finalizers": ["example.com/theirs"]}}
    stack.controlplane.api("PATCH", url, theirs, MERGE)
    stack.delete_adapter("sql")
    stack.until_reported(pod, {"sql": "Unloaded"})
    assert held(pod.engine) == {}
    stack.controlplane.api("PATCH", url, {"metadata": {"finalizers": None}}, MERGE)
    until(lambda: not stack.reported(pod), "the entry goes with the object")


def test_a_limit_of_the_engine_is_kept_and_never_fought(stack: Stack):
    stack.engine_args = ("--max-loaded-loras", "3")
    for number in range(5):
        make_adapter(stack.adapters / f"a{number}", seed=number)
        stack.adapter(f"a{number}")
    pod = stack.add_pod("full-0")
    wanted = dict.fromkeys(("a0", "a1", "a2"), "Loaded")
    stack.until_reported(pod, wanted | dict.fromkeys(("a3", "a4"), "CapacityExceeded"))
    assert len(loads(pod.engine)) == 3
    stack.delete_adapter("a1")
    stack.until_reported(pod, {"a3": "Loaded", "a4": "CapacityExceeded"})
    assert set(held(pod.engine)) == {"a0", "a2", "a3"}


def test_an_engine_that_dies_while_it_loads_gets_everything_afterwards(stack: Stack):
    pod = stack.add_pod("dies-0")
    misbehave(pod.engine, "/load_lora_adapter", act="hang")
    for name in ("a", "b"):
        make_adapter(stack.adapters / name)
        stack.adapter(name)
    until(lambda: loads(pod.engine), "a load is under way")
    stack.kill_engine(pod)
    stack.until_reported(pod, {"a": "EngineStarting", "b": "EngineStarting"})
    stack.restart_engine(pod)
    stack.until_reported(pod, {"a": "Loaded", "b": "Loaded"})


class TestKeys:
    ARGS = ("--api-key", "for-reads", "--admin-api-key", "for-changes")

    @pytest.mark.rule(14)
    @pytest.mark.field(9)
    def test_both_keys_from_files_load(self, stack: Stack, tmp_path: Path):
        stack.engine_args = self.ARGS
        settings = self.files(tmp_path, "for-reads", "for-changes")
        make_adapter(stack.adapters / "sql")
        stack.adapter("sql")
        pod = stack.add_pod("keys-0", settings=settings)
        stack.until_reported(pod, {"sql": "Loaded"})

    @pytest.mark.rule(14)
    @pytest.mark.field(9)
    def test_a_wrong_admin_key_is_named_and_its_rotation_is_noticed(
        self, stack: Stack, tmp_path: Path
    ):
        stack.engine_args = self.ARGS
        settings = self.files(tmp_path, "for-reads", "not-the-one")
        make_adapter(stack.adapters / "sql")
        stack.adapter("sql")
        pod = stack.add_pod("wrong-0", settings=settings)
        stack.until_reported(pod, {"sql": "EngineUnauthorized"})
        text = stack.report(pod)["adapters"][0]["text"]
        assert "admin key" in text
        assert pod.agent
        assert "not-the-one" not in pod.agent.log.read_text()
        (tmp_path / "admin").write_text("for-changes")
        stack.controlplane.api(
            "PATCH",
            f"{INFERENCE}/namespaces/{stack.namespace}/loraadapters/sql",
            {"metadata": {"annotations": {"lora-sidecar.llmkube.dev/retry": "now"}}},
            MERGE,
        )
        stack.until_reported(pod, {"sql": "Loaded"})

    @pytest.mark.rule(14)
    @pytest.mark.field(9)
    def test_a_missing_api_key_is_said(self, stack: Stack):
        stack.engine_args = ("--api-key", "for-reads")
        make_adapter(stack.adapters / "sql")
        stack.adapter("sql")
        pod = stack.add_pod("none-0")
        stack.until_reported(pod, {"sql": "EngineUnauthorized"})

    @staticmethod
    def files(folder: Path, api: str, admin: str) -> dict[str, str]:
        (folder / "api").write_text(api)
        (folder / "admin").write_text(admin)
        return {"api_key_file": str(folder / "api"), "admin_key_file": str(folder / "admin")}


@pytest.mark.rule(14)
@pytest.mark.field(52)
def test_an_engine_that_listens_on_ipv6_only_is_found(stack: Stack):
    make_adapter(stack.adapters / "sql")
    stack.adapter("sql")
    pod = stack.add_pod("six-0", host="::1")
    stack.until_reported(pod, {"sql": "Loaded"})


@pytest.mark.parametrize("name", ["with space", "ümläut", "trailing/"])
def test_paths_as_users_write_them(stack: Stack, name: str):
    make_adapter(stack.adapters / name.rstrip("/"))
    pod = stack.add_pod("odd-0")
    stack.adapter("odd", path=f"{stack.adapters}/{name}")
    stack.until_reported(pod, {"odd": "Loaded"})


def test_a_link_to_an_adapter_in_a_shared_volume_is_followed(stack: Stack):
    make_adapter(stack.adapters / "v1")
    (stack.adapters / "current").symlink_to("v1")
    (stack.adapters / "out").symlink_to("/etc")
    pod = stack.add_pod("link-0")
    stack.adapter("current")
    stack.adapter("out")
    stack.until_reported(pod, {"current": "Loaded", "out": "PathNotShared"})


@pytest.mark.field(65)
def test_a_rotated_token_is_taken_up(stack: Stack):
    pod = stack.add_pod("token-0")
    stack.kubelet.rotate(pod.handle)
    make_adapter(stack.adapters / "sql")
    stack.adapter("sql")
    stack.until_reported(pod, {"sql": "Loaded"})


@pytest.mark.rule(15)
def test_the_report_of_an_earlier_pod_of_the_same_name_gives_way_to_ours(stack: Stack):
    make_adapter(stack.adapters / "sql")
    stack.adapter("sql")
    earlier = stack.add_pod("earlier-0", agent=False)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": earlier.name, "uid": earlier.handle.uid}
    reports = f"{REPORTS}/namespaces/{stack.namespace}/lorapodstatuses"
    stack.controlplane.api(
        "POST",
        reports,
        {
            "apiVersion": "lora-sidecar.llmkube.dev/v1alpha1",
            "kind": "LoRAPodStatus",
            "metadata": {"name": "again-0", "ownerReferences": [owner]},
            "spec": {"podName": "again-0", "podUID": earlier.handle.uid, "service": "chat"},
        },
    )
    pod = stack.add_pod("again-0")
    assert pod.agent
    log = pod.agent.log
    until(lambda: "again-0 of another pod is still there" in log.read_text(), "it is told")
    assert stack.report(pod) == {}
    stack.remove_pod(earlier)
    stack.until_reported(pod, {"sql": "Loaded"})
    assert stack.controlplane.api("GET", f"{reports}/again-0")["spec"]["podUID"] == pod.handle.uid
    assert "somebody else" not in log.read_text()


def test_at_rest_nothing_is_written_and_little_is_asked(stack: Stack):
    for number in range(20):
        make_adapter(stack.adapters / f"a{number}", seed=number)
        stack.adapter(f"a{number}")
    pod = stack.add_pod("rest-0")
    until(lambda: stack.report(pod).get("loaded") == "20/20", "all are loaded")
    until(
        lambda: all(e.get("contentHash") for e in stack.report(pod)["adapters"]), "all are hashed"
    )
    time.sleep(1.5)
    before, asked = stack.report(pod)["beat"], len(requests(pod.engine, "/v1/models"))
    time.sleep(9)
    assert stack.report(pod)["beat"] == before
    assert len(requests(pod.engine, "/v1/models")) - asked <= 4
    assert len(loads(pod.engine)) == 20
