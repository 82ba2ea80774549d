"""What users run, on a real node: install, opt in, load; then engines, pods and our own parts that go and come.

The tests of this file are one story and run in its order.
"""

import pytest

from tests.e2e import readme
from tests.e2e.cluster import HOME, Cluster, until_true
from tests.e2e.conftest import ML
from tests.e2e.operator import Operator
from tests.e2e.services import RESTRICTED, lora, simulated
from tests.e2e.watching import (
    INJECT,
    agent_of,
    kill_engine,
    loaded,
    models,
    pods,
    said,
    scale,
)
from tests.rig.llmkube import FINALIZER as LLMKUBES

WELL = ("True", "ReconcileSuccess", "1/1")


def is_well(cluster: Cluster, name: str = "sql") -> bool:
    return said(cluster, ML, name) == WELL


@pytest.mark.field(14)
def test_the_readmes_commands_install_opt_in_and_load(cluster: Cluster) -> None:
    cluster.put_adapter(ML, "sql")
    readme.run(cluster, readme.OPT_IN)
    described = readme.run(cluster, readme.LOAD)
    until_true(lambda: len(pods(cluster, ML, "chat")) == 1, "the pod from before is gone")
    (pod,) = cluster.get(ML, "pods", "-l", "app=chat")["items"]
    assert agent_of(pod)["restartPolicy"] == "Always"
    assert said(cluster, ML, "sql")[:2] == ("True", "ReconcileSuccess")
    assert "1 of 1" in described
    assert models(cluster, ML, "chat") >= {"sql"}


def test_our_crd_over_llmkubes_shows_each_pod(cluster: Cluster) -> None:
    readme.run(cluster, readme.OUR_CRD)
    until_true(lambda: is_well(cluster), "the pods are counted")
    (pod,) = pods(cluster, ML, "chat")
    assert pod.partition("/")[2] in cluster.kubectl("-n", ML, "describe", "lora", "sql")


def test_helm_says_that_pods_are_injected(cluster: Cluster) -> None:
    assert "Succeeded" in readme.run(cluster, readme.TEST)


def test_an_upgrade_keeps_the_webhooks_bundle_and_everything_loaded(cluster: Cluster) -> None:
    bundle = _bundle(cluster)
    readme.run(cluster, readme.UPGRADE)
    assert bundle
    assert _bundle(cluster) == bundle
    assert is_well(cluster)


def _bundle(cluster: Cluster) -> str:
    webhook = cluster.get(HOME, "mutatingwebhookconfiguration", "lora-sidecar")["webhooks"][0]
    return str(webhook["clientConfig"].get("caBundle", ""))


@pytest.mark.field(56)
def test_llmkubes_controller_is_kept_off_and_nobody_writes_in_turns(
    cluster: Cluster, llmkube: Operator
) -> None:
    cluster.kubectl("-n", ML, "label", "lora", "sql", "touched=yes")
    version = cluster.get(ML, "lora", "sql")["metadata"]["resourceVersion"]
    passes = llmkube.passes
    until_true(lambda: llmkube.passes >= passes + 5, "it has tried five times more")
    sql = cluster.get(ML, "lora", "sql")
    assert sql["metadata"]["resourceVersion"] == version
    assert LLMKUBES not in sql["metadata"]["finalizers"]
    assert is_well(cluster)


def test_a_service_that_did_not_opt_in_is_left_to_llmkube(
    cluster: Cluster, llmkube: Operator
) -> None:
    cluster.apply(lora("theirs", ML, "plain"))
    until_true(lambda: loaded(cluster, ML, "theirs"), "LLMKube has written")
    passes = llmkube.passes
    until_true(lambda: llmkube.passes >= passes + 3, "it has tried three times more")
    assert loaded(cluster, ML, "theirs")["reason"] == "LoadUnsuccessful"
    assert cluster.get(ML, "lora", "theirs")["metadata"]["finalizers"] == [LLMKUBES]


@pytest.mark.field(1)
def test_an_engine_that_dies_gets_its_adapters_back_and_only_it_restarts(cluster: Cluster) -> None:
    before = pods(cluster, ML, "chat")
    kill_engine(cluster, ML, "chat")

    def restarted() -> bool:
        (pod,) = cluster.get(ML, "pods", "-l", "app=chat")["items"]
        (engine,) = pod["status"]["containerStatuses"]
        (agent,) = pod["status"]["initContainerStatuses"]
        return (engine["restartCount"], agent["restartCount"]) == (1, 0)

    until_true(restarted, "the engine's container has restarted")
    until_true(lambda: "sql" in models(cluster, ML, "chat"), "it has it back")
    until_true(lambda: is_well(cluster), "and that is told")
    assert pods(cluster, ML, "chat") == before


@pytest.mark.field(2)
def test_each_pod_of_a_scale_up_gets_them_and_none_of_those_that_go_counts(
    cluster: Cluster,
) -> None:
    scale(cluster, ML, "chat", 3)
    until_true(lambda: said(cluster, ML, "sql") == (*WELL[:2], "3/3"), "three have it")
    scale(cluster, ML, "chat", 1)
    until_true(lambda: is_well(cluster), "one counts")
    until_true(lambda: len(cluster.get(ML, "lorapods")["items"]) == 1, "one report is left")


