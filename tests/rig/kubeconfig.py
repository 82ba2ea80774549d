"""Writes kubeconfig files: for the holder of a certificate, or of a token."""

import base64
import json
from pathlib import Path
from typing import Any


def write_kubeconfig(
    file: Path,
    server: str,
    ca_file: Path,
    *,
    certificate: tuple[Path, Path] | None = None,
    token: str | None = None,
    namespace: str = "default",
) -> Path:
    """Write a file that needs no other file beside it, readable by its owner only, and return its path.

    `certificate` is a certificate's file and its key's.
    """
    user: dict[str, Any] = {"token": token} if token else {}
    if certificate:
        user["client-certificate-data"] = _base64(certificate[0])
        user["client-key-data"] = _base64(certificate[1])
    name = "rig"
    cluster = {"server": server, "certificate-authority-data": _base64(ca_file)}
    context = {"cluster": name, "user": name, "namespace": namespace}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name,
    }
    file.touch(mode=0o600)
    file.write_text(json.dumps(config, indent=2))  # JSON is YAML
    return file


def _base64(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
