"""The story, step by step: each does one thing, as a user or as bad luck would, and waits until its effect was seen."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from sidecar.api import names
from tests.demo.scene import RELOAD, Look, NotSeenError, Scene
from tests.rig.adapters import make_adapter
from tests.rig.apiclient import ApiError
from tests.rig.errors import RigError

ADAPTER = "sql"
WIDE = "wide"
WIDE_RANK = 64


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is shown."""

    title: str
    why: str
    show: Callable[[Scene], None]


def manifest(scene: Scene, adapter: str) -> str:
    """The LoRAAdapter that a user writes."""
    body = {
        "apiVersion": f"{names.INFERENCE_GROUP}/{names.VERSION}",
        "kind": names.ADAPTER_KIND,
        "metadata": {"name": adapter},
        "spec": {
            "inferenceServiceRef": {"name": scene.stack.service},
            "name": adapter,
            "path": str(scene.path(adapter)),
        },
    }
    return yaml.safe_dump(body, sort_keys=False)


def _everywhere(look: Look) -> bool:
    return (look.loaded, look.pods) == ("True", "2/2")


def _on_one(look: Look) -> bool:
    return (look.loaded, look.pods) == ("True", "1/2")


def _said_by_both(look: Look) -> bool:
    """Whether each of the two pods says that the rank is the trouble."""
    return len(look.notes) == 2 and all(str(WIDE_RANK) in note for note in look.notes)


# --- the steps ----------------------------------------------------------------------------------


def declare(scene: Scene) -> None:
    scene.apply(manifest(scene, ADAPTER))
    scene.follow(
        ADAPTER,
        "it waits for the path, and says so",
        lambda look: (look.loaded, look.reason) == ("False", "PathNotFound"),
    )


def publish(scene: Scene) -> None:
    fresh = make_adapter(scene.stack.folder / "published" / ADAPTER, seed=1)
    _move(scene, fresh, scene.path(ADAPTER))
    scene.follow(ADAPTER, "loaded on the pod that is up", _on_one)
    scene.screen.pause()
    scene.screen.prose(f"Now the agent of {scene.second.name} starts.")
    scene.mark()
    scene.let_go(scene.second)
    scene.follow(ADAPTER, "loaded on both", _everywhere)
    base, adapted = scene.ask(ADAPTER)
    _require(base != adapted, "the adapter changes what the model answers", scene)


def repair(scene: Scene) -> None:
    pod = scene.first
    scene.screen.command(f"kill -9 {pod.engine.pid}   # SGLang of {pod.name}")
    scene.mark()
    scene.stack.kill_engine(pod)
    scene.follow(
        ADAPTER,
        f"the status no longer counts {pod.name}",
        lambda look: _on_one(look) and any(pod.name in note for note in look.notes),
    )
    scene.screen.pause()
    scene.screen.prose("The container is started again, as a kubelet does; nobody tells the agent.")
    scene.mark()
    with _meanwhile(lambda: scene.stack.restart_engine(pod)):
        what = "the new engine has the adapter again"
        scene.follow(ADAPTER, what, _everywhere, scene.engine_seconds)


def reload(scene: Scene) -> None:
    pods = {pod.name for pod in scene.stack.pods}
    before = scene.follow_contents(
        ADAPTER,
        "both pods hold the same content",
        lambda found: found.keys() == pods and _alike(found),
    )
    _, old = scene.ask(ADAPTER)
    fresh = make_adapter(scene.stack.folder / "published" / "sql-v2", seed=2)
    file = "adapter_model.safetensors"
    _move(scene, fresh / file, scene.path(ADAPTER) / file)
    scene.follow_contents(
        ADAPTER,
        "both pods have loaded the new content",
        lambda found: found.keys() == pods and _alike(found) and found != before,
    )
    _, new = scene.ask(ADAPTER)
    _require(old != new, "the new weights answer", scene)


def refuse(scene: Scene) -> None:
    make_adapter(scene.path(WIDE), rank=WIDE_RANK)
    scene.apply(manifest(scene, WIDE))
    scene.follow(
        WIDE,
        "refused, with the reason",
        lambda look: look.error == "Incompatible" and _said_by_both(look),
    )
    scene.follow(ADAPTER, "its neighbour is not disturbed", _everywhere)


def look_around(scene: Scene) -> None:
    scene.kubectl("describe", "lora", ADAPTER)
    scene.kubectl("get", "lora", "-o", "wide")
    scene.kubectl("get", "lorapods")


STEPS = (
    Step(
        "A LoRAAdapter is declared before its weights exist",
        "Weights are often published by another pipeline, later. SGLang would take a path that does not exist for"
        " the name of a model on Hugging Face, so it must not be asked yet.",
        declare,
    ),
    Step(
        "The weights arrive, and each pod loads them",
        "No retry, no restart, no call by a user: the agent in each pod sees the files, waits until they keep still,"
        " and loads them. The second pod is held back for a moment, so that a service half way can be seen.",
        publish,
    ),
    Step(
        "An engine dies and gets its adapters back",
        "SGLang keeps adapters in memory only: a restarted one has none, and without lora-sidecar its requests would"
        " be refused while the status still said loaded. LOADED is about the engines that are up, PODS about all.",
        repair,
    ),
    Step(
        "New weights at the same path",
        f"These pods carry the annotation {RELOAD}: on-change. What was loaded is known by the hash of its content,"
        " so that a mere touch reloads nothing.",
        reload,
    ),
    Step(
        "An adapter that cannot work",
        f"Its rank is {WIDE_RANK}, and the engines were started with --max-lora-rank 8. Whoever wrote it must be able"
        " to see why, without access to any pod's log.",
        refuse,
    ),
    Step(
        "All of it, as kubectl shows it",
        "describe tells the whole story of one adapter, pod by pod; lorapods are what the agents say.",
        look_around,
    ),
)


# --- what they share ----------------------------------------------------------------------------


def _move(scene: Scene, source: Path, target: Path) -> None:
    """Rename into place, so that nobody ever sees half of it."""
    shown = source.relative_to(scene.stack.folder)
    scene.screen.command(f"mv {shown} {target}")
    source.rename(target)
    scene.mark()


def _alike(contents: dict[str, str | None]) -> bool:
    return len(set(contents.values())) == 1 and all(contents.values())


def _require(truth: bool, what: str, scene: Scene) -> None:
    if not truth:
        raise NotSeenError(f"not seen: {what}")
    scene.screen.seen(what)


@contextmanager
def _meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Do something beside the body. What it raises counts where the body has not seen what it waited for."""
    failures: list[Exception] = []

    def run() -> None:
        try:
            work()
        except (RigError, ApiError, OSError) as error:
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    except NotSeenError as error:
        if failures:
            raise NotSeenError(f"{error}; {failures[0]}") from error
        raise
    thread.join()
