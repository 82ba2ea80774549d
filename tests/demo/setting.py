"""Sets the demo's stage: programs, control plane, aggregator, and a service with two pods. Says what is real of it."""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

from tests.demo.scene import RELOAD, Scene
from tests.demo.screen import Screen
from tests.rig.binaries import binaries
from tests.rig.controlplane import ControlPlane
from tests.rig.engines import Kind
from tests.rig.kubelet import Kubelet
from tests.rig.sglang import install
from tests.rig.stack import Stack

NAMESPACE = "default"
NODE = "node-1"
PODS = ("chat-0", "chat-1")
ENGINES = {
    "simulated": "two simulated SGLang engines",
    "real": f"two SGLang {install.VERSION} engines on the CPU (half a minute or more)",
}


def fetch(kind: Kind) -> None:
    """Make what is slow to make, once; it shows its own progress."""
    binaries()
    if kind == "real":
        install.install()


@contextmanager
def stage(kind: Kind, screen: Screen) -> Iterator[Scene]:
    """A scene with everything running but the second pod's agent. All of it ends with the context."""
    with ExitStack() as cleanup:
        screen.headline("lora-sidecar: what kubectl shows is what the engines hold")
        screen.prose(
            "Users of LLMKube write LoRAAdapter objects. An agent beside each SGLang makes them true, keeps them true,"
            " and says so. Here is that, on a control plane of its own."
        )
        screen.headline("Setting the stage")
        cleanup.callback(screen.seen, "nothing is left running")  # said last, when it is true
        temporary = tempfile.TemporaryDirectory(prefix="lora-demo-", ignore_cleanup_errors=True)
        folder = Path(cleanup.enter_context(temporary))
        # What a killed engine leaves in its temporary folder goes with ours.
        cleanup.enter_context(mock.patch.dict(os.environ, TMPDIR=str(folder)))
        with _doing(screen, "a Kubernetes control plane with our CRDs, permissions and policy"):
            controlplane = cleanup.enter_context(ControlPlane())
            kubelet = Kubelet(controlplane, NODE)
        stack = Stack(controlplane, kubelet, NAMESPACE, folder, kind=kind)
        cleanup.enter_context(stack)
        with _doing(screen, "the aggregator, one per cluster"):
            stack.start_aggregator()
        with _doing(screen, f"an InferenceService with two pods: {ENGINES[kind]}"):
            scene = _serve(stack, screen)
        screen.prose(
            "All of these are processes of their own, each under the permissions it has in a cluster. Only scheduler"
            " and kubelet are played, and the agents stand in the pods as the injector would put them there."
        )
        scene.kubectl("get", "pods")
        yield scene


def _serve(stack: Stack, screen: Screen) -> Scene:
    stack.create_service()
    for name in PODS:
        stack.add_pod(
            name,
            agent=False,
            wait=False,
            settings={"reload": "on-change"},
            annotations={RELOAD: "on-change"},
        )
    for pod in stack.pods:
        pod.engine.wait_ready()
    scene = Scene(stack, screen)
    scene.let_go(scene.first)
    return scene


@contextmanager
def _doing(screen: Screen, what: str) -> Iterator[None]:
    began = time.monotonic()
    with screen.working(what):
        yield
    screen.seen(what, time.monotonic() - began)


def tails(scene: Scene, lines: int = 15) -> Iterator[tuple[str, str]]:
    """The end of each log, by whose it is."""
    processes = {"the aggregator": scene.stack.aggregator}
    processes |= {f"the agent of {pod.name}": pod.agent for pod in scene.stack.pods}
    for name, process in processes.items():
        if process:
            yield name, process.tail(lines)
    for pod in scene.stack.pods:
        with contextlib.suppress(OSError):
            log = pod.engine.log.read_text(errors="replace").splitlines()[-lines:]
            yield f"the engine of {pod.name}", "\n".join(log)
