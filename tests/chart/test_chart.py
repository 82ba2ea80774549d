"""The chart as text: complete, the same for everyone, true to the code, and plain about bad values."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from injector.settings import InjectorSettings
from sidecar import __version__
from sidecar.aggregator.settings import AggregatorSettings
from sidecar.api import names
from sidecar.api.settings import ENV_PREFIX
from tests.chart.conftest import Object, named, objects, rendered
from tests.chart.sets import APIS, EVERYTHING
from tests.rig import injector as rig
from tests.rig.install import CHART, CRDS, MANIFESTS

WITHIN_PODS_NETWORK = EVERYTHING | {"injector": EVERYTHING["injector"] | {"hostNetwork": False}}
"""In the node's network no pod satisfies Pod Security, as values.yaml says."""


def test_an_old_kubernetes_is_refused_in_words() -> None:
    with pytest.raises(AssertionError, match=r"requires kubeVersion: >=1.31.0-0"):
        rendered(kubernetes="1.30.9")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"image": {"repository": ""}}, "image.repository must be set"),
        ({"agent": {"allNamespaces": False}}, "agent.namespaces is empty"),
        ({"podMonitor": {"enabled": True}}, "podMonitor.enabled is true, but the cluster serves"),
        ({"serviceMonitor": {"enabled": True}}, "serviceMonitor.enabled is true, but the cluster"),
        ({"injector": {"certManager": {"enabled": True}}}, "the cluster has no cert-manager"),
        ({"injector": {"port": 19494}}, "19494 is where probes and metrics are"),
        ({"injector": {"certManager": {"issuerRef": {"name": "ours"}}}}, "certManager.enabled"),
        (
            {"agent": {"resources": {"limits": {"memory": "32Mi"}}}},
            "agent.resources: the limit of memory, 32Mi, is below the request, 64Mi",
        ),
        ({"agent": {"resources": {"limits": {"cpu": "5m"}}}}, "the limit of cpu, 5m, is below"),
        ({"injector": {"failurePolicy": "Perhaps"}}, "failurePolicy"),
        ({"injector": {"replicas": 0}}, "replicas"),
        ({"agent": {"resources": {"requests": {"cpu": ""}}}}, "cpu"),
        ({"agent": {"resources": {"limits": {"memory": None}}}}, "memory"),
        ({"image": {"repository": "x", "digest": "latest"}}, "digest"),
        ({"injectr": {}}, "injectr"),
    ],
)
def test_values_that_make_no_sense_are_refused_in_words(values: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        rendered(values)


# --- true to the code -------------------------------------------------------------------------


def test_the_crds_are_those_of_the_code() -> None:
    chart = named(rendered({"crds": {"adapters": True}}))
    for file in CRDS.glob("*.yaml"):
        assert (CHART / "files" / file.name).read_text() == file.read_text()
        ours = yaml.safe_load(file.read_text())
        crd = chart[f"CustomResourceDefinition/{ours['metadata']['name']}"]
        assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        assert crd["spec"] == ours["spec"]


def test_the_crd_of_lora_adapters_is_left_to_llmkube_unless_asked_for() -> None:
    name = "CustomResourceDefinition/loraadapters.inference.llmkube.dev"
    assert name not in named(rendered())
    assert name in named(rendered({"crds": {"adapters": True}}))


def test_the_version_is_that_of_the_code() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


def test_permissions_are_those_under_which_everything_is_tested() -> None:
    tried = list(yaml.safe_load_all((MANIFESTS / "rbac.yaml").read_text()))
    kinds = ("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding")
    chart = named(rendered())
    for one in tried:
        if one["kind"] in kinds and not one["metadata"]["name"].startswith("rig-"):
            ours = chart[f"{one['kind']}/{one['metadata']['name']}"]
            for part in ("rules", "subjects", "roleRef"):
                assert ours.get(part) == one.get(part), one["metadata"]["name"]


def test_the_webhook_is_the_one_that_is_tested() -> None:
    (ours,) = named(rendered())["MutatingWebhookConfiguration/lora-sidecar"]["webhooks"]
    (tried,) = rig.configuration(9443, ["ml"])["webhooks"]
    for both in (ours, tried):
        both.pop("clientConfig")
        both.pop("namespaceSelector")
    for one in (*ours["matchConditions"], *tried["matchConditions"]):
        one["expression"] = " ".join(one["expression"].split())
    assert ours == tried


@pytest.mark.parametrize("values", [{}, EVERYTHING])
def test_every_setting_exists_and_makes_sense(values: Any) -> None:
    roles = {
        "injector": InjectorSettings,
        "aggregator": AggregatorSettings,
        "release": AggregatorSettings,
    }
    found = set()
    for one in objects(rendered(values, apis=APIS)):
        for pod in _pods(one):
            for container in pod["containers"]:
                settings = roles.get(container["name"])
                if settings is None:
                    continue
                given = {env["name"]: env["value"] for env in container["env"]}
                fields = {ENV_PREFIX + name.upper() for name in settings.model_fields}
                assert given.keys() <= fields
                assert settings.from_env(given)[1] == []
                found.add(container["name"])
    assert found == set(roles)


def _pods(one: Object) -> Iterator[Object]:
    if one["kind"] == "Pod":
        yield one["spec"]
    if "template" in one.get("spec", {}):
        yield one["spec"]["template"]["spec"]


@pytest.mark.parametrize("values", [{}, WITHIN_PODS_NETWORK])
def test_every_pod_satisfies_pod_security_restricted(values: Any) -> None:
    for one in objects(rendered(values, apis=APIS)):
        for pod in _pods(one):
            assert not any(pod.get(f"host{what}") for what in ("Network", "PID", "IPC"))
            assert pod["securityContext"]["runAsNonRoot"]
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            for container in pod["containers"]:
                context = container["securityContext"]
                assert context["capabilities"] == {"drop": ["ALL"]}
                assert not context["allowPrivilegeEscalation"]
                assert context["readOnlyRootFilesystem"]
                assert container["resources"]["requests"].keys() >= {"cpu", "memory"}


@pytest.mark.field(79)
def test_the_webhook_is_the_charts_and_its_bundle_is_not() -> None:
    webhook = named(rendered())["MutatingWebhookConfiguration/lora-sidecar"]
    assert "caBundle" not in json.dumps(webhook)


@pytest.mark.field(80)
def test_the_webhooks_port_can_be_one_that_firewalls_let_through() -> None:
    chart = named(rendered({"injector": {"port": 10250}}))
    (container,) = chart["Deployment/lora-sidecar-injector"]["spec"]["template"]["spec"][
        "containers"
    ]
    assert {"name": "webhook", "containerPort": 10250} in container["ports"]
    given = {env["name"]: env["value"] for env in container["env"]}
    assert given["LORA_SIDECAR_WEBHOOK_PORT"] == "10250"


@pytest.mark.field(82)
def test_system_namespaces_are_left_out_and_only_pods_that_opted_in_are_sent() -> None:
    (webhook,) = named(rendered())["MutatingWebhookConfiguration/lora-sidecar"]["webhooks"]
    system, opted_out = webhook["namespaceSelector"]["matchExpressions"]
    assert system["operator"] == opted_out["operator"] == "NotIn"
    assert {"kube-system", "kube-node-lease"} <= set(system["values"])
    assert (opted_out["key"], opted_out["values"]) == (names.INJECT, ["false"])
    (condition,) = webhook["matchConditions"]
    assert names.INJECT in condition["expression"]


def test_where_only_some_namespaces_are_served_no_others_are_granted_anything() -> None:
    chart = named(rendered({"agent": {"namespaces": ["ml"], "allNamespaces": False}}))
    assert "ClusterRoleBinding/lora-sidecar-agent" not in chart
    binding = chart["RoleBinding/ml/lora-sidecar-agent"]
    assert [one["name"] for one in binding["subjects"]] == ["system:serviceaccounts:ml"]


def test_each_role_is_asked_for_its_metrics_once_and_agents_where_they_may_be() -> None:
    both = named(rendered(EVERYTHING, apis=APIS))
    assert "PodMonitor/lora-sidecar" not in both
    monitor = both["ServiceMonitor/lora-sidecar"]["spec"]
    (chosen,) = monitor["selector"]["matchExpressions"]
    for role in ("aggregator", "injector"):
        service = both[f"Service/lora-sidecar-{role}-metrics"]
        assert service["metadata"]["labels"][chosen["key"]] in chosen["values"]
        assert service["spec"]["selector"]["app.kubernetes.io/component"] == role
    assert both["Service/lora-sidecar-injector"]["metadata"]["labels"].get(chosen["key"]) is None
    agents = both["PodMonitor/lora-sidecar-agents"]["spec"]
    assert agents["selector"] == {"matchLabels": {names.INJECTED_LABEL: "true"}}
    assert agents["namespaceSelector"] == {"matchNames": ["ml", "research"]}
    assert agents["podMetricsEndpoints"][0]["port"] == names.AGENT_CONTAINER
    alone = named(rendered({"podMonitor": {"enabled": True}}, apis=APIS))
    assert alone["PodMonitor/lora-sidecar-agents"]["spec"]["namespaceSelector"] == {"any": True}
    (roles,) = alone["PodMonitor/lora-sidecar"]["spec"]["selector"]["matchExpressions"]
    assert roles["values"] == ["aggregator", "injector"]


@pytest.mark.parametrize("values", [{}, EVERYTHING])
def test_where_cert_manager_keeps_the_certificate_the_injector_may_change_nothing(
    values: Any,
) -> None:
    chart = named(rendered(values, apis=APIS))
    verbs = {
        verb
        for kind in ("ClusterRole", "Role")
        for rule in chart.get(f"{kind}/lora-sidecar-injector", {"rules": []})["rules"]
        for verb in rule["verbs"]
    }
    assert verbs == ({"get"} if values else {"get", "patch", "create", "update"})


def test_another_namespace_is_where_everything_is() -> None:
    text = rendered(namespace="elsewhere")
    assert "namespace: lora-sidecar" not in text
    takeover = named(text)["ValidatingAdmissionPolicyBinding/lora-sidecar-takeover"]
    assert takeover["spec"]["paramRef"]["namespace"] == "elsewhere"


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    dashboard = json.loads((CHART / "files/dashboard.json").read_text())
    source = (CHART.parents[1] / "sidecar/aggregator/metrics.py").read_text()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            metric = target["expr"].split("lora_sidecar_aggregator_")[1]
            stem = metric.split("[")[0].split(")")[0].removesuffix("_bucket").removesuffix("_total")
            assert f"{{PREFIX}}_{stem}" in source


def test_as_plain_manifests_it_has_neither_hooks_nor_tests_and_can_be_applied() -> None:
    text = rendered(hooks=False)
    assert "helm.sh/hook" not in text
    assert "Job/lora-sidecar-release" not in named(text)
