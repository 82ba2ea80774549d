"""Fixtures of the real parts. tests/conftest.py loads this module as a pytest plugin.

What is slow to make is made before the first test, where its progress can be seen and no test's time-out counts.
"""

import re
import secrets
from collections.abc import Iterator

import pytest

from tests.rig.binaries import binaries
from tests.rig.cache import say
from tests.rig.controlplane import ControlPlane
from tests.rig.errors import RigError
from tests.rig.kubelet import Kubelet
from tests.rig.namespaces import create_namespace, delete_namespace


def pytest_collection_finish(session: pytest.Session) -> None:
    wanted = any(item.get_closest_marker("cluster") for item in session.items)
    if not wanted or session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        try:
            binaries()
        except RigError as error:
            say(str(error))  # and the tests that need them will fail, saying it again


@pytest.fixture(scope="session")
def controlplane() -> Iterator[ControlPlane]:
    """A control plane with this project's CRDs, permissions and policy, for the whole session."""
    # Image volumes are on by default from Kubernetes 1.35 only.
    with ControlPlane(feature_gates={"ImageVolume": True}) as running:
        yield running


@pytest.fixture(scope="module")
def namespace(controlplane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test module's own, with its service account and cluster CA in place."""
    stem = re.sub(r"[^a-z0-9]+", "-", request.path.stem.lower()).strip("-")[:40]
    name = create_namespace(controlplane.client(), f"{stem}-{secrets.token_hex(3)}")
    yield name
    delete_namespace(controlplane.client(), name)


@pytest.fixture(scope="session")
def kubelet(controlplane: ControlPlane) -> Kubelet:
    """The one node of the session's control plane."""
    return Kubelet(controlplane)
