"""The webhook's process as a real API server calls it: what pods come back with, and what they do without it."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from injector.explain import MASK, explain_pod
from injector.settings import InjectorSettings
from injector.workloads import Made
from sidecar.api import names
from tests.injector.foreign import ForeignWebhook
from tests.injector.pods import pod
from tests.rig.apiclient import ApiError
from tests.rig.binaries import binaries
from tests.rig.controlplane import ControlPlane
from tests.rig.engines import ROOT
from tests.rig.injector import CONFIGURATION, SECRET, InjectorProcess, configured
from tests.rig.namespaces import create_namespace, delete_namespace
from tests.rig.polling import until

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def injector(
    controlplane: ControlPlane, namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InjectorProcess]:
    running = InjectorProcess(controlplane, tmp_path_factory.mktemp("injector"))
    namespaces = [namespace, *(f"{namespace}-{more}" for more in ("restricted", "quota"))]
    with configured(controlplane, running.port, namespaces):
        running.until_ready()

        def injected() -> bool:
            made = create(controlplane, namespace, manifest("first"), "?dryRun=All")
            return bool(agents(made))

        until(injected, "the API server calls the webhook")
        yield running
        running.stop()


def manifest(name: str = "", *args: str, **spec: Any) -> dict[str, Any]:
    given = pod(*args, **spec)
    if name:
        del given["metadata"]["generateName"]
        given["metadata"]["name"] = name
    return {"apiVersion": "v1", "kind": "Pod", **given}


def create(
    controlplane: ControlPlane, namespace: str, body: dict[str, Any], query: str = ""
) -> dict[str, Any]:
    return controlplane.api("POST", f"/api/v1/namespaces/{namespace}/pods{query}", body)


def agents(made: dict[str, Any]) -> list[dict[str, Any]]:
    every = [*made["spec"].get("initContainers", []), *made["spec"]["containers"]]
    return [one for one in every if one["name"] == names.AGENT_CONTAINER]


def metric(injector: InjectorProcess, name: str) -> float:
    lines = injector.get("/metrics")[1].splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@pytest.mark.field(103)
@pytest.mark.parametrize(
    ("mode", "where"), [("native", "initContainers"), ("container", "containers")]
)
def test_the_agent_comes_back_as_it_was_asked_for(
    controlplane, namespace, injector, mode, where
) -> None:
    given = manifest(f"mode-{mode}")
    given["metadata"]["annotations"][f"{names.PREFIX}/mode"] = mode
    made = create(controlplane, namespace, given)
    [agent] = agents(made)
    assert agent in made["spec"][where]
    assert agent.get("restartPolicy") == ("Always" if mode == "native" else None)
    assert made["metadata"]["labels"][names.INJECTED_LABEL] == "true"


@pytest.mark.parametrize("name", ["llmkube", "shell", "keys", "mounts", "readiness"])
def test_the_api_server_keeps_all_that_explain_shows(
    controlplane, namespace, injector, name
) -> None:
    file = ROOT / "tests" / "injector" / "golden" / name / "pod.yaml"
    given = {"apiVersion": "v1", "kind": "Pod", **yaml.safe_load(file.read_text())}
    # Made by the API server itself where they are missing, and then under another name.
    given["metadata"].pop("ownerReferences", None)
    for container in given["spec"]["containers"]:
        container.setdefault("image", "any")
    shown = explain_pod(Made("", namespace, given), InjectorSettings())
    [wanted] = agents(shown.patched)
    [made] = agents(create(controlplane, namespace, given, "?dryRun=All"))
    made["volumeMounts"] = made["volumeMounts"][: len(wanted["volumeMounts"])]
    assert missing(wanted, made) == []


def missing(wanted: Any, made: Any, way: str = "") -> list[str]:
    """What of `wanted` is not in `made`, but for keys, which `explain` masks."""
    if isinstance(wanted, dict) and isinstance(made, dict):
        return [w for k, v in wanted.items() for w in missing(v, made.get(k), f"{way}.{k}")]
    if isinstance(wanted, list) and isinstance(made, list) and len(wanted) == len(made):
        pairs = zip(wanted, made, strict=True)
        return [w for n, (a, b) in enumerate(pairs) for w in missing(a, b, f"{way}.{n}")]
    return [] if wanted in (made, MASK) else [way]


@pytest.mark.field(90)
def test_the_pods_of_a_deployment_get_it_and_the_log_names_their_owner(
    controlplane, namespace, injector
) -> None:
    template = pod()
    del template["metadata"]["generateName"]
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "chat"}}, "template": template},
    }
    controlplane.api("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", body)
    path = f"/api/v1/namespaces/{namespace}/pods?labelSelector=pod-template-hash"
    pods = until(
        lambda: len(found := controlplane.api("GET", path)["items"]) == 2 and found, "two pods"
    )
    assert [len(agents(one)) for one in pods] == [1, 1]
    owner = pods[0]["metadata"]["ownerReferences"][0]["name"]
    assert f"{namespace}/{owner}: inject (injected)" in injector.log.read_text()


@pytest.mark.field(90)
def test_a_pod_with_a_generated_name_is_called_by_it(controlplane, namespace, injector) -> None:
    assert agents(create(controlplane, namespace, manifest()))
    assert f"{namespace}/chat-5d9f-: inject (injected)" in injector.log.read_text()


@pytest.mark.field(83)
@pytest.mark.field(90)
def test_who_creates_a_pod_that_is_skipped_is_told_and_so_is_the_pod(
    controlplane, namespace, injector
) -> None:
    body = manifest("web", containers=[{"name": "web", "image": "web"}])
    done = subprocess.run(
        [binaries() / "kubectl", "create", "-n", namespace, "-f", "-"],
        input=json.dumps(body),
        capture_output=True,
        text=True,
        env={"KUBECONFIG": str(controlplane.kubeconfig), "KUBECACHEDIR": str(controlplane.state)},
        check=True,
    )
    assert "Warning: lora-sidecar: No container launches SGLang" in done.stderr
    made = controlplane.api("GET", f"/api/v1/namespaces/{namespace}/pods/web")
    assert made["metadata"]["annotations"][names.SKIPPED] == "no-engine"
    assert not agents(made)
    assert metric(injector, 'lora_sidecar_injector_reviews_total{decision="skip"') >= 1


def compliant(name: str) -> dict[str, Any]:
    """A pod that Pod Security's `restricted` and a quota of everything take, but for what we add."""
    given = manifest(name)
    given["spec"]["securityContext"] = {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    [engine] = given["spec"]["containers"]
    engine["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsUser": 1000,
    }
    amounts = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}
    engine["resources"] = {"requests": amounts, "limits": amounts}
    return given