def test_a_rollout_ends_with_everything_loaded(cluster: Cluster) -> None:
    before = pods(cluster, ML, "chat")
    cluster.kubectl("-n", ML, "rollout", "restart", "deploy/chat")
    cluster.kubectl("-n", ML, "rollout", "status", "deploy/chat", "--timeout=120s")

    def replaced() -> bool:
        now = pods(cluster, ML, "chat")
        return len(now) == 1 and now != before

    until_true(replaced, "the new pod is alone")
    until_true(lambda: is_well(cluster), "it has it")


def test_a_pod_that_is_taken_from_its_node_is_replaced_and_forgotten(cluster: Cluster) -> None:
    (before,) = pods(cluster, ML, "chat")
    cluster.kubectl("-n", ML, "delete", before, "--force", "--grace-period=0")

    def reporting() -> set[str]:
        return {f"pod/{one['metadata']['name']}" for one in cluster.get(ML, "lorapods")["items"]}

    until_true(lambda: reporting() == set(pods(cluster, ML, "chat")), "the new one alone reports")
    until_true(lambda: is_well(cluster), "it has it")
    assert pods(cluster, ML, "chat") != [before]


def test_files_that_come_late_are_waited_for(cluster: Cluster) -> None:
    cluster.apply(lora("late", ML, "chat"))
    until_true(lambda: said(cluster, ML, "late")[1] == "PathNotFound", "they are missed")
    cluster.put_adapter(ML, "late", seed=2)
    until_true(lambda: is_well(cluster, "late"), "it is loaded")


@pytest.mark.field(74)
def test_without_an_injector_only_pods_that_opted_in_wait(cluster: Cluster) -> None:
    of_injector = ("-l", "kubernetes.io/service-name=lora-sidecar-injector")
    scale(cluster, HOME, "lora-sidecar-injector", 0)
    until_true(
        lambda: not cluster.get(HOME, "endpointslices", *of_injector)["items"][0]["endpoints"],
        "no injector answers",
    )
    cluster.kubectl("-n", ML, "delete", "pod", "-l", "app=chat", "--wait=false")
    until_true(lambda: said(cluster, ML, "sql")[1] == "NoPods", "the pod is gone")
    other = ("run", "other", f"--image={cluster.engine}", "--restart=Never", "--command")
    cluster.kubectl("-n", "default", *other, "--", "true")
    scale(cluster, HOME, "lora-sidecar-injector", 2)
    until_true(lambda: is_well(cluster), "it is made, and loaded")
    cluster.kubectl("-n", "default", "delete", "pod", "other", "--grace-period=1")


@pytest.mark.field(92)
@pytest.mark.parametrize(("mode", "starts"), [("container", True), ("native", False)])
def test_an_agent_that_cannot_start_holds_up_an_engine_in_native_mode_only(
    cluster: Cluster, mode: str, starts: bool
) -> None:
    ours = "lora-sidecar.llmkube.dev"
    annotations = {INJECT: "true", f"{ours}/mode": mode, f"{ours}/image": "localhost/none:1"}
    engine = {key: value for key, value in simulated(cluster).items() if key != "volumeMounts"}
    metadata = {"name": f"broken-{mode}", "namespace": ML, "annotations": annotations}
    metadata |= {"labels": {"inference.llmkube.dev/service": "broken"}}
    security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    engine |= {"securityContext": RESTRICTED | {"runAsUser": 1000}}
    spec = {"securityContext": security, "terminationGracePeriodSeconds": 1}
    spec |= {"containers": [engine]}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def waits() -> bool:
        status = cluster.get(ML, "pod", f"broken-{mode}")["status"]
        every = status.get("containerStatuses", []) + status.get("initContainerStatuses", [])
        agents = [one for one in every if one["name"] == "lora-sidecar"]
        return any("Image" in one["state"].get("waiting", {}).get("reason", "") for one in agents)

    def ready() -> bool:
        status = cluster.get(ML, "pod", f"broken-{mode}")["status"]
        return any(one["name"] == "sglang" and one["ready"] for one in status["containerStatuses"])

    until_true(waits, "the agent cannot start")
    if starts:
        until_true(ready, "the engine serves nevertheless")
    else:
        assert not ready()
    cluster.kubectl("-n", ML, "delete", "pod", f"broken-{mode}")


def test_without_an_aggregator_engines_still_get_their_adapters(cluster: Cluster) -> None:
    of_aggregator = ("-l", "app.kubernetes.io/component=aggregator")
    scale(cluster, HOME, "lora-sidecar-aggregator", 0)
    until_true(lambda: not cluster.get(HOME, "pods", *of_aggregator)["items"], "no aggregator runs")
    kill_engine(cluster, ML, "chat")

    def has_both() -> bool:
        (report,) = cluster.get(ML, "lorapods")["items"]
        (pod,) = cluster.get(ML, "pods", "-l", "app=chat")["items"]
        restarts = pod["status"]["containerStatuses"][0]["restartCount"]
        return restarts == 1 and report["status"].get("loaded") == "2/2"

    until_true(has_both, "the agent has loaded both again")
    scale(cluster, HOME, "lora-sidecar-aggregator", 2)
    until_true(lambda: is_well(cluster), "and that is told")


def test_a_deleted_adapter_is_gone_when_kubectl_returns(cluster: Cluster) -> None:
    cluster.kubectl("-n", ML, "delete", "lora", "late", "--timeout=30s")
    assert "late" not in models(cluster, ML, "chat")
