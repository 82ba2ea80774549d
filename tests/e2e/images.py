"""What the node of the tests is given: our image, and the simulated SGLang's on top of it, as archives."""

import shutil
import subprocess
from pathlib import Path

from scripts import image
from sidecar import __version__
from tests.e2e.cluster import REPOSITORY, ROOT
from tests.rig.baseimage import base_image, pip_settings

OURS = f"{REPOSITORY}:{__version__}"
"""As the README calls it."""
ENGINE = "localhost/simulated-sglang:e2e"


def build_images(work: Path) -> tuple[Path, Path]:
    """Build both; the archives."""
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
