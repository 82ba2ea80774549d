"""Runs a container of a pod as a process: its command, exactly its environment, and its volumes as files.

It has no root of its own: what a variable says about a place below a mount is turned to the folder that stands for
that mount, and a mount whose path is a real folder here stands for itself. What is not in the manifest is not there.
"""

import base64
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rig.apiclient import ApiError
from tests.rig.controlplane import ControlPlane
from tests.rig.engines import ROOT
from tests.rig.kubelet import Kubelet, PodHandle
from tests.rig.process import Process
from tests.rig.volume import AtomicVolume

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Container:
    """A container that can be started, again and again; its volumes stay as they are."""

    command: list[str]
    environment: dict[str, str]
    log: Path

    def start(self) -> Process:
        """Start it once more."""
        return Process(self.command, self.log, environment=self.environment)


def prepare(
    controlplane: ControlPlane, kubelet: Kubelet, pod: PodHandle, name: str, folder: Path
) -> Container:
    """Make the volumes and the environment of the container `name` of a pod that is on the node."""
    made = kubelet.get(pod)
    spec = made["spec"]
    every = [*spec.get("initContainers", []), *spec["containers"]]
    container = next(one for one in every if one["name"] == name)
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    places = {}
    for mount in container["volumeMounts"]:
        if "projected" in volumes[mount["name"]]:
            place = folder / "volumes" / mount["name"]
            _project(controlplane, kubelet, pod, volumes[mount["name"]]["projected"], place)
            places[mount["mountPath"]] = place
    environment = {
        entry["name"]: _turned(_value(made, entry), places) for entry in container["env"]
    }
    environment |= controlplane.service_environment | {"PYTHONPATH": str(ROOT)}
    program, *rest = container["command"] + container.get("args", [])
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable if program == "python" else program, *rest]
    return Container(command, environment, folder / f"{name}.log")


def _turned(value: str, places: Mapping[str, Path]) -> str:
    for path, folder in places.items():
        if value == path or value.startswith(f"{path}/"):
            return f"{folder}{value.removeprefix(path)}"
    return value


def _value(pod: Json, entry: Json) -> str:
    if "valueFrom" not in entry:
        return str(entry.get("value", "")).replace("$$", "$")
    [(kind, what)] = entry["valueFrom"].items()
    if kind == "fieldRef":
        found: Any = pod
        for step in what["fieldPath"].split("."):
            found = found[step]
        return str(found)
    raise ValueError(f"{entry['name']}: no kubelet is played for {kind}")


def _project(
    controlplane: ControlPlane, kubelet: Kubelet, pod: PodHandle, projected: Json, folder: Path
) -> None:
    files: dict[str, bytes | str] = {}
    for source in projected["sources"]:
        [(kind, what)] = source.items()
        if kind == "serviceAccountToken":
            seconds = what["expirationSeconds"]
            files[what["path"]] = kubelet.issue_token(pod, seconds=seconds)
        elif kind == "downwardAPI":
            for item in what["items"]:
                entry = {"name": item["path"], "valueFrom": {"fieldRef": item["fieldRef"]}}
                files[item["path"]] = _value(kubelet.get(pod), entry)
        else:
            files |= _items(controlplane, pod, kind, what)
    AtomicVolume(folder).write(files)


def _items(
    controlplane: ControlPlane, pod: PodHandle, kind: str, source: Json
) -> dict[str, bytes | str]:
    plural = {"configMap": "configmaps", "secret": "secrets"}[kind]
    path = f"/api/v1/namespaces/{pod.namespace}/{plural}/{source['name']}"
    try:
        data = controlplane.api("GET", path)["data"]
    except ApiError as error:
        if source.get("optional") and error.reason == "NotFound":
            return {}
        raise
    texts = {item["path"]: data[item["key"]] for item in source["items"]}
    if kind == "configMap":
        return texts
    return {name: base64.b64decode(text) for name, text in texts.items()}
