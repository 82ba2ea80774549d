"""The simulated SGLang's adapters: what its tokenizer process registers, what its scheduler holds, who waits for whom.

SGLang keeps two books. The *registry* (tokenizer process) is what `/v1/models` lists and requests are checked against;
what the scheduler *holds* is what `loaded_adapters` tells. They differ while an unload waits for running requests. A
third, `remembered`, is never cleared: it brings an unloaded adapter back when a request names it. Source:
`managers/tokenizer_control_mixin.py`, `lora/lora_registry.py`, `lora/lora_manager.py` of SGLang 0.5.21.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from tests.fakes.sglang.files import Config, Weights, read_config, read_weights
from tests.fakes.sglang.options import Options
from tests.rig.sglang.model import VOCABULARY

DISABLED = "LoRA is not enabled. Please set `--enable-lora` to enable LoRA."
DISABLED_REQUEST = (
    "LoRA adapter '{name}' was requested, but LoRA is not enabled. Please launch the server with --enable-lora flag and"
    " preload adapters using --lora-paths or /load_lora_adapter endpoint."
)
INCOMPATIBLE = (
    "LoRA adapter {name} with rank {rank} is incompatible with the current LoRA memory pool configuration. Please"
    " ensure that the LoRA adapter's rank is within the configured `--max-lora-rank` and that the target modules are"
    " included in `--lora-target-modules`."
)
ALL_PINNED = (
    "Failed to load LoRA adapter {name} as a pinned adapter. It is not allowed to pin all slots in the LoRA memory pool"
    " to avoid starvation for unpinned adapters and base models. Please increase your `--max-loras-per-batch` or load"
    " it as unpinned LoRA adapters."
)
FULL = (
    "Cannot load LoRA adapter {name} at path {path}. Maximum number of loaded LoRA adapters is {limit}."
    " Please unload some LoRA adapters before loading new ones."
)
NOT_LOADED = (
    "The following requested LoRA adapters are not loaded: {name}\nLoaded adapters: {keys}."
)


class NotServedError(ValueError):
    """A request names an adapter that cannot be had; the message is SGLang's."""


@dataclass(eq=False, slots=True)
class Ref:
    """One load of one adapter."""

    name: str
    path: str
    pinned: bool
    weights: Weights
    ident: str = field(default_factory=lambda: uuid4().hex)
    uses: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def use(self, more: int) -> None:
        """Count a request in or out."""
        self.uses += more
        self.changed.set()

    async def unused(self) -> None:
        """Wait until exactly no request uses it, for ever where the count has gone wrong."""
        while self.uses != 0:
            self.changed.clear()
            await self.changed.wait()


@dataclass(frozen=True, slots=True)
class Result:
    """How a load or unload ended; `loaded` is None where the scheduler was not asked."""

    error: str | None
    loaded: dict[str, str] | None


