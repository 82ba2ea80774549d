"""The chart, installed by the README's words from the image as it is built, on a real node beside LLMKube's stand-in.

Or on the cluster of E2E_KUBECONFIG: there the images must be within reach: E2E_IMAGE (repository:tag) for ours,
E2E_ENGINE_IMAGE for the simulated engine. The files run in the order of their names.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.images import ENGINE, OURS, build_images
from tests.e2e.node import missing, node
from tests.e2e.operator import Operator
from tests.e2e.readme import INSTALL, run
from tests.e2e.services import namespace, service, simulated, volume

ML = "ml"
"""The namespace of the README's example."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with nothing of ours but the images."""
    work = tmp_path_factory.mktemp("e2e")
    for folder in (work.parent.parent, work.parent, work):
        folder.chmod(0o755)
    with ExitStack() as stack:
        if given := os.environ.get("E2E_KUBECONFIG"):
            ours, engine = os.environ["E2E_IMAGE"], os.environ["E2E_ENGINE_IMAGE"]
            yield Cluster(Path(given), work, ours, engine, node=False)
            return
        if lack := missing():
            pytest.fail(lack)
        kubeconfig = stack.enter_context(node(*build_images(work)))
        yield Cluster(kubeconfig, work, OURS, ENGINE, node=True)


@pytest.fixture(scope="session")
def llmkube(bare: Cluster) -> Iterator[Operator]:
    """LLMKube's part, and two services of its users: `chat`, and `plain`, which stays as it is."""
    with Operator(bare) as operator:
        bare.apply(
            namespace(ML, "restricted"),
            *volume(bare, ML),
            *service("chat", ML, simulated(bare)),
            *service("plain", ML, simulated(bare)),
        )
        bare.kubectl("-n", ML, "wait", "--for=condition=Ready", "pod/files", "--timeout=120s")
        yield operator


@pytest.fixture(scope="session")
def cluster(bare: Cluster, llmkube: Operator) -> Cluster:
    """The same with lora-sidecar installed, until the tests uninstall it."""
    run(bare, INSTALL)
    return bare
