"""The routes of the simulated SGLang, and the control endpoint with which tests steer one that is a process."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.fakes.sglang import bodies, generation
from tests.fakes.sglang.faults import Fault
from tests.fakes.sglang.loras import NotServedError, Result
from tests.rig.adapters import TINY

if TYPE_CHECKING:
    from tests.fakes.sglang.server import Life

CONTROL = "/_sim"


class Routes:
    """What one process of the simulated engine answers."""

    def __init__(self, life: "Life") -> None:
        self.life = life
        self.options = life.options
        self.loras = life.loras

    def add_to(self, app: web.Application) -> None:
        """Add those that this version, and this set-up, has."""
        app.router.add_get(CONTROL, self._tell)
        app.router.add_post(CONTROL, self._control)
        app.router.add_get("/health", self._health)
        app.router.add_get("/health_generate", self._health)
        app.router.add_get("/ping", self._ping)
        if self._told("node_rank", 0):
            return  # the further nodes of one engine have nothing else
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/get_server_info", self._server_info)
        if self.options.since("0.5.6"):
            app.router.add_get("/server_info", self._server_info)
        if self.options.since("0.5.20"):
            app.router.add_get("/ready", self._ready)
        app.router.add_post("/generate", self._generate)
        app.router.add_post("/v1/completions", self._openai)
        app.router.add_post("/v1/chat/completions", self._openai)
        if self._told("frontend", "python") == "python":
            app.router.add_post("/load_lora_adapter", self._load)
            app.router.add_post("/unload_lora_adapter", self._unload)

    def _told(self, name: str, default: Any) -> Any:
        return self.options.told.get(name, default)

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.life.warm.is_set() else 503)

    _ready = _health

    async def _ping(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response(bodies.models(self.options, self.loras.registry.values()))

    async def _server_info(self, _: web.Request) -> web.Response:
        await self.life.warm.wait()
        return web.json_response(bodies.server_info(self.options, self.life.seed, self.life.took))

    async def _load(self, request: web.Request) -> web.Response:
        body = await bodies.read(request, {"lora_name": str, "lora_path": str, "pinned": bool})
        if isinstance(body, web.Response):
            return body
        if self._has_replicas():
            return bodies.server_error()
        await self.life.warm.wait()
        pinned = bool(body.get("pinned", False))
        result = await self.loras.load(body["lora_name"], body["lora_path"], pinned)
        return self._result(result)

    async def _unload(self, request: web.Request) -> web.Response:
        body = await bodies.read(request, {"lora_name": str})
        if isinstance(body, web.Response):
            return body
        if self._has_replicas():
            return bodies.server_error()
        await self.life.warm.wait()
        result = await self.loras.unload(body["lora_name"])
        if result.error is not None and not self.options.since("0.5.1"):
            return bodies.server_error()
        return self._result(result)

    def _has_replicas(self) -> bool:
        return self._told("dp_size", 1) > 1 and not self._told("enable_dp_attention", False)

    def _result(self, result: Result) -> web.Response:
        status = 200 if result.error is None else 400
        return web.json_response(bodies.result(self.options, result), status=status)

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        asked = generation.read_native(bodies.document(await request.read()))
        try:
            async with self._using(asked) as content:
                if asked.stream:
                    return await self._stream(request, asked, content)
                return web.json_response(generation.native(asked, await self._text(asked, content)))
        except NotServedError as error:
            return web.json_response({"error": {"message": str(error)}}, status=400)

    async def _openai(self, request: web.Request) -> web.Response:
        body = bodies.document(await request.read())
        asked = generation.read_openai(body, colon=self.options.since("0.5.4"))
        try:
            async with self._using(asked) as content:
                text = await self._text(asked, content)
        except NotServedError as error:
            return web.json_response(generation.openai_error(str(error)), status=400)
        chat = request.path.endswith("chat/completions")
        return web.json_response(generation.openai(body, text, chat=chat))

    @asynccontextmanager
    async def _using(self, asked: generation.Asked) -> AsyncIterator[str]:
        """Count the request in and out; what tells the weights in use apart from others."""
        await self.life.warm.wait()
        if asked.adapter is None:
            yield "base"
            return
        ref = await self.loras.acquire(asked.adapter)
        with self.loras.using(ref, asked.parallel):
            if not ref.weights.fit(TINY):
                self.life.crash()
                await asyncio.Event().wait()
            yield ref.weights.digest

    async def _text(self, asked: generation.Asked, content: str) -> str:
        await asyncio.sleep(asked.tokens * self.options.token_seconds)
        return generation.text(content, asked.prompt, asked.tokens)

    async def _stream(
        self, request: web.Request, asked: generation.Asked, content: str
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        text = generation.text(content, asked.prompt, asked.tokens)
        for length in range(1, asked.tokens + 1):
            await asyncio.sleep(self.options.token_seconds)
            await response.write(generation.event(asked, text[:length]))
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _tell(self, _: web.Request) -> web.Response:
        held = [
            {"name": ref.name, "path": ref.path, "digest": ref.weights.digest, "uses": ref.uses}
            for ref in self.loras.held
        ]
        asked = [asdict(one) for one in self.life.simulator.asked]
        return web.json_response(
            {"requests": asked, "held": held, "listed": [*self.loras.registry]}
        )

    async def _control(self, request: web.Request) -> web.Response:
        """{"fault": {...}} expects a fault; {"clear": true} behaves; {"evict": name} loses an adapter; {"use": name}
        counts a request in that never ends, so that an unload hangs; {"kill": true} ends it at once, {"crash": true}
        as a scheduler's death does; {"options": {...}} changes how long things take.
        """
        told = json.loads(await request.read())
        if "fault" in told:
            self.life.simulator.faults.add(Fault.read(told["fault"]))
        if told.get("clear"):
            self.life.simulator.faults.clear()
        if "evict" in told:
            self.loras.drop(told["evict"])
        if "use" in told:
            self.loras.registry[told["use"]].use(+1)
        if told.get("crash"):
            self.life.crash()
        for name, value in told.get("options", {}).items():
            setattr(self.options, name, value)
        if told.get("kill"):
            self.life.spawn(self.life.simulator.stop())
        return web.json_response({})
