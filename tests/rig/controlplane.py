"""A real Kubernetes control plane on this machine: etcd, API server and controller manager, for tests, demo and bench.

It serves what a cluster serves: validation, watches, RBAC, bound tokens, admission, garbage collection, Deployments
that make pods. There is no scheduler and no kubelet: `kubelet` plays that one. All state is in one temporary folder and
ends with it; the programs are other processes, and end with this one. Everything here blocks: call it from a thread
where a loop must go on.

`python -m tests.rig.controlplane` keeps one in the foreground.
"""

import contextlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.rig import flags
from tests.rig.apiclient import ApiClient
from tests.rig.binaries import binaries
from tests.rig.errors import RigError
from tests.rig.install import install
from tests.rig.kubeconfig import write_kubeconfig
from tests.rig.pki import Authority, signing_key
from tests.rig.polling import until
from tests.rig.process import Process

START_SECONDS = 90


class ControlPlane:
    """One control plane; a context manager, or `start` and `stop`.

    With `install_ours` (the default) it starts with the project's CRDs, permissions and policy in
    place. `feature_gates` and `apiserver_args` go to the API server, `controllers` to the
    controller manager.

    When it has started: `server`, `host` and `port` are where it listens, `kubeconfig` and
    `ca_file` are files, and `state` is the folder where all that it has lies, logs too.
    """

    def __init__(
        self,
        *,
        install_ours: bool = True,
        feature_gates: Mapping[str, bool] | None = None,
        apiserver_args: Sequence[str] = (),
        controllers: Sequence[str] = flags.CONTROLLERS,
    ) -> None:
        self._install_ours = install_ours
        self._feature_gates = dict(feature_gates or {})
        self._apiserver_args = list(apiserver_args)
        self._controllers = list(controllers)
        self._running: dict[str, Process] = {}
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Start everything and return when it serves; raises RigError with the end of a log."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def _start(self) -> None:
        self._bin = binaries()
        self.state = Path(tempfile.mkdtemp(prefix="lora-sidecar-"))
        self._cleanup.callback(shutil.rmtree, self.state, ignore_errors=True)
        self.host, self.port = flags.HOST, self._reserve_port()
        self.server = f"https://{self.host}:{self.port}"
        self._make_identities()
        self._run("etcd", flags.etcd(self.state))
        self._until(flags.etcd_socket(self.state).exists, "etcd")
        self.start_apiserver()
        if self._install_ours:
            # Before the controller manager: its garbage collector looks for new kinds only
            # every 30 s, but knows at once those that it finds.
            self.install()
        self._start_manager()
        self._until(self._has_default_service_account, "kube-controller-manager")

    def _start_manager(self) -> None:
        arguments = flags.controller_manager(self._keys, self._controllers)
        self._run("kube-controller-manager", arguments)

    def stop(self) -> None:
        """Stop everything and remove all state; twice does no harm."""
        for name in ("kube-controller-manager", "kube-apiserver", "etcd"):
            if process := self._running.pop(name, None):
                process.stop(grace=5)
        self._cleanup.close()

    # --- asking it ------------------------------------------------------------------

    def api(
        self, method: str, path: str, body: Any = None, content_type: str | None = None, **more: Any
    ) -> dict[str, Any]:
        """Call as administrator; see ApiClient.api."""
        return self._admin_client.api(method, path, body, content_type, **more)

    def client(self, token: str | None = None) -> ApiClient:
        """Return a client of the administrator's, or of whoever holds `token`."""
        if token is None:
            return self._admin_client
        tls = ssl.create_default_context(cafile=self.ca_file)
        return ApiClient(self.host, self.port, tls, token)

    def kubectl(self, *args: str | Path, input: str | None = None, check: bool = True) -> str:  # noqa: A002
        """Run kubectl as administrator and return what it prints on standard output.

        Its failure raises RigError with what it printed on standard error, unless `check` is off.
        """
        done = subprocess.run(
            [self._bin / "kubectl", *args],
            input=input,
            capture_output=True,
            text=True,
            env=os.environ | {"KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(self.state)},
            check=False,
        )
        if check and done.returncode:
            raise RigError(f"kubectl {' '.join(map(str, args))}: {done.stderr.strip()}")
        return done.stdout

    def install(self) -> None:
        """Apply the project's CRDs, permissions and policy, and return when all of them count."""
        install(self.kubectl, self._admin_client)

    def service_account_token(self, namespace: str, name: str, seconds: int = 3600) -> str:
        """Return a token of a service account that is bound to no pod."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        return self.api("POST", path, {"spec": {"expirationSeconds": seconds}})["status"]["token"]

    def kubeconfig_of(self, token: str, file: Path, namespace: str = "default") -> Path:
        """Write a kubeconfig for the holder of a token and return its path."""
        return self._kubeconfig(file, token=token, namespace=namespace)

    @property
    def service_environment(self) -> dict[str, str]:
        """The variables by which a process in a pod finds the API server."""
        return {
            "KUBERNETES_SERVICE_HOST": self.host,
            "KUBERNETES_SERVICE_PORT": str(self.port),
            "KUBERNETES_SERVICE_PORT_HTTPS": str(self.port),
        }

    # --- the API server goes and comes ------------------------------------------------

    def stop_apiserver(self, *, crash: bool = False) -> None:
        """Stop the API server, gracefully or as a crash does; its port then refuses connections."""
        process = self._running.pop("kube-apiserver")
        process.kill() if crash else process.stop()

    def start_apiserver(self) -> None:
        """Start the API server on the port it had before, and return when it is ready."""
        ours = flags.apiserver(self.state, self.port, self._keys, self._feature_gates)
        self._run("kube-apiserver", [*ours, *self._apiserver_args])
        self._until(self._is_ready, "kube-apiserver")
        # What it has seen of outages only lengthens its pauses, to half a minute after five of them.
        if manager := self._running.pop("kube-controller-manager", None):
            manager.kill()
            self._start_manager()

    def restart_apiserver(self, *, crash: bool = False) -> None:
        """Stop and start the API server; etcd keeps what it knew."""
        self.stop_apiserver(crash=crash)
        self.start_apiserver()

    # --- inside -------------------------------------------------------------------------

    def _reserve_port(self) -> int:
        """Hold a free port for the API server for as long as this control plane lives.

        The socket never listens: it only keeps others from getting the port, also while the API
        server is stopped. The API server may bind it beside us, as both allow sharing.
        """
        holder = self._cleanup.enter_context(socket.socket())
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind((flags.HOST, 0))
        return holder.getsockname()[1]

    def _make_identities(self) -> None:
        pki = self.state / "pki"
        pki.mkdir(mode=0o700)
        authority = Authority(pki)
        self.ca_file = authority.file
        admin = authority.issue("admin", user="admin", groups=["system:masters"])
        self.kubeconfig = self._kubeconfig(self.state / "kubeconfig", certificate=admin)
        tls = ssl.create_default_context(cafile=authority.file)
        tls.load_cert_chain(*admin)
        self._admin_client = ApiClient(self.host, self.port, tls)
        manager = authority.issue("manager", user="system:kube-controller-manager")
        self._keys = flags.Keys(
            ca=authority.file,
            serving=authority.issue("server", user="apiserver", addresses=flags.SERVER_NAMES),
            signing=signing_key(pki / "service-account.key"),
            manager_kubeconfig=self._kubeconfig(pki / "manager.kubeconfig", certificate=manager),
        )

    def _kubeconfig(self, file: Path, **user: Any) -> Path:
        return write_kubeconfig(file, self.server, self.ca_file, **user)

    def _run(self, name: str, arguments: Sequence[str]) -> None:
        log = self.state / f"{name}.log"
        self._running[name] = Process([self._bin / name, *arguments], log)

    def _until(self, probe: Callable[[], bool], name: str) -> None:
        process = self._running[name]

        def ready_or_dead() -> bool:
            if process.exit_code is not None:
                raise RigError(f"{name} ended with {process.exit_code}")
            try:
                return probe()
            except OSError:
                return False

        try:
            until(ready_or_dead, f"{name} is ready", timeout=START_SECONDS)
        except RigError as error:
            raise RigError(f"{error}; the end of its log:\n{process.tail()}") from error

    def _is_ready(self) -> bool:
        return self._admin_client.raw("GET", "/readyz")[0] == 200

    def _has_default_service_account(self) -> bool:
        path = "/api/v1/namespaces/default/serviceaccounts/default"
        return self._admin_client.raw("GET", path)[0] == 200


def main() -> None:
    """Run one control plane until Ctrl-C."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with ControlPlane() as controlplane:
        print(f"KUBECONFIG={controlplane.kubeconfig}", flush=True)
        stop.wait()


if __name__ == "__main__":
    try:
        main()
    except RigError as error:
        sys.exit(f"lora-sidecar: {error}")
