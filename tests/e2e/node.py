"""A real cluster of one node on this machine: containerd, kubelet, kube-proxy and a network beside the control plane.

The programs are built from Go modules once; the scripts in `scripts/` start and stop them by pid and take back what
they changed on this machine. Images are imported, as there is no registry.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rig.baseimage import missing as missing_builders
from tests.rig.binaries import NAMES, binaries
from tests.rig.cache import cache_root, say, workspace
from tests.rig.errors import RigError
from tests.rig.gobuild import KUBERNETES, build_node

SCRIPTS = Path(__file__).parent / "scripts"
PAUSE = "localhost/pause:1"
NEEDED = ("containerd", "ctr", "runc", "ip", "iptables", "openssl")
PACKAGES = "containerd runc containernetworking-plugins iptables iproute2 openssl"


def missing() -> str:
    """What this machine lacks, in a sentence; "" where nothing is missing."""
    if lack := missing_builders():
        return lack
    if os.geteuid() != 0:
        return "a node takes root"
    absent = [name for name in NEEDED if not shutil.which(name)]
    return f"{' and '.join(absent)} missing: apt-get install {PACKAGES}" if absent else ""


@contextmanager
def node(*archives: Path) -> Iterator[Path]:
    """Start a cluster with these images; the path of an administrator's kubeconfig. Raises RigError."""
    if lack := missing():
        raise RigError(lack)
    state = Path(tempfile.mkdtemp(prefix="lora-sidecar-node-")) / "state"
    environment = os.environ | {"STATE": str(state), "KUBERNETES_BIN": str(_programs())}
    try:
        _run(environment, "bash", str(SCRIPTS / "up.sh"))
        for archive in (_pause_image(), *archives):
            _import(state, archive)
        yield state / "kubeconfig"
    finally:
        if state.exists():
            _run(environment, "bash", str(SCRIPTS / "down.sh"))
        state.parent.rmdir()


def _programs() -> Path:
    """One folder with the programs of control plane and node."""
    home = cache_root() / "node" / KUBERNETES
    with workspace(home) as folder:
        if not home.exists():
            made = folder / "made"
            made.mkdir()
            build_node(made)
            made.rename(home)
    control_plane = binaries()
    for name in NAMES:
        link = home / name
        link.unlink(missing_ok=True)
        link.symlink_to((control_plane / name).resolve())
    return home


def _pause_image() -> Path:
    archive = cache_root() / "images" / "pause.tar"
    with workspace(archive) as folder:
        if not archive.exists():
            shutil.copy(_programs() / "pause", folder / "pause")
            (folder / "Dockerfile").write_text(
                'FROM scratch\nCOPY pause /pause\nUSER 65535:65535\nENTRYPOINT ["/pause"]\n'
            )
            build = ("buildah", "build", "--isolation=chroot", "--tag", PAUSE, str(folder))
            _run(os.environ, *build)
            made = folder / "made.tar"
            _run(os.environ, "buildah", "push", "--quiet", PAUSE, f"docker-archive:{made}:{PAUSE}")
            made.rename(archive)
    return archive


def _import(state: Path, archive: Path) -> None:
    say(f"importing {archive.name}")
    snapshotter = (state / "containerd" / "snapshotter").read_text().strip()
    ctr = (
        "ctr",
        "--address",
        str(state / "containerd" / "containerd.sock"),
        "--namespace",
        "k8s.io",
    )
    _run(os.environ, *ctr, "images", "import", "--snapshotter", snapshotter, str(archive))


def _run(environment: "os._Environ[str] | dict[str, str]", *command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RigError(f"{' '.join(command[:4])}: {(done.stderr or done.stdout).strip()[-3000:]}")
