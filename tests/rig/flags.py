"""The command lines of the control plane's programs: what is special about them here, and why.

Values only: nothing is started, and no file is read or written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
ISSUER = "https://kubernetes.default.svc"
SERVICE_RANGE = "10.0.0.0/24"
SERVER_NAMES = (
    *("kubernetes", "kubernetes.default", "kubernetes.default.svc"),
    *("kubernetes.default.svc.cluster.local", "localhost", HOST, "10.0.0.1"),
)
"""What the API server's certificate is good for; the last is its address inside a cluster."""
CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "replicaset-controller",
    "deployment-controller",
)


@dataclass(frozen=True, slots=True)
class Keys:
    """Files that hold who is who: certificates come with their keys."""

    ca: Path
    serving: tuple[Path, Path]
    signing: Path
    """The key with which tokens of service accounts are signed."""
    manager_kubeconfig: Path


def etcd(state: Path) -> list[str]:
    """Return the flags of etcd, with everything it has below `state`, its working folder."""
    # What etcd advertises must look like host:port, and its only member asks nobody. It makes
    # the socket "peer:1" in its working folder.
    advertised = "unix://peer:1"
    return [
        f"--data-dir={state}/etcd",
        "--unsafe-no-fsync",
        f"--listen-client-urls=unix://{etcd_socket(state)}",
        f"--advertise-client-urls={advertised}",
        f"--listen-peer-urls={advertised}",
        f"--initial-advertise-peer-urls={advertised}",
        f"--initial-cluster=default={advertised}",
    ]


def apiserver(state: Path, port: int, keys: Keys, gates: Mapping[str, bool]) -> list[str]:
    """Return the flags of the API server on a port that somebody may hold for it by SO_REUSEPORT."""
    gate_text = ",".join(f"{gate}={str(on).lower()}" for gate, on in gates.items())
    return [
        f"--etcd-servers=unix://{etcd_socket(state)}",
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",
        f"--secure-port={port}",
        "--permit-port-sharing",
        # Watches end at once when it stops, instead of holding it up for a minute.
        "--shutdown-watch-termination-grace-period=1s",
        # There is one API server, at an address that cannot be an endpoint's.
        "--endpoint-reconciler-type=none",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--tls-cert-file={keys.serving[0]}",
        f"--tls-private-key-file={keys.serving[1]}",
        f"--client-ca-file={keys.ca}",
        "--authorization-mode=RBAC",
        "--allow-privileged",
        f"--service-account-issuer={ISSUER}",
        f"--api-audiences={ISSUER}",
        f"--service-account-key-file={keys.signing}",
        f"--service-account-signing-key-file={keys.signing}",
        *([f"--feature-gates={gate_text}"] if gates else []),
    ]


def controller_manager(keys: Keys, controllers: Sequence[str]) -> list[str]:
    """Return the flags of the controller manager; its controllers act under their own names, as in a cluster."""
    return [
        f"--kubeconfig={keys.manager_kubeconfig}",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={keys.signing}",
        f"--root-ca-file={keys.ca}",
        f"--controllers={','.join(controllers)}",
        "--leader-elect=false",
        "--secure-port=0",
    ]


def etcd_socket(state: Path) -> Path:
    """Return where etcd listens: a file, so that nothing else on this machine takes or finds a port."""
    return state / "etcd.sock"
