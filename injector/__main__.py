"""Entry point of the injector: the webhook itself, or an explanation of what it would do.

python -m injector [--webhook NAME] [--certificates DIR] [--log-level LEVEL] ...
python -m injector explain FILE|- [-o diff|yaml|json] [--namespace NAME]
"""

import os
import sys


def main() -> None:
    """Each imports what it needs only: who asks for an explanation shall not wait for a server's libraries."""
    if sys.argv[1:2] == ["explain"]:
        from injector import explain

        sys.exit(explain.main(sys.argv[2:], os.environ))
    from injector import serve

    serve.start()


if __name__ == "__main__":
    main()
