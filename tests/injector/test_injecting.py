"""The pure road of the injector: pods in, decisions and patched pods out."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from injector.decide import Plan, Skip, decide
from injector.explain import apply
from injector.patch import patch
from injector.review import review
from injector.settings import InjectorSettings
from sidecar.api import names
from tests.injector.pods import pod

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
@pytest.mark.parametrize("name", sorted(p.name for p in GOLDEN.iterdir()))
def test_patching_twice_changes_nothing(name: str) -> None:
    once = patched(yaml.safe_load((GOLDEN / name / "pod.yaml").read_text()))
    assert names.AGENT_CONTAINER in json.dumps(once["spec"])
    assert patch(once, decide(once, "team", SETTINGS)) == []


def test_the_metrics_port_has_a_name_but_not_in_the_nodes_network() -> None:
    given = pod()
    assert agent(patched(given))["ports"] == [
        {"name": "lora-sidecar", "containerPort": 19494, "protocol": "TCP"}
    ]
    given["spec"]["hostNetwork"] = True
    assert "ports" not in agent(patched(given))


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


@pytest.mark.parametrize(
    ("engine", "said", "told"),
    [
        ({"limits": {"cpu": "8", "memory": "64Gi"}}, {}, True),
        ({"limits": {"cpu": "8", "memory": "64Gi"}, "requests": {"cpu": "4"}}, {}, False),
        ({"limits": {"memory": "64Gi"}}, {}, False),
        ({}, {}, False),
        (
            {"limits": {"cpu": "8", "memory": "64Gi"}},
            {"cpu-request": "500m", "memory-request": "192Mi"},
            False,
        ),
    ],
)
def test_a_pod_that_would_no_longer_be_guaranteed_is_told_so(
    engine: dict[str, Any], said: dict[str, str], told: bool
) -> None:
    given = pod(annotations=said)
    given["spec"]["containers"][0]["resources"] = engine
    assert ("becomes Burstable" in " ".join(plan(given).warnings)) is told


@pytest.mark.parametrize(
    ("whole", "engine", "told"),
    [("1", "1", True), ("1", "990m", False), ("1e0", "1", False), ("1", None, False)],
)
def test_a_pod_whose_own_request_has_no_room_is_told_so(
    whole: str, engine: str | None, told: bool
) -> None:
    given = pod(resources={"requests": {"cpu": whole}})
    requests = {"cpu": engine} if engine else {}
    given["spec"]["containers"][0]["resources"] = {"requests": requests}
    assert ("leaves no room" in " ".join(plan(given).warnings)) is told


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


def with_key(text: str, *env: dict[str, Any], shell: bool = False) -> dict[str, Any]:
    given = pod("--api-key", text)
    [engine] = given["spec"]["containers"]
    engine["env"] = list(env)
    if shell:
        script = f"exec python3 -m sglang.launch_server --api-key {text}"
        engine |= {"command": ["tini", "--", "bash", "-lc"], "args": [script]}
    return given


A = {"name": "A", "value": "a"}
HIDDEN = {"name": "HIDDEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (with_key("pa$$w$rd"), "pa$w$rd"),
        (with_key("pre-$(A)", A), "pre-a"),
        (with_key("$A", A), "$A"),
        (with_key("$A-${A}", A, shell=True), "a-a"),
        (with_key("pre-$(A)", A, shell=True), "pre-a"),
    ],
)
def test_a_key_in_the_arguments_is_read_as_kubernetes_and_the_shell_do(
    given: dict[str, Any], value: str
) -> None:
    key = plan(given).api_key
    assert key is not None
    assert key.value == value
    assert not plan(given).warnings


@pytest.mark.parametrize(
    "given",
    [
        with_key("$(A)-$(GONE)", A),
        with_key("pre-$(HIDDEN)", HIDDEN),
        with_key("$(A)", {"name": "A", "value": "$(B)"}),
        with_key("$A-$GONE", A, shell=True),
        with_key("$(cat /key)", shell=True),
        with_key("`cat`", shell=True),
    ],
)
def test_a_key_with_a_part_that_cannot_be_told_is_no_key_and_a_warning(
    given: dict[str, Any],
) -> None:
    found = plan(given)
    assert found.api_key is None
    assert "api-key-secret can name the Secret" in found.warnings[0]


def test_a_config_map_that_is_missing_must_not_keep_the_agent_from_starting() -> None:
    source = {"configMapKeyRef": {"name": "c", "key": "k"}}
    result = patched(with_key("$(A)", {"name": "A", "valueFrom": source}))
    entry = {"name": "LORA_SIDECAR_API_KEY", "valueFrom": {"configMapKeyRef": {"optional": True}}}
    entry["valueFrom"]["configMapKeyRef"] |= source["configMapKeyRef"]
    assert entry in agent(result)["env"]


def test_a_port_that_cannot_be_told_is_assumed_aloud() -> None:
    found = plan(pod("--port", "$(PORT)"))
    assert found.settings.engine_port == 30000
    assert "engine-port can say it" in found.warnings[0]


@pytest.mark.parametrize(
    ("path", "shared"),
    [
        ("/", False),
        ("/usr", False),
        ("/usr/local/lib/python3.11/site-packages", False),
        ("/var/run", False),
        ("/run/secrets", False),
        ("/var/run/secrets/lora-sidecar", False),
        ("/var/run/secrets/lora-sidecar/x", False),
        ("/var//run/./secrets/lora-sidecar", False),
        ("/vault/secrets", False),
        ("/usr/share/models", True),
        ("/var/lib/models", True),
        ("/usrlocal", True),
    ],
)
def test_a_mount_never_covers_the_agents_own_files(path: str, shared: bool) -> None:
    given = pod()
    given["spec"]["containers"][0]["volumeMounts"][0]["mountPath"] = path
    assert plan(given).settings.shared == ((path,) if shared else ())


def test_a_variable_that_means_something_to_the_agent_is_not_copied() -> None:
    given = pod()
    [engine] = given["spec"]["containers"]
    engine["env"] = [{"name": "PYTHONPATH", "value": "/x"}]
    engine["volumeMounts"][0]["subPathExpr"] = "$(PYTHONPATH)"
    found = plan(given)
    assert found.shared.mounts == ()
    assert "PYTHONPATH" in " ".join(found.warnings)


@pytest.mark.field(94)
@pytest.mark.parametrize(
    ("said", "request_", "limit"),
    [
        ({"memory-limit": "32Mi"}, "32Mi", "32Mi"),
        ({"memory-request": "1Gi"}, "1Gi", "1Gi"),
        ({"memory-request": "1Gi", "memory-limit": "100000k"}, "100000k", "100000k"),
        ({"memory-request": "-1Mi"}, "64Mi", "192Mi"),
    ],
)
def test_a_request_is_never_above_its_limit(
    said: dict[str, str], request_: str, limit: str
) -> None:
    found = plan(pod(annotations=said))
    assert (found.requests["memory"], found.limits["memory"]) == (request_, limit)
    assert len(found.warnings) == 1


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
        ({"csi": {"driver": "example.com"}}, True),
        ({"csi": {"driver": "secrets-store.csi.k8s.io"}}, False),
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


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"apiVersion": "admission.k8s.io/v1"}',
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "Pod", "request": {"uid": "u", "object": {}}}',
        b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {"uid": "u"}}',
    ],
)
def test_what_is_no_review_is_a_bad_request(body: bytes) -> None:
    verdict = review(body, SETTINGS)
    assert (verdict.status, verdict.decision) == (400, "error")
