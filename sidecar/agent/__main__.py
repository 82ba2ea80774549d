"""Starts the agent: settings, then client, engine, files and source, then the loop. The composition root; no decisions.

    python -m sidecar.agent [--service NAME --pod-name NAME ...] [--manifests DIR]

Every setting is an environment variable too: docs/settings.md.
"""

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

from sidecar import __version__, runtime
from sidecar.agent.basereader import BaseReader
from sidecar.agent.engine import Follower
from sidecar.agent.keys import Certificate, Keys
from sidecar.agent.loop import Loop
from sidecar.agent.metrics import Metrics
from sidecar.agent.mounts import Shared
from sidecar.agent.paths import Pace, Prober
from sidecar.agent.report import Says, recall
from sidecar.agent.reporting import ApiDesk, Desk, FileDesk, Reporter, WriteFailed
from sidecar.agent.sglang import Engine
from sidecar.agent.sources import ApiSource, ManifestSource, Source
from sidecar.agent.state import Me
from sidecar.api.report import ReportSpec, ReportStatus
from sidecar.api.settings import AgentSettings
from sidecar.kube.client import Client

log = logging.getLogger("sidecar.agent")

REPORT_PATIENCE = 2.0
"""Seconds that a refused report is asked for. Without it the agent adopts what it had loaded itself."""
REPORT_PAUSE = 0.5
QUIET_LOOP = 60.0
"""Seconds without a beat after which `/livez` fails; the watchdog ends the process later."""
GRACE = 10.0
"""Seconds that a call to the engine and the last report are given at a stop."""
LAST_CALL = 7.0
"""Seconds of these after which the report is written though the call is still open."""


def _wall() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the clock is handed out here


def parse(
    arguments: Sequence[str] | None, env: Mapping[str, str]
) -> tuple[AgentSettings, list[str]]:
    """Read the settings, the command line first; answers them and what was wrong with them."""
    about = __doc__ or ""
    return AgentSettings.from_command_line("python -m sidecar.agent", about, arguments, env)


async def main(settings: AgentSettings, stop: asyncio.Event) -> int:
    """Run an agent until `stop` is set; answer the exit code."""
    async with AsyncExitStack() as stack:
        wake = asyncio.Event()
        engine = await stack.enter_async_context(_engine(settings))
        follower = Follower(
            engine, wake.set, drift=settings.drift_interval, clock=time.monotonic, wall=_wall
        )
        shared = Shared.of(settings.shared or (settings.shared_root,))
        base = BaseReader(shared, wake.set)
        stack.callback(base.close)
        files = Prober(shared, wake.set, pace=Pace(settle=settings.settle))
        desk, open_source = await _ends(settings, stack, wake)
        reporter = Reporter(desk, clock=time.monotonic, jitter=_jitter(settings.pod_uid))
        reporter.beaten = follower.identify
        registry = runtime.new_registry()
        loop = Loop(
            me=Me(
                settings.pod_name or "agent",
                settings.pod_namespace,
                reload=settings.reload,
                trust_path=settings.trust_path,
                preflight=settings.preflight,
                hold=settings.readiness_timeout if settings.readiness else 0.0,
            ),
            service=settings.service,
            says=Says(__version__, settings.allowed_namespaces()),
            files=files,
            base=base,
            engine=engine,
            follower=follower,
            reporter=reporter,
            metrics=Metrics(registry),
            wake=wake,
            clock=time.monotonic,
            wall=_wall,
        )
        watchdog = runtime.Watchdog()
        watchdog.start()
        probes = runtime.Probes(
            settings.listen_port,
            live=lambda: watchdog.silence < QUIET_LOOP,
            ready=loop.ready,
            state=loop.state,
            registry=registry,
        )

        async def work() -> None:
            said = await _last_report(desk)
            source = open_source(said)
            if said is not None:
                reporter.start_from(said)
                follower.remember_boot((said.engine.boot_id if said.engine else None) or "")
                loop.start_from(recall(said, time.monotonic()))
            async with asyncio.TaskGroup() as group:
                group.create_task(follower.run())
                group.create_task(source.run())
                group.create_task(loop.run(source))

        async def finish() -> None:
            try:
                async with asyncio.timeout(LAST_CALL):
                    await loop.close()
            except TimeoutError:
                log.warning(
                    "a call to the engine is still open; the next agent asks what came of it"
                )
            await reporter.finish()

        tasks = {
            "loop": work(),
            "files": files.run(),
            "report": reporter.run(),
            "http": probes.serve(),
            "watchdog": watchdog.keep_beating(loop.is_turning),
        }
        return await runtime.run_tasks(tasks, stop=stop, grace=finish, limit=GRACE)


def _jitter(uid: str) -> float:
    return hashlib.blake2b(uid.encode(), digest_size=1).digest()[0] / 255


def _engine(settings: AgentSettings) -> Engine:
    hosts = settings.engine_hosts
    if settings.pod_ip and settings.pod_ip not in hosts:
        hosts = (*hosts, settings.pod_ip)
    keys = Keys(
        api_file=_path(settings.api_key_file),
        admin_file=_path(settings.admin_key_file),
        api_value=settings.api_key or None,
        admin_value=settings.admin_key or None,
    )
    return Engine(
        hosts,
        settings.engine_port,
        scheme=settings.engine_scheme,
        certificate=Certificate(_path(settings.engine_certificate)),
        keys=keys,
    )


def _path(name: str) -> Path | None:
    return Path(name) if name else None


async def _ends(
    settings: AgentSettings, stack: AsyncExitStack, wake: asyncio.Event
) -> tuple[Desk, Callable[[ReportStatus | None], Source]]:
    """Where the report goes, and how to open where adapters come from: files for both, or the API server."""
    namespace = settings.pod_namespace
    if settings.manifests:
        source = ManifestSource(Path(settings.manifests), wake.set, namespace)
        return FileDesk(settings.report_file, lambda: source.invalid), lambda _: source
    client = await stack.enter_async_context(
        Client.open(kubeconfig=settings.kubeconfig or None, directory=Path(settings.credentials))
    )
    spec = ReportSpec(
        pod_name=settings.pod_name,
        pod_uid=settings.pod_uid,
        node=settings.node_name,
        service=settings.service,
    )

    def api_source(said: ReportStatus | None) -> Source:
        scope = said.scope if said else None
        return ApiSource(client, namespace, settings.service, wake.set, scope)

    return ApiDesk(client, namespace, spec), api_source


async def _last_report(desk: Desk) -> ReportStatus | None:
    """The report of an earlier life. Where it may not be read, or not soon, the agent goes on without it.

    An API server that does not answer at all is waited for: without it there are no adapters either.
    """
    refusals, told = 0.0, ""
    while True:
        try:
            return await desk.read()
        except WriteFailed as error:
            if str(error) != told:
                log.warning("the last report cannot be read: %s", error)
            told = str(error)
            refusals += 0.0 if error.unreachable else REPORT_PAUSE
        if refusals >= REPORT_PATIENCE:
            return None
        await asyncio.sleep(REPORT_PAUSE)


def start(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the process."""
    settings, warnings = parse(arguments, os.environ)
    runtime.set_up_logging(settings.log_level)
    for warning in warnings:
        log.warning("%s", warning)
    log.info(
        "agent %s for service %s/%s, pod %s",
        __version__,
        settings.pod_namespace,
        settings.service,
        settings.pod_name,
    )
    runtime.run(lambda stop: main(settings, stop))


if __name__ == "__main__":
    start()
