"""A real SGLang on a CPU, with LoRA loading at run time: installed into the cache once, started by `tests.rig.engines`.

install   a pinned SGLang in a virtual environment of its own, apart from this project's
model     the tiny model that it serves
launch    the command line and environment that make it serve on a CPU
cpu/      stand-ins for compiled GPU packages, found by SGLang's processes through PYTHONPATH

    python -m tests.rig.sglang [--version 0.5.21] [--serve PORT]
"""
