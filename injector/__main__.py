"""Entry point of the injector. The webhook is not part of this version: until it is, agents are added by hand."""

import sys


def main() -> int:
    """Say so, and end with an error: a Deployment of it must not look healthy."""
    sys.stderr.write(
        "lora-sidecar's injector is not part of this version yet. Add the agent to the pod template as a native"
        " sidecar that runs `python -m sidecar.agent`; its settings are in docs/settings.md.\n"
    )
    return 2


if __name__ == "__main__":
    sys.exit(main())
