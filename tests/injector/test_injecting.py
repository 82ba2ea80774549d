"""The pure road of the injector: pods in, decisions and patched pods out."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from injector.decide import Plan, Skip, decide
from injector.patch import patch
from injector.review import review
from injector.settings import InjectorSettings
from sidecar.api import names
from tests.injector.pods import apply, pod

SETTINGS = InjectorSettings(image="registry.example/lora-sidecar:1")
GOLDEN = Path(__file__).parent / "golden"


def patched(given: dict[str, Any], settings: InjectorSettings = SETTINGS) -> dict[str, Any]:
    return apply(given, patch(given, decide(given, "team", settings)))


def plan(given: dict[str, Any]) -> Plan:
    decision = decide(given, "team", SETTINGS)
    assert isinstance(decision, Plan)
    return decision


def agent(given: dict[str, Any], where: str = "initContainers") -> dict[str, Any]:
    [found] = [c for c in given["spec"][where] if c["name"] == names.AGENT_CONTAINER]
    return dict(found)


@pytest.mark.parametrize("name", sorted(p.name for p in GOLDEN.iterdir()))
def test_the_patch_of_a_pod_is_the_one_written_down(name: str) -> None:
    given = yaml.safe_load((GOLDEN / name / "pod.yaml").read_text())
    operations = patch(given, decide(given, "team", SETTINGS))
    assert operations == json.loads((GOLDEN / name / "patch.json").read_text())


@pytest.mark.field(84)
def test_patching_twice_changes_nothing() -> None:
    once = patched(pod())
    assert patch(once, decide(once, "team", SETTINGS)) == []


@pytest.mark.field(84)
def test_a_skip_is_marked_once() -> None:
    given = pod(containers=[{"name": "web"}])
    once = patched(given)
    assert once["metadata"]["annotations"][names.SKIPPED] == "no-engine"
    assert once["metadata"]["labels"][names.INJECTED_LABEL] == "false"
    assert patch(once, decide(once, "team", SETTINGS)) == []


def test_fields_that_we_do_not_know_survive() -> None:
    given = pod(future={"a": [1]})
    assert patched(given)["spec"]["future"] == {"a": [1]}


@pytest.mark.field(86)
@pytest.mark.field(87)
def test_the_agent_has_a_token_of_its_own_where_the_pod_mounts_none() -> None:
    given = pod(automountServiceAccountToken=False)
    del given["spec"]["volumes"], given["spec"]["containers"][0]["volumeMounts"]
    result = patched(given)
    [volume] = result["spec"]["volumes"]
    assert volume["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"] == 3600
    assert [m["name"] for m in agent(result)["volumeMounts"]] == [volume["name"]]
    assert "volumeMounts" not in result["spec"]["containers"][0]


@pytest.mark.field(89)
def test_pull_secrets_are_appended_once_and_others_kept() -> None:
    settings = InjectorSettings(pull_secrets=("ours", "theirs"))
    result = patched(pod(imagePullSecrets=[{"name": "theirs"}]), settings)
    assert result["spec"]["imagePullSecrets"] == [{"name": "theirs"}, {"name": "ours"}]


@pytest.mark.field(91)
@pytest.mark.field(92)
def test_the_agent_has_no_probe_unless_readiness_is_asked_for() -> None:
    assert not [field for field in agent(patched(pod())) if field.endswith("Probe")]
    asked = agent(patched(pod(annotations={"readiness": "true"})))
    assert asked["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 19494}


@pytest.mark.field(94)
@pytest.mark.field(95)
@pytest.mark.field(96)
def test_requests_and_limits_are_always_there() -> None:
    resources = agent(patched(pod(annotations={"cpu-request": "", "memory-limit": "1Gi"})))[
        "resources"
    ]
    assert resources["requests"] == {"cpu": "10m", "memory": "64Mi", "ephemeral-storage": "16Mi"}
    assert resources["limits"] == {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "64Mi"}


@pytest.mark.field(97)
def test_the_agent_satisfies_pod_security_restricted() -> None:
    context = agent(patched(pod()))["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}


@pytest.mark.field(98)
def test_no_empty_dir_and_no_host_path_is_added() -> None:
    added = patched(pod())["spec"]["volumes"][1:]
    assert [sorted(volume) for volume in added] == [["name", "projected"]]


@pytest.mark.field(99)
def test_the_agents_port_is_one_that_the_pod_does_not_use() -> None:
    given = pod("--nccl-port", "19495")
    given["spec"]["containers"].append({"name": "x", "ports": [{"containerPort": 19494}]})
    assert plan(given).settings.listen_port == 19496


@pytest.mark.field(103)
@pytest.mark.parametrize(
    ("mode", "where"), [("native", "initContainers"), ("container", "containers")]
)
def test_list_and_restart_policy_go_together(mode: str, where: str) -> None:
    given = pod(annotations={"mode": mode}, initContainers=[{"name": "first"}])
    result = patched(given)
    assert result["spec"][where][-1] == agent(result, where)
    assert ("restartPolicy" in agent(result, where)) == (mode == "native")


@pytest.mark.field(83)
@pytest.mark.parametrize(
    ("given", "slug"),
    [
        (pod(os={"name": "windows"}), "windows"),
        (pod(volumes=[{"name": "lora-sidecar"}]), "name-taken"),
        (pod(containers=[{"name": "web"}]), "no-engine"),
        (pod(annotations={"container": "other"}), "no-such-container"),
        (
            pod(containers=[{"name": n, "command": ["sglang", "serve"]} for n in "ab"]),
            "several-engines",
        ),
        (pod(annotations={"inject": "yes"}), "bad-inject"),
        (pod() | {"metadata": {"annotations": {names.INJECT: "true"}}}, "no-service"),
    ],
)
def test_a_skip_says_why(given: dict[str, Any], slug: str) -> None:
    decision = decide(given, "team", SETTINGS)
    assert isinstance(decision, Skip)
    assert decision.slug == slug
    assert decision.warnings == (decision.slug.sentence,)


@pytest.mark.field(55)
@pytest.mark.parametrize(
    ("args", "port"),
    [
        (["--port=31000"], 31000),
        (["--port", "31000"], 31000),
        (["--port", "1", "--port", "31000"], 31000),
        ([], 30000),
        (["--port", "$(P)"], 30000),
    ],
)
def test_the_engines_port_is_read_from_its_arguments(args: list[str], port: int) -> None:
    assert plan(pod(*args)).settings.engine_port == port


def test_a_command_in_a_shell_is_understood() -> None:
    line = ["sh", "-c", "exec python3 -m sglang.launch_server --port $P --api-key 'k y'"]
    env = [{"name": "P", "value": "31000"}]
    found = plan(pod(containers=[{"name": "llm", "command": line, "env": env}]))
    assert (found.container, found.settings.engine_port) == ("llm", 31000)
    assert found.api_key is not None
    assert found.api_key.value == "k y"


def test_keys_come_from_secrets_where_the_arguments_name_them() -> None:
    given = pod("--api-key", "$(KEY)", annotations={"admin-key-secret": "s/admin"})
    reference = {"name": "keys", "key": "api"}
    given["spec"]["containers"][0]["env"] = [
        {"name": "KEY", "valueFrom": {"secretKeyRef": reference}}
    ]
    sources = patched(given)["spec"]["volumes"][1]["projected"]["sources"]
    assert [s["secret"]["name"] for s in sources[3:]] == ["keys", "s"]
    assert all(s["secret"]["optional"] for s in sources[3:])


@pytest.mark.parametrize(
    ("said", "allowed"),
    [("a,b", ("a", "b")), ("a,B!", ("a",)), ("B!", ("team",)), ("", ("team",)), ("*", ("*",))],
)
def test_adapter_namespaces_fail_closed(said: str, allowed: tuple[str, ...]) -> None:
    assert (
        plan(pod(annotations={"adapter-namespaces": said})).settings.adapter_namespaces == allowed
    )


def test_a_bad_value_is_a_warning_and_the_default() -> None:
    found = plan(pod(annotations={"engine-port": "0"}))
    assert found.settings.engine_port == 30000
    assert "engine-port" in found.warnings[0]


@pytest.mark.parametrize(
    ("source", "taken"),
    [
        ({"nfs": {}}, True),
        ({"secret": {}}, False),
        ({"projected": {"sources": [{"serviceAccountToken": {}}]}}, False),
        ({"projected": {"sources": [{"configMap": {}}]}}, True),
        ({"hostPath": {"path": "/data"}}, True),
        ({"hostPath": {"path": "/"}}, False),
        ({"hostPath": {"path": "/var/../proc/1"}}, False),
        ({"hostPath": {"path": "/data/x.sock"}}, False),
        ({"hostPath": {"path": "/data", "type": "Socket"}}, False),
    ],
)
def test_only_harmless_mounts_are_shared(source: dict[str, Any], taken: bool) -> None:
    found = plan(pod(volumes=[{"name": "adapters"} | source]))
    assert found.settings.shared == (("/adapters",) if taken else ())


def test_a_review_answers_its_uid_and_a_patch() -> None:
    request = {"uid": "u", "namespace": "team", "object": pod()}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    verdict = review(json.dumps(body).encode(), SETTINGS)
    response = verdict.body["response"]
    assert (verdict.decision, verdict.subject) == ("inject", "team/chat-5d9f-")
    assert (response["uid"], response["allowed"]) == ("u", True)
    assert json.loads(base64.b64decode(response["patch"]))[0]["path"] == "/spec/initContainers"


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b'{"apiVersion": "admission.k8s.io/v1"}'])
def test_what_is_no_review_is_a_bad_request(body: bytes) -> None:
    verdict = review(body, SETTINGS)
    assert (verdict.status, verdict.decision) == (400, "error")