@pytest.mark.field(97)
def test_a_namespace_of_pod_security_restricted_takes_the_agent(
    controlplane, namespace, injector
) -> None:
    own = create_namespace(controlplane.client(), f"{namespace}-restricted")
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    controlplane.api("PATCH", f"/api/v1/namespaces/{own}", {"metadata": {"labels": labels}})
    try:
        # Until the policy counts, the bare engine would be taken.
        until(lambda: _refused(controlplane, own, manifest("bare")), "the namespace is restricted")
        assert agents(create(controlplane, own, compliant("good")))
    finally:
        delete_namespace(controlplane.client(), own)


def _refused(controlplane: ControlPlane, namespace: str, body: dict[str, Any]) -> bool:
    try:
        create(controlplane, namespace, body, "?dryRun=All")
    except ApiError as error:
        return error.status == 403
    return False


@pytest.mark.field(95)
def test_a_quota_on_everything_with_a_limit_range_takes_the_agent(
    controlplane, namespace, injector
) -> None:
    own = create_namespace(controlplane.client(), f"{namespace}-quota")
    kinds = [f"{a}.{b}" for a in ("requests", "limits") for b in ("cpu", "memory")]
    kinds += ["requests.ephemeral-storage", "limits.ephemeral-storage"]
    quota = {"metadata": {"name": "q"}, "spec": {"hard": dict.fromkeys(kinds, "8Gi")}}
    default = {"cpu": "1", "memory": "1Gi"}
    limits = {"type": "Container", "default": default, "defaultRequest": default}
    ranges = {"metadata": {"name": "r"}, "spec": {"limits": [limits]}}
    where = f"/api/v1/namespaces/{own}"
    try:
        controlplane.api("POST", f"{where}/limitranges", ranges)
        controlplane.api("POST", f"{where}/resourcequotas", quota)
        # No controller fills the quota's status here; admission counts by it.
        status = {"status": {"hard": quota["spec"]["hard"], "used": dict.fromkeys(kinds, "0")}}
        controlplane.api("PATCH", f"{where}/resourcequotas/q/status", status)
        until(
            lambda: _refused(controlplane, own, _greedy("greedy")),
            "the quota counts",
        )
        [agent] = agents(create(controlplane, own, compliant("good")))
        ours = {"cpu": "10m", "memory": "64Mi", "ephemeral-storage": "16Mi"}
        most = {"cpu": "500m", "memory": "192Mi", "ephemeral-storage": "64Mi"}
        assert agent["resources"] == {"requests": ours, "limits": most}
    finally:
        delete_namespace(controlplane.client(), own)


