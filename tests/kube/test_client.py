"""The client over real sockets: requests, streams, tokens and TLS."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sidecar.kube import errors
from sidecar.kube.client import MERGE_PATCH, Client, Resource
from sidecar.kube.credentials import Access, Credentials, in_cluster
from tests.fakes import kube_faults as faults
from tests.fakes.kube import FakeKube
from tests.kube.conftest import ADAPTERS, FakeTime, adapter
from tests.rig.pki import Authority

PATH = ADAPTERS.path("a")


# ---- paths -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (ADAPTERS.path(), "/apis/inference.llmkube.dev/v1alpha1/loraadapters"),
        (ADAPTERS.path("a"), "/apis/inference.llmkube.dev/v1alpha1/namespaces/a/loraadapters"),
        (
            ADAPTERS.path("a", "x", "status"),
            "/apis/inference.llmkube.dev/v1alpha1/namespaces/a/loraadapters/x/status",
        ),
        (Resource("", "v1", "pods").path("a", "p"), "/api/v1/namespaces/a/pods/p"),
        (Resource("", "v1", "namespaces").path(None, "a"), "/api/v1/namespaces/a"),
        (ADAPTERS.path("a", "../b"), ADAPTERS.path("a") + "/..%2Fb"),
    ],
)
def test_a_path_names_all_objects_one_or_a_part_of_one(path: str, expected: str) -> None:
    assert path == expected


def test_the_api_version_of_the_core_group_has_no_group() -> None:
    assert ADAPTERS.api_version == "inference.llmkube.dev/v1alpha1"
    assert Resource("", "v1", "pods").api_version == "v1"


# ---- requests ----------------------------------------------------------------------------------------------------


async def test_a_request_carries_parameters_body_and_type(kube: FakeKube, client: Client) -> None:
    kube.put(ADAPTERS, adapter("x"))
    path = ADAPTERS.path("a", "x")
    patch = {"spec": {"path": "/ü"}}
    answer = await client.request(
        "PATCH", path, params={"fieldManager": "a+b=c"}, body=patch, content_type=MERGE_PATCH
    )
    assert answer["spec"] == {"name": "x", "path": "/ü"}
    (seen,) = kube.seen
    assert (seen.params, seen.body) == ({"fieldManager": "a+b=c"}, patch)
    assert seen.headers["Content-Type"] == "application/merge-patch+json"
    assert seen.headers["User-Agent"] == "lora-sidecar"


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (faults.forbidden("list", "loraadapters"), errors.Forbidden, "cannot list resource"),
        (faults.status(410, "too old", "Expired"), errors.Gone, "410 Expired: too old"),
        (faults.page(502), errors.ServerError, "502: <html> <h1>Bad Gateway"),
        (faults.page(500, ""), errors.ServerError, "the answer is empty"),
        (faults.page(200), errors.ServerError, "not JSON"),
        (faults.page(200, "[]"), errors.ServerError, "not an object"),
        (faults.page(301), errors.ServerError, "301"),
        (faults.stream(b'{"items": [', cut_after=True), errors.Unreachable, "not completed"),
    ],
)
async def test_what_is_no_good_answer_is_a_kube_error(
    kube: FakeKube, client: Client, answer: faults.Answer, kind: type[Exception], words: str
) -> None:
    kube.fail(answer, times=9)
    with pytest.raises(kind, match=words):
        await client.request("GET", PATH)


async def test_a_throttled_request_says_how_long_to_wait(kube: FakeKube, client: Client) -> None:
    kube.fail(faults.status(429, "slow down", retry_after=7))
    with pytest.raises(errors.Throttled) as caught:
        await client.request("GET", PATH)
    assert caught.value.retry_after == 7
    assert len(kube.seen) == 1


@pytest.mark.parametrize("before_headers", [True, False])
async def test_silence_ends_at_the_time_out(
    kube: FakeKube, client: Client, before_headers: bool
) -> None:
    release = asyncio.Event()
    kube.fail(faults.silence(release, before_headers=before_headers))
    with pytest.raises(errors.Unreachable) as caught:
        await client.request("GET", PATH, timeout=0.05)
    assert caught.value.timed_out
    release.set()


async def test_a_refused_connection_is_unreachable(kube: FakeKube, client: Client) -> None:
    await kube.stop()
    with pytest.raises(errors.Unreachable) as caught:
        await client.request("GET", PATH)
    assert not caught.value.timed_out


async def test_the_next_request_finds_a_server_that_came_back(
    kube: FakeKube, client: Client
) -> None:
    await client.request("GET", PATH)
    await kube.stop()
    await kube.start()
    await client.request("GET", PATH)


async def test_a_connection_is_used_again_also_after_an_error(
    kube: FakeKube, client: Client
) -> None:
    for _ in range(3):
        with pytest.raises(errors.NotFound):
            await client.request("GET", ADAPTERS.path("a", "none"))
        await client.request("GET", PATH)
    assert len({seen.peer for seen in kube.seen}) == 1


async def test_entering_without_credentials_is_unconfigured(tmp_path: Path) -> None:
    with pytest.raises(errors.Unconfigured):
        async with Client.open(environ={"KUBECONFIG": str(tmp_path / "none")}):
            pytest.fail("there is nothing to open")


# ---- tokens ------------------------------------------------------------------------------------------------------


class TokenFile:
    """A token that a test rotates."""

    def __init__(self, kube: FakeKube, time: FakeTime) -> None:
        self.token = "old"
        self.credentials = Credentials(
            lambda: Access(kube.url, f"Bearer {self.token}"), clock=time.clock
        )


@pytest.fixture
def token(kube: FakeKube, time: FakeTime) -> TokenFile:
    return TokenFile(kube, time)


@pytest.mark.field(64)
async def test_every_request_carries_the_token_of_the_file(
    kube: FakeKube, token: TokenFile, time: FakeTime
) -> None:
    kube.put(ADAPTERS, adapter("x"))
    async with Client(token.credentials) as client:
        for current in ("old", "new"):
            token.token, time.now = current, time.now + 60
            await client.request("GET", PATH)
            await client.request(
                "PATCH",
                ADAPTERS.path("a", "x"),
                body={"spec": {"path": current}},
                content_type=MERGE_PATCH,
            )
            kube.fail(faults.stream(), verb="watch")
            async with client.stream(PATH, {"watch": "true"}):
                pass
    sent = [seen.headers["Authorization"] for seen in kube.seen]
    assert sent == ["Bearer old"] * 3 + ["Bearer new"] * 3


@pytest.mark.field(65)
async def test_a_refused_token_is_read_again_at_once_and_the_call_succeeds(
    kube: FakeKube, token: TokenFile, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    kube.tokens = {"old"}
    async with Client(token.credentials) as client:
        await client.request("GET", PATH)
        kube.tokens, token.token = {"new"}, "new"
        await client.request("GET", PATH)
        await client.request("GET", PATH)
        async with client.stream(PATH, {"watch": "true"}):
            await kube.streams()
    assert len(kube.seen) == 5
    assert len(caplog.records) == 1
    assert "new" not in caplog.messages[0].replace("a newer one", "")


async def test_a_token_that_stays_refused_is_tried_twice_and_no_more(
    kube: FakeKube, token: TokenFile, time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with Client(token.credentials) as client:
        token.token, time.now = "new", time.now + 60
        await client.request("GET", PATH)
        kube.tokens = {"other"}
        with pytest.raises(errors.Unauthorized):
            await client.request("GET", PATH)
    assert len(kube.seen) == 3
    assert caplog.records == []


# ---- streams -----------------------------------------------------------------------------------------------------


async def read(client: Client, read_timeout: float = 5.0) -> list[bytes]:
    async with client.stream(PATH, {"watch": "true"}, read_timeout=read_timeout) as lines:
        return [line async for line in lines]


async def test_lines_arrive_whole_however_they_were_cut(kube: FakeKube, client: Client) -> None:
    kube.fail(faults.stream(b'{"a"', b": 1}", b'\n{"b": 2}\n{"c', b'": 3}\n'))
    assert await read(client) == [b'{"a": 1}', b'{"b": 2}', b'{"c": 3}']


async def test_a_line_may_be_as_long_as_an_object_can_be(kube: FakeKube, client: Client) -> None:
    kube.fail(faults.stream(b"x" * (5 << 20) + b"\n", b"short\n"))
    assert [len(line) for line in await read(client)] == [5 << 20, 5]


async def test_a_line_without_end_is_given_up(
    kube: FakeKube, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.kube.client._LINE_LIMIT", 1000)
    kube.fail(faults.stream(b"x" * 2000))
    with pytest.raises(errors.ServerError, match="longer than 1000 bytes"):
        await read(client)


async def test_half_a_line_at_a_clean_end_is_dropped(kube: FakeKube, client: Client) -> None:
    kube.fail(faults.stream(b"whole\n", b'{"half'))
    assert await read(client) == [b"whole"]


async def test_a_break_is_unreachable_after_the_whole_lines(kube: FakeKube, client: Client) -> None:
    kube.fail(faults.stream(b"whole\n", b'{"half', cut_after=True))
    async with client.stream(PATH, {"watch": "true"}) as lines:
        assert await anext(lines) == b"whole"
        with pytest.raises(errors.Unreachable):
            await anext(lines)


async def test_silence_in_a_stream_ends_at_the_read_time_out(
    kube: FakeKube, client: Client
) -> None:
    release = asyncio.Event()
    kube.fail(faults.silence(release))
    with pytest.raises(errors.Unreachable) as caught:
        await read(client, read_timeout=0.05)
    assert caught.value.timed_out
    release.set()


async def test_a_refused_stream_raises_when_it_is_opened(kube: FakeKube, client: Client) -> None:
    kube.fail(faults.forbidden("watch", "loraadapters"))
    with pytest.raises(errors.Forbidden):
        await read(client)


async def test_a_stream_that_is_left_closes_its_connection(kube: FakeKube, client: Client) -> None:
    async with client.stream(PATH, {"watch": "true", "resourceVersion": kube.memory.version}):
        await kube.streams(1)
    await kube.streams(0)


# ---- TLS ---------------------------------------------------------------------------------------------------------


class SecureKube:
    """An API server with a certificate of its own, and the directory that a pod of its cluster has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.kube = FakeKube(tls=self.context)
        self.pod = folder / "pod"
        self.pod.mkdir()
        (self.pod / "token").write_text("t")
        self.authority = self.use_new_authority("first")
        self.trust(self.authority)

    def use_new_authority(self, name: str, host: str = "127.0.0.1") -> Authority:
        """Serves a certificate of a CA that nobody trusts yet."""
        folder = self.folder / name
        folder.mkdir()
        authority = Authority(folder)
        self.context.load_cert_chain(*authority.issue("server", user="server", addresses=[host]))
        return authority

    def trust(self, authority: Authority) -> None:
        (self.pod / "ca.crt").write_bytes(authority.file.read_bytes())

    def client(self, time: FakeTime) -> Client:
        environ = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.kube.port),
        }
        return Client(Credentials(lambda: in_cluster(self.pod, environ), clock=time.clock))


