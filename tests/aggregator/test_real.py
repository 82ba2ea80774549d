"""The aggregator as a process of its own, under its own permissions, on a real API server: what users then see.

Reports are written by hand here; agents that write them are in tests/flows. What a status says in each situation is in
test_fold.
"""

import copy
import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from sidecar.api import names
from tests.aggregator import worlds
from tests.aggregator.worlds import Json, condition, entry, says
from tests.rig.install import CRDS
from tests.rig.kubelet import pod_manifest
from tests.rig.podstatus import timestamp
from tests.rig.polling import until
from tests.rig.process import Process

pytestmark = pytest.mark.cluster

ACCOUNT = ("lora-sidecar", "lora-sidecar-aggregator")
ROOT = Path(__file__).parents[2]
SEEN = 10
"""Seconds within which everything must show; it takes a tenth of one, or a second in a storm."""


@pytest.fixture(scope="module")
def aggregator(controlplane, tmp_path_factory):
    folder = tmp_path_factory.mktemp("aggregator")
    token = controlplane.service_account_token(*ACCOUNT)
    kubeconfig = controlplane.kubeconfig_of(token, folder / "kubeconfig")
    command = [sys.executable, "-m", "sidecar.aggregator", "--kubeconfig", str(kubeconfig)]
    process = Process(
        [*command, "--listen-port", "0"], folder / "log", environment={"PYTHONPATH": str(ROOT)}
    )
    yield process
    process.stop()
    assert process.exit_code == 0, process.tail()


class Service:
    """One service in the test's namespace, whose agents are this class."""

    def __init__(self, controlplane, kubelet, namespace: str, name: str) -> None:
        self.controlplane, self.kubelet = controlplane, kubelet
        self.namespace, self.name = namespace, name
        self.pods: dict[str, Json] = {}
        self._beats: dict[str, int] = {}
        body = {
            "apiVersion": "inference.llmkube.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {"name": name},
            "spec": {"runtime": "sglang"},
        }
        controlplane.api("POST", self._path("inference.llmkube.dev", "inferenceservices"), body)

    def _path(self, group: str, plural: str, name: str = "") -> str:
        path = f"/apis/{group}/v1alpha1/namespaces/{self.namespace}/{plural}"
        return f"{path}/{name}" if name else path

    def pod(self, letter: str, **more):
        manifest = pod_manifest(
            f"{self.name}-{letter}",
            self.name,
            labels={names.INJECTED_LABEL: "true"},
            annotations={names.INJECT: "true"},
        )
        return self.kubelet.create_pod(self.namespace, manifest, **more)

    def adapter(self, name: str) -> None:
        body = worlds.adapter(name, service=self.name, path=f"/adapters/{name}")
        body["metadata"] = {"name": name}
        self.controlplane.api("POST", self._path(names.INFERENCE_GROUP, "loraadapters"), body)

    def get(self, name: str) -> Json:
        return self.controlplane.api("GET", self._path(names.INFERENCE_GROUP, "loraadapters", name))

    def status(self, name: str) -> Json:
        return self.get(name).get("status", {})

    def report(self, pod, *entries: Json, since: str = "", **said) -> None:
        """Write the pod's report. Entries are those of the adapters as they are now, and of this namespace."""
        for one in entries:
            name = one["name"]
            meta = self.get(name)["metadata"]
            one |= {"adapter": f"{self.namespace}/{name}", "uid": meta["uid"]}
            one["generation"] = meta["generation"]
        beat = self._beats[pod.name] = self._beats.get(pod.name, 0) + 1
        body = worlds.report(pod.name, *entries, uid=pod.uid, beat=beat, **said)
        engine = self.kubelet.container(pod, "sglang")["state"].get("running", {})
        body["status"]["engine"]["since"] = since or engine.get("startedAt", timestamp(0))
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        body["metadata"] = {"name": pod.name, "ownerReferences": [owner]}
        path = self._path(names.PREFIX, "lorapodstatuses", pod.name)
        sort = "application/apply-patch+yaml"
        self.controlplane.api("PATCH", f"{path}?fieldManager=agent&force=true", body, sort)

    def until(self, name: str, status: str, reason: str) -> Json:
        """Wait until Loaded says so, and return the status then."""

        def there() -> Json | None:
            now = self.status(name)
            return now if now.get("conditions") and says(now) == (status, reason) else None

        return until(there, f"{name} is Loaded={status} {reason}", timeout=SEEN)


