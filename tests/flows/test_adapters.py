"""LoRAAdapters on the real API server, agents as processes, simulated engines: each ends in the right state.

What is true is asked of the engine itself; what is said is read from the pod's report. How reports become a
LoRAAdapter's status is in test_status.
"""

import json
import re
import shutil
import urllib.request

import pytest

from tests.flows.engine_control import held, loads, misbehave
from tests.rig.adapters import make_adapter
from tests.rig.namespaces import create_namespace, delete_namespace
from tests.rig.polling import until
from tests.rig.stack import Stack

pytestmark = pytest.mark.cluster


def test_an_adapter_is_waited_for_loaded_and_unloaded(stack: Stack):
    pod = stack.add_pod("one-0")
    stack.adapter("sql")
    stack.until_reported(pod, {"sql": "PathNotFound"})
    assert loads(pod.engine) == []
    make_adapter(stack.adapters / "sql")
    stack.until_reported(pod, {"sql": "Loaded"})
    assert held(pod.engine) == {"sql": str(stack.adapters / "sql")}
    stack.delete_adapter("sql")
    until(lambda: not held(pod.engine), "the engine has let go")
    until(lambda: not stack.reported(pod), "the report is empty")


def test_a_lora_adapter_in_another_namespace_is_loaded_too(stack: Stack):
    other = create_namespace(stack.controlplane.client(), f"{stack.namespace}-other")
    try:
        make_adapter(stack.adapters / "sql")
        pod = stack.add_pod("cross-0")
        stack.adapter("sql", namespace=other)
        until(lambda: stack.reported(pod).get(f"{other}/sql") == "Loaded", "it is loaded")
        assert set(held(pod.engine)) == {"sql"}
    finally:
        delete_namespace(stack.controlplane.client(), other)


def test_of_two_namespaces_with_one_handle_the_pods_own_wins(stack: Stack):
    other = create_namespace(stack.controlplane.client(), f"{stack.namespace}-rival")
    try:
        make_adapter(stack.adapters / "theirs")
        make_adapter(stack.adapters / "ours", seed=2)
        theirs, ours = str(stack.adapters / "theirs"), str(stack.adapters / "ours")
        stack.adapter("theirs", namespace=other, handle="sql", path=theirs)
        stack.adapter("ours", handle="sql", path=ours)
        pod = stack.add_pod("rival-0")
        stack.until_reported(pod, {"ours": "Loaded"})
        until(
            lambda: stack.reported(pod).get(f"{other}/theirs") == "NameConflict", "conflict is told"
        )
        assert held(pod.engine) == {"sql": ours}
    finally:
        delete_namespace(stack.controlplane.client(), other)


@pytest.mark.field(13)
def test_a_pod_added_later_gets_every_adapter(stack: Stack):
    for name in ("a", "b"):
        make_adapter(stack.adapters / name)
        stack.adapter(name)
    first = stack.add_pod("grow-0")
    stack.until_reported(first, {"a": "Loaded", "b": "Loaded"})
    second = stack.add_pod("grow-1")
    stack.until_reported(second, {"a": "Loaded", "b": "Loaded"})
    assert len(loads(first.engine)) == len(loads(second.engine)) == 2


@pytest.mark.field(1)
def test_an_engine_that_restarts_gets_its_adapters_back(stack: Stack):
    make_adapter(stack.adapters / "sql")
    stack.adapter("sql")
    pod = stack.add_pod("reborn-0")
    stack.until_reported(pod, {"sql": "Loaded"})
    stack.kill_engine(pod)
    stack.until_reported(pod, {"sql": "EngineStarting"}, timeout=5)
    stack.restart_engine(pod)
    stack.until_reported(pod, {"sql": "Loaded"})
    assert set(held(pod.engine)) == {"sql"}


@pytest.mark.field(28)
def test_an_agent_may_come_long_before_its_engine(stack: Stack):
    make_adapter(stack.adapters / "sql")
    stack.adapter("sql")
    pod = stack.add_pod("early-0")
    stack.kill_engine(pod)
    stack.restart_agent(pod)
    stack.until_reported(pod, {"sql": "EngineStarting"})
    stack.restart_engine(pod)
    stack.until_reported(pod, {"sql": "Loaded"})


