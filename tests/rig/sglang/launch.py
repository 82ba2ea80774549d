"""The command line and environment that make SGLang serve the tiny model on a CPU, adapters loadable at run time."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from tests.rig.sglang.model import SERVED_NAME

STAND_INS = Path(__file__).parent / "cpu"

ON_A_CPU = shlex.split(
    "--device cpu --dtype float32 --attention-backend torch_native --sampling-backend pytorch"
    " --sleep-on-idle --disable-cuda-graph --disable-overlap-schedule"
    " --context-length 1024 --max-total-tokens 4096 --max-running-requests 16"
)

WITH_LORA = shlex.split(
    "--enable-lora --lora-backend torch_native"
    " --max-lora-rank 8 --lora-target-modules q_proj v_proj --max-loras-per-batch 3"
)


def command(
    python: Path, model: Path, host: str, port: int, *, lora: bool = True, extra: Sequence[str] = ()
) -> list[str]:
    """The server's command line; `extra` flags come last, so they win."""
    served = ["--model-path", str(model), "--served-model-name", SERVED_NAME]
    address = ["--host", host, "--port", str(port)]
    flags = [*served, *address, *ON_A_CPU, *(WITH_LORA if lora else ()), *extra]
    return [str(python), "-m", "sglang.launch_server", *flags]


def environment() -> dict[str, str]:
    """Ours without what would reach into SGLang's own Python, and with what SGLang needs here."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    threads = {name: ours[name] for name in ("OMP_NUM_THREADS",) if name in ours}
    return ours | on_a_cpu() | threads


def on_a_cpu() -> dict[str, str]:
    """What keeps SGLang on the CPU and off the network."""
    return {
        "SGLANG_USE_CPU_ENGINE": "1",
        "PYTHONPATH": str(STAND_INS),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TORCHDYNAMO_DISABLE": "1",  # no just-in-time compiling
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "2",
        "NO_PROXY": "*",  # its warm-up asks itself over HTTP
    }
