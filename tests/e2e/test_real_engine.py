"""The real SGLang, on the CPU, in a pod of the node: given an agent, asked for what an adapter changes, restarted.

Its files are the node's: SGLang's environment and the interpreter under it, the tiny model. That is more than Pod
Security lets pods have, so the namespace is one that allows it; and the engine runs as root, as LLMKube has it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import services
from tests.e2e.cluster import Cluster, until_true
from tests.e2e.watching import INJECT, agent_of, pods, said
from tests.rig.sglang import install, launch
from tests.rig.sglang.model import SERVED_NAME, make_model

REAL = "real"
WELL = ("True", "ReconcileSuccess", "1/1")
WITH_SQL = f"{SERVED_NAME}:sql"
START_SECONDS = 300
ASK = """
import json, sys, urllib.request as u
body = json.dumps({"model": sys.argv[1], "prompt": "Hello", "max_tokens": 8, "temperature": 0}).encode()
asked = u.Request("http://127.0.0.1:30000/v1/completions", body, {"Content-Type": "application/json"})
print(json.load(u.urlopen(asked, timeout=60))["choices"][0]["text"])
"""


def engine(cluster: Cluster, python: Path, model: Path) -> tuple[dict[str, Any], list[Any]]:
    """The container, and the volumes that hold what it runs."""
    folders = {python.parents[1], python.resolve().parents[1], launch.STAND_INS, model}
    mounts: list[Any] = [services.PLACE | {"readOnly": True}]
    volumes: list[Any] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    for number, folder in enumerate(sorted(folders - {Path("/usr")})):
        name = f"node-{number}"
        mounts.append({"name": name, "mountPath": str(folder), "readOnly": True})
        volumes.append({"name": name, "hostPath": {"path": str(folder), "type": "Directory"}})
    command = launch.command(python, model, "0.0.0.0", 30000, extra=["--log-level", "warning"])
    env = launch.on_a_cpu() | {"HOME": "/tmp"}
    container = {
        "name": "sglang",
        "image": cluster.engine,
        "command": command[:3],
        "args": command[3:],
        "env": [{"name": name, "value": value} for name, value in sorted(env.items())],
        "ports": [{"name": "http", "containerPort": 30000}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "timeoutSeconds": 20},
        "securityContext": services.RESTRICTED | {"runAsNonRoot": False, "runAsUser": 0},
        "volumeMounts": mounts,
    }
    return container, volumes


@pytest.fixture(scope="module")
def real(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with a service of the real SGLang and an adapter for it."""
    if not cluster.node:
        pytest.skip("the real SGLang comes from this machine's files, and the node is another")
    model = cluster.work / "model"
    make_model(model)
    container, volumes = engine(cluster, install.install(), model)
    cluster.apply(services.namespace(REAL, "privileged"), *services.volume(cluster, REAL))
    cluster.kubectl("-n", REAL, "wait", "--for=condition=Ready", "pod/files", "--timeout=120s")
    cluster.put_adapter(REAL, "sql")
    service, deployment = services.service("chat", REAL, container)
    service["spec"]["podAnnotations"] = {INJECT: "true"}
    deployment["spec"]["strategy"] = {"type": "Recreate"}
    deployment["spec"]["template"]["spec"]["volumes"] += volumes
    cluster.apply(service, services.lora("sql", REAL, "chat"), deployment)
    yield cluster
    cluster.kubectl("delete", "namespace", REAL, "--timeout=120s")


def ask(cluster: Cluster, model: str) -> str:
    """Eight tokens of the engine's, the likeliest each."""
    (pod,) = pods(cluster, REAL, "chat")
    within = ("-n", REAL, "exec", pod, "-c", "sglang", "--", "python", "-c", ASK, model)
    return cluster.kubectl(*within)


def test_the_real_engine_is_given_an_agent_and_answers_with_the_adapter(real: Cluster) -> None:
    until_true(lambda: said(real, REAL, "sql") == WELL, "it is loaded", START_SECONDS)
    (pod,) = real.get(REAL, "pods", "-l", "app=chat")["items"]
    assert agent_of(pod)["restartPolicy"] == "Always"
    described = real.kubectl("-n", REAL, "describe", "lora", "sql")
    assert pod["metadata"]["name"] in described
    assert "Loaded on 1 of 1 pod" in described
    assert ask(real, WITH_SQL) != ask(real, SERVED_NAME)


def test_when_its_container_restarts_it_answers_as_before(real: Cluster) -> None:
    (pod,) = pods(real, REAL, "chat")
    before = ask(real, WITH_SQL)
    real.kubectl("-n", REAL, "exec", pod, "-c", "sglang", "--", "sh", "-c", "kill 1")

    def restarted() -> bool:
        status = real.get(REAL, pod)["status"]
        (container,) = status["containerStatuses"]
        (agent,) = status["initContainerStatuses"]
        return container["restartCount"] == 1 and agent["restartCount"] == 0

    until_true(restarted, "only the engine has restarted")
    until_true(lambda: said(real, REAL, "sql")[0] != "True", "what it lost is told")
    until_true(lambda: said(real, REAL, "sql") == WELL, "it has it again", START_SECONDS)
    assert ask(real, WITH_SQL) == before
