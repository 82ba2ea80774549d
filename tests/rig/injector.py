"""The injector as a cluster runs it: its webhook's configuration on the API server, and its process beside that.

The configuration is the chart's, but for the address: an URL instead of a Service, as nothing routes Services here.
Only namespaces that `admit` names are sent to it, so that other tests' pods are left alone.
"""

import contextlib
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sidecar.api import names
from tests.rig.controlplane import ControlPlane
from tests.rig.engines import ROOT, free_port
from tests.rig.polling import until
from tests.rig.process import Process

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
CONFIGURATION = f"{CONFIGURATIONS}/{names.WEBHOOK}"
SECRET = "/api/v1/namespaces/lora-sidecar/secrets/lora-sidecar-injector-tls"
HOST = "localhost"
NAME_LABEL = "kubernetes.io/metadata.name"
CONDITION = (
    f"has(object.metadata.annotations) && '{names.INJECT}' in object.metadata.annotations"
    f" && object.metadata.annotations['{names.INJECT}'] != 'false'"
)


def configuration(port: int, namespaces: Sequence[str], policy: str = "Fail") -> dict[str, Any]:
    """The MutatingWebhookConfiguration for a webhook on `port`, which sees these namespaces only."""
    selector = [
        {
            "key": NAME_LABEL,
            "operator": "NotIn",
            "values": ["kube-system", "kube-node-lease"],
        },
        {"key": names.INJECT, "operator": "NotIn", "values": ["false"]},
        {"key": NAME_LABEL, "operator": "In", "values": [*namespaces, "kube-system"]},
    ]
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": names.WEBHOOK},
        "webhooks": [
            {
                "name": f"injector.{names.PREFIX}",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": f"https://{HOST}:{port}/mutate"},
                "failurePolicy": policy,
                "matchConditions": [{"name": "opted-in", "expression": CONDITION}],
                "matchPolicy": "Equivalent",
                "namespaceSelector": {"matchExpressions": selector},
                "reinvocationPolicy": "IfNeeded",
                "rules": [{**rule, "resources": ["pods"], "scope": "Namespaced"}],
                "sideEffects": "None",
                "timeoutSeconds": 5,
            }
        ],
    }


@contextlib.contextmanager
def configured(
    controlplane: ControlPlane, port: int, namespaces: Sequence[str], policy: str = "Fail"
) -> Iterator[None]:
    """The configuration is installed while this is entered; the Secret goes with it."""
    with contextlib.ExitStack() as stack:
        for path in (CONFIGURATION, SECRET):
            stack.callback(controlplane.client().raw, "DELETE", path)
        controlplane.api("POST", CONFIGURATIONS, configuration(port, namespaces, policy))
        yield


class InjectorProcess:
    """One replica under its own service account, from construction until `stop`."""

    def __init__(
        self, controlplane: ControlPlane, folder: Path, *options: str, port: int | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        self.probes = free_port()
        token = controlplane.service_account_token("lora-sidecar", "lora-sidecar-injector")
        kubeconfig = controlplane.kubeconfig_of(token, folder / "injector.kubeconfig")
        self.log = folder / "injector.log"
        usual = ("--kubeconfig", str(kubeconfig), "--namespace", "lora-sidecar", "--hosts", HOST)
        ports = ("--webhook-port", str(self.port), "--listen-port", str(self.probes))
        clean = {k: v for k, v in os.environ.items() if not k.startswith("LORA_SIDECAR_")}
        self.process = Process(
            [sys.executable, "-m", "injector", *usual, *ports, *options],
            self.log,
            environment={**clean, "PYTHONPATH": str(ROOT)},
        )

    def get(self, path: str) -> tuple[int, str]:
        """What its probes' port answers; 0 while nothing listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.probes}{path}") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except urllib.error.URLError:
            return 0, ""

    def until_ready(self) -> None:
        """Wait until it is served and trusted; then the API server has seen the caBundle, or sees it in a moment."""
        until(lambda: self.get("/readyz")[0] == 200, "the injector is ready")

    def stop(self) -> None:
        """End it in good order."""
        self.process.stop()
