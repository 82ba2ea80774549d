"""Puts what belongs to this project into a control plane: CRDs, permissions, policy; and waits until they count.

An accepted manifest is not yet in force: a CRD must be served, and the API server notices a new policy some hundred
milliseconds later. A test that starts before would fail at random.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.rig.apiclient import ApiClient
from tests.rig.polling import until

HERE = Path(__file__).parent
MANIFESTS = HERE / "manifests"
CRDS = HERE.parents[1] / "sidecar" / "api" / "crds"
CHART = HERE.parents[1] / "charts" / "lora-sidecar"
POLICIES = [CHART / "files" / f"{name}-policy.yaml" for name in ("report", "takeover")]
IN_FORCE_SECONDS = 30


def install(kubectl: Callable[..., str], client: ApiClient) -> None:
    """Apply all manifests as administrator (again, if need be) and return when they are in force."""
    folders = [f"--filename={folder}" for folder in (CRDS, MANIFESTS, *POLICIES)]
    kubectl("apply", "--server-side", "--force-conflicts", *folders)
    kubectl("wait", "crd", "--all", "--for=condition=Established", f"--timeout={IN_FORCE_SECONDS}s")
    until(
        lambda: "ValidatingAdmissionPolicy 'lora-sidecar-reports'" in _forged_report(client),
        "the policy on reports is in force",
        timeout=IN_FORCE_SECONDS,
    )


def _forged_report(client: ApiClient) -> str:
    """Return the answer to a report written with a token that is bound to no pod."""
    path = "/apis/lora-sidecar.llmkube.dev/v1alpha1/namespaces/default/lorapodstatuses?dryRun=All"
    report: dict[str, Any] = {
        "apiVersion": "lora-sidecar.llmkube.dev/v1alpha1",
        "kind": "LoRAPodStatus",
        "metadata": {"name": "forged"},
        "spec": {"podName": "forged", "podUID": "forged"},
    }
    impersonated = {
        "Impersonate-User": "system:serviceaccount:default:default",
        "Impersonate-Group": "system:serviceaccounts",
    }
    return client.raw("POST", path, report, headers=impersonated)[1]
