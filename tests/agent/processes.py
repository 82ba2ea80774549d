"""An agent as a process of its own, without Kubernetes: adapters from manifests, its report in a file."""

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.rig.engines import ROOT, EngineProcess, free_port
from tests.rig.polling import until
from tests.rig.process import Process


def manifest(name: str, path: Path | str, **spec: str) -> dict[str, Any]:
    return {
        "apiVersion": "inference.llmkube.dev/v1alpha1",
        "kind": "LoRAAdapter",
        "metadata": {"name": name},
        "spec": {"inferenceServiceRef": {"name": "chat"}, "name": name, "path": str(path), **spec},
    }


class AgentProcess:
    """Runs until `end` or exit. `folder` holds manifests, report and log; `options` come after the usual ones."""

    def __init__(
        self,
        folder: Path,
        engine: EngineProcess,
        *options: str,
        environment: Mapping[str, str] | None = None,
        usual: bool = True,
        port: int | None = None,
    ) -> None:
        self.manifests = folder / "manifests"
        folder.mkdir(parents=True, exist_ok=True)
        self.report_file = folder / "report.json"
        self.port = port or free_port()
        self.log = folder / "agent.log"
        told = (
            *("--service", "chat", "--engine-port", str(engine.port)),
            *("--manifests", str(self.manifests), "--report-file", str(self.report_file)),
            *("--listen-port", str(self.port), "--settle", "0"),
        )
        clean = {k: v for k, v in os.environ.items() if not k.startswith("LORA_SIDECAR_")}
        self.process = Process(
            [sys.executable, "-m", "sidecar.agent", *(told if usual else ()), *options],
            self.log,
            environment={**clean, "PYTHONPATH": str(ROOT), **(environment or {})},
        )

    def __enter__(self) -> "AgentProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()

    def write(self, file: str, *documents: object) -> None:
        """Put a manifest there in one step, and the directory before the first."""
        self.manifests.mkdir(parents=True, exist_ok=True)
        draft = self.manifests / f".{file}"
        draft.write_text(yaml.safe_dump_all(documents))
        draft.replace(self.manifests / file)

    def report(self) -> dict[str, Any]:
        """The whole report file; empty before the first."""
        return json.loads(self.report_file.read_text()) if self.report_file.exists() else {}

    def reasons(self) -> dict[str, str]:
        entries = self.report().get("status", {}).get("adapters", ())
        return {entry["name"]: entry["reason"] for entry in entries}

    def text(self, handle: str) -> str:
        entries = self.report()["status"]["adapters"]
        return next(str(e.get("text", "")) for e in entries if e["name"] == handle)

    def until_reported(self, **wanted: str) -> None:
        until(lambda: self.reasons() == wanted, f"{wanted} is in the report file; {self.log}")

    def get(self, path: str) -> tuple[int, str]:
        """What its HTTP side answers; 0 while nothing listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except urllib.error.URLError:
            return 0, ""

    def state(self) -> dict[str, Any]:
        status, text = self.get("/state")
        return json.loads(text) if status == 200 else {}

    def end(self, within: float = 30) -> int:
        """Ask it to end as a kubelet does; its exit code."""
        self.process.terminate()
        until(lambda: self.process.exit_code is not None, "the agent ends", timeout=within)
        code = self.process.exit_code
        assert code is not None
        return code
