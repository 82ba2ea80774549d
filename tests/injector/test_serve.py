"""How the webhook is started, and what its process does where what it needs is missing."""

import http.client
import json
import os
import socket
import ssl
import sys
from pathlib import Path

import pytest

from injector import certificates as c
from injector.serve import parse
from tests.injector.pods import pod
from tests.injector.test_keeping import wall
from tests.rig.engines import ROOT, free_port
from tests.rig.kubeconfig import write_kubeconfig
from tests.rig.pki import Authority
from tests.rig.polling import until
from tests.rig.process import Process

HOST = "localhost"


def test_the_service_names_the_hosts_unless_they_are_given() -> None:
    settings, _ = parse(["--service", "s"], {"LORA_SIDECAR_NAMESPACE": "n"})
    assert settings.host_names("n") == ("s.n.svc", "s.n.svc.cluster.local")
    assert parse(["--hosts", "a,b"], {})[0].host_names("n") == ("a", "b")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WEBHOOK_PORT", "many"),
        ("MEMORY_LIMIT", "lots"),
        ("CPU_REQUEST", "-1"),
        ("ON_ERROR", "maybe"),
        ("KUBERNETES_VERSION", "new"),
        ("IMAGE_PULL_POLICY", "Sometimes"),
    ],
)
def test_a_bad_setting_is_a_warning_and_its_default(name: str, value: str) -> None:
    settings, (warning,) = parse([], {f"LORA_SIDECAR_{name}": value})
    assert settings == parse([], {})[0]
    assert warning.startswith(f"LORA_SIDECAR_{name}: ")


@pytest.mark.parametrize(
    ("version", "native"),
    [("1.28", False), ("v1.29.0", True), ("1.31+", True), ("v1.36.2-gke.1", True), ("2.0", True)],
)
def test_native_sidecars_are_for_clusters_that_have_them(version: str, native: bool) -> None:
    assert parse(["--kubernetes-version", version], {})[0].native() is native


class Alone:
    """A replica whose API server is away, with somebody else's certificate."""

    def __init__(self, folder: Path, port: int) -> None:
        self.authority = Authority(folder)
        config = write_kubeconfig(
            folder / "kubeconfig",
            f"https://127.0.0.1:{free_port()}",
            self.authority.file,
            token="none",
        )
        signer = c.make_authority(wall())
        data = c.State((signer.cert,), signer, c.make_leaf(signer, [HOST], wall())).data()
        self.trust = ssl.create_default_context(cadata=data[c.CA_CERT].decode())
        (folder / "certificates").mkdir()
        for name in (c.CERT, c.KEY):
            (folder / "certificates" / name).write_bytes(data[name])
        self.port, self.probes = port, free_port()
        command = [sys.executable, "-m", "injector", "--kubeconfig", str(config)]
        command += ["--certificates", str(folder / "certificates"), "--hosts", HOST]
        command += ["--webhook-port", str(port), "--listen-port", str(self.probes)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = Process(command, folder / "injector.log", environment=environment)

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.probes, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except ConnectionError:
            return 0, ""
        finally:
            connection.close()


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.mark.field(81)
def test_without_an_api_server_it_answers_and_is_not_ready(tmp_path: Path, port: int) -> None:
    alone = Alone(tmp_path, port)
    try:
        until(lambda: "answers reviews" in alone.process.tail(), "it listens")
        request = {"uid": "u", "namespace": "team", "object": pod()}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        body = json.dumps(review | {"request": request})
        connection = http.client.HTTPSConnection(HOST, port, context=alone.trust, timeout=30)
        connection.request("POST", "/mutate", body, {"Content-Type": "application/json"})
        assert json.load(connection.getresponse())["response"]["patch"]
        connection.close()
        assert alone.get("/livez")[0] == 200
        assert alone.get("/readyz")[0] == 503
    finally:
        alone.process.stop()
    assert alone.process.exit_code == 0


def test_a_port_that_is_taken_ends_it_badly_and_says_so(tmp_path: Path, port: int) -> None:
    with socket.socket() as other:
        other.bind(("0.0.0.0", port))
        other.listen()
        alone = Alone(tmp_path, port)
        until(lambda: alone.process.exit_code is not None, "it ends")
    assert alone.process.exit_code == 1
    assert "reviews failed" in alone.process.log.read_text()
