"""One AdmissionReview (v1) in, one out: bytes to a verdict, without network, clock or log.

The server sends `status` and `body`, and logs and counts the rest.
"""

import base64
import json
from dataclasses import dataclass
from typing import Any, Final

from injector.decide import decide, told
from injector.patch import patch
from injector.settings import InjectorSettings

_COMPACT: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
"""JSON of what was made here, and so holds no circles."""
API: Final = "admission.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is answered (HTTP status and JSON body), and what to say about it. A dry run is answered alike."""

    status: int
    body: dict[str, Any]
    decision: str
    reason: str
    subject: str
    sentence: str


def review(body: bytes, settings: InjectorSettings) -> Verdict:
    """Answer a request of the API server; what is no AdmissionReview of a pod is answered with 400."""
    try:
        request = _request(json.loads(body))
    except (ValueError, RecursionError) as error:
        sentence = f"not an AdmissionReview of a pod: {error}"
        return Verdict(400, {"error": sentence}, "error", "malformed", "", sentence)
    pod, namespace = request["object"], request.get("namespace") or "default"
    subject = f"{namespace}/{_name(pod)}"
    try:
        decision = decide(pod, namespace, settings)
        operations = patch(pod, decision)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return _failed(request["uid"], subject, error, settings)
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    if operations:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(_COMPACT(operations).encode()).decode()
    if decision.warnings:
        response["warnings"] = [f"lora-sidecar: {warning}" for warning in decision.warnings]
    word, reason, sentence = told(decision)
    return Verdict(200, _answer(response), word, reason, subject, sentence)


def _request(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict) or given.get("apiVersion") != API:
        raise ValueError(f"its apiVersion is not {API}")
    if given.get("kind") != "AdmissionReview":
        raise ValueError("its kind is not AdmissionReview")
    request = given.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise ValueError("it has no request with a uid")  # noqa: TRY004 (bad input, no bug)
    if not isinstance(request.get("object"), dict):
        raise ValueError("its request has no object")  # noqa: TRY004
    return request


def _name(pod: dict[str, Any]) -> str:
    metadata = pod.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    owners = metadata.get("ownerReferences")
    owner = owners[0] if isinstance(owners, list) and owners else {}
    named = owner.get("name") if isinstance(owner, dict) else None
    return str(named or metadata.get("generateName") or metadata.get("name") or "")


def _failed(uid: str, subject: str, error: Exception, settings: InjectorSettings) -> Verdict:
    # The error's text may hold a piece of the pod, and so a key: its kind has to do.
    sentence = f"The pod could not be read ({type(error).__name__})."
    response: dict[str, Any] = {"uid": uid, "allowed": settings.on_error == "allow"}
    if response["allowed"]:
        response["warnings"] = [f"lora-sidecar: {sentence}"]
    else:
        response["status"] = {"code": 400, "message": f"lora-sidecar: {sentence}"}
    return Verdict(200, _answer(response), "error", "unreadable-pod", subject, sentence)


def _answer(response: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API, "kind": "AdmissionReview", "response": response}
