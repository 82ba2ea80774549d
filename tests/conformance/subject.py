"""One engine under test: our client for it, and plain HTTP beside, which shows what the client may smooth over."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any, Self

import aiohttp

from sidecar.agent.sglang import Engine
from tests.rig.engines import EngineProcess

_numbers = itertools.count(1)


class Subject:
    """An engine, asked over `client` (ours) or plainly."""

    def __init__(
        self, process: EngineProcess, client: Engine, http: aiohttp.ClientSession, key: str | None
    ) -> None:
        self.process = process
        self.client = client
        self.http = http
        self._key = key

    @classmethod
    @asynccontextmanager
    async def of(
        cls,
        process: EngineProcess,
        client: Engine | None = None,
        key: str | None = None,
        keep: Collection[str] = (),
    ) -> AsyncIterator[Self]:
        """Lend one, and unload afterwards what is loaded then, but for `keep`."""
        client = client or Engine([process.host], process.port)
        connector = aiohttp.TCPConnector(ssl=False, keepalive_timeout=3)
        async with client, aiohttp.ClientSession(process.url, connector=connector) as http:
            subject = cls(process, client, http, key)
            yield subject
            for name in (await client.models()).loaded:
                if name not in keep:
                    await client.unload(name)

    async def get(self, path: str, key: str | None = None) -> tuple[int, Any]:
        """Status and JSON (or text) of a GET."""
        async with self.http.get(path, headers=_headers(key or self._key)) as response:
            return response.status, _document(await response.text())

    async def post(
        self, path: str, body: Any = None, *, raw: str | None = None, key: str | None = None
    ) -> tuple[int, Any]:
        """Status and JSON (or text) of a POST of `body` as JSON, or of `raw` as it is."""
        data = raw if raw is not None else json.dumps(body)
        headers = {"Content-Type": "application/json", **_headers(key or self._key)}
        async with self.http.post(path, data=data, headers=headers) as response:
            return response.status, _document(await response.text())

    async def load(self, name: str, path: str, **more: Any) -> tuple[int, Any]:
        """Load, plainly."""
        return await self.post("/load_lora_adapter", {"lora_name": name, "lora_path": path, **more})

    async def unload(self, name: str) -> tuple[int, Any]:
        """Unload, plainly."""
        return await self.post("/unload_lora_adapter", {"lora_name": name})

    async def generate(self, name: str | None, tokens: int = 16) -> tuple[int, Any]:
        """Generate greedily through an adapter (or the base model): status, and the text or the refusal."""
        sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        body = {"text": "hello", "lora_path": name, "sampling_params": sampling}
        status, told = await self.post("/generate", body)
        return status, told["text"] if status == 200 else told["error"]["message"]

    @asynccontextmanager
    async def generating(self, name: str, tokens: int) -> AsyncIterator[aiohttp.StreamReader]:
        """Begin to generate, and lend the rest of the stream once the first token is there."""
        sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        body = {"text": "hello", "lora_path": name, "stream": True, "sampling_params": sampling}
        async with self.http.post("/generate", json=body, headers=_headers(self._key)) as response:
            first = await response.content.readline()
            assert first.startswith(b"data: {")
            yield response.content

    async def listed(self) -> dict[str, str]:
        """Handle → path, as our client lists them."""
        return dict((await self.client.models()).loaded)


def fresh(stem: str = "handle") -> str:
    """A handle that no other test of this session uses: engines never quite forget one."""
    return f"{stem}-{next(_numbers)}"


async def eventually(probe: Callable[[], Awaitable[bool]], seconds: float = 30) -> None:
    """Ask until the answer is True; engines send no events. TimeoutError where it stays False."""
    async with asyncio.timeout(seconds):
        while not await probe():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def _headers(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
