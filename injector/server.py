"""The webhook's port: takes a review over TLS, hands its bytes to the one who decides, and answers.

It knows nothing of pods. Nothing on its road waits for the network, so a review is answered whatever has become of
the API server. Each is told in one log line and counted. Probes and metrics are on another port (`runtime.Probes`).
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from injector.tls import Serving
from sidecar.runtime import dual_stack

log = logging.getLogger(__name__)

_COMPACT: Final = json.JSONEncoder(separators=(",", ":")).encode
PATH: Final = "/mutate"
PREFIX: Final = "lora_sidecar_injector"
LIMIT: Final = 6 << 20
"""Bytes of a review: the API server takes requests of up to 3 MiB, and a review holds the object besides itself."""
PATIENCE: Final = 5.0
"""Seconds within which a review must have arrived whole: as long as the API server waits for the answer."""
_KEEP: Final = 120.0
"""Seconds that an idle connection stays: longer than Go's client keeps one, so that it is never we who close first."""


class Answer(Protocol):
    """What was decided on a review. `status` and `body` are the HTTP answer, the others are told and counted."""

    @property
    def status(self) -> int:
        """HTTP status."""

    @property
    def body(self) -> Mapping[str, Any]:
        """The answer, to be sent as JSON."""

    @property
    def decision(self) -> str:
        """One word of a small set."""

    @property
    def reason(self) -> str:
        """A slug of a small set."""

    @property
    def subject(self) -> str:
        """Whom it is about."""

    @property
    def sentence(self) -> str:
        """Why, for people."""


class Metrics:
    """What `/metrics` tells of the reviews and of the certificate."""

    def __init__(self, registry: CollectorRegistry, serving: Serving) -> None:
        self.reviews = Counter(
            f"{PREFIX}_reviews",
            "Reviews answered, by decision and reason.",
            ["decision", "reason"],
            registry=registry,
        )
        self.refused = Counter(
            f"{PREFIX}_refused_requests",
            "Requests that were no reviews, or not answered by a decision, by HTTP status.",
            ["status"],
            registry=registry,
        )
        self.seconds = Histogram(
            f"{PREFIX}_review_seconds",
            "From a review's last byte to its answer.",
            buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5),
            registry=registry,
        )
        registry.register(_CertificateEnd(serving))


class _CertificateEnd(Collector):
    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def collect(self) -> list[Metric]:
        name = f"{PREFIX}_certificate_not_after_seconds"
        text = (
            "When the certificate that is served ends, in seconds since the epoch; 0 while none is."
        )
        return [GaugeMetricFamily(name, text, value=self._serving.not_after)]


class Server:
    """Serves reviews on `port` (0: any) of all addresses. `decide` answers a review's bytes at once, on the event loop.

    `port` is None until it listens, which it does from the first certificate on; `listening` is set then.
    """

    def __init__(
        self,
        port: int,
        decide: Callable[[bytes], Answer],
        serving: Serving,
        metrics: Metrics,
        *,
        patience: float = PATIENCE,
        drain: float = 5.0,
    ) -> None:
        self.port: int | None = None
        self.listening = asyncio.Event()
        self._wanted = port
        self._decide = decide
        self._serving = serving
        self._metrics = metrics
        self._patience = patience
        self._drain = drain

    async def serve(self) -> None:
        """Serve until cancelled; what is being answered then is answered. Raises OSError where the port is taken."""
        await self._serving.loaded.wait()
        app = web.Application(client_max_size=LIMIT)
        app.router.add_post(PATH, self._mutate)
        runner = web.AppRunner(
            app, access_log=None, keepalive_timeout=_KEEP, shutdown_timeout=self._drain
        )
        await runner.setup()
        try:
            sock = dual_stack(self._wanted)
            await web.SockSite(runner, sock, ssl_context=self._serving.context).start()
            self.port = int(sock.getsockname()[1])
            log.info("answers reviews on port %d", self.port)
            self.listening.set()
            await asyncio.Event().wait()
        finally:
            self.port = None
            self.listening.clear()
            await runner.cleanup()

    async def _mutate(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            return self._refuse(415, "a review is application/json")
        try:
            async with asyncio.timeout(self._patience):
                body = await request.read()
        except TimeoutError:
            return self._refuse(408, f"no whole review within {self._patience:g} s")
        except web.HTTPRequestEntityTooLarge:
            return self._refuse(413, f"a review of more than {LIMIT} bytes")
        return self._answered(body)

    def _answered(self, body: bytes) -> web.Response:
        began = time.perf_counter()
        try:
            answer = self._decide(body)
            text = _COMPACT(answer.body)
        except Exception:
            # A fault of ours costs this review; whether its pod is then refused is for the failurePolicy to say.
            log.exception("a review failed")
            return self._refuse(500, "the review failed; the injector's log says why")
        self._metrics.seconds.observe(time.perf_counter() - began)
        self._metrics.reviews.labels(answer.decision, answer.reason).inc()
        log.info("%s: %s (%s): %s", answer.subject, answer.decision, answer.reason, answer.sentence)
        return web.Response(status=answer.status, text=text, content_type="application/json")

    def _refuse(self, status: int, text: str) -> web.Response:
        self._metrics.refused.labels(str(status)).inc()
        log.warning("refused a request with %d: %s", status, text)
        return web.Response(status=status, text=text + "\n")