@pytest.fixture
async def secure(tmp_path: Path) -> AsyncIterator[SecureKube]:
    made = SecureKube(tmp_path)
    async with made.kube:
        yield made


async def test_the_clusters_authority_is_trusted(secure: SecureKube, time: FakeTime) -> None:
    async with secure.client(time) as client:
        await client.request("GET", PATH)
    assert secure.kube.seen[0].headers["Authorization"] == "Bearer t"


async def test_another_authority_is_refused_before_a_token_is_sent(
    secure: SecureKube, time: FakeTime
) -> None:
    secure.use_new_authority("another")
    async with secure.client(time) as client:
        with pytest.raises(errors.Unreachable, match="certificate verify failed"):
            await client.request("GET", PATH)
    assert secure.kube.seen == []


async def test_a_certificate_for_another_host_is_refused(
    secure: SecureKube, time: FakeTime
) -> None:
    secure.trust(secure.use_new_authority("other-host", host="127.0.0.2"))
    async with secure.client(time) as client:
        with pytest.raises(errors.Unreachable, match="certificate"):
            await client.request("GET", PATH)
    assert secure.kube.seen == []


async def test_a_rotated_authority_is_trusted_without_a_restart(
    secure: SecureKube, time: FakeTime
) -> None:
    async with secure.client(time) as client:
        await client.request("GET", PATH)
        rotated = secure.use_new_authority("rotated")
        await secure.kube.stop()
        await secure.kube.start()
        with pytest.raises(errors.Unreachable):
            await client.request("GET", PATH)
        secure.trust(rotated)
        time.now += 60
        await client.request("GET", PATH)


async def test_a_ca_file_that_is_none_is_unconfigured(secure: SecureKube, time: FakeTime) -> None:
    (secure.pod / "ca.crt").write_text("nonsense")
    with pytest.raises(errors.Unconfigured, match="cannot be read"):
        async with secure.client(time):
            pytest.fail("there is nothing to trust")
