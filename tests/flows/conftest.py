"""A service of each test's own, on the session's control plane."""

import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.controlplane import ControlPlane
from tests.rig.kubelet import Kubelet
from tests.rig.namespaces import create_namespace, delete_namespace
from tests.rig.stack import Stack


@pytest.fixture
def stack(
    controlplane: ControlPlane,
    kubelet: Kubelet,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Stack]:
    """A service without pods yet, in a namespace of the test's own."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].strip("-")
    namespace = create_namespace(controlplane.client(), f"{name}-{secrets.token_hex(3)}")
    with Stack(controlplane, kubelet, namespace, tmp_path) as made:
        made.create_service()
        yield made
        if getattr(request.node, "failed", False):
            for pod in made.pods:
                print(f"--- {pod.name}\n{pod.agent.tail(60) if pod.agent else ''}")
            if made.aggregator:
                print(f"--- aggregator\n{made.aggregator.tail(60)}")
    delete_namespace(controlplane.client(), namespace)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    if report.when == "call" and report.failed:
        item.failed = True  # type: ignore[attr-defined]
    return report
