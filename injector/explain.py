"""Says what the webhook would do with the pods of a manifest, and why: no cluster needed, nothing is changed.

    python -m injector explain FILE|- [-o diff|yaml|json] [--namespace NAME]

What is said of each pod goes to standard error where the pods themselves are printed (yaml), else to standard output
with them. Keys of SGLang that stand literally in a pod are masked in whatever is printed. Exit codes, for scripts:
0 every pod is given the agent (or has it), 1 one is not, 2 the input cannot be read or makes no pods.

The settings are those of the webhook, from the environment: LORA_SIDECAR_ and a setting's name in capitals.
"""

import argparse
import copy
import difflib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from injector import engine
from injector.decide import Plan, Skip, Slug, decide, told
from injector.patch import Operation, patch
from injector.settings import InjectorSettings
from injector.workloads import Made, NotAnObjectError, pods

GIVEN: Final = 0
NOT_GIVEN: Final = 1
UNREADABLE: Final = 2
MASK: Final = "***"
_REFERENCE: Final = re.compile(r"\$\([^)]*\)|\$\{\w+\}|\$\w+")
_KEY_OPTIONS: Final = ("--api-key", "--admin-api-key")


@dataclass(frozen=True, slots=True)
class Explanation:
    """What becomes of one pod, with every key masked. `patched` is the pod as it would be made."""

    made: Made
    given: bool
    decision: str
    reason: str
    sentence: str
    warnings: tuple[str, ...]
    operations: list[Operation]
    patched: dict[str, Any]

    def words(self) -> list[str]:
        """Whom it is about and what was decided, then what else there is to know, in lines."""
        made = self.made
        first = (
            f"{made.maker} in {made.namespace}: {self.decision} ({self.reason}): {self.sentence}"
        )
        remarks = [made.remark] if made.remark else []
        return [first, *(f"  warning: {w}" for w in self.warnings), *(f"  {r}" for r in remarks)]

    def record(self) -> dict[str, Any]:
        """All of it as one JSON object."""
        return {
            "object": self.made.maker,
            "namespace": self.made.namespace,
            "decision": self.decision,
            "reason": self.reason,
            "sentence": self.sentence,
            "warnings": list(self.warnings),
            "patch": self.operations,
            "pod": self.patched,
        }

    def diff(self) -> list[str]:
        """The pod as it is and as it would be, as a unified diff of YAML."""
        before, after = (_yaml(pod).splitlines() for pod in (self.made.pod, self.patched))
        return list(difflib.unified_diff(before, after, "asked for", "made", lineterm=""))


def explain_pod(made: Made, settings: InjectorSettings) -> Explanation:
    """Decide on a pod as the webhook does. Raises NotAnObjectError where it is none."""
    try:
        decision = decide(made.pod, made.namespace, settings)
        operations = patch(made.pod, decision)
        patched = apply(made.pod, operations)
        secrets = _secrets(made.pod, decision)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        # The error's own text may hold a key.
        text = f"{made.maker} is not a pod that Kubernetes takes ({type(error).__name__})"
        raise NotAnObjectError(text) from error
    word, reason, sentence = told(decision)
    masked = Made(made.maker, made.namespace, _masked(made.pod, secrets), made.remark)
    return Explanation(
        masked,
        isinstance(decision, Plan) or decision.slug is Slug.ALREADY,
        word,
        reason,
        sentence,
        tuple(w for w in decision.warnings if w != sentence),
        _masked(operations, secrets),
        _masked(patched, secrets),
    )


def apply(pod: dict[str, Any], operations: list[Operation]) -> dict[str, Any]:
    """The pod after the operations that `patch` makes: RFC 6902 as far as they need it."""
    result = copy.deepcopy(pod)
    for operation in operations:
        steps = [s.replace("~1", "/").replace("~0", "~") for s in operation["path"].split("/")]
        target: Any = result
        for step in steps[1:-1]:
            target = target[step]
        if operation["op"] == "remove":
            del target[steps[-1]]
        elif isinstance(target, list):
            target.append(copy.deepcopy(operation["value"]))
        else:
            target[steps[-1]] = copy.deepcopy(operation["value"])
    return result


