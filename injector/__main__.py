"""Entry point of the injector: the webhook itself, or an explanation of what it would do.

python -m injector [--webhook NAME] [--certificates DIR] [--log-level LEVEL] ...
python -m injector explain FILE|- [-o diff|yaml|json] [--namespace NAME]
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def main() -> None:
    """Each imports what it needs only: who asks for an explanation shall not wait for a server's libraries."""
    if sys.argv[1:2] == ["explain"]:
        from injector import explain

        sys.exit(explain.main(sys.argv[2:], os.environ))
    with _no_system_authorities():
        from injector import serve
    serve.start()


@contextmanager
def _no_system_authorities() -> Iterator[None]:
    """What aiohttp does as it is imported costs 1.8 MiB: it loads the system's authorities, of which we trust none."""
    before = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = os.devnull
    try:
        yield
    finally:
        if before is None:
            del os.environ["SSL_CERT_FILE"]
        else:
            os.environ["SSL_CERT_FILE"] = before


if __name__ == "__main__":
    main()
