"""The plainest client of an API server that tests can have: one blocking call, JSON in and JSON out.

It shares no code with the client under test, so that the two cannot be wrong together. Each call has a connection of
its own: any thread may call, and a restarted server is simply found again. No retries.
"""

import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any

MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
JSON = "application/json"

CALL_SECONDS = 60


class ApiError(Exception):
    """The API server's refusal."""

    def __init__(self, method: str, path: str, status: int, text: str) -> None:
        super().__init__(f"{method} {path}: {status} {text}")
        self.status = status
        self.text = text

    @property
    def reason(self) -> str:
        """The Status object's reason (NotFound, Conflict, Forbidden, ...), or nothing."""
        try:
            return str(json.loads(self.text).get("reason", ""))
        except (ValueError, AttributeError):
            return ""


class ApiClient:
    """One identity's view of one API server."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext, token: str | None = None) -> None:
        self._address = host, port
        self._tls = tls
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def api(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Call and return the answer's JSON object.

        The content type defaults to a merge patch for PATCH, else to JSON. Any status from 400 on
        raises ApiError; what happens to the connection raises OSError.
        """
        status, text = self.raw(method, path, body, content_type, headers=headers)
        if status >= 400:
            raise ApiError(method, path, status, text)
        return json.loads(text)

    def raw(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, str]:
        """Call and return status and text, whatever they are."""
        sent = self._headers | {"Accept": JSON} | dict(headers or {})
        if body is not None:
            sent["Content-Type"] = content_type or (MERGE_PATCH if method == "PATCH" else JSON)
        connection = http.client.HTTPSConnection(
            *self._address, context=self._tls, timeout=CALL_SECONDS
        )
        try:
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except http.client.HTTPException as error:
            raise ConnectionError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()