# --- keys -------------------------------------------------------------------------------------


def _secrets(pod: dict[str, Any], decision: Plan | Skip) -> set[str]:
    """Every key that stands literally in the pod, also where it was not injected."""
    found = set()
    for container in (pod.get("spec") or {}).get("containers") or []:
        line = engine.Line(container)
        said = [line.read(option) for option in _KEY_OPTIONS]
        found |= {one.value for one in said if one and one.value}
        # Also with a hole in it: what stands around the hole is part of a key.
        texts = {one.text for one in said if one and not _REFERENCE.fullmatch(one.text)}
        found |= texts
        # In a script a key may be quoted so that it is not found again: then all of the script is masked.
        raw = [*(container.get("command") or []), *(container.get("args") or [])]
        found |= {w for w in raw if any(o in w for o in _KEY_OPTIONS) and _hides(w, texts)}
    if isinstance(decision, Plan):
        keys = [decision.api_key, decision.admin_key]
        found |= {key.value for key in keys if key and key.value}
    return found | {one.replace("$", "$$") for one in found}


def _hides(script: str, texts: set[str]) -> bool:
    return " " in script and any(text not in script for text in texts)


def _masked(value: Any, secrets: set[str]) -> Any:
    if isinstance(value, dict):
        return {name: _masked(item, secrets) for name, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, secrets) for item in value]
    if isinstance(value, str):
        for secret in sorted(secrets, key=len, reverse=True):
            value = value.replace(secret, MASK)
    return value


# --- the command ------------------------------------------------------------------------------


def main(arguments: Sequence[str], env: Mapping[str, str]) -> int:
    """Entry point; answers the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m injector explain",
        description="Says what the webhook would do with the pods of a manifest, and why.",
        epilog="Exit codes: 0 every pod is given the agent or has it, 1 one is not, 2 the input cannot be read.",
    )
    parser.add_argument("file", help="a YAML or JSON file, or - for standard input")
    parser.add_argument("-o", "--output", choices=("diff", "yaml", "json"), default="diff")
    parser.add_argument("-n", "--namespace", default="default", help="where the manifest says none")
    options = parser.parse_args(arguments)
    settings, warnings = InjectorSettings.from_env(env)
    for warning in warnings:
        sys.stderr.write(f"warning: {warning}\n")
    try:
        found = _explanations(_read(options.file), options.namespace, settings)
        sys.stdout.write(_output(found, options.output))
    except (OSError, NotAnObjectError) as error:
        sys.stderr.write(f"{options.file}: {error}\n")
        return UNREADABLE
    except RecursionError:
        sys.stderr.write(f"{options.file}: it is nested too deeply\n")
        return UNREADABLE
    if options.output == "yaml":
        sys.stderr.write("".join(f"{line}\n" for one in found for line in one.words()))
    return GIVEN if all(one.given for one in found) else NOT_GIVEN


def _read(name: str) -> list[Any]:
    text = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    try:
        return [one for one in yaml.safe_load_all(text) if one is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # A parser's words may quote the line at fault, and with it a key.
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise NotAnObjectError(f"it is neither YAML nor JSON{where}") from error


def _explanations(
    documents: list[Any], namespace: str, settings: InjectorSettings
) -> list[Explanation]:
    found = []
    for document in documents:
        for made in pods(document, namespace):
            if isinstance(made, Made):
                found.append(explain_pod(made, settings))
            else:
                sys.stderr.write(f"{made}: makes no pods that SGLang could run in\n")
    if not found:
        raise NotAnObjectError("nothing in it makes pods")
    return found


def _output(found: list[Explanation], form: str) -> str:
    if form == "json":
        return json.dumps([one.record() for one in found], indent=2) + "\n"
    if form == "yaml":
        return "---\n".join(_yaml(one.patched) for one in found)
    return "".join(f"{line}\n" for one in found for line in (*one.words(), *one.diff()))


def _yaml(pod: dict[str, Any]) -> str:
    return str(yaml.safe_dump(pod, sort_keys=False, allow_unicode=True, width=1000))
