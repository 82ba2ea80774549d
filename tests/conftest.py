"""What every test has: the real-parts fixtures, and aioresponses made to fit today's aiohttp."""

import inspect
import types
from typing import Any

import aiohttp
import aioresponses.core

pytest_plugins = ["tests.rig.fixtures"]

if "stream_writer" in inspect.signature(aiohttp.ClientResponse.__init__).parameters:
    # aioresponses 0.7.9 does not pass the argument that aiohttp 3.14 asks for.
    class _Response(aiohttp.ClientResponse):
        def __init__(self, *args: Any, stream_writer: Any = None, **kwargs: Any) -> None:
            writer = stream_writer or types.SimpleNamespace(output_size=0)
            super().__init__(*args, stream_writer=writer, **kwargs)

    aioresponses.core.ClientResponse = _Response
