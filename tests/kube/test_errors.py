"""What answers of the API server mean. How they come about over a socket is tested with the client."""

import json

import pytest

from sidecar.kube import errors

FORBIDDEN = (
    'loraadapters.inference.llmkube.dev is forbidden: User "system:serviceaccount:a:default" cannot list resource '
    '"loraadapters" in API group "inference.llmkube.dev" at the cluster scope'
)


def answer(status: int, headers: dict[str, str] | None = None, **said: object) -> errors.KubeError:
    return errors.from_answer(status, json.dumps(said).encode(), headers or {})


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.Invalid),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (405, errors.Invalid),
        (409, errors.Conflict),
        (410, errors.Gone),
        (422, errors.Invalid),
        (429, errors.Throttled),
        (500, errors.ServerError),
        (504, errors.ServerError),
        (302, errors.ServerError),
    ],
)
def test_the_status_decides_the_kind(status: int, kind: type[errors.KubeError]) -> None:
    error = answer(status, message="the words", reason="TheReason")
    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (status, "TheReason", "the words")
    assert str(error) == f"{status} TheReason: the words"


def test_a_forbidden_says_which_verb_on_which_resource() -> None:
    error = answer(403, message=FORBIDDEN)
    assert isinstance(error, errors.Forbidden)
    assert (error.verb, error.resource) == ("list", "loraadapters")


def test_a_forbidden_by_a_policy_names_no_verb() -> None:
    error = answer(
        403, message="ValidatingAdmissionPolicy 'x' denied request: this token may only ..."
    )
    assert isinstance(error, errors.Forbidden)
    assert (error.verb, error.resource) == (None, None)


def test_an_unsupported_field_selector_is_told_from_other_bad_requests() -> None:
    unsupported = answer(400, message="field label not supported: spec.inferenceServiceRef.name")
    other = answer(400, message="the body is not JSON")
    assert isinstance(unsupported, errors.Invalid)
    assert unsupported.selector_unsupported
    assert isinstance(other, errors.Invalid)
    assert not other.selector_unsupported


def test_a_name_that_is_taken_is_told_from_an_old_version() -> None:
    taken, old = answer(409, reason="AlreadyExists"), answer(409, reason="Conflict")
    assert isinstance(taken, errors.Conflict)
    assert taken.already_exists
    assert isinstance(old, errors.Conflict)
    assert not old.already_exists


@pytest.mark.parametrize(
    ("headers", "details", "seconds"),
    [
        ({"Retry-After": "7"}, {}, 7.0),
        ({}, {"retryAfterSeconds": 3}, 3.0),
        ({"Retry-After": "7"}, {"retryAfterSeconds": 3}, 7.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, {}, None),
        ({}, {"retryAfterSeconds": "soon"}, None),
        ({}, None, None),
    ],
)
def test_how_long_to_wait_is_read_from_header_and_status(
    headers: dict[str, str], details: object, seconds: float | None
) -> None:
    assert answer(429, headers, details=details).retry_after == seconds


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the answer is empty"),
        (b"<html>\n  <h1>Bad   Gateway</h1>\n</html>", "<html> <h1>Bad Gateway</h1> </html>"),
        (b"\xff\xfe", "��"),
        (b"[1, 2]", "[1, 2]"),
        (b"{}", "no reason was given"),
    ],
)
def test_a_body_that_is_no_status_is_put_into_words(body: bytes, message: str) -> None:
    assert errors.from_answer(502, body, {}).message == message


def test_a_long_body_is_cut_short() -> None:
    assert len(errors.from_answer(502, b"x" * 100_000, {}).message) == 300
    assert len(answer(422, message="y" * 100_000).message) == 300


def test_an_error_inside_a_watch_is_read_like_an_answer() -> None:
    assert isinstance(errors.from_status({"code": 410, "reason": "Expired"}), errors.Gone)
    assert isinstance(errors.from_status({"kind": "Pod"}), errors.ServerError)


def test_what_the_network_does_is_unreachable_with_the_cause_chained() -> None:
    with (
        pytest.raises(errors.Unreachable, match="boom") as caught,
        errors.translated(),
    ):
        raise ConnectionResetError("boom")
    assert isinstance(caught.value.__cause__, ConnectionResetError)
    assert not caught.value.timed_out


def test_a_time_out_is_told_in_words_that_do_not_vary() -> None:
    with (
        pytest.raises(errors.Unreachable, match="no answer in time") as caught,
        errors.translated(),
    ):
        raise TimeoutError("https://k8s.example/?timeoutSeconds=471")
    assert caught.value.timed_out


def test_other_errors_are_not_the_networks() -> None:
    with pytest.raises(KeyError), errors.translated():
        raise KeyError("a fault of ours")
