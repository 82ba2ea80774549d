"""Installs the real SGLang, and on request serves the tiny model with it, for trying things by hand.

python -m tests.rig.sglang [--version V]         install, print the interpreter and the models' folder
python -m tests.rig.sglang --serve PORT [FLAG..] then serve until interrupted; further flags are SGLang's own
"""

import argparse
import os
import sys

from tests.rig.cache import say
from tests.rig.errors import RigError
from tests.rig.sglang import install, launch


def main() -> None:
    """Install, and serve where that was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.rig.sglang", description=__doc__)
    parser.add_argument("--version", default=install.VERSION, choices=install.versions())
    parser.add_argument("--serve", type=int, metavar="PORT")
    args, extra = parser.parse_known_args()
    try:
        python = install.install(args.version)
    except RigError as error:
        say(str(error))
        sys.exit(2)
    models = install.models()
    print(python, models, sep="\n", flush=True)
    if args.serve is not None:
        command = launch.command(python, models / "base", "127.0.0.1", args.serve, extra=extra)
        os.execve(command[0], command, launch.environment())


if __name__ == "__main__":
    main()