@pytest.fixture
def chat(controlplane, kubelet, namespace, aggregator, request):
    stem = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:30].strip("-")
    return Service(controlplane, kubelet, namespace, stem)


@pytest.mark.field(3)
def test_reports_become_what_kubectl_waits_for(chat):
    chat.adapter("waited")
    pods = [chat.pod("a"), chat.pod("b")]
    chat.until("waited", "Unknown", "NotReported")
    for pod in pods:
        chat.report(pod, entry(name="waited"))
    chat.controlplane.kubectl(
        *("wait", "--for=condition=Loaded", "lora/waited", f"--timeout={SEEN}s"),
        *("--namespace", chat.namespace),
    )
    assert chat.status("waited")["podsLoaded"] == "2/2"


@pytest.mark.field(7)
def test_kubectl_get_shows_service_handle_truth_and_count(chat):
    chat.adapter("listed")
    chat.report(
        chat.pod("a"), entry("PathNotFound", "/adapters/listed is not there", name="listed")
    )
    chat.until("listed", "False", "PathNotFound")
    shown = chat.controlplane.kubectl("get", "lora", "listed", "-o", "wide", "-n", chat.namespace)
    head, row = (re.split(r"\s{2,}", line.strip()) for line in shown.splitlines())
    assert head == ["NAME", "SERVICE", "ADAPTER", "LOADED", "PODS", "AGE", "REASON", "PATH"]
    assert [*row[:5], *row[6:]] == [
        *("listed", chat.name, "listed", "False", "0/1"),
        *("PathNotFound", "/adapters/listed"),
    ]


@pytest.mark.field(113)
def test_kubectl_describe_reads_from_top_to_bottom(chat):
    chat.adapter("told")
    good, bad = chat.pod("a"), chat.pod("b")
    chat.report(good, entry(name="told"))
    words = "LoRA rank 64 exceeds the engine's max_lora_rank 32"
    chat.report(bad, entry("Incompatible", words, name="told"))
    chat.until("told", "False", "LoadUnsuccessful")
    shown = chat.controlplane.kubectl("describe", "lora", "told", "-n", chat.namespace)
    assert f"Loaded on 1 of 2 pods; {bad.name} on {bad.node}: Incompatible: {words}" in shown
    pods = shown[shown.index("  Pods:") :]
    lines = [line.strip().partition(":")[0] for line in pods.splitlines()]
    assert lines[1:7] == ["Pod", "Pod Node", "Reason", "Since", "State", "Text"]
    assert re.findall(r"Pod: +(\S+)", pods) == [bad.name, good.name]


def test_kubectl_describe_shows_events_of_the_adapter_and_of_the_pod_that_fails(chat):
    chat.adapter("eventful")
    pod = chat.pod("a")
    chat.report(pod, entry("Incompatible", "r=64", name="eventful"))
    chat.until("eventful", "False", "LoadUnsuccessful")

    def shown(kind: str, name: str) -> str:
        words = chat.controlplane.kubectl("describe", kind, name, "-n", chat.namespace)
        return words[words.index("Events:") :]

    until(lambda: "Incompatible" in shown("pod", pod.name), "the pod's event", timeout=SEEN)
    assert re.search(rf"Warning +Incompatible .*{pod.name}: r=64", shown("lora", "eventful"))
    assert re.search(r"Warning +LoadUnsuccessful ", shown("lora", "eventful"))
    assert re.search(r"Warning +Incompatible .*eventful: r=64", shown("pod", pod.name))


def test_the_death_of_an_engine_shows(chat):
    chat.adapter("lost")
    pod = chat.pod("a")
    chat.report(pod, entry(name="lost"))
    chat.until("lost", "True", "ReconcileSuccess")
    chat.report(pod, entry("EngineStarting", name="lost"), engine="Starting", engine_text="refused")
    status = chat.until("lost", "False", "EngineUnreachable")
    assert status["podsLoaded"] == "0/1"
    assert "refused" in condition(status)["message"]


