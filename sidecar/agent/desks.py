"""Where a report lies: on the API server as this pod's LoRAPodStatus, or in a file. When to write is `reporting`'s.

A report of the same name that belongs to an earlier pod (a StatefulSet's names come back) is not ours: it is left to
the garbage collector, and tried again until it is gone. Who else writes into ours (a second agent in the pod, an
editor) is noticed at our next write only, and put right by the one after it: two writers never answer one another.
"""

import asyncio
import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from sidecar.api import names
from sidecar.api.report import LoRAPodStatus, ReportSpec, ReportStatus
from sidecar.kube.apply import create, difference, merge_patch
from sidecar.kube.client import Client, Resource
from sidecar.kube.errors import Conflict, Forbidden, Invalid, KubeError, NotFound, Unreachable

log = logging.getLogger(__name__)

REPORTS = Resource(names.PREFIX, names.VERSION, names.REPORT_PLURAL)


class WriteFailed(Exception):  # noqa: N818 - it says what happened
    """A report could not be read or written; the text says why and what to do."""

    def __init__(self, text: str, *, unreachable: bool = False) -> None:
        super().__init__(text)
        self.unreachable = unreachable


class Desk(Protocol):
    """One place for reports."""

    async def read(self) -> ReportStatus | None:
        """The last report of this pod; None where there is none. Raises WriteFailed where that cannot be told."""

    async def write(self, said: ReportStatus) -> None:
        """Write it. Raises WriteFailed."""

    def beside(self) -> Mapping[str, str]:
        """What it writes besides; a change of that is news as well."""


class ApiDesk:
    """The LoRAPodStatus of this pod on the API server."""

    def __init__(self, client: Client, namespace: str, spec: ReportSpec) -> None:
        self._client = client
        self._namespace = namespace
        self._spec = spec
        self._uid = ""
        self._stored: dict[str, object] | None = None
        """The status as the API server has it, as far as we know; None where there is no report of ours."""
        self._told = False

    async def read(self) -> ReportStatus | None:
        """The last report of this very pod."""
        path = REPORTS.path(self._namespace, self._spec.pod_name)
        try:
            body = await self._client.request("GET", path)
        except NotFound:
            return None
        except KubeError as error:
            gone = isinstance(error, Unreachable)
            raise WriteFailed(_explain(error), unreachable=gone) from error
        try:
            found = LoRAPodStatus.read(body)
        except ValidationError as error:
            log.warning("the pod's last report cannot be read and is written anew: %s", error)
            found = None
        if not self._is_ours(body):
            self._stored = None
            return None
        self._keep(body)
        return found.status if found else None

    def _is_ours(self, body: Mapping[str, Any]) -> bool:
        """Whether it is of this very pod, and goes when this pod goes: owners cannot be set right later.

        Where OwnerReferencesPermissionEnforcement is on, changing them takes the permission to delete.
        """
        owners = [owner.get("uid") for owner in body["metadata"].get("ownerReferences") or ()]
        uid = self._spec.pod_uid
        return (body.get("spec") or {}).get("podUID") == uid and (not owners or uid in owners)

    def _keep(self, body: Mapping[str, Any]) -> None:
        self._uid = body["metadata"].get("uid", "")
        self._stored = body.get("status") or {}

    async def write(self, said: ReportStatus) -> None:
        """Create the object, or patch what differs."""
        try:
            if self._stored is None:
                await self._create(said)
            else:
                await self._patch(said, self._stored)
        except KubeError as error:
            raise WriteFailed(_explain(error)) from error

    async def _create(self, said: ReportStatus) -> None:
        whole = self._whole(said)
        try:
            body = await create(
                self._client,
                REPORTS,
                self._namespace,
                whole.wire(),
                manager=names.AGENT_MANAGER,
            )
        except Conflict as error:
            await self.read()
            if self._stored is None:
                text = f"a report named {whole.name} of another pod is still there"
                raise WriteFailed(text) from error
            await self._patch(said, self._stored)
        else:
            self._keep(body)

    async def _patch(self, said: ReportStatus, stored: dict[str, object]) -> None:
        wanted = self._whole(said).status_wire()
        changes = difference({"status": stored}, {"status": wanted})
        if not changes:
            return
        changes["metadata"] = {
            "uid": self._uid
        }  # of another object of this name the API server refuses it (422)
        try:
            body = await merge_patch(
                self._client,
                REPORTS,
                self._namespace,
                self._spec.pod_name,
                changes,
                manager=names.AGENT_MANAGER,
            )
        except NotFound:
            self._stored = None
            await self._create(said)
        except (Conflict, Invalid):
            self._stored = None  # perhaps it is not the one that we knew: the next try begins anew
            raise
        else:
            self._keep(body or {"metadata": {}})
            self._tell_of_others(wanted)

    def _tell_of_others(self, wanted: dict[str, object]) -> None:
        if self._stored != wanted and not self._told:
            self._told = True
            log.warning("somebody else writes this pod's report too; is there a second agent?")

    def beside(self) -> Mapping[str, str]:
        """Nothing: what an object lacks stands in the object's own status there."""
        return {}

    def _whole(self, said: ReportStatus) -> LoRAPodStatus:
        return LoRAPodStatus(
            name=self._spec.pod_name, namespace=self._namespace, spec=self._spec, status=said
        )


def _explain(error: KubeError) -> str:
    if isinstance(error, Forbidden) and error.verb:
        return (
            f"the pod's service account may not {error.verb} {error.resource}: bind the chart's agent role to it"
            f" ({error})"
        )
    return str(error)


class FileDesk:
    """A JSON file; nowhere where no path is given. `invalid` tells what is wrong with manifests, which goes into it."""

    def __init__(self, path: str, invalid: Callable[[], Mapping[str, str]] = dict) -> None:
        self._path = Path(path) if path else None
        self._invalid = invalid

    async def read(self) -> ReportStatus | None:
        """What the file says; None where it is absent or not a report."""
        if self._path is None:
            return None
        try:
            text = await asyncio.to_thread(self._path.read_text, "utf-8")
            return ReportStatus.model_validate(json.loads(text).get("status") or {})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, AttributeError) as error:
            log.warning("%s is not a report and will be overwritten: %s", self._path, error)
            return None

    async def write(self, said: ReportStatus) -> None:
        """Replace the file as a whole."""
        if self._path is None:
            return
        status = said.model_dump(mode="json", by_alias=True, exclude_none=True)
        whole = {"kind": names.REPORT_KIND, "status": status, "invalid": dict(self._invalid())}
        text = json.dumps(whole, indent=2) + "\n"
        try:
            await asyncio.to_thread(_replace, self._path, text)
        except OSError as error:
            raise WriteFailed(f"{self._path} cannot be written: {error}") from error

    def beside(self) -> Mapping[str, str]:
        """What is wrong with manifests: what never could be read has no entry in a report that would say so."""
        return dict(self._invalid()) if self._path else {}


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, "utf-8")
    draft.replace(path)
