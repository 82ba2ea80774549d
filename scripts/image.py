"""Builds the image with buildah or docker, prints its size, and writes its bill of materials (CycloneDX) into dist/.

python -m scripts.image [--tag NAME] [--base IMAGE] [--volume HOST:PATH:ro] [--archive FILE]
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sidecar import __version__

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "requirements" / "runtime.txt"
DIST = ROOT / "dist"


def main(arguments: Sequence[str] | None = None) -> int:
    """Build; the exit code is 0 when the image is there."""
    parser = argparse.ArgumentParser(prog="python -m scripts.image", description=__doc__)
    parser.add_argument("--tag", default=f"localhost/lora-sidecar:{__version__}")
    parser.add_argument("--base", default="", help="the base image, by default the Dockerfile's")
    parser.add_argument("--volume", action="append", default=[], help="for the build only")
    parser.add_argument("--archive", default="", help="also write the image into this file")
    options = parser.parse_args(arguments)
    if not any(map(shutil.which, ("buildah", "docker"))):
        sys.stderr.write("image: neither buildah nor docker is there: apt-get install buildah\n")
        return 1
    command = _builder(options.volume, options.base, options.tag)
    if code := subprocess.run([*command, str(ROOT)], check=False).returncode:
        return code
    DIST.mkdir(exist_ok=True)
    bill = DIST / "lora-sidecar.cdx.json"
    bill.write_text(json.dumps(materials(REQUIREMENTS.read_text()), indent=2) + "\n")
    sys.stdout.write(f"{options.tag}: {_size(options.tag) / 2**20:.1f} MiB; materials in {bill}\n")
    if options.archive:
        return _save(options.tag, options.archive)
    return 0


def _builder(volumes: Sequence[str], base: str, tag: str) -> list[str]:
    revision = _output(["git", "-C", str(ROOT), "rev-parse", "HEAD"]) or "unknown"
    told = {"VERSION": __version__, "REVISION": revision} | ({"BASE": base} if base else {})
    arguments = [f"--build-arg={name}={value}" for name, value in told.items()]
    if shutil.which("buildah"):
        mounts = [f"--volume={volume}" for volume in volumes]
        return ["buildah", "build", "--isolation=chroot", "--tag", tag, *arguments, *mounts]
    return ["docker", "build", "--tag", tag, *arguments]


def _size(tag: str) -> int:
    """Bytes of the whole image, base included."""
    if shutil.which("buildah"):
        told = json.loads(_output(["buildah", "images", "--json", tag]))
        return _bytes(told[0]["size"])
    return int(_output(["docker", "image", "inspect", "--format", "{{.Size}}", tag]))


def _bytes(told: str) -> int:
    number, unit = told.split()
    return int(float(number) * {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9}[unit.upper()])


def _save(tag: str, archive: str) -> int:
    if shutil.which("buildah"):
        command = ["buildah", "push", "--quiet", tag, f"docker-archive:{archive}:{tag}"]
    else:
        command = ["docker", "save", "--output", archive, tag]
    return subprocess.run(command, check=False).returncode


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def materials(requirements: str) -> dict[str, object]:
    """What the image holds beside its base: this project and its pinned dependencies."""
    pinned = re.findall(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", requirements, re.MULTILINE)
    parts = [("lora-sidecar", __version__), *pinned]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "components": [
            {
                "type": "library",
                "name": name,
                "version": version,
                "purl": f"pkg:pypi/{name.lower()}@{version}",
            }
            for name, version in parts
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