def test_what_was_claimed_before_the_kubelet_restarted_the_engine_is_not_believed(chat):
    chat.adapter("stale")
    pod = chat.pod("a")
    chat.report(pod, entry(name="stale"))
    chat.until("stale", "True", "ReconcileSuccess")
    chat.kubelet.set_container(pod, "sglang", running=False)
    chat.until("stale", "False", "EngineStarting")
    chat.kubelet.set_container(pod, "sglang", started_at=4e9)
    chat.until("stale", "Unknown", "NotReported")


def test_pods_that_go_no_longer_count(chat):
    chat.adapter("left")
    pods = [chat.pod("a"), chat.pod("b")]
    for pod in pods:
        chat.report(pod, entry(name="left"))
    chat.until("left", "True", "ReconcileSuccess")
    chat.kubelet.delete(pods[0])
    until(lambda: chat.status("left")["podsLoaded"] == "1/1", "one pod counts", timeout=SEEN)
    for pod in pods:
        chat.kubelet.remove(pod)
    assert chat.until("left", "False", "NoPods")["podsLoaded"] == "0/0"


@pytest.mark.field(108)
def test_many_bad_pods_stay_within_what_the_crd_allows(chat):
    chat.adapter("crowded")
    for number in range(53):
        pod = chat.pod(f"{number:02}")
        chat.report(pod, entry("EngineRejected", "x" * 250, name="crowded"))
    until(lambda: chat.status("crowded").get("podsLoaded") == "0/53", "all count", timeout=SEEN)
    until(lambda: chat.status("crowded").get("podsOmitted") == 3, "3 are omitted", timeout=SEEN)
    assert len(chat.status("crowded")["pods"]) == 50


@pytest.fixture
def llmkube_crd(controlplane):
    """LoRAAdapter's CRD as LLMKube installs it: with the contract's status fields and no others."""
    crd = yaml.safe_load((CRDS / "loraadapters.yaml").read_text())
    ours = copy.deepcopy(crd)
    (version,) = crd["spec"]["versions"]
    fields = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    for extra in ("observedGeneration", "podsLoaded", "pods", "podsOmitted"):
        del fields[extra]
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + crd["metadata"]["name"]

    def install(body: Json) -> None:
        controlplane.api("PATCH", path, {"spec": {"versions": body["spec"]["versions"]}})

    install(crd)
    yield
    install(ours)


def test_where_llmkubes_crd_is_installed_the_truth_stands_in_the_message(chat, llmkube_crd):
    chat.adapter("pruned")

    def prunes() -> bool:
        path = chat._path(names.INFERENCE_GROUP, "loraadapters", "pruned") + "/status"
        stored = chat.controlplane.api("PATCH", path, {"status": {"podsOmitted": 7}})
        return "podsOmitted" not in stored.get("status", {})

    until(prunes, "the API server prunes", timeout=30)
    pod = chat.pod("a")
    for reason in ("PathNotFound", "Retrying"):
        chat.report(pod, entry(reason, "in words", name="pruned"))
        status = chat.until("pruned", "False", reason)
        message = condition(status)["message"]
        assert message == f"Loaded on 0 of 1 pod; {pod.name} on {pod.node}: {reason}: in words"
        assert status.keys() <= {"conditions", "lastLoadedAt", "loadedPath"}
    version = chat.get("pruned")["metadata"]["resourceVersion"]
    chat.adapter("after")  # what is written after it shows that it had its turn
    chat.until("after", "Unknown", "NotReported")
    chat.report(pod, entry("Retrying", "in words", name="pruned"), entry(name="after"))
    chat.until("after", "True", "ReconcileSuccess")
    assert chat.get("pruned")["metadata"]["resourceVersion"] == version


def test_the_whole_status_is_what_the_published_schema_says(chat):
    """No field of ours is pruned by our own CRD: what is written is what is stored."""
    chat.adapter("whole")
    chat.report(chat.pod("a"), entry(name="whole"))
    status = chat.until("whole", "True", "ReconcileSuccess")
    assert status.keys() == {
        *("conditions", "lastLoadedAt", "loadedPath"),
        *("observedGeneration", "podsLoaded", "pods"),
    }
    assert json.dumps(status).count("null") == 0
