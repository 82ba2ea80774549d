import pytest

from tests.rig.namespaces import ADAPTERS, create_namespace, delete_namespace
from tests.rig.polling import until

pytestmark = pytest.mark.cluster


def test_a_namespace_goes_whatever_holds_on_to_what_is_in_it(controlplane, kubelet):
    client = controlplane.client()
    name = create_namespace(client, "goes-away")
    kubelet.create_pod(name, "runs-on")
    adapter = {
        "apiVersion": "inference.llmkube.dev/v1alpha1",
        "kind": "LoRAAdapter",
        "metadata": {"name": "held", "finalizers": ["lora-sidecar.llmkube.dev/unload"]},
        "spec": {"inferenceServiceRef": {"name": "chat"}, "name": "held", "path": "/adapters/held"},
    }
    client.api("POST", ADAPTERS.format(name), adapter)

    delete_namespace(client, name)

    path = f"/api/v1/namespaces/{name}"
    until(lambda: client.raw("GET", path)[0] == 404, "the namespace is gone")
