"""How the simulated SGLang was started: SGLang's own flags that matter here, its version, and how long things take."""

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


def since(version: str, floor: str) -> bool:
    """Whether `version` is `floor` or later; both like 0.5.4 or 0.5.4.post2."""

    def numbers(text: str) -> list[int]:
        return [int(part) for part in re.findall(r"\d+", text)]

    return numbers(version) >= numbers(floor)


@dataclass(frozen=True, slots=True)
class Adapter:
    """One of `--lora-paths`."""

    name: str
    path: str
    pinned: bool = False

    @classmethod
    def parse(cls, argument: str) -> "Adapter":
        """Read it as SGLang does: JSON, NAME=PATH or PATH."""
        if argument.startswith("{"):
            told = json.loads(argument)
            return cls(told["lora_name"], told["lora_path"], told.get("pinned", False))
        name, _, path = argument.partition("=")
        return cls(name, path or name)


@dataclass(slots=True)
class Options:
    """The defaults are those with which the real one is started for tests. The times may change while it runs."""

    version: str = "0.5.21"
    model_path: str = "/models/tiny-base"
    served_model_name: str = "tiny-base"
    enable_lora: bool = True
    max_lora_rank: int = 8
    lora_target_modules: tuple[str, ...] = ("q_proj", "v_proj")
    max_loras_per_batch: int = 3
    max_loaded_loras: int | None = None
    lora_paths: tuple[Adapter, ...] = ()
    api_key: str | None = None
    admin_api_key: str | None = None
    random_seed: int | None = None
    """None draws one at each start, as SGLang does."""
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    told: Mapping[str, object] = field(default_factory=dict)
    """What `/server_info` says otherwise: dp_size, node_rank, tokenizer_worker_num, frontend are also acted upon."""

    startup: float = 0.0
    """Seconds before the port is bound."""
    warmup: float = 0.0
    """Seconds after that for which loads wait and `/health` says 503."""
    load_seconds: float = 0.0
    unload_seconds: float = 0.0
    token_seconds: float = 0.002
    dying: float = 0.2
    """Seconds for which a crashed engine still accepts connections and answers none; 5 with the real 0.5.21."""

    def since(self, floor: str) -> bool:
        """Whether this SGLang is `floor` or later."""
        return since(self.version, floor)


def parse(argv: Sequence[str] | None = None) -> tuple[Options, str, int]:
    """Read SGLang's flags and ours into options, host and port; flags that mean nothing here are passed over."""
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.sglang", allow_abbrev=False)
    defaults = Options()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--version", default=defaults.version)
    parser.add_argument("--model-path", default=defaults.model_path)
    parser.add_argument("--served-model-name", default=defaults.served_model_name)
    parser.add_argument("--enable-lora", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--max-lora-rank", type=int, default=defaults.max_lora_rank)
    parser.add_argument("--lora-target-modules", nargs="+", default=defaults.lora_target_modules)
    parser.add_argument("--max-loras-per-batch", type=int, default=defaults.max_loras_per_batch)
    parser.add_argument("--max-loaded-loras", type=int)
    parser.add_argument("--lora-paths", nargs="+", type=Adapter.parse, default=())
    parser.add_argument("--api-key")
    parser.add_argument("--admin-api-key")
    parser.add_argument("--random-seed", type=int)
    parser.add_argument("--ssl-certfile", type=Path)
    parser.add_argument("--ssl-keyfile", type=Path)
    parser.add_argument("--told", type=json.loads, default={})
    for name in ("startup", "warmup", "load-seconds", "unload-seconds", "token-seconds", "dying"):
        default = getattr(defaults, name.replace("-", "_"))
        parser.add_argument(f"--{name}", type=float, default=default)
    args = vars(parser.parse_known_args(argv)[0])
    host, port = args.pop("host"), args.pop("port")
    for name in ("lora_target_modules", "lora_paths"):
        args[name] = tuple(args[name])
    return Options(**args), host, port
