"""Injector and agent fit: an agent started exactly as the patched pod says does the main job."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sidecar.api import names
from tests.rig import container
from tests.rig.adapters import make_adapter
from tests.rig.apiclient import ApiError
from tests.rig.controlplane import ControlPlane
from tests.rig.engines import EngineProcess, free_port
from tests.rig.injector import InjectorProcess, configured
from tests.rig.kubelet import Kubelet, pod_manifest
from tests.rig.polling import until
from tests.rig.stack import ServedPod, Stack

pytestmark = pytest.mark.cluster

KEYS = ("--api-key", "reads-$1", "--admin-api-key", "changes,$2")


@pytest.fixture(params=["native", "container"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def injector(controlplane: ControlPlane, stack: Stack, tmp_path: Path) -> Iterator[InjectorProcess]:
    running = InjectorProcess(controlplane, tmp_path / "injector")
    with configured(controlplane, running.port, [stack.namespace]):
        running.until_ready()
        yield running
        running.process.kill()


def manifest(stack: Stack, mode: str, port: int, *args: str) -> dict[str, Any]:
    """As LLMKube makes it; the volume with the adapters is mounted where they really are."""
    annotations = {names.INJECT: "true", f"{names.PREFIX}/mode": mode}
    made = pod_manifest("injected-0", stack.service, agent=False, annotations=annotations)
    made["spec"]["volumes"] = [
        {"name": "adapters", "persistentVolumeClaim": {"claimName": "adapters"}}
    ]
    [engine] = made["spec"]["containers"]
    engine["command"] = ["python3", "-m", "sglang.launch_server"]
    engine["args"] = ["--port", str(port), *args]
    engine["volumeMounts"] = [{"name": "adapters", "mountPath": str(stack.adapters)}]
    return made


def run(stack: Stack, kubelet: Kubelet, given: dict[str, Any], *engine_args: str) -> ServedPod:
    """The pod with its engine and its agent, both as processes."""
    port = int(given["spec"]["containers"][0]["args"][1])

    def created() -> Any:
        try:
            return kubelet.create_pod(stack.namespace, given, start=False)
        except ApiError as error:
            # The API server does not have the caBundle yet.
            if "failed calling webhook" not in error.text:
                raise
            return None

    handle = until(created, "the pod is admitted")
    folder = stack.folder / "pods" / handle.name
    engine = EngineProcess.start("simulated", folder, port=port, extra_args=engine_args)
    kubelet.start(handle)
    pod = ServedPod(handle, engine, folder, {})
    stack.pods.append(pod)
    pod.agent = agent(stack, kubelet, pod).start()
    return pod


def agent(stack: Stack, kubelet: Kubelet, pod: ServedPod) -> container.Container:
    return container.prepare(
        stack.controlplane, kubelet, pod.handle, names.AGENT_CONTAINER, pod.folder
    )


def test_it_loads_what_is_asked_for(stack, kubelet, injector, mode) -> None:
    make_adapter(stack.adapters / "sql")
    pod = run(stack, kubelet, manifest(stack, mode, free_port()))
    stack.adapter("sql")
    stack.adapter("elsewhere", path="/not/mounted")
    stack.until_reported(pod, {"sql": "Loaded", "elsewhere": "PathNotShared"})
    stack.delete_adapter("sql")
    until(lambda: "sql" not in str(stack.reported(pod)), "it has let go")


def test_keys_that_stand_in_the_arguments_open_the_engine(stack, kubelet, injector) -> None:
    make_adapter(stack.adapters / "sql")
    pod = run(stack, kubelet, manifest(stack, "auto", free_port(), *KEYS), *KEYS)
    stack.adapter("sql")
    stack.until_reported(pod, {"sql": "Loaded"})
    assert "reads-" not in injector.log.read_text() + pod.agent.log.read_text()


def test_keys_of_secrets_open_the_engine_also_where_they_come_later(
    stack, kubelet, injector
) -> None:
    make_adapter(stack.adapters / "sql")
    given = manifest(stack, "auto", free_port(), "--api-key", "$(KEY)", "--admin-api-key", "$(NO)")
    given["metadata"]["annotations"][f"{names.PREFIX}/admin-key-secret"] = "keys/admin"
    reference = {"secretKeyRef": {"name": "keys", "key": "api"}}
    given["spec"]["containers"][0]["env"] = [{"name": "KEY", "valueFrom": reference}]
    pod = run(stack, kubelet, given, *KEYS)
    stack.adapter("sql")
    stack.until_reported(pod, {"sql": "EngineUnauthorized"})
    keys = {"api": KEYS[1], "admin": KEYS[3]}
    secret = {"metadata": {"name": "keys"}, "stringData": keys}
    stack.controlplane.api("POST", f"/api/v1/namespaces/{stack.namespace}/secrets", secret)
    pod.agent.stop()
    pod.agent = agent(stack, kubelet, pod).start()
    stack.until_reported(pod, {"sql": "Loaded"})


def test_without_a_shared_mount_nothing_of_the_agents_own_is_taken_for_the_engines(
    stack, kubelet, injector
) -> None:
    make_adapter(stack.adapters / "sql")
    given = manifest(stack, "auto", free_port())
    given["spec"]["containers"][0]["volumeMounts"] = []
    pod = run(stack, kubelet, given)
    stack.adapter("sql")
    stack.until_reported(pod, {"sql": "PathNotShared"})


@pytest.mark.field(91)
@pytest.mark.field(101)
def test_an_agent_that_finds_nothing_there_waits_for_all_of_it(stack, kubelet, injector) -> None:
    make_adapter(stack.adapters / "sql")
    pod = run(stack, kubelet, manifest(stack, "auto", free_port()))
    stack.adapter("sql")
    make_adapter(stack.adapters / "rubbish", weights="truncated")
    stack.adapter("rubbish")
    again = agent(stack, kubelet, pod)
    pod.agent.stop()
    pod.engine.kill()
    stack.controlplane.stop_apiserver()
    try:
        size = pod.agent.log.stat().st_size
        pod.agent = again.start()
        until(lambda: "cannot be re" in pod.agent.log.read_text()[size:], "it misses them")
    finally:
        stack.controlplane.start_apiserver()
    until(lambda: stack.report(pod).get("engine", {}).get("state") == "Starting", "it says so")
    pod.engine.launch()
    stack.until_reported(pod, {"sql": "Loaded", "rubbish": "PathIncomplete"})
    assert pod.agent.exit_code is None
