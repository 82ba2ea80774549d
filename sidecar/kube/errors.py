"""What can go wrong between us and the API server, named by what the caller does next.

KubeError
├── Unconfigured   nothing says where the API server is, or it may not be trusted: tell a person
├── Unreachable    no whole answer: ask again soon; a write may or may not have happened
├── Unauthorized   401, also with a token read afresh: keep what is known, ask again later
├── Forbidden      403: say which verb on which resource is missing
├── NotFound       404: the object, or its kind, is not there
├── Conflict       409: read again, decide again
├── Gone           410: the version is too old, list again
├── Invalid        400, 422 and other 4xx: the same request will never do
├── Throttled      429: wait `retry_after`
└── ServerError    5xx, and answers that no API server gives (a proxy's page): wait

Errors of aiohttp, and answers that are none, are translated here and nowhere else, with the original chained.
"""
# ruff: noqa: N818 - the root says that these are errors, the names say what to do

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import aiohttp

_TEXT_LIMIT: Final = 300
_FORBIDDEN: Final = re.compile(r'cannot (?P<verb>[\w*]+) resource "(?P<resource>[^"]+)"')


class KubeError(Exception):
    """The API server did not do what was asked.

    `status` is the HTTP status where there was one, `reason` Kubernetes' CamelCase word for it, `message` its
    words (at most 300 characters), `retry_after` how many seconds it asked us to wait.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        reason: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.retry_after = retry_after

    def __str__(self) -> str:
        head = " ".join(str(part) for part in (self.status, self.reason) if part)
        return f"{head}: {self.message}" if head else self.message


class Unconfigured(KubeError):
    """No usable credentials: neither those of a pod nor a kubeconfig."""


class Unreachable(KubeError):
    """No connection, a broken one, or no answer in time (`timed_out`)."""

    timed_out = False


class Unauthorized(KubeError):
    """401: the API server does not take our token."""


class Forbidden(KubeError):
    """403: by RBAC or by an admission policy.

    `verb` and `resource` say what RBAC lacks; both are None where something else refused.
    """

    @property
    def verb(self) -> str | None:
        """The verb that we may not use, e.g. `list`."""
        return self._said("verb")

    @property
    def resource(self) -> str | None:
        """The plural of what we may not use it on, with its subresource."""
        return self._said("resource")

    def _said(self, what: str) -> str | None:
        match = _FORBIDDEN.search(self.message)
        return match[what] if match else None


class NotFound(KubeError):
    """404."""


class Conflict(KubeError):
    """409: `already_exists` tells a create that came second from a write to an old version."""

    @property
    def already_exists(self) -> bool:
        """An object of this name is there already."""
        return self.reason == "AlreadyExists"


class Gone(KubeError):
    """410: the resourceVersion or the continue token is no longer kept."""


class Invalid(KubeError):
    """400, 422 or another 4xx: what we sent is not accepted."""

    @property
    def selector_unsupported(self) -> bool:
        """The field selector names a field that this server cannot select by (CRDs before Kubernetes 1.31)."""
        return self.status == 400 and "field label not supported" in self.message


class Throttled(KubeError):
    """429."""


class ServerError(KubeError):
    """5xx, or an answer that is not the API server's."""


_BY_STATUS: Final[Mapping[int, type[KubeError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    429: Throttled,
}


def from_answer(status: int, body: bytes, headers: Mapping[str, str]) -> KubeError:
    """What an answer with this HTTP status means; the body may be anything."""
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        said = {"message": body.decode(errors="replace") or "the answer is empty"}
    return _error(status, said, _seconds(headers.get("Retry-After")))


def from_status(said: Mapping[str, Any]) -> KubeError:
    """What a `Status` object means that came inside a watch instead of as an answer."""
    code = said.get("code")
    return _error(code if isinstance(code, int) else 500, said, None)


def _error(status: int, said: Mapping[str, Any], retry_after: float | None) -> KubeError:
    kind = _BY_STATUS.get(status) or (Invalid if 400 <= status < 500 else ServerError)
    details = said.get("details")
    if retry_after is None and isinstance(details, dict):
        retry_after = _seconds(details.get("retryAfterSeconds"))
    return kind(
        _short(said.get("message") or "no reason was given"),
        status=status,
        reason=_short(said.get("reason") or ""),
        retry_after=retry_after,
    )


def _seconds(value: object) -> float | None:
    # Kubernetes writes whole seconds; the date that HTTP also allows is not worth a parser.
    return float(value) if str(value).isdecimal() and isinstance(value, str | int) else None


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _TEXT_LIMIT else text[: _TEXT_LIMIT - 1] + "…"


@contextmanager
def translated() -> Iterator[None]:
    """Turns what aiohttp and the system raise in the body into Unreachable."""
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
        timed_out = isinstance(error, TimeoutError)
        # In other words than aiohttp's, which quote the URL, so that the same fault is told twice in the same words.
        text = "no answer in time" if timed_out else _short(str(error) or type(error).__name__)
        unreachable = Unreachable(text)
        unreachable.timed_out = timed_out
        raise unreachable from error
