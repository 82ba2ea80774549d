"""What the agent shows to the engine, and what it expects to be shown: SGLang's two keys, and its certificate.

All are files that may appear, change or be missing at any time (optional Secrets), so they are read when they are
needed, off the loop. Nothing here is ever printed.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Final

LIMIT: Final = 64 * 1024
"""Bytes of a file that are read at most."""
NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python has no name for."""


class Keys:
    """SGLang's api key, asked for by reads and generations, and its admin key, asked for by loads and unloads.

    With only an api key SGLang asks for that one everywhere, so it stands in for a missing admin key. A file wins over
    a value (what the engine's own environment was given). Source: `utils/auth.py` of SGLang 0.5.8 to 0.5.23; before
    0.5.8 there is the api key only.
    """

    API: Final = "api key"
    ADMIN: Final = "admin key"

    def __init__(
        self,
        *,
        api_file: Path | None = None,
        admin_file: Path | None = None,
        api_value: str | None = None,
        admin_value: str | None = None,
    ) -> None:
        self._files = (api_file, admin_file)
        self._values = (api_value or None, admin_value or None)
        self._now: tuple[str | None, str | None] | None = None

    async def refresh(self) -> bool:
        """Read the files again; True where a key is another one than before."""
        before = self._now
        self._now = await asyncio.to_thread(self._read)
        return self._now != before

    async def pick(self, *, admin: bool) -> str | None:
        """The key to show, None where there is none; reads the files the first time."""
        if self._now is None:
            await self.refresh()
        api, admin_key = self._now or (None, None)
        return (admin_key or api) if admin else api

    def name(self, *, admin: bool) -> str | None:
        """What the key of the last `pick` is called."""
        api, admin_key = self._now or (None, None)
        if admin and admin_key:
            return self.ADMIN
        return self.API if api else None

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not appear in any text."""
        return tuple(key for key in self._now or () if key)

    def _read(self) -> tuple[str | None, str | None]:
        api, admin = (
            _first_line(file) or value
            for file, value in zip(self._files, self._values, strict=True)
        )
        return api, admin


class Certificate:
    """The engine's own certificate file, whose first certificate is the only one that counts.

    A pin, not a chain of trust: the engine's certificate names neither loopback nor, often, an authority, and the file
    is the engine's own. Nor does it matter whether it has expired.
    """

    def __init__(self, file: Path | None) -> None:
        self._file = file

    async def trust(self) -> ssl.SSLContext | None:
        """What accepts that certificate only; None where the file cannot be read."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> ssl.SSLContext | None:
        if self._file is None:
            return None
        try:
            text = self._file.read_text(errors="replace")[:LIMIT]
            end = text.index(ssl.PEM_FOOTER) + len(ssl.PEM_FOOTER)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | NO_CHECK_TIME
            context.load_verify_locations(cadata=text[text.index(ssl.PEM_HEADER) : end])
        except (OSError, ValueError):
            return None
        return context


def _first_line(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            return lines.readline(LIMIT).strip() or None
    except OSError:
        return None
