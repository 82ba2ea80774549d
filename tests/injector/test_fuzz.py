"""Whatever is sent as a review: a well-formed answer or a 4xx that says why, never an exception."""

import asyncio
import base64
import io
import json
import ssl
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from injector.decide import Plan, decide
from injector.explain import apply
from injector.review import review
from injector.settings import InjectorSettings
from sidecar.api import names
from sidecar.api.annotations import ANNOTATIONS
from sidecar.api.settings import AgentSettings
from tests.injector.pods import pod
from tests.injector.test_keeping import client, keeper, kube, served

__all__ = ["client", "kube"]

SETTINGS = InjectorSettings()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)
LIMITS = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


def body(document: Any, **request: Any) -> bytes:
    asked = {"uid": "u", "namespace": "team", "object": document} | request
    whole = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    return json.dumps(whole).encode()


def checked(raw: bytes, policy: InjectorSettings = SETTINGS) -> dict[str, Any]:
    """The response to a review, after what must hold of every answer."""
    verdict = review(raw, policy)
    json.dumps(verdict.body)
    assert verdict.sentence
    if verdict.status != 200:
        assert 400 <= verdict.status < 500
        assert verdict.body["error"]
        return {}
    assert verdict.body["kind"] == "AdmissionReview"
    response = verdict.body["response"]
    assert response["uid"] == json.loads(raw)["request"]["uid"]
    assert response["allowed"] or response["status"]["message"]
    if "patch" in response:
        assert response["patchType"] == "JSONPatch"
        apply(json.loads(raw)["request"]["object"], json.loads(base64.b64decode(response["patch"])))
    return dict(response)


@LIMITS
@given(st.binary(max_size=200))
def test_any_bytes(raw: bytes) -> None:
    checked(raw)


@LIMITS
@given(JSON)
def test_any_json(document: Any) -> None:
    checked(json.dumps(document).encode())
    checked(body(document))
    checked(body(pod(), uid=document) if isinstance(document, str) else body(pod(), x=document))


def places(document: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value within a document."""
    found = [way] if way else []
    if isinstance(document, dict):
        return [*found, *(p for k, v in document.items() for p in places(v, (*way, k)))]
    if isinstance(document, list):
        return [*found, *(p for i, v in enumerate(document) for p in places(v, (*way, i)))]
    return found


@LIMITS
@given(st.data(), st.sampled_from(["deny", "allow"]))
def test_a_pod_in_which_anything_is_replaced_by_anything(data: Any, policy: str) -> None:
    document = pod("--api-key", "$(K)", volumes=[{"name": "adapters", "hostPath": {"path": "/x"}}])
    document["spec"]["containers"][0]["env"] = [{"name": "K", "value": "k"}]
    document["metadata"]["ownerReferences"] = [{"name": "o"}]
    *way, last = data.draw(st.sampled_from(places(document)))
    target: Any = document
    for step in way:
        target = target[step]
    target[last] = data.draw(JSON)
    response = checked(body(document), InjectorSettings(on_error=policy))  # type: ignore[arg-type]
    assert response["allowed"] or policy == "deny"


@LIMITS
@given(
    st.dictionaries(
        st.sampled_from([a.key for a in ANNOTATIONS if a.key != names.INJECT]),
        st.text(max_size=80) | st.from_regex(r"[-+]?[0-9]{1,8}[a-zA-Z]{0,2}", fullmatch=True),
    )
)
def test_any_values_of_annotations_give_an_agent_that_can_start(said: dict[str, str]) -> None:
    document = pod()
    document["metadata"]["annotations"] |= said
    decision = decide(document, "team", SETTINGS)
    if not isinstance(decision, Plan):
        assert decision.slug.value == "no-such-container"
        return
    read, warnings = AgentSettings.from_env(decision.settings.to_env())
    assert warnings == []
    assert read == decision.settings


@LIMITS
@given(st.lists(st.text(max_size=20), max_size=10), st.booleans())
def test_any_command_line(words: list[str], shell: bool) -> None:
    document = pod()
    [engine] = document["spec"]["containers"]
    engine["command"] = ["sh", "-c", " ".join(words)] if shell else ["sglang", "serve"]
    engine["args"] = words
    assert checked(body(document))["allowed"]


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_unicode_of_all_kinds_comes_back_as_it_went(field: str) -> None:
    document = pod()
    document["metadata"][field]["x"] = "\ud800\U0001f600\u2028\x00é"
    document["metadata"]["generateName"] = "\ud800\n-"
    response = checked(body(document))
    assert response["allowed"]


def test_a_deep_document_is_refused_or_answered() -> None:
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    assert review(deep, SETTINGS).status == 400
    nested: Any = 1
    for _ in range(200):
        nested = [nested]
    assert checked(body(pod(deep=nested)))["allowed"]


def test_a_pod_of_three_mebibytes_is_given_the_agent() -> None:
    document = pod()
    document["metadata"]["annotations"]["big"] = "x" * (3 << 20)
    containers = [{"name": f"c{n}", "args": ["--port", "1"] * 50} for n in range(500)]
    document["spec"]["containers"] += containers
    assert "patch" in checked(body(document))


async def test_over_the_wire_rubbish_is_answered_and_the_next_review_too(client) -> None:
    one = keeper(client)
    await one.attempt()
    tls = ssl.create_default_context(cadata=one.trusted.all[0].decode())
    big = body(pod(padding="x" * (3 << 20)))
    rubbish = [b"", b"\xff" * 1000, b"[" * 200_000, b"{}", body(None), body(7), big[:-1]]
    async with (
        served(one.serving, lambda raw: review(raw, SETTINGS)) as (url, registry),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session,
    ):

        async def post(raw: bytes) -> tuple[int, bytes]:
            headers = {"Content-Type": "application/json"}
            async with session.post(
                url, data=io.BytesIO(raw), headers=headers, server_hostname="injector.sys.svc"
            ) as answer:
                return answer.status, await answer.read()

        for status, text in await asyncio.gather(*map(post, rubbish)):
            assert 400 <= status < 500
            assert text
        status, text = await post(big)
        assert status == 200
        assert json.loads(text)["response"]["patch"]
        malformed = {"decision": "error", "reason": "malformed"}
        counted = registry.get_sample_value("lora_sidecar_injector_reviews_total", malformed)
        assert counted == len(rubbish)
