"""Renders the chart with either generation of Helm."""

import subprocess
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml

from tests.rig.helm import helm
from tests.rig.install import CHART

REPOSITORY = "registry.example.com/lora-sidecar"
Render = Callable[..., str]
Object = dict[str, Any]


def rendered(
    values: Mapping[str, Any] | None = None,
    *,
    generation: str = "4",
    kubernetes: str = "1.34.4",
    namespace: str = "lora-sidecar",
    apis: tuple[str, ...] = (),
    hooks: bool = True,
) -> str:
    """What `helm template` prints; AssertionError with what it says where it fails."""
    told = {"image": {"repository": REPOSITORY}} | dict(values or {})
    command = [
        str(helm(generation)),
        "template",
        "lora-sidecar",
        str(CHART),
        "--namespace",
        namespace,
    ]
    apis_given = [argument for api in apis for argument in ("--api-versions", api)]
    done = subprocess.run(
        [
            *command,
            "--kube-version",
            kubernetes,
            *apis_given,
            *([] if hooks else ["--no-hooks"]),
            "--values",
            "-",
        ],
        input=yaml.safe_dump(told),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(text: str) -> list[Object]:
    return [one for one in yaml.safe_load_all(text) if one]


def named(text: str) -> dict[str, Object]:
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in objects(text)}


@pytest.fixture(scope="session", autouse=True)
def _fetched() -> None:
    """Before the first test, as fetching takes a while."""
    for generation in ("3", "4"):
        helm(generation)
