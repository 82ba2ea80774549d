"""Keeps a one-node cluster with the images of the tests until it is interrupted, for work by hand and repeated runs.

python -m tests.e2e
"""

import shlex
import signal
import sys
import tempfile
from pathlib import Path

from tests.e2e.images import ENGINE, OURS, build_images
from tests.e2e.node import node
from tests.rig.cache import say
from tests.rig.errors import RigError


def main() -> int:
    """Start, say how to use it, wait for Ctrl-C or SIGTERM, stop."""
    signals = {signal.SIGINT, signal.SIGTERM}
    try:
        with tempfile.TemporaryDirectory() as work, node(*build_images(Path(work))) as kubeconfig:
            signal.pthread_sigmask(signal.SIG_BLOCK, signals)
            say("a cluster is up until this ends (Ctrl-C). In another shell:")
            for name, value in (
                ("KUBECONFIG", str(kubeconfig)),
                ("E2E_KUBECONFIG", str(kubeconfig)),
                ("E2E_IMAGE", OURS),
                ("E2E_ENGINE_IMAGE", ENGINE),
            ):
                sys.stdout.write(f"export {name}={shlex.quote(value)}\n")
            sys.stdout.flush()
            signal.sigwait(signals)
    except RigError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
