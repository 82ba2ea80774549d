"""The image as it is built from the Dockerfile, and the three roles in it."""

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts import image
from sidecar import __version__
from tests.rig.baseimage import base_image, missing, pip_settings
from tests.rig.polling import until

pytestmark = [pytest.mark.timeout(1200), pytest.mark.skipif(bool(missing()), reason=missing())]

TAG = "localhost/lora-sidecar:of-the-tests"
OVER_THE_BASE = 120 * 10**6
"""Bytes."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> str:
    pip = pip_settings(tmp_path_factory.mktemp("pip"))
    assert image.main(["--tag", TAG, "--base", base_image(), "--volume", pip]) == 0
    return TAG


@pytest.fixture(scope="module")
def root(built: str) -> Iterator[Path]:
    """The image's files, mounted read-only but for /tmp, /proc and /dev."""
    container = _output("buildah", "from", built)
    mounted = Path(_output("buildah", "mount", container))
    yield mounted
    _output("buildah", "umount", container)
    _output("buildah", "rm", container)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def config(tag: str) -> dict[str, Any]:
    told = json.loads(_output("buildah", "inspect", "--type", "image", tag))
    return told["OCIv1"]["config"]


def test_it_runs_as_nobody_in_particular_and_says_what_it_is(built: str) -> None:
    told = config(built)
    assert told["User"] == "65532:65532"
    assert told["Cmd"] == ["python", "-m", "sidecar.agent"]
    assert told["Labels"]["org.opencontainers.image.version"] == __version__
    assert re.fullmatch(
        r"[0-9a-f]{40}|unknown", told["Labels"]["org.opencontainers.image.revision"]
    )


def test_it_is_small(root: Path) -> None:
    ours = root / "opt/lora-sidecar"
    size = sum(file.stat().st_size for file in ours.rglob("*") if file.is_file())
    print(f"{size / 10**6:.1f} MB over the base")
    assert size <= OVER_THE_BASE


def test_it_holds_nothing_but_what_runs(root: Path) -> None:
    ours = root / "opt/lora-sidecar"
    assert not list(root.glob("root/.cache/pip"))
    assert not (root / "usr/bin/gcc").exists()
    assert not list(ours.glob("tests"))
    sources = list(ours.glob("sidecar/**/*.py"))
    assert sources
    for file in sources:
        assert list(file.parent.glob(f"__pycache__/{file.stem}.*.pyc")), file


@pytest.mark.parametrize("role", ["sidecar.agent", "sidecar.aggregator", "injector"])
def test_each_role_starts_in_it_and_ends_at_a_sigterm(
    built: str, root: Path, role: str, tmp_path: Path
) -> None:
    """Without a cluster each waits for one, as nobody with nothing to write to."""
    log = tmp_path / "log"
    environment = {
        **dict(variable.split("=", 1) for variable in config(built)["Env"]),
        "LORA_SIDECAR_LISTEN_PORT": "0",
        "LORA_SIDECAR_WEBHOOK_PORT": "0",
        "LORA_SIDECAR_KUBECONFIG": "/kubeconfig",
    }
    (root / "kubeconfig").write_text(KUBECONFIG)
    jail = [shutil.which("chroot") or "chroot", "--userspec=65532:65532", str(root)]
    with log.open("w") as out:
        process = subprocess.Popen(
            [*jail, "python", "-m", role], stdout=out, stderr=out, env=environment
        )
    try:
        until(lambda: "probes and metrics on port" in log.read_text(), f"{role} runs: {log}")
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    assert "Traceback" not in log.read_text()


KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a, namespace: lora-sidecar}}]
clusters: [{name: a, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: a, user: {token: none}}]
"""


def test_every_distribution_in_it_is_among_its_materials(root: Path, built: str) -> None:
    bill = json.loads((image.DIST / "lora-sidecar.cdx.json").read_text())
    told = {(one["name"].lower().replace("_", "-"), one["version"]) for one in bill["components"]}
    found = set()
    for file in (root / "opt/lora-sidecar").glob("*.dist-info/METADATA"):
        text = file.read_text()
        name = re.search(r"^Name: (.+)$", text, re.MULTILINE)
        version = re.search(r"^Version: (.+)$", text, re.MULTILINE)
        assert name
        assert version
        found.add((name[1].lower().replace("_", "-"), version[1]))
    assert found
    assert found <= told