@pytest.mark.field(26)
def test_an_agent_that_restarts_loads_nothing_twice_and_remembers_what_is_its_own(stack: Stack):
    make_adapter(stack.adapters / "sql")
    stack.adapter("sql")
    pod = stack.add_pod("again-0")
    stack.until_reported(pod, {"sql": "Loaded"})
    before = stack.report(pod)
    stack.restart_agent(pod)
    until(lambda: stack.report(pod)["beat"] > before["beat"], "the new agent has written")
    assert stack.reported(pod) == {f"{stack.namespace}/sql": "Loaded"}
    assert len(loads(pod.engine)) == 1
    stack.delete_adapter("sql")
    until(lambda: not held(pod.engine), "the engine has let go")


@pytest.mark.field(68)
def test_an_adapter_deleted_while_the_agent_is_away_is_unloaded_afterwards(stack: Stack):
    make_adapter(stack.adapters / "sql")
    stack.adapter("sql")
    pod = stack.add_pod("away-0")
    stack.until_reported(pod, {"sql": "Loaded"})
    assert pod.agent
    pod.agent.stop()
    stack.delete_adapter("sql")
    assert set(held(pod.engine)) == {"sql"}
    stack.start_agent(pod)
    until(lambda: not held(pod.engine), "the engine has let go")


def test_an_edited_path_moves_the_handle_to_the_new_weights(stack: Stack):
    for seed, name in enumerate(("v1", "v2")):
        make_adapter(stack.adapters / name, seed=seed)
    stack.adapter("sql", path=str(stack.adapters / "v1"))
    pod = stack.add_pod("moved-0")
    stack.until_reported(pod, {"sql": "Loaded"})
    new = str(stack.adapters / "v2")
    patch = {"spec": {"path": new}}
    url = f"/apis/inference.llmkube.dev/v1alpha1/namespaces/{stack.namespace}/loraadapters/sql"
    stack.controlplane.api("PATCH", url, patch, "application/merge-patch+json")
    until(lambda: held(pod.engine) == {"sql": new}, "the engine holds the new path")


def test_new_weights_at_the_same_path_are_loaded_where_the_pod_asks_for_it(stack: Stack):
    make_adapter(stack.adapters / "sql", seed=1)
    stack.adapter("sql")
    pod = stack.add_pod("fresh-0", settings={"reload": "on-change"})
    stack.until_reported(pod, {"sql": "Loaded"})
    until(lambda: stack.report(pod)["adapters"][0].get("contentHash"), "the content is known")
    first = stack.report(pod)["adapters"][0]["contentHash"]
    make_adapter(stack.adapters / "next", seed=2)
    shutil.move(stack.adapters / "sql", stack.adapters / "old")
    shutil.move(stack.adapters / "next", stack.adapters / "sql")

    def renewed() -> bool:
        entry = stack.report(pod)["adapters"][0]
        return entry["reason"] == "Loaded" and entry.get("contentHash") not in (None, first)

    until(renewed, "the new weights are loaded")
    assert len(loads(pod.engine)) == 2


def test_an_api_server_that_restarts_in_the_middle_is_survived(stack: Stack):
    make_adapter(stack.adapters / "before")
    stack.adapter("before")
    pod = stack.add_pod("steady-0")
    stack.until_reported(pod, {"before": "Loaded"})
    stack.controlplane.stop_apiserver()
    pod.engine.restart()
    until(
        lambda: set(held(pod.engine)) == {"before"}, "the engine got it back without the API server"
    )
    stack.controlplane.start_apiserver()
    make_adapter(stack.adapters / "after")
    stack.adapter("after")
    stack.until_reported(pod, {"before": "Loaded", "after": "Loaded"}, timeout=60)


def test_an_agent_tells_what_it_sees_over_http(stack: Stack):
    make_adapter(stack.adapters / "sql")
    stack.adapter("sql")
    pod = stack.add_pod("told-0")
    stack.until_reported(pod, {"sql": "Loaded"})
    assert pod.agent
    found = re.search(r"probes and metrics on port (\d+)", pod.agent.log.read_text())
    assert found

    def get(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}{path}", timeout=10) as answer:
            return answer.read().decode()

    assert get("/livez")
    assert get("/readyz")
    gauge = f'lora_sidecar_adapter_loaded{{adapter="{stack.namespace}/sql",handle="sql"}} 1.0'
    assert gauge in get("/metrics")
    state = json.loads(get("/state"))
    assert state["source"]["synced"]
    assert state["report"]["status"]["loaded"] == "1/1"


