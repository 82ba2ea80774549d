"""Adapter directories for the tests of the path gate: small, whole unless told otherwise, and of a chosen age."""

import json
import os
import struct
import time
from pathlib import Path
from typing import Any

CONFIG = {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"], "peft_type": "LORA"}


def safetensors(data: bytes = b"\1" * 64, **header: Any) -> bytes:
    tensors = {"a": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}
    text = json.dumps({"__metadata__": {"format": "pt"}, **tensors, **header}).encode()
    return struct.pack("<Q", len(text)) + text + data


def write(directory: Path, files: dict[str, bytes] | None = None, **config: Any) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    defaults = {
        "adapter_config.json": json.dumps({**CONFIG, **config}).encode(),
        "adapter_model.safetensors": safetensors(),
    }
    for name, content in (defaults if files is None else files).items():
        (directory / name).write_bytes(content)
    return directory


def config_bytes(**changes: Any) -> bytes:
    return json.dumps({**CONFIG, **changes}).encode()


def later(seconds: float = 60.0) -> float:
    """A wall clock at which what was written just now is old."""
    return time.time() + seconds


def touch(path: Path) -> None:
    """Give a file new times, whatever the clock's grain."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000_000))
