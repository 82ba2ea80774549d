import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.rig.apiclient import ApiError
from tests.rig.binaries import NAMES
from tests.rig.controlplane import ControlPlane
from tests.rig.errors import RigError
from tests.rig.gobuild import KUBERNETES
from tests.rig.polling import until

pytestmark = pytest.mark.cluster


def config_map(name: str) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def test_it_serves_the_projects_kinds(controlplane, namespace):
    adapter = {
        "apiVersion": "inference.llmkube.dev/v1alpha1",
        "kind": "LoRAAdapter",
        "metadata": {"name": "tone"},
        "spec": {"inferenceServiceRef": {"name": "chat"}, "name": "tone", "path": "/adapters/tone"},
    }

    controlplane.kubectl("--namespace", namespace, "apply", "-f", "-", input=json.dumps(adapter))

    shown = controlplane.kubectl("--namespace", namespace, "get", "lora", "tone", "-o", "json")
    assert json.loads(shown)["spec"] == adapter["spec"]


def test_it_is_the_pinned_version(controlplane):
    assert controlplane.api("GET", "/version")["gitVersion"] == KUBERNETES


def test_refusals_carry_status_and_reason(controlplane, namespace):
    with pytest.raises(ApiError, match="404") as refused:
        controlplane.api("GET", f"/api/v1/namespaces/{namespace}/configmaps/none")
    assert (refused.value.status, refused.value.reason) == (404, "NotFound")

    with pytest.raises(RigError, match="NotFound"):
        controlplane.kubectl("get", "configmap", "none")


def test_a_service_accounts_kubeconfig_has_its_rights_only(controlplane, tmp_path):
    token = controlplane.service_account_token("lora-sidecar", "lora-sidecar-aggregator")
    config = f"--kubeconfig={controlplane.kubeconfig_of(token, tmp_path / 'config')}"

    assert controlplane.kubectl(config, "get", "lorapodstatuses", "-n", "lora-sidecar") == ""
    with pytest.raises(RigError, match="Forbidden"):
        controlplane.kubectl(config, "get", "secrets")


def test_what_a_deployment_asks_for_becomes_pods(controlplane, namespace, kubelet):
    labels = {"app": "from-deployment"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "engines"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "sglang", "image": "sglang"}]},
            },
        },
    }
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    controlplane.api("POST", path, deployment)

    pods = kubelet.adopt(namespace, "app=from-deployment", count=2)

    assert len(pods) == 2
    until(
        lambda: controlplane.api("GET", f"{path}/engines")["status"].get("readyReplicas") == 2,
        "the Deployment counts both as ready",
    )


@pytest.mark.parametrize("crash", [False, True], ids=["gracefully", "by a crash"])
def test_a_restarted_api_server_knows_what_it_knew(controlplane, namespace, crash):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    made = controlplane.api("POST", path, config_map(f"kept-{crash}".lower()))

    controlplane.stop_apiserver(crash=crash)
    with pytest.raises(ConnectionRefusedError):
        controlplane.api("GET", path)
    controlplane.start_apiserver()

    again = controlplane.api("GET", f"{path}/{made['metadata']['name']}")
    assert again["metadata"]["uid"] == made["metadata"]["uid"]


def test_a_start_that_fails_shows_the_log_and_leaves_nothing():
    failing = ControlPlane(apiserver_args=["--no-such-flag"])

    with pytest.raises(RigError, match="unknown flag: --no-such-flag"):
        failing.start()

    assert not failing.state.exists()
    assert not [line for line in command_lines() if str(failing.state) in line]


def test_a_store_that_fails_shows_its_log(monkeypatch, tmp_path):
    for name in NAMES:
        (tmp_path / name).write_text("#!/bin/sh\necho no space left\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))

    with pytest.raises(RigError, match=r"etcd ended with 1(.|\n)*no space left"):
        ControlPlane().start()


def command_lines() -> Iterator[str]:
    """Those of all processes of this machine, where it tells (Linux)."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield file.read_text()
