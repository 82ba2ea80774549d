"""The main job of lora-sidecar, shown end to end on a real API server.

    python -m tests.demo [--engine simulated|real] [--keep | --no-keep]

It sets everything up, goes through `steps.STEPS`, and ends with 0 only if each was seen within its bound, else with 1,
the step, and the ends of the logs. On a terminal it then stays until Ctrl-C (`--no-keep`: not). However it ends,
nothing is left running. The real engine needs 5 GB of memory for its two pods.
"""

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType

from tests.demo.scene import NotSeenError, Scene
from tests.demo.screen import Screen
from tests.demo.setting import fetch, stage, tails
from tests.demo.staying import stay
from tests.demo.steps import STEPS
from tests.rig.apiclient import ApiError
from tests.rig.errors import RigError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FAILURES = (NotSeenError, RigError, ApiError, OSError)


def main(argv: Sequence[str] | None = None) -> int:
    """Show it; answer the exit code."""
    args = parse(argv)
    screen = Screen.on(sys.stdout, os.environ)
    listen(True)
    try:
        fetch(args.engine)
        with stage(args.engine, screen) as scene:
            try:
                return play(scene, keep=args.keep)
            finally:
                listen(
                    False
                )  # from here on it is ending, and a second Ctrl-C must not disturb that
                screen.headline("Ending")
    except FAILURES as error:
        screen.failed(str(error))
        return 1


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.demo", description="Show the main job, end to end."
    )
    parser.add_argument("--engine", choices=["simulated", "real"], default="simulated")
    parser.add_argument(
        "--keep",
        action=argparse.BooleanOptionalAction,
        default=sys.stdout.isatty(),
        help="stay afterwards, until Ctrl-C (default: on a terminal)",
    )
    return parser.parse_args(argv)


def play(scene: Scene, *, keep: bool) -> int:
    """Go through the steps, and stay where that is wanted; answer the exit code."""
    screen, began = scene.screen, time.monotonic()
    for number, step in enumerate(STEPS, 1):
        screen.pause()
        screen.headline(f"{number}/{len(STEPS)}  {step.title}")
        screen.prose(step.why)
        screen.pause()
        scene.mark()
        try:
            step.show(scene)
        except FAILURES as error:
            explain(scene, f"step {number}, {step.title!r}: {error}")
            return 1
    screen.headline(f"All {len(STEPS)} steps were seen, in {time.monotonic() - began:.0f} s.")
    if keep:
        with contextlib.suppress(SystemExit):  # by which it is meant to end
            stay(scene)
    return 0


def explain(scene: Scene, what: str) -> None:
    """Say what was not seen, and what everybody said last."""
    scene.screen.failed(what)
    for whose, tail in tails(scene):
        scene.screen.headline(f"The end of the log of {whose}")
        scene.screen.output(tail or "(empty)")


def listen(on: bool) -> None:
    """Let signals end this process in good order, or no more."""
    for number in SIGNALS:
        signal.signal(number, _end if on else signal.SIG_IGN)


def _end(number: int, _: FrameType | None) -> None:
    listen(False)
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
