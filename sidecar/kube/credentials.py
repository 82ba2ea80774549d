"""Where the API server is, how it proves itself to us, and who we are to it.

kubernetes_asyncio reads the files: those that a pod has, or a kubeconfig with all its ways to log in. What this
adds: every reading happens in a thread of its own (a mounted volume, or a plugin that a kubeconfig names, may
be slow; and asyncio's shared threads may all hang on a dead file system), by a monotonic clock, and again at once
when the API server refuses the token. TLS is verified always, and there is no way to say otherwise.
"""

import asyncio
import ipaddress
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from yarl import URL

from sidecar.kube.errors import Unconfigured
from sidecar.kube.lean import kubernetes

log = logging.getLogger(__name__)

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes mounts a pod's token, CA and namespace unless told otherwise."""

_MAX_AGE: Final = 60.0
"""The kubelet renews a token at 80 % of its life, so one that is a minute old is always good."""

_Configuration = kubernetes("client.configuration").Configuration
_in_cluster = kubernetes("config.incluster_config")


@dataclass(frozen=True, slots=True)
class Access:
    """One reading: the API server's address, what it is trusted by, and what we show it."""

    url: str
    authorization: str | None = field(default=None, repr=False)
    ca: str | None = field(default=None, repr=False)
    """PEM; None where the system's authorities are meant."""
    certificate: tuple[str, str | None] | None = None
    """Files of our own certificate and its key."""
    server_name: str | None = None
    """What the server's certificate must be made out to, where not the host of `url`."""
    proxy: str | None = field(default=None, repr=False)
    namespace: str | None = None
    """Where we are: the pod's namespace, or that of the kubeconfig's context."""


class Credentials:
    """An Access that stays fresh.

    `load` blocks; it is called in a thread when the last reading is older than `max_age` seconds or is asked to
    be fresh. Where it fails later on, the last reading stands: a token that cannot be read may still be valid.
    """

    def __init__(
        self,
        load: Callable[[], Access],
        *,
        max_age: float = _MAX_AGE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._max_age = max_age
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="credentials")
        self._access: Access | None = None
        self._read_at = 0.0

    async def access(self, *, fresh: bool = False) -> Access:
        """What to use for the next request. Raises Unconfigured where the first reading fails."""
        now = self._clock()
        if self._access is not None and not fresh and now - self._read_at < self._max_age:
            return self._access
        self._read_at = now
        loop = asyncio.get_running_loop()
        try:
            self._access = await loop.run_in_executor(self._thread, self._load)
        except Unconfigured as error:
            if self._access is None:
                raise
            log.warning("credentials could not be read again, the last ones stay in use: %s", error)
        return self._access

    def close(self) -> None:
        """Lets the thread end."""
        self._thread.shutdown(wait=False)


def find(
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    directory: Path = SERVICE_ACCOUNT,
    environ: Mapping[str, str] = os.environ,
) -> Credentials:
    """The kubeconfig where one is named, else the pod's own files, else the user's kubeconfig."""
    if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in environ:
        return Credentials(lambda: in_cluster(directory, environ))
    path = kubeconfig or environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    # Reading it may run a plugin of the user's, so that happens once, and when the API server says 401.
    return Credentials(lambda: from_kubeconfig(path, context), max_age=math.inf)


def in_cluster(directory: Path, environ: Mapping[str, str]) -> Access:
    """Reads what Kubernetes gives a pod. Blocks. Raises Unconfigured."""
    configuration = _Configuration()
    loader = _in_cluster.InClusterConfigLoader(
        token_filename=str(directory / "token"),
        cert_filename=str(directory / "ca.crt"),
        try_refresh_token=False,
        environ=dict(environ),
    )
    try:
        loader.load_and_set(configuration)
        return _access(configuration, _text(directory / "namespace"))
    except (_in_cluster.ConfigException, OSError) as error:
        raise Unconfigured(f"{directory}: {error}") from error


def from_kubeconfig(path: str, context: str | None = None) -> Access:
    """Reads a kubeconfig (several, joined as in $KUBECONFIG). Blocks, and may run a plugin. Raises Unconfigured.

    The file is never written, so a login that renews itself by writing there is not for a long run.
    """
    if not any(Path(one).expanduser().is_file() for one in path.split(os.pathsep) if one):
        raise Unconfigured(f"this is no pod, and there is no kubeconfig at {path}")
    library = kubernetes("config.kube_config")
    configuration = _Configuration()
    try:
        loader = asyncio.run(
            library.load_kube_config(path, context, configuration, persist_config=False)
        )
        namespace = loader.current_context["context"].get("namespace")
    except Exception as error:  # noqa: BLE001 - a bad file makes the library raise nearly anything
        # Neither quoted nor chained: its messages hold whole entries of the file, with their tokens.
        name = type(error).__name__
        raise Unconfigured(f"{path}: not a usable kubeconfig ({name})") from None
    return _access(configuration, namespace)


def _access(configuration: Any, namespace: str | None) -> Access:
    if not configuration.verify_ssl:
        raise Unconfigured("insecure-skip-tls-verify is set, but the API server is verified always")
    url = URL(configuration.host)
    if url.scheme != "https" and not _is_loopback(url.host or ""):
        raise Unconfigured(f"{url} is not https, and a token goes nowhere else")
    ca, certificate = configuration.ssl_ca_cert, configuration.cert_file
    return Access(
        url=str(url).rstrip("/"),
        authorization=configuration.api_key.get("BearerToken", "").strip() or None,
        ca=Path(ca).read_text() if ca else None,
        certificate=(certificate, configuration.key_file) if certificate else None,
        server_name=configuration.tls_server_name,
        proxy=configuration.proxy,
        namespace=namespace,
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _text(path: Path) -> str | None:
    return path.read_text().strip() or None if path.is_file() else None
