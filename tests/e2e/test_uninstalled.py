"""What is left when the chart is gone: users' objects, CRDs, and engines with what they hold."""

import pytest

from tests.e2e import readme
from tests.e2e.cluster import HOME, Cluster, until_true
from tests.e2e.conftest import ML
from tests.e2e.operator import Operator
from tests.e2e.watching import models, pods
from tests.rig.llmkube import FINALIZER as LLMKUBES

PARTS = "deploy,pod,job,lease,configmap,secret,service"
KINDS = "mutatingwebhookconfiguration,validatingadmissionpolicy,clusterrole,clusterrolebinding"


@pytest.mark.field(79)
@pytest.mark.field(109)
def test_uninstalling_leaves_nothing_that_holds_on(cluster: Cluster, llmkube: Operator) -> None:
    readme.run(cluster, readme.UNINSTALL)
    left = cluster.kubectl("get", KINDS, "-o", "name").split()
    assert [one for one in left if "lora-sidecar" in one] == []
    until_true(
        lambda: (
            cluster.kubectl("-n", HOME, "get", PARTS, "-o", "name").split()
            == ["configmap/kube-root-ca.crt"]
        ),
        "all of ours is gone",
    )
    until_true(
        lambda: cluster.get(ML, "lora", "sql")["metadata"].get("finalizers") == [LLMKUBES],
        "LLMKube has it again, alone",
    )


def test_engines_keep_what_they_hold(cluster: Cluster) -> None:
    assert "sql" in models(cluster, ML, "chat")


def test_new_pods_come_up_without_us(cluster: Cluster) -> None:
    before = pods(cluster, ML, "chat")
    cluster.kubectl("-n", ML, "delete", *before, "--grace-period=1")
    cluster.kubectl("-n", ML, "wait", "deploy/chat", "--for=condition=Available", "--timeout=60s")
    (pod,) = cluster.get(ML, "pods", "-l", "app=chat")["items"]
    assert "initContainers" not in pod["spec"]


def test_namespaces_can_go(cluster: Cluster) -> None:
    cluster.kubectl("delete", "namespace", ML, "--timeout=90s")


def test_each_command_of_the_readme_was_run() -> None:
    assert [readme.block(beginning) for beginning in readme.STEPS] == readme.blocks()
