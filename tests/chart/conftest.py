"""Renders the chart with either generation of Helm."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.sets import HELMS, HOME, REPOSITORY, TESTED
from tests.rig.helm import helm
from tests.rig.install import CHART

Object = dict[str, Any]


def rendered(
    values: Mapping[str, Any] | None = None,
    *,
    generation: str = "4",
    kubernetes: str = TESTED,
    namespace: str = HOME,
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


def golden(name: str) -> Path:
    """The file that holds what a set of values renders to."""
    return Path(__file__).parent / "golden" / f"{name}.yaml"


def objects(text: str) -> list[Object]:
    return [one for one in yaml.safe_load_all(text) if one]


def named(text: str) -> dict[str, Object]:
    """By kind and name; those in namespaces other than the release's by kind, namespace and name."""
    found: dict[str, Object] = {}
    for one in objects(text):
        key = _key(one)
        assert key not in found, f"{key} is rendered twice"
        found[key] = one
    return found


def _key(one: Object) -> str:
    namespace = one["metadata"].get("namespace", HOME)
    where = "" if namespace == HOME else f"{namespace}/"
    return f"{one['kind']}/{where}{one['metadata']['name']}"


@pytest.fixture(scope="session", autouse=True)
def _fetched() -> None:
    """Before the first test, as fetching takes a while."""
    for generation in HELMS:
        helm(generation)
