"""A simulated SGLang: a small HTTP server with memory that answers as the real one does, in milliseconds.

What it claims of SGLang is what `tests/conformance` finds on the real one; versions that are not installed there are
simulated from their source. It reads the adapters' real files, so what is broken there is refused in SGLang's words,
and what does not fit the model kills it at first use. Its answers depend on the weights that were loaded, so that a
test can see which ones answer. `/_sim` makes it misbehave and tells what it was asked.

files     what SGLang reads at an adapter's path, and its words for what is wrong there
loras     the registry: load, unload, evict, reload, and who waits for whom
faults    what it is told to do wrong
server    routes, keys, and the life of the process

In a test:      async with Simulator(Options(version="0.5.23")) as engine: ...
As a process:   python -m tests.fakes.sglang --port 30000 --startup 1
"""

from tests.fakes.sglang.faults import Fault
from tests.fakes.sglang.options import Options
from tests.fakes.sglang.server import Simulator

__all__ = ["Fault", "Options", "Simulator"]
