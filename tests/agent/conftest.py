"""What every test of the agent has: whatever blocks the event loop from within our code fails the test that did it."""

from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster, blockbuster_ctx


@pytest.fixture(autouse=True)
def nothing_blocks_the_loop() -> Iterator[BlockBuster]:
    with blockbuster_ctx("sidecar") as watcher:
        yield watcher
