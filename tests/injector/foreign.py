"""Somebody else's mutating webhook: it adds one container to every pod that lacks it, after ours has been asked."""

import base64
import json
import ssl
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from tests.rig.controlplane import ControlPlane
from tests.rig.injector import CONFIGURATIONS, HOST, NAME_LABEL
from tests.rig.pki import Authority

NAME = "zz-foreign"
"""Webhooks are called in the order of their configurations' names."""


class ForeignWebhook:
    """Serves, and is installed for one namespace, while it is entered."""

    def __init__(
        self, controlplane: ControlPlane, namespace: str, container: dict[str, Any]
    ) -> None:
        self._controlplane = controlplane
        self._namespace = namespace
        self._container = container

    def __enter__(self) -> Self:
        container = self._container

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = json.dumps(_mutate(json.loads(body), container)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._folder = tempfile.TemporaryDirectory()
        authority = Authority(Path(self._folder.name))
        certificate = authority.issue("foreign", user="foreign", addresses=[HOST])
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self._controlplane.api("POST", CONFIGURATIONS, self._configuration(authority.file))
        return self

    def __exit__(self, *_: object) -> None:
        self._controlplane.api("DELETE", f"{CONFIGURATIONS}/{NAME}")
        self._server.shutdown()
        self._server.server_close()
        self._folder.cleanup()

    def in_force(self, made: dict[str, Any]) -> dict[str, Any] | None:
        """The pod, where its container has been added to it."""
        found = [c for c in made["spec"]["containers"] if c["name"] == self._container["name"]]
        return made if found else None

    def _configuration(self, ca: Path) -> dict[str, Any]:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
        hook = {
            "name": "foreign.example.com",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {
                "url": f"https://{HOST}:{self._server.server_port}/",
                "caBundle": base64.b64encode(ca.read_bytes()).decode(),
            },
            "namespaceSelector": {"matchLabels": {NAME_LABEL: self._namespace}},
            "reinvocationPolicy": "IfNeeded",
            "rules": [{**rule, "resources": ["pods"]}],
            "sideEffects": "None",
        }
        return {"metadata": {"name": NAME}, "webhooks": [hook]}


def _mutate(review: dict[str, Any], container: dict[str, Any]) -> dict[str, Any]:
    request = review["request"]
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    have = {one["name"] for one in request["object"]["spec"]["containers"]}
    if container["name"] not in have:
        patch = [{"op": "add", "path": "/spec/containers/-", "value": container}]
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
    return {**review, "request": None, "response": response}
