"""The chart on a real API server: installed, upgraded, rolled back and uninstalled. No kubelet runs its pods here."""

import base64
import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.chart.__main__ import bundle as plain_manifests
from tests.chart.conftest import objects, rendered
from tests.chart.sets import APIS, HELMS, REPOSITORY, SETS
from tests.chart.test_rendering import FOREIGN
from tests.rig.controlplane import ControlPlane
from tests.rig.helm import helm
from tests.rig.install import CHART
from tests.rig.namespaces import create_namespace
from tests.rig.pki import Authority

pytestmark = pytest.mark.cluster

HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/lora-sidecar"
Helm = Callable[..., str]


@pytest.fixture(scope="module")
def empty() -> Iterator[ControlPlane]:
    """A control plane with nothing of ours."""
    with ControlPlane(install_ours=False) as running:
        create_namespace(running.client(), "lora-sidecar")
        yield running


@pytest.fixture(params=HELMS)
def run(request: pytest.FixtureRequest, empty: ControlPlane, tmp_path: Path) -> Iterator[Helm]:
    program = helm(request.param)
    homes = {f"HELM_{kind}_HOME": str(tmp_path / kind) for kind in ("CACHE", "CONFIG", "DATA")}

    def call(*arguments: str) -> str:
        command = [str(program), *arguments, "--namespace", "lora-sidecar"]
        # Without a home Helm keeps what it learns of the API server in the current folder.
        home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        environment = homes | home | {"KUBECONFIG": str(empty.kubeconfig)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield call
    with contextlib.suppress(AssertionError):
        call("uninstall", "lora-sidecar", "--no-hooks")
    remains = empty.kubectl("get", "crd", "-o", "name").split()
    for crd in remains:
        empty.kubectl("delete", crd)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A bundle that the API server takes: it wants a certificate that can be parsed."""
    authority = Authority(tmp_path_factory.mktemp("pki"))
    return base64.b64encode(authority.file.read_bytes()).decode()


SET = ("--set", f"image.repository={REPOSITORY}")
WITHOUT_HOOK = ("--no-hooks",)
"""The hook's Job runs on a node; what it does is tested with the aggregator."""


def with_bundle(bundle: str) -> tuple[str, str, object, str]:
    """The request by which the injector puts its bundle into the webhook."""
    mine = {
        "name": "injector.lora-sidecar.llmkube.dev",
        "clientConfig": {"caBundle": bundle},
    }
    applied = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "lora-sidecar"},
        "webhooks": [mine],
    }
    path = f"{HOOKS}?fieldManager=lora-sidecar-injector&force=true"
    return "PATCH", path, applied, "application/apply-patch+yaml"


@pytest.mark.field(78)
def test_it_is_installed_upgraded_rolled_back_and_leaves_only_its_crds(
    run: Helm, empty: ControlPlane, bundle: str
) -> None:
    adapters = ("--set", "crds.adapters=true")
    told = run("install", "lora-sidecar", str(CHART), *SET, *adapters)
    assert "serves no LoRAAdapters" not in told
    assert "kubectl patch inferenceservice" in told
    empty.api(*with_bundle(bundle))
    seven = ("--set", "injector.timeoutSeconds=7")
    run("upgrade", "lora-sidecar", str(CHART), *SET, *adapters, *seven)
    hook = empty.api("GET", HOOKS)["webhooks"][0]
    assert (hook["timeoutSeconds"], hook["clientConfig"]["caBundle"]) == (7, bundle)
    assert "loraadapters.inference.llmkube.dev" in empty.kubectl(
        "get", "crd"
    )  # absent from the upgrade, and kept
    run("rollback", "lora-sidecar", "1")
    hook = empty.api("GET", HOOKS)["webhooks"][0]
    assert (hook["timeoutSeconds"], hook["clientConfig"]["caBundle"]) == (5, bundle)
    run("uninstall", "lora-sidecar", *WITHOUT_HOOK)
    kinds = "clusterrole,clusterrolebinding,validatingadmissionpolicy,mutatingwebhookconfiguration"
    left = empty.kubectl("get", kinds, "-o", "name").split()
    left += empty.kubectl(
        "-n", "lora-sidecar", "get", "deploy,svc,sa,role,pdb", "-o", "name"
    ).split()
    assert [one for one in left if "lora-sidecar" in one] == []
    crds = empty.kubectl("get", "crd", "-o", "name").split()
    assert [one.partition("/")[2] for one in crds] == [
        "loraadapters.inference.llmkube.dev",
        "lorapodstatuses.lora-sidecar.llmkube.dev",
    ]


def test_where_no_lora_adapters_are_served_that_is_said(run: Helm) -> None:
    told = run("install", "lora-sidecar", str(CHART), *SET)
    assert "WARNING: this cluster serves no LoRAAdapters" in told


def test_where_llmkubes_crd_is_there_first_it_stays(run: Helm, empty: ControlPlane) -> None:
    theirs = yaml.safe_load((CHART / "files/loraadapters.yaml").read_text())
    del theirs["spec"]["versions"][0]["selectableFields"]
    empty.kubectl("apply", "-f", "-", input=yaml.safe_dump(theirs))
    run("install", "lora-sidecar", str(CHART), *SET)
    crd = (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/loraadapters.inference.llmkube.dev"
    )
    assert "selectableFields" not in empty.api("GET", crd)["spec"]["versions"][0]
    run("upgrade", "lora-sidecar", str(CHART), *SET)
    assert "selectableFields" not in empty.api("GET", crd)["spec"]["versions"][0]
    run("uninstall", "lora-sidecar", *WITHOUT_HOOK)


@pytest.fixture
def namespaces(empty: ControlPlane) -> None:
    """Those that the sets of values grant something in."""
    empty.kubectl("create", "namespace", "ml", check=False)
    empty.kubectl("create", "namespace", "research", check=False)
    assert {"ml", "research"} <= {
        name.partition("/")[2] for name in empty.kubectl("get", "ns", "-o", "name").split()
    }


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("name", SETS)
def test_the_api_server_takes_every_object_as_it_is_rendered(
    empty: ControlPlane, name: str
) -> None:
    own = [one for one in objects(rendered(SETS[name], apis=APIS)) if one["kind"] not in FOREIGN]
    empty.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"),
        input=yaml.safe_dump_all(own),
    )


@pytest.mark.field(78)
def test_plain_manifests_applied_again_change_nothing_and_leave_the_webhooks_bundle(
    empty: ControlPlane, bundle: str
) -> None:
    text = plain_manifests("registry.example.com/lora-sidecar:0.1.0")
    apply = ("apply", "--server-side", "-f", "-")
    empty.kubectl(*apply, input=text)
    empty.api(*with_bundle(bundle))
    before = versions(empty, text)
    empty.kubectl(*apply, input=text)
    assert versions(empty, text) == before
    assert empty.api("GET", HOOKS)["webhooks"][0]["clientConfig"]["caBundle"] == bundle
    empty.kubectl("delete", "-f", "-", input=text)


def versions(empty: ControlPlane, text: str) -> dict[str, str]:
    """Each object's generation, or its resourceVersion where it has none."""
    told = empty.kubectl("get", "-f", "-", "-o", "json", input=text)
    return {
        f"{one['kind']}/{one['metadata']['name']}": str(
            one["metadata"].get("generation") or one["metadata"]["resourceVersion"]
        )
        for one in json.loads(told)["items"]
    }
