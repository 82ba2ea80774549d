"""Waiting on the event loop for something that sends no event: polling, with a bound that only a hang reaches."""

import asyncio
from collections.abc import Callable


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 - what is awaited comes from the file system or a thread
            await asyncio.sleep(0.002)
