"""The adapters that the contract is tried with: good ones, and one for each way to be refused."""

import itertools
from pathlib import Path

from tests.rig.adapters import make_adapter


class Gallery:
    """A folder of adapters, made once; `copy` makes one that a test may spoil."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._numbers = itertools.count()
        self.a = str(make_adapter(folder / "a", seed=1))
        self.b = str(make_adapter(folder / "b", seed=2))
        self.c = str(make_adapter(folder / "c", seed=3))
        self.other_shape = str(make_adapter(folder / "other-shape", seed=4, hidden=32))
        self._make_refused()

    def __getitem__(self, name: str) -> str:
        """The path of the adapter of that name, be it there or not."""
        return str(self.folder / name)

    def copy(self, seed: int) -> Path:
        """A good adapter at a path that no other test knows."""
        return make_adapter(self.folder / f"copy-{next(self._numbers)}", seed=seed)

    def _make_refused(self) -> None:
        at = self.folder
        make_adapter(at / "rank-16", rank=16)
        make_adapter(at / "other-module", modules=["gate_proj"])
        make_adapter(at / "no-weights", weights="none")
        make_adapter(at / "corrupt-weights", weights="rubbish")
        make_adapter(at / "truncated-weights", weights="truncated")
        make_adapter(at / "empty-weights", weights="empty")
        make_adapter(at / "dora", config={"use_dora": True})
        make_adapter(at / "regex-target", config={"target_modules": ".*_proj"})
        make_adapter(at / "prompt-tuning", config={"peft_type": "PROMPT_TUNING"})
        for key in ("r", "lora_alpha", "target_modules", "peft_type"):
            make_adapter(at / f"without-{key}", config={key: None})
        (make_adapter(at / "new-tokens") / "added_tokens.json").write_text('{"<new>": 5000}')
        (make_adapter(at / "truncated-config") / "adapter_config.json").write_text('{"r": 4, "lora')
        (make_adapter(at / "no-config") / "adapter_config.json").unlink()
