"""Where credentials come from, how fresh they are, and that they are told to nobody."""

import base64
import json
import logging
import traceback
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecar.kube.credentials import Access, Credentials, find, from_kubeconfig, in_cluster
from sidecar.kube.errors import Unconfigured
from tests.kube.conftest import FakeTime

SECRET = "very-secret"
CA = "-----BEGIN CERTIFICATE-----\n(not looked into here)\n-----END CERTIFICATE-----\n"
HERE = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    """A directory as a pod has it."""
    (tmp_path / "token").write_text(f"{SECRET}\n")
    (tmp_path / "ca.crt").write_text(CA)
    (tmp_path / "namespace").write_text("team-a\n")
    return tmp_path


def kubeconfig(path: Path, *, cluster: dict[str, Any], user: dict[str, Any]) -> str:
    content = {
        "current-context": "here",
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team-b"}}
        ],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(content))
    return str(path)


def test_a_pod_has_token_authority_and_namespace_in_files(pod: Path) -> None:
    access = in_cluster(pod, HERE)
    assert access == Access("https://10.0.0.1:6443", f"Bearer {SECRET}", ca=CA, namespace="team-a")


def test_an_ipv6_host_is_put_in_brackets(pod: Path) -> None:
    assert in_cluster(pod, {**HERE, "KUBERNETES_SERVICE_HOST": "fd00::1"}).url.startswith(
        "https://[fd00::1]"
    )


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_a_pod_without_its_files_is_unconfigured(pod: Path, missing: str) -> None:
    (pod / missing).unlink()
    with pytest.raises(Unconfigured, match=str(pod)):
        in_cluster(pod, HERE)


def test_a_missing_namespace_file_is_no_harm(pod: Path) -> None:
    (pod / "namespace").unlink()
    assert in_cluster(pod, HERE).namespace is None


def test_a_kubeconfig_is_read_with_its_token_and_namespace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    cluster = {
        "server": "https://k8s.example:6443/prefix/",
        "certificate-authority-data": base64.b64encode(CA.encode()).decode(),
        "tls-server-name": "kubernetes",
    }
    access = from_kubeconfig(
        kubeconfig(tmp_path / "config", cluster=cluster, user={"token": SECRET})
    )
    assert access.url == "https://k8s.example:6443/prefix"
    assert access.authorization == f"Bearer {SECRET}"
    assert (access.ca, access.server_name, access.namespace) == (CA, "kubernetes", "team-b")
    assert SECRET not in caplog.text


def test_a_kubeconfig_may_log_in_by_a_plugin(tmp_path: Path) -> None:
    says = '{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "t"}}'
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "echo",
            "args": [says],
        }
    }
    path = kubeconfig(tmp_path / "config", cluster={"server": "https://k8s.example"}, user=user)
    assert from_kubeconfig(path).authorization == "Bearer t"


def test_a_kubeconfig_that_wants_no_verification_is_refused(tmp_path: Path) -> None:
    cluster = {"server": "https://k8s.example", "insecure-skip-tls-verify": True}
    with pytest.raises(Unconfigured, match="insecure-skip-tls-verify"):
        from_kubeconfig(kubeconfig(tmp_path / "config", cluster=cluster, user={"token": SECRET}))


def test_plain_http_is_for_loopback_only(tmp_path: Path) -> None:
    proxy = kubeconfig(tmp_path / "a", cluster={"server": "http://127.0.0.1:8001"}, user={})
    other = kubeconfig(tmp_path / "b", cluster={"server": "http://10.0.0.1:8001"}, user={})
    assert from_kubeconfig(proxy).url == "http://127.0.0.1:8001"
    with pytest.raises(Unconfigured, match="not https"):
        from_kubeconfig(other)


def test_no_kubeconfig_at_all_is_unconfigured(tmp_path: Path) -> None:
    with pytest.raises(Unconfigured, match="no kubeconfig at"):
        from_kubeconfig(str(tmp_path / "none"))


WHOLE = {
    "current-context": "here",
    "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "https://k8s.example"}}],
}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(json.dumps({**WHOLE, "users": [user]}), id=name)
        for name, user in {
            "a user without its key": {"name": "u", "token": SECRET},
            "a plugin without a command": {"name": "u", "user": {"exec": {"args": [SECRET]}}},
            "a token that is no text": {"name": "u", "user": {"tokenFile": {SECRET: 1}}},
        }.items()
    ]
    + [
        pytest.param(f"users: [{{token: {SECRET}", id="broken YAML"),
        pytest.param(f"- {SECRET}", id="a list"),
        pytest.param(SECRET, id="a word"),
        pytest.param("", id="nothing"),
    ],
)
def test_a_bad_kubeconfig_is_named_but_never_quoted(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(Unconfigured, match="not a usable kubeconfig") as caught:
        from_kubeconfig(str(path))
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_what_is_read_is_not_shown(pod: Path) -> None:
    assert SECRET not in repr(in_cluster(pod, HERE))


async def test_a_pod_uses_its_files_and_not_a_kubeconfig(pod: Path, tmp_path: Path) -> None:
    credentials = find(directory=pod, environ={**HERE, "KUBECONFIG": str(tmp_path / "none")})
    assert (await credentials.access()).namespace == "team-a"
    credentials.close()


async def test_a_kubeconfig_that_is_named_goes_before_the_pods_files(
    pod: Path, tmp_path: Path
) -> None:
    path = kubeconfig(tmp_path / "config", cluster={"server": "https://k8s.example"}, user={})
    credentials = find(kubeconfig=path, directory=pod, environ=HERE)
    assert (await credentials.access()).url == "https://k8s.example"
    credentials.close()


async def test_outside_a_pod_the_users_kubeconfig_is_used(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", cluster={"server": "https://k8s.example"}, user={})
    credentials = find(environ={"KUBECONFIG": path})
    assert (await credentials.access()).url == "https://k8s.example"
    credentials.close()


class Token:
    """A source that counts its readings."""

    def __init__(self) -> None:
        self.readings = 0
        self.broken = False

    def __call__(self) -> Access:
        self.readings += 1
        if self.broken:
            raise Unconfigured("the file is gone")
        return Access("https://k8s.example", f"Bearer {self.readings}")


async def test_a_token_is_read_again_when_it_is_a_minute_old_and_not_before(time: FakeTime) -> None:
    credentials = Credentials(Token(), clock=time.clock)
    assert (await credentials.access()).authorization == "Bearer 1"
    time.now += 59.9
    assert (await credentials.access()).authorization == "Bearer 1"
    time.now += 0.1
    assert (await credentials.access()).authorization == "Bearer 2"
    credentials.close()


async def test_a_fresh_token_is_read_at_once(time: FakeTime) -> None:
    credentials = Credentials(Token(), clock=time.clock)
    await credentials.access()
    assert (await credentials.access(fresh=True)).authorization == "Bearer 2"
    assert (await credentials.access()).authorization == "Bearer 2"
    credentials.close()


async def test_a_token_that_cannot_be_read_again_stays_in_use(
    time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    token = Token()
    credentials = Credentials(token, clock=time.clock)
    await credentials.access()
    token.broken = True
    assert (await credentials.access(fresh=True)).authorization == "Bearer 1"
    assert "the last ones stay in use" in caplog.text
    credentials.close()


async def test_a_first_reading_that_fails_is_told(time: FakeTime) -> None:
    token = Token()
    token.broken = True
    credentials = Credentials(token, clock=time.clock)
    with pytest.raises(Unconfigured):
        await credentials.access()
    credentials.close()
