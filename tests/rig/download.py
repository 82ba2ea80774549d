"""The official binaries, from where Kubernetes and etcd publish them: fetched, checked against their SHA-256, unpacked.

`$LORA_SIDECAR_KUBERNETES_DOWNLOAD` and `$LORA_SIDECAR_ETCD_DOWNLOAD` name mirrors that are laid out alike. A site that
cannot be reached, or lacks the file, is no error: the name is left out of the answer, and the caller has another
road. A wrong checksum is one, and ends everything. Sums come from the same site, over TLS.
"""

import hashlib
import http.client
import os
import shutil
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rig.cache import say
from tests.rig.errors import RigError

KUBERNETES_SITE = "https://dl.k8s.io"
ETCD_SITE = "https://github.com/etcd-io/etcd/releases/download"

REACH_SECONDS = 5
"""How long a site may take to connect and to answer for a checksum: one that is out of reach must cost little."""
STALL_SECONDS = 60
"""How long a download may stand still."""


class _UnavailableError(Exception):
    """The file cannot be had from there."""


@dataclass(frozen=True, slots=True)
class Release:
    """What to fetch: versions such as v1.34.4, and Go's name of the architecture."""

    kubernetes: str
    etcd: str
    arch: str


def download(names: Iterable[str], release: Release, into: Path) -> set[str]:
    """Fetch programs into the folder `into` and return the names of those that could be had."""
    names = list(names)
    sites = (
        (_etcd, [name for name in names if name == "etcd"]),
        (_kubernetes, [name for name in names if name != "etcd"]),
    )
    got = set()
    for fetch, wanted in sites:
        for name in wanted:
            try:
                fetch(name, release, into)
            except _UnavailableError as error:
                say(f"{name} cannot be downloaded: {error}")
                break  # what else this site should have would only cost the same wait
            got.add(name)
    return got


def _kubernetes(name: str, release: Release, into: Path) -> None:
    site = os.environ.get("LORA_SIDECAR_KUBERNETES_DOWNLOAD") or KUBERNETES_SITE
    url = f"{site.rstrip('/')}/{release.kubernetes}/bin/linux/{release.arch}/{name}"
    wanted = _text(f"{url}.sha256").split()
    if not wanted:
        raise _UnavailableError(f"{url}.sha256 is empty")
    _fetch(url, wanted[0], into / name)
    (into / name).chmod(0o755)


def _etcd(name: str, release: Release, into: Path) -> None:
    site = os.environ.get("LORA_SIDECAR_ETCD_DOWNLOAD") or ETCD_SITE
    base = f"{site.rstrip('/')}/{release.etcd}"
    folder = f"etcd-{release.etcd}-linux-{release.arch}"
    archive = into / f"{folder}.tar.gz"
    lines = [line.split() for line in _text(f"{base}/SHA256SUMS").splitlines()]
    sums = {words[1]: words[0] for words in lines if len(words) == 2}
    if archive.name not in sums:
        raise _UnavailableError(f"{base}/SHA256SUMS does not name {archive.name}")
    _fetch(f"{base}/{archive.name}", sums[archive.name], archive)
    try:
        _unpack(archive, f"{folder}/{name}", into / name)
    finally:
        archive.unlink()


def _unpack(archive: Path, member: str, target: Path) -> None:
    with tarfile.open(archive) as tar:
        try:
            source = tar.extractfile(member)
        except KeyError:
            source = None
        if source is None:
            raise RigError(f"{archive.name} holds no file {member}")
        with source, target.open("wb") as out:
            shutil.copyfileobj(source, out)
    target.chmod(0o755)


def _text(url: str) -> str:
    try:
        with _open(url, REACH_SECONDS) as response:
            return response.read(1 << 20).decode("ascii", "replace")
    except (OSError, http.client.HTTPException) as error:
        raise _UnavailableError(f"{url}: {error}") from error


def _fetch(url: str, wanted: str, target: Path) -> None:
    say(f"downloading {url}")
    digest = hashlib.sha256()
    try:
        with _open(url, STALL_SECONDS) as response, target.open("wb") as out:
            length = int(response.headers.get("Content-Length") or -1)
            while block := response.read(1 << 20):
                digest.update(block)
                out.write(block)
            if length not in (-1, out.tell()):
                raise _UnavailableError(f"{url} ended after {out.tell()} of {length} bytes")
    except (OSError, http.client.HTTPException) as error:
        raise _UnavailableError(f"{url}: {error}") from error
    if digest.hexdigest() != wanted.lower():
        target.unlink()
        raise RigError(
            f"{url} has SHA-256 {digest.hexdigest()}, and its site says {wanted}: "
            "it is not used. Try again, or check what stands between here and there."
        )


def _open(url: str, timeout: float) -> Any:
    # The addresses are the two constants above or what the person who runs this has set.
    try:
        response = urllib.request.urlopen(url, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        raise
    if url.startswith("https:") and not response.url.startswith("https:"):
        response.close()
        raise urllib.error.URLError(f"redirected away from TLS, to {response.url}")
    return response
