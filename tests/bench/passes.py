"""What single steps cost, inside this process: a plan, a look at files, and beside it a hash of a large file."""

import asyncio
import json
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

from sidecar.agent.hashing import content_hash
from sidecar.agent.mounts import Shared
from sidecar.agent.paths import Prober
from sidecar.agent.pathview import PathView
from sidecar.agent.plan import plan
from sidecar.agent.state import Held, Memory
from tests.agent.builders import ME, NOON, adapter, engine, world
from tests.bench.figures import Figure
from tests.bench.processes import resident
from tests.rig.adapters import make_adapter

COUNT = 100
ROUNDS = 200
LARGE = 2 * 1024**3


def figures(folder: Path) -> list[Figure]:
    """Measure it all."""
    looked = asyncio.run(_looks(folder / "many"))
    return [
        Figure(
            "plan_100_loaded",
            ROUNDS,
            "ms",
            2.0,
            "a steady pass over 100 adapters without file checks: <= 2 ms CPU",
            value=_loaded(folder / "a"),
        ),
        Figure(
            "plan_100_refused",
            ROUNDS,
            "ms",
            2.0,
            "the same where the preflight refuses each: <= 2 ms CPU",
            value=_refused(folder / "wide"),
        ),
        Figure(
            "files_100_known",
            ROUNDS,
            "ms",
            1000.0,
            "for comparison only: a look at the files of 100 known adapters, which comes every 30 s and in no pass",
            value=looked,
        ),
        _hash(folder / "large"),
    ]


def _loaded(made: Path) -> float:
    view = asyncio.run(_view(make_adapter(made)))
    adapters = [adapter(f"a{number}") for number in range(COUNT)]
    seen = world(
        *adapters,
        engine=engine({a.handle: a.spec.path for a in adapters}),
        paths={a.spec.path: view for a in adapters},
    )
    held = {
        a.handle: Held(
            a.metadata.uid,
            a.key,
            a.handle,
            a.spec.path,
            "boot-1",
            True,
            False,
            NOON,
            view.signature,
            "content",
        )
        for a in adapters
    }
    return _cpu(lambda: plan(seen, Memory(held=held), ME, 100.0))


def _refused(made: Path) -> float:
    view = asyncio.run(_view(make_adapter(made, rank=64)))
    adapters = [adapter(f"a{number}") for number in range(COUNT)]
    seen = world(*adapters, paths={a.spec.path: view for a in adapters})
    assert not plan(seen, Memory(), ME, 100.0).actions
    return _cpu(lambda: plan(seen, Memory(), ME, 100.0))


async def _view(path: Path) -> PathView:
    prober = Prober(Shared.of(["/"]), lambda: None, wall=lambda: time.time() + 60)
    try:
        return await prober.look(str(path))
    finally:
        prober.close()


async def _looks(folder: Path) -> float:
    """Milliseconds of CPU for a look at each of a hundred directories, once they are known."""
    paths = [str(make_adapter(folder / f"a{number}", seed=number)) for number in range(COUNT)]
    prober = Prober(Shared.of([str(folder)]), lambda: None, wall=lambda: time.time() + 60)
    prober.want(paths)
    await asyncio.gather(*map(prober.look, paths))
    before = time.process_time()
    rounds = ROUNDS // 10
    for _ in range(rounds):
        await asyncio.gather(*map(prober.look, paths))
    took = 1000 * (time.process_time() - before) / rounds
    prober.close()
    return took


def _cpu(work: Callable[[], object]) -> float:
    """Milliseconds of CPU of one call."""
    work()
    before = time.process_time()
    for _ in range(ROUNDS):
        work()
    return 1000 * (time.process_time() - before) / ROUNDS


def _hash(path: Path) -> Figure:
    """How much memory a process gains that hashes 2 GiB."""
    made = make_adapter(path, weights="none")
    tensors = {"a": {"dtype": "U8", "shape": [LARGE], "data_offsets": [0, LARGE]}}
    head = json.dumps(tensors).encode()
    weights = made / "adapter_model.safetensors"
    weights.write_bytes(struct.pack("<Q", len(head)) + head)
    os.truncate(weights, 8 + len(head) + LARGE)
    shared = Shared.of([str(path)])
    before, most = resident(os.getpid()), [0.0]

    def clock() -> float:
        most[0] = max(most[0], resident(os.getpid()))
        return time.monotonic()

    content_hash(str(made), shared, pace=float("inf"), clock=clock)
    return Figure(
        "hash_2_gib_rss",
        1,
        "MiB",
        8.0,
        "hashing a 2 GB file adds less than 8 MiB to RSS",
        value=most[0] - before,
    )
