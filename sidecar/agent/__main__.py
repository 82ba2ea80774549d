"""Starts the agent: settings, then client, engine, files and source, then the loop. The composition root; no decisions.

    python -m sidecar.agent [--service NAME --pod-name NAME ...] [--manifests DIR]

Every setting is an environment variable too: docs/settings.md.
"""

import argparse
import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from sidecar import runtime
from sidecar.agent.engine import Follower
from sidecar.agent.files import Shared
from sidecar.agent.loop import Loop
from sidecar.agent.metrics import Metrics
from sidecar.agent.paths import Prober
from sidecar.agent.report import Says, recall
from sidecar.agent.reporting import ApiDesk, Desk, FileDesk, Reporter, WriteFailed
from sidecar.agent.sglang import Engine, Keys
from sidecar.agent.sources import ApiSource, ManifestSource, Source
from sidecar.agent.state import Me
from sidecar.api.report import ReportSpec, ReportStatus
from sidecar.api.settings import SECRET_FIELDS, AgentSettings

log = logging.getLogger("sidecar.agent")

MEMORY_WAIT = 10.0
"""Seconds that the loop waits for its last report, without which it would adopt what it had loaded itself."""


def _version() -> str:
    try:
        return metadata.version("lora-sidecar")
    except metadata.PackageNotFoundError:
        return "0.1.0"


def _wall() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the clock is handed out here


def parse(arguments: Sequence[str] | None, env: dict[str, str]) -> tuple[AgentSettings, list[str]]:
    """Read the settings; the command line wins over the environment."""
    parser = argparse.ArgumentParser(prog="python -m sidecar.agent", description=__doc__)
    for name, field in AgentSettings.model_fields.items():
        if name not in SECRET_FIELDS:
            flag = "--" + name.replace("_", "-")
            parser.add_argument(flag, help=f"{field.description} (default: {field.default!r})")
    given = {
        name: value
        for name, value in vars(parser.parse_args(arguments)).items()
        if value is not None
    }
    return AgentSettings.from_env(env, **given)


async def main(settings: AgentSettings, stop: asyncio.Event) -> int:
    """Run an agent until `stop` is set; answer the exit code."""
    async with AsyncExitStack() as stack:
        wake = asyncio.Event()
        engine = await stack.enter_async_context(_engine(settings))
        follower = Follower(
            engine, wake.set, drift=settings.drift_interval, clock=time.monotonic, wall=_wall
        )
        shared = Shared(settings.shared or (settings.shared_root,))
        files = Prober(shared, wake=wake.set, settle=settings.settle)
        desk, source = await _ends(settings, stack, wake)
        jitter = hashlib.blake2b(settings.pod_uid.encode(), digest_size=1).digest()[0] / 255
        reporter = Reporter(desk, clock=time.monotonic, jitter=jitter)
        reporter.beaten = follower.identify
        registry = runtime.new_registry()
        loop = Loop(
            me=Me(
                settings.pod_name or "agent",
                settings.pod_namespace,
                settings.reload,
                settings.trust_path,
            ),
            service=settings.service,
            says=Says(_version(), settings.allowed_namespaces()),
            source=source,
            files=files,
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
            live=lambda: watchdog.silence < 60.0,
            ready=lambda: (loop.passes > 0, "running" if loop.passes else "starting"),
            state=loop.state,
            registry=registry,
        )

        async def work() -> None:
            said = await _last_report(desk, source)
            if said is not None:
                reporter.start_from(said)
                memory = recall(said)
                follower.remember_boot((said.engine.boot_id if said.engine else None) or "")
                loop.start_from(memory)
            async with asyncio.TaskGroup() as group:
                group.create_task(follower.run())
                group.create_task(loop.run())

        async def finish() -> None:
            await loop.close()
            await reporter.finish()

        return await runtime.run_tasks(
            {
                "source": source.run(),
                "files": files.run(),
                "loop": work(),
                "report": reporter.run(),
                "http": probes.serve(),
                "watchdog": watchdog.keep_beating(),
            },
            stop=stop,
            grace=finish,
            limit=10.0,
        )


def _engine(settings: AgentSettings) -> Engine:
    hosts = settings.engine_hosts
    if settings.pod_ip and settings.pod_ip not in hosts:
        hosts = (*hosts, settings.pod_ip)
    return Engine(
        hosts,
        settings.engine_port,
        scheme=settings.engine_scheme,
        certificate=settings.engine_certificate or None,
        keys=Keys(
            api_file=settings.api_key_file,
            admin_file=settings.admin_key_file,
            api_value=settings.api_key,
            admin_value=settings.admin_key,
        ),
    )


async def _ends(
    settings: AgentSettings, stack: AsyncExitStack, wake: asyncio.Event
) -> tuple[Desk, Source]:
    """Where adapters come from and where the report goes: files and a file, or the API server for both."""
    if settings.manifests:
        directory = Path(settings.manifests)
        source = ManifestSource(directory, wake.set, namespace=settings.pod_namespace)
        return FileDesk(settings.report_file), source
    from sidecar.kube.client import Client

    client = await stack.enter_async_context(
        Client.open(kubeconfig=settings.kubeconfig or None, directory=Path(settings.credentials))
    )
    spec = ReportSpec(
        pod_name=settings.pod_name,
        pod_uid=settings.pod_uid,
        node=settings.node_name,
        service=settings.service,
    )
    desk = ApiDesk(client, settings.pod_namespace, spec)
    return desk, ApiSource(client, settings.pod_namespace, settings.service, wake.set)


async def _last_report(desk: Desk, source: Source) -> ReportStatus | None:
    """The report of an earlier life. Where it cannot be had, the agent goes on without it after a while."""
    waited = 0.0
    while True:
        try:
            return await desk.read()
        except WriteFailed as error:
            log.warning("the last report cannot be read yet: %s", error)
        if source.adapters is not None:
            waited += 1.0
        if waited >= MEMORY_WAIT:
            return None
        await asyncio.sleep(1.0)


def start(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the process."""
    settings, warnings = parse(arguments, dict(os.environ))
    runtime.set_up_logging(settings.log_level)
    for warning in warnings:
        log.warning("%s", warning)
    log.info(
        "agent %s for service %s/%s, pod %s",
        _version(),
        settings.pod_namespace,
        settings.service,
        settings.pod_name,
    )
    runtime.run(lambda stop: main(settings, stop))


if __name__ == "__main__":
    start()
