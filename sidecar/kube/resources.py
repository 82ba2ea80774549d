"""Kinds of Kubernetes' own that more than one of our processes asks for."""

from typing import Final

from sidecar.kube.client import Resource

WEBHOOKS: Final = Resource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations")
