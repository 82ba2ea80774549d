"""Starts the aggregator: settings, then client, informers and loop. The composition root; no decisions.

    python -m sidecar.aggregator [--kubeconfig FILE] [--credentials DIR] [--listen-port N] [--log-level LEVEL]
    python -m sidecar.aggregator release       before it is uninstalled: takes our finalizer off every LoRAAdapter

Every setting is an environment variable too, LORA_SIDECAR_ and its name in capitals; the command line wins.
"""

import asyncio
import logging
import os
import secrets
import socket
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sidecar import runtime
from sidecar.aggregator.announcing import Announcer
from sidecar.aggregator.finalizing import Policy
from sidecar.aggregator.index import Index
from sidecar.aggregator.loop import Loop
from sidecar.aggregator.metrics import Metrics, State
from sidecar.aggregator.opting import OptIns
from sidecar.aggregator.owned import Owned
from sidecar.aggregator.releasing import release
from sidecar.aggregator.settings import AggregatorSettings
from sidecar.aggregator.sources import Sources
from sidecar.api.names import FINALIZER, RELEASED
from sidecar.kube.client import Client
from sidecar.kube.lease import Lease, LostError
from sidecar.kube.owning import owner_references

log = logging.getLogger("sidecar.aggregator")

_STUCK: Final = 60.0
"""Seconds without a turn of the event loop after which the process no longer calls itself alive."""


def _wall() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the clock is handed out here


def parse(
    arguments: Sequence[str] | None, env: Mapping[str, str]
) -> tuple[AggregatorSettings, list[str]]:
    """Read the settings, the command line first; answers them and what was wrong with them."""
    about = "Folds the reports of all pods into the status of each LoRAAdapter."
    return AggregatorSettings.from_command_line(
        "python -m sidecar.aggregator", about, arguments, env
    )


async def main(settings: AggregatorSettings, stop: asyncio.Event) -> int:
    """Run an aggregator until `stop` is set; answer the exit code."""
    registry = runtime.new_registry()
    async with _client(settings) as client:
        wake = asyncio.Event()
        index = Index(time.monotonic)
        sources = Sources(client, index, wake.set, settings.webhook)
        identity = _identity(settings)
        metrics = Metrics(registry)
        announcer = Announcer(client, metrics, identity, clock=time.monotonic, wall=_wall)
        namespace = _namespace(client, settings)
        opt_ins = lease = None
        if namespace and settings.services:
            opt_ins = OptIns(client, namespace, settings.services, index, wake.set)
        if namespace and settings.lease:
            lease = _lease(client, namespace, settings.lease, identity)
        owned = Owned(client, namespace, settings.owner, opt_ins, lease)
        loop = Loop(
            client,
            index,
            sources,
            metrics,
            announcer,
            opt_ins,
            policy=lambda service: Policy(
                released=owned.released,
                takes_over=settings.takeover and opt_ins is not None and opt_ins.keeps(service),
            ),
            wake=wake,
            clock=time.monotonic,
            wall=_wall,
        )
        registry.register(State(index))
        watchdog = runtime.Watchdog()
        watchdog.start()
        probes = runtime.Probes(
            settings.listen_port,
            live=lambda: watchdog.silence < _STUCK,
            ready=lambda: _ready(loop, sources, lease),
            registry=registry,
        )
        return await runtime.run_tasks(
            {
                **sources.runs(),
                "loop": owned.work(loop.run),
                "events": announcer.run(),
                **_keeping(opt_ins),
                "http": probes.serve(),
                "watchdog": watchdog.keep_beating(
                    lambda: loop.is_turning() or not (lease is None or lease.held)
                ),
            },
            stop=stop,
        )


async def let_go(settings: AggregatorSettings, stop: asyncio.Event) -> int:
    """Take our finalizer off every adapter; answer the exit code."""
    async with _client(settings) as client:
        namespace = _namespace(client, settings)
        owners = await owner_references(client, namespace, settings.owner) if namespace else []
        gone = False

        async def work() -> None:
            nonlocal gone
            gone = await release(client)

        if namespace and settings.lease:
            mark = {RELEASED: owners[0]["uid"]} if owners else {}
            if not mark:
                log.warning(
                    "no Deployment is named: stop the aggregator first, or it holds on again"
                )
            lease = _lease(client, namespace, settings.lease, _identity(settings), mark, force=True)
            task = asyncio.ensure_future(lease.run(work))
        else:
            task = asyncio.ensure_future(work())
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        task.cancel()
        with suppress(asyncio.CancelledError, LostError):
            await task
    if gone:
        log.info("no LoRAAdapter is held back any more")
        return 0
    log.error("not every LoRAAdapter was let go: run it again, or take %s off by hand", FINALIZER)
    return 1


def _client(settings: AggregatorSettings) -> Client:
    return Client.open(
        kubeconfig=settings.kubeconfig or None,
        directory=Path(settings.credentials),
        user_agent="lora-sidecar-aggregator",
    )


def _identity(settings: AggregatorSettings) -> str:
    return f"{settings.identity or socket.gethostname()}_{secrets.token_hex(4)}"


def _lease(
    client: Client,
    namespace: str,
    name: str,
    identity: str,
    annotations: Mapping[str, str] | None = None,
    *,
    force: bool = False,
) -> Lease:
    return Lease(
        client,
        namespace,
        name,
        identity,
        clock=time.monotonic,
        wall=_wall,
        annotations=annotations,
        force=force,
    )


def _namespace(client: Client, settings: AggregatorSettings) -> str:
    """Where our own objects are."""
    namespace = settings.namespace or client.namespace or ""
    if not namespace and (settings.lease or settings.services):
        log.warning("neither settings nor credentials name a namespace: no Lease, no ConfigMap")
    return namespace


def _keeping(opt_ins: OptIns | None) -> dict[str, Coroutine[Any, Any, object]]:
    if opt_ins is None:
        return {}
    return {"opted-in services": opt_ins.run(), "watching them": opt_ins.informer.run()}


def _ready(loop: Loop, sources: Sources, lease: Lease | None) -> tuple[bool, str]:
    """Whether it works, or stands by with everything listed."""
    if lease is None or lease.held:
        return loop.ready()
    sources.tell()  # as no pass does
    if loop.missing():
        return loop.ready()
    return True, f"stands by for {lease.holder}" if lease.holder else "stands by"


def start(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the process."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    releases = given[:1] == ["release"]
    settings, warnings = parse(given[1:] if releases else given, os.environ)
    runtime.set_up_logging(settings.log_level)
    for warning in warnings:
        log.warning("%s", warning)
    run = let_go if releases else main
    runtime.run(lambda stop: run(settings, stop))


if __name__ == "__main__":
    start()
