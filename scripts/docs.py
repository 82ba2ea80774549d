"""Writes the pages that are tables of what code and chart declare, so that they cannot say anything else.

    python -m scripts.docs [--check]

`--check` writes nothing and fails where a page differs; `tests/test_docs.py` does the same.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from injector.settings import InjectorSettings
from scripts.values import read
from sidecar.aggregator.settings import AggregatorSettings
from sidecar.api import names
from sidecar.api.annotations import ANNOTATIONS, MARKS, ON_ADAPTERS, Annotation
from sidecar.api.conditions import ConditionReason
from sidecar.api.reasons import Reason, State
from sidecar.api.settings import ENV_PREFIX, SECRET_FIELDS, AgentSettings, Settings

ROOT: Final = Path(__file__).resolve().parent.parent
CHART: Final = "charts/lora-sidecar"
VALUES: Final = ROOT / CHART / "values.yaml"
GENERATED: Final = "<!-- Written by `make docs` from {source}; edit that instead. -->"


def page(title: str, source: str, *paragraphs: str) -> str:
    """Put a page together."""
    return "\n\n".join((f"# {title}", GENERATED.format(source=source), *paragraphs)) + "\n"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Write a table of Markdown."""
    head = tuple(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def code(text: str) -> str:
    """Set a text as code; nothing stays nothing."""
    return f"`{text}`" if text else ""


def reasons() -> str:
    """Write the page of reasons."""
    parts = []
    for state in State:
        rows = ((code(r.value), r.sentence) for r in Reason if r.state is state)
        parts += [f"## {state.value}", table(("Reason", "Meaning"), rows)]
    return page(
        "Reasons",
        "sidecar/api/reasons.py and conditions.py",
        "What an adapter is on one pod, and why: `kubectl get lorapod -o yaml` shows it for each pod, and the status of"
        " a LoRAAdapter names the pods that matter most. The worst comes first, here and wherever one must be picked.",
        *parts,
        "## Of a LoRAAdapter as a whole",
        "Its conditions `Available`, `Loaded` and `Error` give one of the reasons above, or one of these:",
        table(("Reason", "Meaning"), ((code(r.value), r.sentence) for r in ConditionReason)),
    )


def annotations() -> str:
    """Write the page of annotations."""
    marks = ((code(m.key), m.kind, m.values, m.sentence) for m in MARKS)
    return page(
        "Annotations",
        "sidecar/api/annotations.py",
        "## On pods",
        "An InferenceService sets them in `spec.podAnnotations`. A bad value never keeps a pod from being made: the"
        " default is used, and whoever creates the pod is warned. Only a bad entry of `adapter-namespaces` is dropped,"
        " and what is then an empty list means the pod's own namespace.",
        _annotations(ANNOTATIONS),
        "Durations are whole numbers of hours, minutes and seconds, as in `1h30m`.",
        "## On namespaces",
        f'No pod of a namespace with the label `{names.INJECT}: "false"` is given an agent, whatever its'
        " annotations say.",
        "## On LoRAAdapters",
        _annotations(ON_ADAPTERS),
        "## What the injector leaves on pods",
        table(("Key", "Kind", "Values", "Meaning"), marks),
    )


def _annotations(which: Iterable[Annotation]) -> str:
    rows = ((code(a.key), a.values, a.default, a.sentence) for a in which)
    return table(("Annotation", "Values", "Default", "Meaning"), rows)


def settings() -> str:
    """Write the page of settings."""
    return page(
        "Settings",
        "sidecar/api/settings.py, sidecar/aggregator/settings.py and injector/settings.py",
        "In a cluster nobody needs these: the injector writes the agent's into its container, and the chart those of"
        " aggregator and injector. Each is an environment variable and, but for secrets, an option of the command line,"
        " which wins. A value that makes no sense is logged as a warning, and the default is used. In a list, a"
        " backslash takes the meaning from a comma.",
        "## Agent",
        "`python -m sidecar.agent`",
        _settings(AgentSettings),
        "## Aggregator",
        "`python -m sidecar.aggregator`",
        _settings(AggregatorSettings),
        "## Injector",
        "`python -m injector`",
        _settings(InjectorSettings),
    )


def _settings(which: type[Settings]) -> str:
    schema = which.model_json_schema()["properties"]
    rows = (
        (
            code(ENV_PREFIX + name.upper()),
            "" if name in SECRET_FIELDS else code("--" + name.replace("_", "-")),
            values(schema[name]),
            code(_default(field.default)),
            field.description or "",
        )
        for name, field in which.model_fields.items()
    )
    return table(("Variable", "Option", "Values", "Default", "Meaning"), rows)


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def values(schema: Mapping[str, Any]) -> str:
    """Say which values a field takes."""
    if "enum" in schema:
        *most, last = schema["enum"]
        return f"{', '.join(most)} or {last}"
    kinds = {"string": "a text", "array": "a comma list", "boolean": "true or false"}
    return kinds.get(schema["type"]) or _numbers(schema)


def _numbers(schema: Mapping[str, Any]) -> str:
    if "maximum" in schema:
        return f"{schema['minimum']} to {schema['maximum']}"
    if "exclusiveMinimum" in schema:
        return f"a number above {schema['exclusiveMinimum']:g}"
    return f"a number from {schema['minimum']:g}"


def chart() -> str:
    """Write the page of the chart's values."""
    parts: list[str] = []
    rows: list[tuple[str, str, str]] = []
    for value in read(VALUES.read_text("utf-8")):
        if len(value.path) == 1:
            parts += [table(_VALUES, rows)] if rows else []
            rows = []
            parts += [f"## {value.path[0]}", *([] if value.default else [value.sentence])]
        if value.default:
            rows.append((code(".".join(value.path)), code(value.default), value.sentence))
    return page(
        "The chart of lora-sidecar",
        f"{CHART}/values.yaml",
        "How to install it says the README at the top. `values.schema.json` refuses what is not listed here.",
        *parts,
        table(_VALUES, rows),
    )


_VALUES: Final = ("Value", "Default", "Meaning")


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "docs/reasons.md": reasons,
    "docs/annotations.md": annotations,
    "docs/settings.md": settings,
    f"{CHART}/README.md": chart,
}


def stale(folder: Path) -> list[str]:
    """Name the pages below a clone's folder that do not say what is declared."""
    return [
        name
        for name, write in PAGES.items()
        if not (folder / name).is_file() or (folder / name).read_text("utf-8") != write()
    ]


def main(arguments: list[str] | None = None) -> int:
    """Write or check all pages."""
    parser = argparse.ArgumentParser(prog="python -m scripts.docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    old = stale(ROOT)
    if parser.parse_args(arguments).check:
        if old:
            sys.stderr.write(f"docs: run `make docs`, {', '.join(old)} differ\n")
        return 1 if old else 0
    for name in old:
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(PAGES[name](), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
