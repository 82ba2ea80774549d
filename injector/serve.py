"""Starts the webhook: settings, then client, certificates, the port and the probes. The composition root.

Every setting is an environment variable too, LORA_SIDECAR_ and its name in capitals; the command line wins.
"""

import asyncio
import logging
import os
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

from injector.keeping import Keeper, Mounted, Place, SelfManaged
from injector.review import review
from injector.server import Metrics, Server
from injector.settings import InjectorSettings
from injector.tls import Serving
from sidecar import runtime
from sidecar.kube.client import Client

log = logging.getLogger("injector")

_STUCK: Final = 60.0
"""Seconds without a turn of the event loop after which the process no longer calls itself alive."""
LINGER: Final = 3.0
"""Seconds that reviews are still answered after a stop was asked for, until the API server has been told of it."""


def _wall() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the clock is handed out here


def parse(
    arguments: Sequence[str] | None, env: Mapping[str, str]
) -> tuple[InjectorSettings, list[str]]:
    """Read the settings, the command line first; answers them and what was wrong with them."""
    about = (
        "Adds the agent to pods that ask for it. `explain FILE` says what it would do with a pod."
    )
    return InjectorSettings.from_command_line("python -m injector", about, arguments, env)


async def main(settings: InjectorSettings, stop: asyncio.Event) -> int:
    """Run the webhook until `stop` is set; answer the exit code."""
    client = Client.open(
        kubeconfig=settings.kubeconfig or None,
        directory=Path(settings.credentials),
        user_agent="lora-sidecar-injector",
    )
    registry = runtime.new_registry()
    async with client:
        serving = Serving()
        namespace = settings.namespace or client.namespace or "default"
        place = Place(
            settings.webhook,
            settings.host_names(namespace),
            namespace,
            settings.secret,
            settings.owner,
        )
        keeper: Keeper
        if settings.certificates:
            directory = Path(settings.certificates)
            keeper = Mounted(client, place, serving, random.random, directory=directory)
        else:
            keeper = SelfManaged(client, place, serving, random.random, wall=_wall)
        metrics = Metrics(registry, serving)
        server = Server(
            settings.webhook_port, lambda body: review(body, settings), serving, metrics
        )

        def ready() -> tuple[bool, str]:
            if stop.is_set():
                return False, "is about to end"
            return keeper.ready() if server.port else (False, "no certificate is served yet")

        watchdog = runtime.Watchdog()
        watchdog.start()
        probes = runtime.Probes(
            settings.listen_port,
            live=lambda: watchdog.silence < _STUCK,
            ready=ready,
            registry=registry,
        )
        return await runtime.run_tasks(
            {
                "certificates": keeper.run(),
                "reviews": server.serve(),
                "http": probes.serve(),
                "watchdog": watchdog.keep_beating(),
            },
            stop=stop,
            grace=lambda: asyncio.sleep(LINGER),
        )


def start(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the process."""
    settings, warnings = parse(arguments, os.environ)
    runtime.set_up_logging(settings.log_level)
    for warning in warnings:
        log.warning("%s", warning)
    runtime.run(lambda stop: main(settings, stop))
