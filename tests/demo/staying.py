"""What the demo does on a terminal after the last step: it stays, and says what one could try.

Meanwhile it goes on playing the kubelet: an engine that was killed is started again, and tokens are renewed.
"""

import time
from pathlib import Path
from typing import NoReturn

from tests.demo.scene import Scene
from tests.demo.steps import ADAPTER, WIDE
from tests.rig import adapters
from tests.rig.binaries import binaries
from tests.rig.stack import ROOT

ADAPTERS = Path(adapters.__file__)
TOKEN_SECONDS = 20 * 60
"""A token is renewed that often; it is good for an hour."""


def stay(scene: Scene) -> NoReturn:
    """Stay until a signal ends it."""
    _invite(scene)
    renewed = time.monotonic()
    while True:
        for pod in scene.stack.pods:
            if not pod.engine.alive:
                scene.stack.kill_engine(pod)
                scene.stack.restart_engine(pod)
        if time.monotonic() - renewed > TOKEN_SECONDS:
            renewed = time.monotonic()
            for pod in scene.stack.pods:
                scene.stack.kubelet.rotate(pod.handle)
        time.sleep(1)


def _invite(scene: Scene) -> None:
    screen, stack, first = scene.screen, scene.stack, scene.first
    tries = {
        "kubectl get lora -o wide -w": "watch",
        f"kubectl describe lora {WIDE}": "why it is not loaded",
        f"kubectl delete lora {ADAPTER}": "each engine lets go of it",
        f"kill -9 {first.engine.pid}": f"SGLang of {first.name} dies, and is started again",
        f"curl -s {first.engine.url}/v1/models": f"what SGLang of {first.name} holds",
    }
    longest = max(map(len, tries))
    screen.headline("It stays until Ctrl-C. In another terminal:")
    screen.copyable(
        (
            f"export KUBECONFIG={stack.controlplane.kubeconfig}",
            f"export PATH={binaries()}:$PATH",
            "",
            *(f"{command:<{longest}}   # {what}" for command, what in tries.items()),
            "",
            f"# give {WIDE} weights that fit",
            f"python3 {ADAPTERS.relative_to(ROOT)} {scene.path(WIDE)}",
        )
    )
