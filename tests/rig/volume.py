"""A projected volume as the kubelet lays it out: files are links through `..data`, which is swapped in one step.

    token -> ..data/token
    ..data -> ..2026_01_31_12_00_00.1
    ..2026_01_31_12_00_00.1/token

A reader sees all old files or all new ones, and a watch on the folder sees `..data` appear anew. Source: Kubernetes'
AtomicWriter (pkg/volume/util/atomic_writer.go).
"""

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path


class AtomicVolume:
    """A folder whose files change all at once. Names are plain file names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, files: Mapping[str, bytes | str]) -> None:
        """Make exactly these files the content of the volume."""
        data = self.folder / "..data"
        old = data.resolve() if data.is_symlink() else None
        stamp = time.strftime("..%Y_%m_%d_%H_%M_%S.", time.gmtime())
        new = Path(tempfile.mkdtemp(prefix=stamp, dir=self.folder))
        new.chmod(0o755)
        for name, content in files.items():
            (new / name).write_bytes(content.encode() if isinstance(content, str) else content)
        swap = self.folder / "..data_tmp"
        swap.unlink(missing_ok=True)
        swap.symlink_to(new.name)
        swap.replace(data)
        self._link(files)
        if old is not None:
            shutil.rmtree(old)

    def _link(self, files: Mapping[str, bytes | str]) -> None:
        for name in files:
            link = self.folder / name
            if not link.is_symlink():
                link.symlink_to(Path("..data") / name)
        for entry in self.folder.iterdir():
            if not entry.name.startswith("..") and entry.name not in files:
                entry.unlink()
