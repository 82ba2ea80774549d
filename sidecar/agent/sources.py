"""Where LoRAAdapters come from: the question, and the API server's answer. The other answer is made in `directory`.

A source answers from what it knows, at once; its `run` keeps that true for ever, and `wake` is called at each change.
It never takes ignorance for an answer: what could not be asked, listed or understood leaves the last word standing.
Which of the adapters a pod wants is decided elsewhere, and the loop never learns which source it has.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from pydantic import ValidationError

from sidecar.agent.directory import ManifestSource
from sidecar.agent.state import Scope
from sidecar.api import names
from sidecar.api.adapter import LoRAAdapter
from sidecar.api.wire import faults
from sidecar.kube.client import Client, Resource
from sidecar.kube.errors import Forbidden, KubeError
from sidecar.kube.informer import Informer

__all__ = ["ADAPTERS", "ApiSource", "ManifestSource", "Scope", "Source"]

T = TypeVar("T")

Sleep = Callable[[float], Awaitable[object]]

ADAPTERS: Final = Resource(names.INFERENCE_GROUP, names.VERSION, names.ADAPTER_PLURAL)


class Source(Protocol):
    """Where adapters come from."""

    @property
    def adapters(self) -> Sequence[LoRAAdapter] | None:
        """The last complete list, kept true; None before the first."""

    @property
    def scope(self) -> Scope:
        """Whether that list spans all namespaces or only the pod's own."""

    @property
    def partial(self) -> bool:
        """Whether adapters may be missing from it, so that being missing means nothing."""

    @property
    def invalid(self) -> Mapping[str, str]:
        """What is wrong with objects that cannot be read, by "namespace/name" where that is known.

        The last version that could be read, if there was one, stays among `adapters`.
        """

    @property
    def problem(self) -> str:
        """One sentence about why the list may be behind, or ""."""

    @property
    def confirmed_at(self) -> float | None:
        """When the list was last known to be true, in monotonic seconds; None: never."""

    async def run(self) -> None:
        """Keep the list true until cancelled."""


# --- the API server ---------------------------------------------------------------------------


class NotAnAdapter(ValueError):  # noqa: N818 - read as a sentence: "NotAnAdapter: spec.path: ..."
    """An object of the API server is no LoRAAdapter that we understand."""


def _decode(body: dict[str, Any]) -> LoRAAdapter:
    try:
        return LoRAAdapter.read(body)
    except ValidationError as error:
        raise NotAnAdapter(faults(error)) from error


class ApiSource:
    """The LoRAAdapters of one service, from all namespaces where that is permitted, else from the pod's own.

    `report_scope` is what our own earlier report says. Where it, or a list of this process, was wider than what is
    permitted now, the refusal must last `patience` seconds before it is believed: roles are replaced by deleting
    them first. A permission that comes later is noticed within `widen` seconds.
    """

    partial = False

    def __init__(
        self,
        client: Client,
        namespace: str,
        service: str,
        wake: Callable[[], None],
        report_scope: Scope | None = None,
        *,
        patience: float = 60.0,
        widen: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._service = service
        self._wake = wake
        self._was_wide = report_scope == "all"
        self._patience = patience
        self._widen = widen
        self._clock = clock
        self._sleep = sleep
        self._shown: Informer[LoRAAdapter] | None = None
        self._scope: Scope = report_scope or "all"
        self._problem: KubeError | None = None

    @property
    def adapters(self) -> Sequence[LoRAAdapter] | None:
        """The adapters of the last complete list of `scope`, and what has changed since."""
        return None if self._shown is None else tuple(self._shown.snapshot.values())

    @property
    def scope(self) -> Scope:
        """The scope of that list; before the first, what our earlier report said."""
        return self._scope

    @property
    def invalid(self) -> Mapping[str, str]:
        """What is wrong with objects that cannot be read, by "namespace/name"."""
        return {} if self._shown is None else dict(self._shown.undecodable)

    @property
    def problem(self) -> str:
        """Why the list may be behind, or ""."""
        return "" if self._problem is None else f"LoRAAdapters cannot be read: {self._problem}"

    @property
    def confirmed_at(self) -> float | None:
        """When the API server last said anything about this list."""
        return None if self._shown is None else self._shown.confirmed_at

    async def run(self) -> None:
        """Follow the widest scope that is permitted, for ever."""
        scope: Scope = "all"
        while True:
            scope = await self._follow(scope) or await self._permitted()

    async def _follow(self, scope: Scope) -> Scope | None:
        """Keep the list of a scope true until it is refused, or until a wider one is permitted, which is answered."""
        refused = asyncio.Event()

        def changed() -> None:
            self._problem = informer.problem
            if informer.synced:
                self._shown, self._scope, self._was_wide = informer, scope, scope == "all"
            if isinstance(informer.problem, Forbidden):
                refused.set()
            else:
                refused.clear()
            self._wake()

        informer = Informer(
            self._client,
            ADAPTERS,
            decode=_decode,
            namespace=self._namespace_of(scope),
            field_selector=f"{names.SERVICE_FIELD.lstrip('.')}={self._service}",
            accept=self._is_ours,
            wake=changed,
            clock=self._clock,
            sleep=self._sleep,
        )
        ends = [self._refusal(refused, scope)] + ([self._permission()] if scope == "own" else [])
        return await _first(informer.run(), *ends)

    def _is_ours(self, body: dict[str, Any]) -> bool:
        spec = body.get("spec")
        ref = spec.get("inferenceServiceRef") if isinstance(spec, dict) else None
        return isinstance(ref, dict) and ref.get("name") == self._service

    async def _refusal(self, refused: asyncio.Event, scope: Scope) -> None:
        """Return once lists of a scope are refused; where only the watch is, the informer goes on with lists."""
        while True:
            await refused.wait()
            if await self._refuses(scope):
                return
            await self._sleep(_jittered(30.0))

    async def _permission(self) -> Scope:
        """Return once lists of all namespaces are permitted."""
        while True:
            await self._sleep(_jittered(self._widen))
            if not await self._refuses("all"):
                return "all"

    async def _permitted(self) -> Scope:
        """Answer which scope is permitted, now that one was refused."""
        since, pause = self._clock(), 1.0
        while True:
            patient = self._was_wide and self._clock() - since < self._patience
            if not patient and not await self._refuses("own"):
                return "own"
            await self._sleep(_jittered(pause))
            pause = min(2 * pause, 10.0)
            if not await self._refuses("all"):
                return "all"

    async def _refuses(self, scope: Scope) -> bool:
        """Whether a list is refused. No answer is no refusal: the informer deals with that."""
        path = ADAPTERS.path(self._namespace_of(scope))
        try:
            await self._client.request("GET", path, params={"limit": "1"})
        except Forbidden:
            return True
        except KubeError:
            return False
        return False

    def _namespace_of(self, scope: Scope) -> str | None:
        return None if scope == "all" else self._namespace


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.8, 1.2)


async def _first(*works: Coroutine[Any, Any, T]) -> T:
    """Run all until the first ends, whose answer or error this is, and end the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return done.pop().result()