def test_an_agent_that_may_not_report_still_loads_and_says_what_is_missing(stack: Stack):
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/lora-sidecar-agent"
    before = stack.controlplane.api("GET", role)
    rules = [rule for rule in before["rules"] if "lorapodstatuses" not in rule["resources"]]
    patch = "application/merge-patch+json"
    stack.controlplane.api("PATCH", role, {"rules": rules}, patch)
    try:
        make_adapter(stack.adapters / "sql")
        stack.adapter("sql")
        pod = stack.add_pod("mute-0")
        until(lambda: held(pod.engine), "the engine holds it")
        assert pod.agent
        log = pod.agent.log
        until(
            lambda: "may not create lorapodstatuses" in log.read_text(),
            "the log says what is missing",
        )
    finally:
        stack.controlplane.api("PATCH", role, {"rules": before["rules"]}, patch)
    stack.until_reported(pod, {"sql": "Loaded"}, timeout=60)


class TestBadInput:
    """What the CRD lets pass but makes no sense gets a state and a sentence, and disturbs nobody."""

    @pytest.mark.field(44)
    def test_paths_and_files_that_make_no_sense(self, stack: Stack):
        good = make_adapter(stack.adapters / "good")
        (stack.adapters / "file").write_text("x")
        (stack.adapters / "empty").mkdir()
        make_adapter(stack.adapters / "half", weights="truncated")
        broken = make_adapter(stack.adapters / "broken")
        (broken / "adapter_config.json").write_text('{"peft_type": "LORA", "r"')
        make_adapter(stack.adapters / "keyless", config={"r": None})
        make_adapter(stack.adapters / "wide", rank=64)
        wanted = {
            "relative": ("org/name", "InvalidPath"),
            "dots": ("/adapters/../etc", "InvalidPath"),
            "outside": ("/etc", "PathNotShared"),
            "file": (None, "InvalidPath"),
            "empty": (None, "PathIncomplete"),
            "half": (None, "PathIncomplete"),
            "broken": (None, "PathIncomplete"),
            "keyless": (None, "InvalidAdapter"),
            "missing": (None, "PathNotFound"),
            "wide": (None, "Incompatible"),
            "good": (None, "Loaded"),
        }
        for name, (path, _) in wanted.items():
            stack.adapter(name, path=path)
        pod = stack.add_pod("bad-0")
        stack.until_reported(pod, {name: reason for name, (_, reason) in wanted.items()})
        entries = {e["name"]: e for e in stack.report(pod)["adapters"]}
        silent = [n for n, e in entries.items() if e["state"] != "Loaded" and not e.get("text")]
        assert silent == []
        assert loads(pod.engine) == [str(good)]
        assert held(pod.engine) == {"good": str(good)}

    @pytest.mark.field(6)
    @pytest.mark.parametrize(
        ("fault", "reason"),
        [
            ({"status": 500, "body": "Internal Server Error"}, "Retrying"),
            (
                {"status": 200, "body": "<html>proxy</html>", "content_type": "text/html"},
                "Retrying",
            ),
            ({"status": 200, "body": ""}, "Retrying"),
            ({"status": 200, "body": '{"success": "maybe"}'}, "Retrying"),
            (
                {"status": 400, "body": '{"success":false,"error_message":"no such luck"}'},
                "EngineRejected",
            ),
        ],
        ids=["500", "html", "empty", "wrong json", "unknown words"],
    )
    def test_garbage_from_the_engine_is_an_error_with_its_words(
        self, stack: Stack, fault: dict[str, object], reason: str
    ):
        pod = stack.add_pod("garbage-0")
        misbehave(pod.engine, "/load_lora_adapter", times=-1, **fault)
        make_adapter(stack.adapters / "sql")
        stack.adapter("sql")
        stack.until_reported(pod, {"sql": reason})
        assert pod.agent
        assert pod.agent.exit_code is None
        text = stack.report(pod)["adapters"][0]["text"]
        words = str(fault["body"])
        if reason == "EngineRejected":
            assert text == "no such luck"
        assert len(text) <= 256, words