def _greedy(name: str) -> dict[str, Any]:
    """More ephemeral storage than the quota has."""
    given = compliant(name)
    for amounts in given["spec"]["containers"][0]["resources"].values():
        amounts["ephemeral-storage"] = "9Gi"
    return given


def test_a_dry_run_is_answered_alike_and_writes_nothing(controlplane, namespace, injector) -> None:
    before = controlplane.api("GET", SECRET)["metadata"]["resourceVersion"]
    assert agents(create(controlplane, namespace, manifest("dry"), "?dryRun=All"))
    assert controlplane.client().raw("GET", f"/api/v1/namespaces/{namespace}/pods/dry")[0] == 404
    assert controlplane.api("GET", SECRET)["metadata"]["resourceVersion"] == before


@pytest.mark.field(84)
def test_another_webhook_that_adds_a_container_leaves_one_agent(
    controlplane, namespace, injector
) -> None:
    counted = 'lora_sidecar_injector_reviews_total{decision="skip",reason="already-injected"}'
    before = metric(injector, counted)
    added = {"name": "foreign", "image": "foreign"}
    with ForeignWebhook(controlplane, namespace, added) as foreign:
        made = until(
            lambda: foreign.in_force(create(controlplane, namespace, manifest(), "?dryRun=All")),
            "the other webhook is called",
        )
    assert len(agents(made)) == 1
    assert metric(injector, counted) > before


@pytest.mark.field(84)
def test_an_engine_that_another_webhook_adds_is_found_on_the_second_look(
    controlplane, namespace, injector
) -> None:
    engine = pod()["spec"]["containers"][0] | {"volumeMounts": []}
    body = manifest("late", containers=[{"name": "web", "image": "web"}])
    with ForeignWebhook(controlplane, namespace, engine) as foreign:
        made = until(
            lambda: foreign.in_force(create(controlplane, namespace, body, "?dryRun=All")),
            "the other webhook is called",
        )
    assert len(agents(made)) == 1
    assert made["metadata"]["labels"][names.INJECTED_LABEL] == "true"
    assert names.SKIPPED not in made["metadata"]["annotations"]


def test_an_image_that_holds_adapters_is_shared(controlplane, namespace, injector) -> None:
    volume = {"name": "adapters", "image": {"reference": "registry.example/adapters:1"}}
    [agent] = agents(create(controlplane, namespace, manifest("image", volumes=[volume])))
    assert {"name": "adapters", "mountPath": "/adapters", "readOnly": True} in agent["volumeMounts"]


def test_its_probes_and_metrics_tell_of_the_certificate(injector) -> None:
    assert injector.get("/livez")[0] == 200
    status, words = injector.get("/readyz")
    assert (status, words) == (200, "the installed caBundle verifies the certificate\n")
    day = 24 * 3600
    end = metric(injector, "lora_sidecar_injector_certificate_not_after_seconds")
    start = metric(injector, "process_start_time_seconds")
    assert 89 * day < end - start < 91 * day


@pytest.mark.field(74)
def test_without_the_webhook_only_pods_that_opted_in_are_refused(
    controlplane: ControlPlane, namespace: str, injector: InjectorProcess
) -> None:
    injector.process.terminate()
    until(lambda: injector.get("/readyz") == (503, "is about to end\n"), "it says that it ends")
    # The API server may not have heard of it yet.
    assert agents(create(controlplane, namespace, manifest(), "?dryRun=All"))
    injector.stop()
    assert injector.process.exit_code == 0
    with pytest.raises(ApiError, match="failed calling webhook"):
        create(controlplane, namespace, manifest("down"))
    out = manifest("out")
    out["metadata"]["annotations"][names.INJECT] = "false"
    plain = manifest("plain")
    del plain["metadata"]["annotations"]
    for body in (out, plain):
        assert not agents(create(controlplane, namespace, body))
    # Even one that opts in: what keeps the cluster alive never waits for us.
    assert not agents(create(controlplane, "kube-system", manifest("dns"), "?dryRun=All"))
    hook = controlplane.api("GET", CONFIGURATION)
    hook["webhooks"][0]["failurePolicy"] = "Ignore"
    controlplane.api("PUT", CONFIGURATION, hook)

    def taken() -> dict[str, Any] | None:
        try:
            return create(controlplane, namespace, manifest("ignored"))
        except ApiError as error:
            if "failed calling webhook" not in error.text:
                raise
            return None

    assert not agents(until(taken, "the webhook's outage is ignored"))
