"""The floor under "created to load request": an aiohttp watch of LoRAAdapters, and a POST for each one that appears.

python -m tests.bench.bare CREDENTIALS ENGINE_URL     (KUBERNETES_SERVICE_HOST and _PORT)
"""

import asyncio
import json
import os
import ssl
import sys
from pathlib import Path

import aiohttp

SERVICE = "bare"


async def main(credentials: Path, engine: str) -> None:
    """Watch for ever."""
    server = (
        f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    )
    url = f"{server}/apis/inference.llmkube.dev/v1alpha1/loraadapters"
    ours = {"fieldSelector": f"spec.inferenceServiceRef.name={SERVICE}"}
    tls = ssl.create_default_context(cafile=credentials / "ca.crt")
    headers = {"Authorization": f"Bearer {(credentials / 'token').read_text()}"}
    async with (
        aiohttp.ClientSession(
            headers=headers, connector=aiohttp.TCPConnector(ssl=tls), read_bufsize=1 << 22
        ) as api,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
        api.get(url, params=ours) as answer,
    ):
        version = (await answer.json())["metadata"]["resourceVersion"]
        params = {"watch": "true", "resourceVersion": version, **ours}
        async with api.get(url, params=params) as stream:
            print("watching", flush=True)
            async for line in stream.content:
                event = json.loads(line)
                if event["type"] != "ADDED":
                    continue
                spec = event["object"]["spec"]
                body = {"lora_name": spec["name"], "lora_path": spec["path"]}
                async with session.post(f"{engine}/load_lora_adapter", json=body) as done:
                    await done.read()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
