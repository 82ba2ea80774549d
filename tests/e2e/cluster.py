"""A cluster as its users meet it: kubectl, helm, and a shell in which both are on the PATH."""

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rig.adapters import make_adapter
from tests.rig.binaries import binaries
from tests.rig.helm import helm
from tests.rig.install import CHART
from tests.rig.polling import until

ROOT = CHART.parents[1]
HOME = "lora-sidecar"
"""The namespace that the README installs into."""
REPOSITORY = "registry.example.com/lora-sidecar"
"""Where the README's image is."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster, with its tools and what has been brought within its reach."""

    kubeconfig: Path
    work: Path
    ours: str
    """Our image."""
    engine: str
    """The image of the simulated SGLang."""
    node: bool
    """Whether its node is this machine, started for the tests; else it is somebody's."""

    def kubectl(self, *arguments: str, input: str | None = None, check: bool = True) -> str:  # noqa: A002
        """What kubectl prints; AssertionError with its complaint."""
        return self._call([str(binaries() / "kubectl"), *arguments], input, check)

    def helm(self, *arguments: str) -> str:
        """What helm prints, asked in our namespace."""
        return self._call([str(helm()), *arguments, "--namespace", HOME], None, True)

    def shell(self, script: str) -> str:
        """Run a user's commands as they stand, at the top of a clone."""
        tools = self.work / "bin"
        tools.mkdir(exist_ok=True)
        for program in (binaries() / "kubectl", helm()):
            link = tools / program.name
            if not link.is_symlink():
                link.symlink_to(program)
        return self._call(["bash", "-euo", "pipefail", "-c", script], None, True, str(tools))

    def get(self, namespace: str, *what: str) -> dict[str, Any]:
        """An object, or a list of them."""
        told = self.kubectl("-n", namespace, "get", *what, "-o", "json")
        return json.loads(told)  # type: ignore[no-any-return]

    def apply(self, *objects: dict[str, Any]) -> None:
        """Apply objects as their users do."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.kubectl("apply", "-f", "-", input=text)

    def put_adapter(self, namespace: str, name: str, seed: int = 1) -> None:
        """Write an adapter's files onto the volume by way of the pod `files`, and rename them into place when whole."""
        made = make_adapter(self.work / f"{namespace}-{name}-{seed}", seed=seed)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(made, arcname=f".{name}", filter=_anyone)
        unpack = f"tar -x -C /adapters && mv /adapters/.{name} /adapters/{name}"
        command = [str(binaries() / "kubectl"), "-n", namespace, "exec", "-i", "files", "--"]
        done = subprocess.run(
            [*command, "sh", "-ec", unpack],
            input=packed.getvalue(),
            capture_output=True,
            check=False,
            env=os.environ | {"KUBECONFIG": str(self.kubeconfig)},
        )
        assert done.returncode == 0, done.stderr.decode()

    def _call(self, command: list[str], input: str | None, check: bool, tools: str = "") -> str:  # noqa: A002
        environment = os.environ | {"KUBECONFIG": str(self.kubeconfig)}
        if tools:
            environment["PATH"] = f"{tools}:{environment['PATH']}"
        done = subprocess.run(
            command,
            input=input,
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            cwd=ROOT,
        )
        said = f"{' '.join(command[:8])}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        assert not check or done.returncode == 0, said
        return done.stdout


def _anyone(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Readable by everyone, and nobody's in particular."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755
    return entry


def until_true(probe: Callable[[], object], what: str, seconds: float = 90) -> None:
    """Wait for something of a cluster."""
    until(probe, what, timeout=seconds, every=0.5)
