"""Whether the files of a loaded adapter hold new weights that should be loaded again. Pure.

A signature (names, sizes, times, inodes) says that something may have changed; only a different content counts. A
hash belongs to what the engine holds only if the signature was the same before the load, after it and after hashing.
Otherwise the content is unknown, and the next quiet signature is loaded once.
"""

from dataclasses import dataclass, replace

from sidecar.agent.outcome import SAFE_UNLOAD
from sidecar.agent.pathview import Hashed, PathState, PathView
from sidecar.agent.state import EngineView, Held, Me

STALE = (
    "the files have changed since they were loaded; SGLang before 0.5.22 may hang when it unloads, so the new ones"
    " wait for a restart of the engine or the pod annotation lora-sidecar.llmkube.dev/reload: on-change"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to remember of the loaded files, and whether to hash them, load them again, or say something."""

    held: Held
    hash: bool = False
    reload: bool = False
    text: str = ""


def judge(
    held: Held, view: PathView | None, hashed: Hashed | None, engine: EngineView, me: Me
) -> Verdict:
    """Judge one adapter that the engine holds from the path it should."""
    if me.trust_path or me.reload == "never" or view is None:
        return Verdict(held)
    if view.state is PathState.MISSING:
        return Verdict(held, text="its directory is gone: the engine could not load it again")
    if view.state is not PathState.WHOLE:
        return Verdict(held)
    if held.adopted and not held.signature:
        held = replace(held, signature=view.signature)
    content = hashed.content if hashed and _speaks_of(hashed, view) else ""
    if view.signature == held.signature:
        return _unmoved(held, content)
    return _moved(held, view, content, engine, me)


def _unmoved(held: Held, content: str) -> Verdict:
    """The files are as they were loaded; learn their content once, against the day they move."""
    if held.content or not content:
        return Verdict(held, hash=not held.content)
    return Verdict(replace(held, content=content))


def _moved(held: Held, view: PathView, content: str, engine: EngineView, me: Me) -> Verdict:
    if not held.content:
        return _changed(held, engine, me)
    if not content:
        return Verdict(held, hash=True)
    if content == held.content:
        return Verdict(replace(held, signature=view.signature))
    return _changed(held, engine, me)


def _speaks_of(hashed: Hashed, view: PathView) -> bool:
    return bool(hashed.content) and hashed.before == hashed.after == view.signature


def _changed(held: Held, engine: EngineView, me: Me) -> Verdict:
    """New weights: `auto` loads them only where an unload cannot hang."""
    if me.reload == "on-change" or engine.version >= SAFE_UNLOAD:
        return Verdict(held, reload=True)
    return Verdict(held, text=STALE)
