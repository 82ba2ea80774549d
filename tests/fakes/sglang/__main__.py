"""Runs the simulated SGLang as a process: `python -m tests.fakes.sglang --port 30000 --startup 1 [SGLang's flags]`.

SIGTERM ends it with 0; a crash (an adapter that does not fit, `/_sim`) with another code.
"""

import asyncio
import signal
import sys

from tests.fakes.sglang.options import parse
from tests.fakes.sglang.server import serve


async def main() -> int:
    """Serve until told to end."""
    options, host, port = parse()
    serving = asyncio.ensure_future(serve(options, host, port))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    return await serving


sys.exit(asyncio.run(main()))