class Loras:
    """All adapters of one engine process."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lock = asyncio.Lock()
        self.registry: dict[str, Ref] = {}
        self.held: list[Ref] = []
        self.remembered: dict[str, Ref] = {}

    async def start(self) -> None:
        """Load `--lora-paths`; RuntimeError where one of them cannot be loaded."""
        for adapter in self._options.lora_paths:
            result = await self.load(adapter.name, adapter.path, adapter.pinned)
            if result.error is not None:
                raise RuntimeError(f"Failed to load LoRA adapter {adapter.name}: {result.error}")

    async def load(self, name: str, path: str, pinned: bool) -> Result:
        """Serve a load, explicit or implicit."""
        if not self._options.enable_lora:
            return Result(DISABLED, None)
        async with self._lock:
            limit = self._options.max_loaded_loras
            if (
                limit is not None
                and not self._options.since("0.5.6")
                and len(self.registry) >= limit
            ):
                return Result(FULL.format(name=name, path=path, limit=limit), None)
            await asyncio.sleep(self._options.load_seconds)
            try:
                ref = await self._schedule(name, path, pinned)
            except Exception as error:  # noqa: BLE001 - as the scheduler does
                return Result(str(error), self._loaded())
            self.held.append(ref)
            if (
                name in self.registry
            ):  # before 0.5.3.post2 this is found out too late: a copy is leaked
                return Result(
                    f"LoRA with name {name} already exists. Loaded LoRAs: {self._keys()}", None
                )
            self.registry[name] = self.remembered[name] = ref
            await self._evict()
            return Result(None, self._loaded())

    async def unload(self, name: str) -> Result:
        """Serve an unload."""
        if not self._options.enable_lora:
            return Result(DISABLED, None)
        async with self._lock:
            if name not in self.registry:
                return Result(
                    f"LoRA with name {name} does not exist. Loaded LoRAs: {self._keys()}", None
                )
            await self._unload(name)
            return Result(None, self._loaded())

    async def acquire(self, name: str) -> Ref:
        """Count a request in that names `name`, reloading it where SGLang would. Raises NotServedError."""
        if not self._options.enable_lora:
            raise NotServedError(DISABLED_REQUEST.format(name=name))
        if name not in self.registry:
            await self._reload(name)
        if name not in self.registry:  # evicted as soon as it was loaded
            raise NotServedError(NOT_LOADED.format(name=name, keys=self._keys()))
        ref = self.registry.pop(name)
        self.registry[name] = ref  # the registry is in order of use
        ref.use(+1)
        return ref

    @contextmanager
    def using(self, ref: Ref, parallel: int) -> Iterator[None]:
        """Count the request out at its end. Before 0.5.22, one with n > 1 is counted out once too often."""
        try:
            yield
        finally:
            leaked = parallel > 1 and not self._options.since("0.5.22")
            ref.use(-2 if leaked else -1)

    def drop(self, name: str) -> None:
        """Lose an adapter, as an eviction does."""
        self.held.remove(self.registry.pop(name))

    def _loaded(self) -> dict[str, str]:
        return {ref.name: ref.path for ref in self.held}

    def _keys(self) -> str:
        kind = "odict_keys" if self._options.since("0.5.6") else "dict_keys"
        return f"{kind}({list(self.registry)})"

    async def _schedule(self, name: str, path: str, pinned: bool) -> Ref:
        """What the scheduler does of a load, in its order."""
        config = await asyncio.to_thread(read_config, path, VOCABULARY)
        self._admit(name, config, pinned)
        weights = await asyncio.to_thread(read_weights, path, config)
        return Ref(name, path, pinned and self._options.since("0.5.1"), weights)

    def _admit(self, name: str, config: Config, pinned: bool) -> None:
        options = self._options
        if config.added_tokens:
            raise ValueError(
                f"Failed to load {name} because LoRA serving currently doesn't support adapters that add tokens to the"
                " vocabulary"
            )
        if config.dora and options.since("0.5.11"):
            raise ValueError(
                f"Failed to load {name} because LoRA serving currently doesn't support DoRA adapters"
            )
        if options.since("0.5.3.post2") and any(ref.name == name for ref in self.held):
            raise ValueError(f"Failed to load LoRA adapter {name} because it is already loaded")
        if config.rank > options.max_lora_rank or not self._has_room(config):
            raise ValueError(INCOMPATIBLE.format(name=name, rank=config.rank))
        pins = sum(ref.pinned for ref in self.held)
        if pinned and options.since("0.5.1") and pins >= options.max_loras_per_batch - 1:
            raise ValueError(ALL_PINNED.format(name=name))

    def _has_room(self, config: Config) -> bool:
        if isinstance(config.modules, str) and not self._options.since("0.5.10"):
            return True
        return config.within(self._options.lora_target_modules)

    async def _evict(self) -> None:
        limit = self._options.max_loaded_loras
        while limit is not None and len(self.registry) > limit:
            await self._unload(next(name for name, ref in self.registry.items() if not ref.pinned))

    async def _unload(self, name: str) -> None:
        ref = self.registry.pop(name)
        if self._options.since("0.5.1"):
            await ref.unused()
        await asyncio.sleep(self._options.unload_seconds)
        self.held.remove(ref)

    async def _reload(self, name: str) -> None:
        if not self._options.since("0.5.6"):
            raise NotServedError(NOT_LOADED.format(name=name, keys=self._keys()))
        if name not in self.remembered:
            raise NotServedError(
                f"Got LoRA adapter that has never been loaded: {name}\n"
                f"All loaded adapters: dict_keys({list(self.remembered)})."
            )
        ref = self.remembered[name]
        error = (await self.load(name, ref.path, ref.pinned)).error
        if error is not None and "already loaded" not in error:
            raise NotServedError(f"Failed to implicitly load LoRA adapter {name}: {error}")
