"""Starts the aggregator: settings, then client, informers and loop. The composition root; no decisions.

    python -m sidecar.aggregator [--kubeconfig FILE] [--credentials DIR] [--listen-port N] [--log-level LEVEL]

Every setting is an environment variable too, LORA_SIDECAR_ and its name in capitals; the command line wins.
"""

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sidecar import runtime
from sidecar.aggregator.announcing import Announcer
from sidecar.aggregator.index import Index
from sidecar.aggregator.loop import Loop
from sidecar.aggregator.metrics import Metrics, State
from sidecar.aggregator.opting import OptIns
from sidecar.aggregator.settings import AggregatorSettings
from sidecar.aggregator.sources import Sources
from sidecar.kube.client import Client
from sidecar.kube.lease import Lease

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
    client = Client.open(
        kubeconfig=settings.kubeconfig or None,
        directory=Path(settings.credentials),
        user_agent="lora-sidecar-aggregator",
    )
    registry = runtime.new_registry()
    async with client:
        wake = asyncio.Event()
        index = Index(time.monotonic)
        sources = Sources(client, index, wake.set, settings.webhook)
        identity = f"{settings.identity or socket.gethostname()}_{secrets.token_hex(4)}"
        metrics = Metrics(registry)
        announcer = Announcer(client, metrics, identity, clock=time.monotonic, wall=_wall)
        opt_ins, lease = None, None
        if namespace := _namespace(client, settings):
            if settings.services:
                opt_ins = OptIns(client, namespace, settings.services, index, wake.set)
            if settings.lease:
                lease = Lease(
                    client, namespace, settings.lease, identity, clock=time.monotonic, wall=_wall
                )
        loop = Loop(
            client,
            index,
            sources,
            metrics,
            announcer,
            opt_ins,
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
                "loop": _work(loop, lease),
                "events": announcer.run(),
                **_keeping(opt_ins),
                "http": probes.serve(),
                "watchdog": watchdog.keep_beating(
                    lambda: loop.is_turning() or not (lease is None or lease.held)
                ),
            },
            stop=stop,
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


def _work(loop: Loop, lease: Lease | None) -> Coroutine[Any, Any, None]:
    return loop.run() if lease is None else lease.run(loop.run)


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
    settings, warnings = parse(arguments, os.environ)
    runtime.set_up_logging(settings.log_level)
    for warning in warnings:
        log.warning("%s", warning)
    runtime.run(lambda stop: main(settings, stop))


if __name__ == "__main__":
    start()
