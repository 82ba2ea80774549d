"""Where the programs of the control plane come from: etcd, kube-apiserver, kube-controller-manager and kubectl.

The roads, in this order, each for what the one before lacks:
1. `$KUBEBUILDER_ASSETS`, the folder of controller-runtime's envtest (which has no kube-controller-manager);
2. this project's cache, `${XDG_CACHE_HOME:-~/.cache}/lora-sidecar/kubernetes/<versions and platform>`;
3. for kubectl only, the PATH, where that one is at least 1.28;
4. the official downloads (`download`), where they can be reached, into the cache;
5. a build from Go modules (`gobuild`), into the cache.

`python -m tests.rig.binaries` prints the folder. Downloads and builds are safe to interrupt and to run twice at once.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.rig import gobuild
from tests.rig.cache import cache_root, say, workspace
from tests.rig.download import Release, download
from tests.rig.errors import RigError

NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
OLDEST_KUBECTL = (1, 28)

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def binaries() -> Path:
    """Return a folder that holds all of NAMES, making what is missing (ten minutes at the worst).

    Raises RigError where no road leads there, or a download has the wrong checksum.
    """
    home = _home()
    found = _in(home) | _assets()
    if "kubectl" not in found and (kubectl := _kubectl_on_path()):
        found["kubectl"] = kubectl
    if missing := [name for name in NAMES if name not in found]:
        _make(missing, home)
        found = _in(home) | found
    folders = {path.parent for path in found.values()}
    return folders.pop() if len(folders) == 1 else _linked(found)


def _home() -> Path:
    key = f"{gobuild.KUBERNETES}-etcd-{gobuild.ETCD}-{sys.platform}-{_arch()}"
    return cache_root() / "kubernetes" / key


def _arch() -> str:
    machine = platform.machine()
    return ARCHITECTURES.get(machine, machine)


def _in(folder: Path) -> dict[str, Path]:
    return {name: folder / name for name in NAMES if os.access(folder / name, os.X_OK)}


def _assets() -> dict[str, Path]:
    given = os.environ.get("KUBEBUILDER_ASSETS")
    if not given:
        return {}
    found = _in(Path(given).absolute())
    if lacking := {"etcd", "kube-apiserver"} - found.keys():
        raise RigError(f"KUBEBUILDER_ASSETS={given} lacks {' and '.join(sorted(lacking))}")
    if "kube-controller-manager" not in found:
        _warn_of_skew(found["kube-apiserver"])
    return found


def _warn_of_skew(apiserver: Path) -> None:
    theirs = _version_of(apiserver, "--version")
    if theirs != _numbers(gobuild.KUBERNETES):
        say(
            f"the API server of KUBEBUILDER_ASSETS is {theirs[0]}.{theirs[1]}, the controller manager "
            f"beside it will be {gobuild.KUBERNETES}: they may not understand each other"
        )


def _kubectl_on_path() -> Path | None:
    found = shutil.which("kubectl")
    if not found or _version_of(Path(found), "version", "--client") < OLDEST_KUBECTL:
        return None
    return Path(found).absolute()


def _version_of(program: Path, *question: str) -> tuple[int, int]:
    answer = subprocess.run(
        [program, *question], capture_output=True, text=True, timeout=60, check=False
    )
    return _numbers(answer.stdout)


def _numbers(text: str) -> tuple[int, int]:
    """Return major and minor of the first version in a text, (0, 0) where there is none."""
    found = re.search(r"\bv(\d+)\.(\d+)\.", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _make(names: Iterable[str], home: Path) -> None:
    with workspace(home) as work:
        # Another process may have made them while this one waited for the lock.
        missing = [name for name in names if name not in _in(home)]
        if missing and sys.platform == "linux":
            release = Release(gobuild.KUBERNETES, gobuild.ETCD, _arch())
            got = download(missing, release, work)
        else:
            got = set()
        if rest := [name for name in missing if name not in got]:
            gobuild.build(rest, work)
        home.mkdir(exist_ok=True)
        for name in missing:
            (work / name).replace(home / name)


def _linked(found: Mapping[str, Path]) -> Path:
    """Return a folder of links, for programs that came by different roads."""
    targets = {name: found[name].resolve() for name in NAMES}
    key = hashlib.sha256(repr(sorted(targets.items())).encode()).hexdigest()[:16]
    home = cache_root() / "kubernetes" / f"linked-{key}"
    if home.is_dir():
        return home
    with workspace(home) as work:
        if not home.is_dir():
            links = work / "links"
            links.mkdir()
            for name, target in targets.items():
                (links / name).symlink_to(target)
            links.rename(home)
    return home


if __name__ == "__main__":
    try:
        print(binaries())
    except RigError as error:
        sys.exit(f"lora-sidecar: {error}")
