"""Which certificate the server shows: one TLS context for the life of the process, its certificate exchanged in place.

A new pair is tried in a context of its own first, so that a half-written or mismatched one never reaches the port;
connections that are open keep what they began with. Whether the API server would take what is shown is found out by
doing what it does: a handshake, in memory, against the caBundle. Keys pass through memory, not through the disk.

Where certificates come from is left to `keeping` (a Secret of our own) and `mounted` (files of somebody else's).
"""

import asyncio
import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from injector.certificates import ends_at

_TURNS: Final = 6
"""A handshake in memory takes two turns of each side in TLS 1.3."""


class UnusableError(Exception):
    """A certificate and key that cannot be served, or that a bundle does not verify; the words say why."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A certificate chain and its key, both PEM."""

    chain: bytes
    key: bytes


class Serving:
    """What the port shows. `context` is for the listener; `loaded` is set from the first certificate on."""

    def __init__(self) -> None:
        self.context = _context()
        self.loaded = asyncio.Event()
        self.shown: Shown | None = None
        self.not_after = 0.0
        """When what is shown ends, in seconds since the epoch; 0 while nothing is."""

    def show(self, pair: Shown) -> bool:
        """Show this from the next handshake on; whether it is news. Raises UnusableError and then changes nothing."""
        if pair == self.shown:
            return False
        _load(_context(), pair)
        _load(self.context, pair)
        self.not_after = ends_at(pair.chain)
        self.shown = pair
        self.loaded.set()
        return True

    def verify(self, bundle: bytes, host: str) -> None:
        """Raise UnusableError unless a client that trusts `bundle` (PEM) takes what is shown for `host`, now."""
        if self.shown is None:
            raise UnusableError("no certificate is served yet")
        verify(self.shown, bundle, host)


def verify(pair: Shown, bundle: bytes, host: str) -> None:
    """Raise UnusableError unless a client that trusts `bundle` (PEM) takes `pair` for `host`, now."""
    context = _context()
    _load(context, pair)
    # Not the library's default context: that one believes the system's authorities where it is given none.
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        client.load_verify_locations(cadata=bundle.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise UnusableError("the caBundle holds no certificate that can be read") from error
    try:
        _shake_hands(context, client, host)
    except ssl.SSLCertVerificationError as error:
        raise UnusableError(error.verify_message or str(error)) from error
    except (ssl.SSLError, ValueError) as error:
        raise UnusableError(str(error)) from error


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _load(context: ssl.SSLContext, pair: Shown) -> None:
    with _as_file(pair.chain) as chain, _as_file(pair.key) as key:
        try:
            # An empty password, or OpenSSL would ask for one at the terminal.
            context.load_cert_chain(chain, key, password=lambda: b"")
        except (OSError, ValueError) as error:
            raise UnusableError(f"certificate and key cannot be used: {error}") from error


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A path to the content for as long as it takes: of anonymous memory, or of a private file without Linux."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
        return
    number = os.memfd_create("pem")
    with open(number, "wb") as file:  # noqa: PTH123 - a number, not a path
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{number}"


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """A whole handshake without a socket. Raises ssl.SSLError."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(up, down, server_side=True)
    theirs = client.wrap_bio(down, up, server_hostname=host)
    for _ in range(_TURNS):
        done = [_turn(side) for side in (theirs, ours)]
        if all(done):
            return
    raise ssl.SSLError("the handshake does not end")


def _turn(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
