"""The chart, installed by Helm from the image as it is built, on a real node, or on the cluster of E2E_KUBECONFIG.

There the image must be within reach: E2E_IMAGE (repository:tag) for ours, E2E_ENGINE_IMAGE for the simulated engine.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts import image
from tests.e2e.node import missing, node
from tests.rig.adapters import make_adapter
from tests.rig.baseimage import base_image, pip_settings
from tests.rig.binaries import binaries
from tests.rig.helm import helm
from tests.rig.install import CHART, MANIFESTS
from tests.rig.polling import until

ROOT = CHART.parents[1]
OURS = "localhost/lora-sidecar:e2e"
ENGINE = "localhost/simulated-sglang:e2e"
HOME = "lora-sidecar"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(1800))


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster, with its tools."""

    kubeconfig: Path
    ours: str
    engine: str
    adapters: Path
    """A folder of the node, which pods mount."""

    def kubectl(self, *arguments: str, input: str | None = None, check: bool = True) -> str:  # noqa: A002
        return self._call(str(binaries() / "kubectl"), *arguments, input=input, check=check)

    def helm(self, *arguments: str) -> str:
        return self._call(str(helm()), *arguments, "--namespace", HOME)

    def get(self, namespace: str, *what: str) -> dict[str, Any]:
        told = self.kubectl("-n", namespace, "get", *what, "-o", "json")
        return json.loads(told)  # type: ignore[no-any-return]

    def install(self) -> None:
        """Install the chart, and wait until its pods are ready."""
        repository, _, tag = self.ours.rpartition(":")
        values = (f"image.repository={repository}", f"image.tag={tag}", "crds.adapters=true")
        given = [argument for value in values for argument in ("--set", value)]
        self.helm(
            "install", HOME, str(CHART), "--create-namespace", *given, "--wait", "--timeout=180s"
        )

    def _call(self, *command: str, input: str | None = None, check: bool = True) -> str:  # noqa: A002
        environment = os.environ | {"KUBECONFIG": str(self.kubeconfig)}
        done = subprocess.run(
            command, input=input, capture_output=True, text=True, check=False, env=environment
        )
        assert not check or done.returncode == 0, f"{' '.join(command[1:6])}: {done.stderr}"
        return done.stdout


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with nothing of ours but the images."""
    work = tmp_path_factory.mktemp("e2e")
    work.parent.chmod(0o755)
    work.chmod(0o755)
    with ExitStack() as stack:
        given = os.environ.get("E2E_KUBECONFIG")
        if given:
            ours, engine = os.environ["E2E_IMAGE"], os.environ["E2E_ENGINE_IMAGE"]
            kubeconfig = Path(given)
        else:
            if lack := missing():
                pytest.fail(lack)
            ours, engine = OURS, ENGINE
            kubeconfig = stack.enter_context(node(*_images(work)))
        cluster = Cluster(kubeconfig, ours, engine, work / "adapters")
        cluster.adapters.mkdir(mode=0o755)
        cluster.kubectl(
            "apply", "--server-side", "-f", str(MANIFESTS / "inferenceservice-crd.yaml")
        )
        yield cluster


def _images(work: Path) -> tuple[Path, Path]:
    """Build ours and the simulated engine's, as archives."""
    ours, engine = work / "ours.tar", work / "engine.tar"
    pip = pip_settings(work / "pip")
    told = ["--tag", OURS, "--base", base_image(), "--volume", pip, "--archive", str(ours)]
    assert image.main(told) == 0
    context = work / "engine"
    shutil.copytree(ROOT / "tests", context / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    (context / "Dockerfile").write_text(f"FROM {OURS}\nCOPY tests /opt/lora-sidecar/tests\n")
    for command in (
        ["build", "--isolation=chroot", "--tag", ENGINE, str(context)],
        ["push", "--quiet", ENGINE, f"docker-archive:{engine}:{ENGINE}"],
    ):
        subprocess.run(["buildah", *command], check=True, capture_output=True)
    return ours, engine


@pytest.fixture(scope="session")
def cluster(bare: Cluster) -> Cluster:
    """The same with lora-sidecar installed, until the tests uninstall it."""
    bare.install()
    return bare


@pytest.fixture(scope="session")
def adapter(bare: Cluster) -> Callable[..., Path]:
    """Put an adapter's files on the volume."""

    def put(name: str, seed: int = 1) -> Path:
        """As a copy that is renamed into place, and may be read by everyone."""
        made = make_adapter(bare.adapters / f".{name}", seed=seed)
        for file in (made, *made.iterdir()):
            file.chmod(0o755)
        made.rename(bare.adapters / name)
        return bare.adapters / name

    return put


def until_true(probe: Callable[[], object], what: str, seconds: float = 90) -> None:
    until(probe, what, timeout=seconds, every=0.5)
