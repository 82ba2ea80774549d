"""The client of the one engine beside us: asks SGLang what it holds and what it is, and has it load and unload.

It retries nothing, remembers nothing of adapters and decides nothing; `exchange` moves the bytes, `answers` reads them.
Reads raise an EngineError; loads and unloads always end in an Answer, since each of their ends must be accounted for.
Calls may be cancelled at any point; what was sent by then, SGLang finishes all the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NoReturn, Self, TypeVar

from sidecar.agent.answers import (
    Answer,
    Kind,
    Listing,
    ServerInfo,
    one_line,
    read_answer,
    read_generation,
)
from sidecar.agent.exchange import (
    Call,
    EngineError,
    Garbled,
    NoRoute,
    Refused,
    Reply,
    Silent,
    Unauthorized,
    Untrusted,
    Wire,
)
from sidecar.agent.keys import Certificate, Keys

__all__ = [
    "LOOPBACK",
    "Answer",
    "Certificate",
    "Engine",
    "EngineError",
    "Garbled",
    "Keys",
    "Kind",
    "Listing",
    "NoRoute",
    "Refused",
    "ServerInfo",
    "Silent",
    "Unauthorized",
    "Untrusted",
]

T = TypeVar("T")

LOOPBACK: Final = ("::1", "127.0.0.1")
"""Both are tried: on `--host ::` uvicorn listens on IPv6 only, on 0.0.0.0 on IPv4 only."""

READ_SECONDS: Final = 10.0
LOAD_SECONDS: Final = 300.0
GENERATE_SECONDS: Final = 60.0


class Engine:
    """One engine. Close it at the end, or use it as an asynchronous context manager.

    `hosts` are IP addresses (or names) in the order in which they are tried; the one that answered is remembered until
    it refuses. With scheme https the engine's certificate must be the one in `certificate`; where that cannot be read,
    any is accepted on loopback, which is said once, and elsewhere one that the system trusts. Never plain http.
    """

    def __init__(
        self,
        hosts: Sequence[str] = LOOPBACK,
        port: int = 30000,
        *,
        scheme: str = "http",
        keys: Keys | None = None,
        certificate: Certificate | None = None,
        read_seconds: float = READ_SECONDS,
        load_seconds: float = LOAD_SECONDS,
    ) -> None:
        self._wire = Wire(hosts, port, scheme, keys or Keys(), certificate or Certificate(None))
        self._read_seconds = read_seconds
        self._load_seconds = load_seconds

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Break off the calls that are under way."""
        await self._wire.close()

    @property
    def addresses(self) -> str:
        """Where the engine is looked for, for people: `[::1]:30000, 127.0.0.1:30000`."""
        return self._wire.addresses

    async def connect(self, seconds: float = 1.0) -> bool:
        """Whether something accepts connections; sends nothing, so the engine logs nothing.

        A True is not yet a sign of life: SGLang 0.5.21 accepts for 5 s more while its process is dying.
        """
        return await self._wire.connect(seconds)

    async def models(self) -> Listing:
        """What the engine holds (`GET /v1/models`). Costs the engine nothing, also while it is busy."""
        return self._parse("/v1/models", await self._read("/v1/models"), Listing.read)

    async def server_info(self) -> ServerInfo:
        """What the engine process says of itself. Waits behind its work, so it may be Silent while it loads."""
        try:
            reply = await self._read("/server_info")
        except NoRoute:
            # Before SGLang 0.5.6; later ones log a warning when the old name is asked for.
            reply = await self._read("/get_server_info")
        return self._parse("/server_info", reply, ServerInfo.read)

    async def load(self, name: str, path: str, pinned: bool = False) -> Answer:
        """Have the engine load an adapter. `path` must be an absolute, existing directory, as the engine sees it."""
        body: dict[str, object] = {"lora_name": name, "lora_path": path}
        if pinned:
            body["pinned"] = True
        return await self._change("/load_lora_adapter", body, self._load_seconds)

    async def unload(self, name: str) -> Answer:
        """Have the engine unload a handle.

        It waits for the requests that use it, and below SGLang 0.5.22 perhaps for ever: there is no time-out here.
        """
        return await self._change("/unload_lora_adapter", {"lora_name": name}, None)

    async def generate_one(self, name: str, seconds: float = GENERATE_SECONDS) -> Answer:
        """Have the engine generate one token through an adapter; one that does not fit kills it here."""
        sampling = {"temperature": 0, "max_new_tokens": 1}
        # A token instead of a text, which an engine without a tokenizer could not read.
        body = {"input_ids": [1], "lora_path": name, "sampling_params": sampling}
        return await self._answer(Call("POST", "/generate", seconds, body), read_generation)

    async def _read(self, path: str) -> Reply:
        reply = await self._wire.send(Call("GET", path, self._read_seconds))
        if reply.status != 200:
            self._complain(path, reply)
        return reply

    def _complain(self, path: str, reply: Reply) -> NoReturn:
        if reply.status in (401, 403):
            raise Unauthorized(self._wire.refused_key(admin=False))
        if reply.status == 404:
            raise NoRoute(f"the engine has no {path}")
        answer = read_answer(reply.status, reply.body, secrets=self._wire.secrets)
        raise Garbled(one_line(f"{path}: {answer.text}"))

    @staticmethod
    def _parse(path: str, reply: Reply, read: Callable[[bytes], T]) -> T:
        try:
            return read(reply.body)
        except ValueError as error:
            raise Garbled(f"{path}: {error}") from None

    async def _change(self, path: str, body: Mapping[str, object], seconds: float | None) -> Answer:
        return await self._answer(Call("POST", path, seconds, body, admin=True), read_answer)

    async def _answer(self, call: Call, read: Callable[..., Answer]) -> Answer:
        try:
            reply = await self._wire.send(call)
        except (Refused, Untrusted) as error:
            return Answer(Kind.REFUSED, str(error))
        except EngineError as error:
            return Answer(Kind.UNKNOWN, str(error))
        answer = read(reply.status, reply.body, secrets=self._wire.secrets)
        if answer.kind is Kind.UNAUTHORIZED:
            return replace(answer, text=self._wire.refused_key(admin=call.admin))
        return answer
