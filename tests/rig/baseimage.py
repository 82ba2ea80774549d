"""A base image made here, where no registry can be reached: Debian's Python behind /usr/local/bin/python, with pip.

It stands in for the official slim image. Made once with debootstrap and buildah, and kept in the cache.
"""

import os
import shutil
import subprocess
from pathlib import Path

from tests.rig.cache import cache_root, say, workspace
from tests.rig.errors import RigError

NAME = "localhost/python:3.11"
SUITE = "bookworm"
DOCKERFILE = """\
FROM scratch
COPY . /
ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
CMD ["python3"]
"""
_DROPPED = (
    "var/cache/apt",
    "var/lib/apt/lists",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
)


def missing() -> str:
    """What this machine lacks to make images, in a sentence; "" where nothing is missing."""
    absent = [name for name in ("buildah", "debootstrap") if not shutil.which(name)]
    if absent:
        return f"{' and '.join(absent)} missing: apt-get install {' '.join(absent)}"
    return "" if os.geteuid() == 0 else "making images here takes root"


def base_image() -> str:
    """Return the name of the base image in buildah's store. Raises RigError where it cannot be made."""
    archive = cache_root() / "images" / f"python-{SUITE}.tar"
    if not archive.exists():
        with workspace(archive) as folder:
            if not archive.exists():
                say("making a base image of Debian and its Python (a minute, once)")
                _make(folder, archive)
    _run("buildah", "pull", "--quiet", f"docker-archive:{archive}")
    return NAME


def pip_settings(folder: Path) -> str:
    """What pip must know in a build on this machine, as a volume for buildah."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = os.environ.get("SSL_CERT_FILE") or "/etc/ssl/certs/ca-certificates.crt"
    shutil.copy(Path(authority).resolve(), folder / "ca.crt")
    listed = _run("python3", "-m", "pip", "config", "list")
    lines = ["[global]", "cert = /etc/xdg/pip/ca.crt", "timeout = 180"]
    for line in listed.splitlines():
        name, _, value = line.rpartition("=")
        key = name.rpartition(".")[2]
        if key in ("index-url", "extra-index-url", "trusted-host", "proxy"):
            lines.append(f"{key} = {value.strip(chr(39))}")
    (folder / "pip.conf").write_text("\n".join(lines) + "\n")
    return f"{folder}:/etc/xdg/pip:ro"


def _make(folder: Path, archive: Path) -> None:
    root = folder / "root"
    packages = "--include=python3,python3-venv,ca-certificates"
    _run("debootstrap", "--variant=minbase", packages, SUITE, str(root))
    _run("chroot", str(root), "/usr/bin/python3", "-m", "venv", "/usr/local")
    (root / "usr/local/bin/python").unlink(missing_ok=True)
    (root / "usr/local/bin/python").symlink_to("python3")
    for name in _DROPPED:
        shutil.rmtree(root / name, ignore_errors=True)
    (folder / "Dockerfile").write_text(DOCKERFILE)
    build = ("buildah", "build", "--isolation=chroot", "--tag", NAME)
    _run(*build, "--file", str(folder / "Dockerfile"), str(root))
    made = folder / "made.tar"
    _run("buildah", "push", "--quiet", NAME, f"docker-archive:{made}:{NAME}")
    made.rename(archive)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RigError(f"{' '.join(command[:4])}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout
