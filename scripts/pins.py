"""Resolves the dependencies anew into requirements/*.txt: exact versions with hashes, and no addresses.

The addresses of package indexes are the user's business (PIP_INDEX_URL and the like), so none is written down.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = (
    "--quiet",
    "--generate-hashes",
    "--strip-extras",
    "--no-header",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--no-emit-trusted-host",
    "--no-emit-options",
    "--upgrade",
)


def main() -> None:
    """Make both files, the second constrained by the first."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = Path(folder) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "pip-tools"], check=True)
        compile_ = [python, "-m", "piptools", "compile", *OPTIONS, "pyproject.toml"]
        runtime = "requirements/runtime.txt"
        subprocess.run([*compile_, "--output-file", runtime], cwd=ROOT, check=True)
        dev = ["--extra", "dev", "--constraint", runtime, "--output-file", "requirements/dev.txt"]
        subprocess.run([*compile_, *dev], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
