import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.rig import binaries as roads
from tests.rig import gobuild
from tests.rig.errors import RigError

K8S = f"/{gobuild.KUBERNETES}/bin/linux/amd64"
ETCD = f"/{gobuild.ETCD}"
ARCHIVE = f"etcd-{gobuild.ETCD}-linux-amd64.tar.gz"

FAKE_GO = """#!/bin/sh
if [ "$1" = env ]; then echo go1.30; exit; fi
for word; do
    if [ "$before" = -o ]; then output=$word; fi
    before=$word
    case $word in
        k8s.io/*) file=$output/${word##*/} ;;
        go.etcd.io/*) file=$output ;;
        *) continue ;;
    esac
    : > "$file"
    /bin/chmod +x "$file"
done
"""
really_build = gobuild.build


def archive(content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        member = tarfile.TarInfo(f"{ARCHIVE.removesuffix('.tar.gz')}/etcd")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def site() -> dict[str, bytes]:
    """What the two download sites hold."""
    files = {f"{K8S}/{name}": name.encode() for name in roads.NAMES if name != "etcd"}
    files |= {f"{path}.sha256": digest(body) for path, body in files.items()}
    packed = archive(b"etcd")
    sums = b"0123  other.zip\n" + digest(packed) + f"  {ARCHIVE}\n".encode()
    return files | {f"{ETCD}/{ARCHIVE}": packed, f"{ETCD}/SHA256SUMS": sums}


def digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = files.get(self.path)
            self.send_response(200 if body is not None else 404)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Linux machine with an empty cache, no kubectl, and no way to build."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(gobuild, "build", fail)
    return tmp_path


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, bytes]], None]]:
    """Let the download sites hold these files, from now on."""
    files: dict[str, bytes] = {}
    with serving(files) as base:
        monkeypatch.setenv("LORA_SIDECAR_KUBERNETES_DOWNLOAD", base)
        monkeypatch.setenv("LORA_SIDECAR_ETCD_DOWNLOAD", base)
        yield files.update


def fail(names: list[str], into: Path) -> None:
    raise RigError(f"would build {' '.join(names)}")


def program(file: Path, says: str = "") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\necho '{says}'\n")
    file.chmod(0o755)
    return file


def is_real_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def kept(machine: Path) -> list[str]:
    """The files in the cache, but for locks and links."""
    files = (path for path in (machine / "cache").rglob("*") if is_real_file(path))
    return sorted(path.name for path in files if not path.name.endswith(".lock"))


def test_downloaded_programs_are_checked_unpacked_and_kept(machine, reach):
    reach(site())

    folder = roads.binaries()

    assert {name: (folder / name).read_text() for name in roads.NAMES} == {
        name: name for name in roads.NAMES
    }
    assert all(os.access(folder / name, os.X_OK) for name in roads.NAMES)
    assert kept(machine) == sorted(roads.NAMES)


def test_what_is_in_the_cache_is_not_fetched_again(machine, reach, monkeypatch):
    reach(site())
    folder = roads.binaries()
    monkeypatch.setattr(roads, "download", pytest.fail)

    assert roads.binaries() == folder


@pytest.mark.parametrize("broken", [f"{K8S}/kube-controller-manager", f"{ETCD}/{ARCHIVE}"])
def test_a_wrong_checksum_is_refused_and_leaves_nothing_behind(machine, reach, broken):
    reach(site() | {broken: b"something else"})

    with pytest.raises(RigError, match=r"has SHA-256 .* not used"):
        roads.binaries()

    assert kept(machine) == []


def test_what_the_sites_lack_is_built(machine, reach, monkeypatch):
    files = site()
    del files[f"{K8S}/kube-apiserver.sha256"], files[f"{ETCD}/{ARCHIVE}"]
    reach(files)
    built = []

    def build(names, into):
        built.extend(names)
        for name in names:
            program(into / name)

    monkeypatch.setattr(gobuild, "build", build)

    folder = roads.binaries()

    # After one refusal a site is not asked for the rest.
    assert built == list(roads.NAMES)
    assert all((folder / name).exists() for name in roads.NAMES)


def test_a_build_leaves_the_programs_and_nothing_else(machine, reach, monkeypatch):
    reach({})
    monkeypatch.setattr(gobuild, "build", really_build)
    (machine / "bin").mkdir()
    go = machine / "bin" / "go"
    go.write_text(FAKE_GO)
    go.chmod(0o755)

    roads.binaries()

    assert kept(machine) == sorted(roads.NAMES)


def test_a_site_out_of_reach_leads_to_a_build(machine, monkeypatch):
    with serving({}) as gone:
        pass
    monkeypatch.setenv("LORA_SIDECAR_KUBERNETES_DOWNLOAD", gone)
    monkeypatch.setenv("LORA_SIDECAR_ETCD_DOWNLOAD", gone)

    with pytest.raises(RigError, match="would build etcd kube-apiserver"):
        roads.binaries()


def test_a_failed_build_leaves_nothing_behind(machine, reach):
    reach({path: body for path, body in site().items() if path.startswith(ETCD)})

    with pytest.raises(RigError, match="would build kube-apiserver"):
        roads.binaries()

    assert kept(machine) == []


def test_envtest_assets_come_first_and_only_what_they_lack_is_fetched(machine, reach, monkeypatch):
    reach(site())
    assets = machine / "assets"
    for name in ("etcd", "kube-apiserver", "kubectl"):
        program(assets / name, "Kubernetes v1.31.0")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))

    folder = roads.binaries()

    came_from = {name: (folder / name).resolve().parent for name in roads.NAMES}
    assert came_from.pop("kube-controller-manager").is_relative_to(machine / "cache")
    assert set(came_from.values()) == {assets}
    assert kept(machine) == ["kube-controller-manager"]
    assert roads.binaries() == folder


def test_complete_assets_are_used_where_they_are(machine, monkeypatch):
    assets = machine / "assets"
    for name in roads.NAMES:
        program(assets / name)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))

    assert roads.binaries() == assets


def test_assets_without_an_api_server_are_an_error(machine, monkeypatch):
    program(machine / "assets" / "etcd")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(machine / "assets"))

    with pytest.raises(RigError, match="lacks kube-apiserver"):
        roads.binaries()


@pytest.mark.parametrize(
    ("says", "used"),
    [
        ("Client Version: v1.28.0", True),
        ("Client Version: v1.27.16", False),
        ("no version here", False),
    ],
)
def test_kubectl_of_the_path_is_used_if_it_is_recent(machine, reach, says, used):
    reach(site())
    on_path = program(machine / "bin" / "kubectl", says)

    folder = roads.binaries()

    assert ((folder / "kubectl").resolve() == on_path) is used


@pytest.mark.parametrize(
    ("go_says", "used"),
    [("go1.26.0", True), ("go1.30", True), ("go1.25.9", False), ("devel +abc", False)],
)
def test_go_of_the_path_is_used_if_it_is_new_enough(machine, monkeypatch, go_says, used):
    on_path = program(machine / "bin" / "go", go_says)
    monkeypatch.setattr(gobuild, "_go_from_pip", lambda: Path("installed"))

    assert gobuild.find_go() == (on_path if used else Path("installed"))


def test_a_command_that_fails_shows_the_end_of_its_output(tmp_path):
    with pytest.raises(RigError, match=r"failed with exit code 3:\nit went wrong"):
        gobuild._run(
            ["/bin/sh", "-c", "echo it went wrong; exit 3"],
            what="a build",
            folder=tmp_path,
            log=tmp_path / "log",
        )
