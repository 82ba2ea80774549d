"""The engine in a pod: which container it is, and what its command line says about port, certificate and keys.

Command lines are read as argparse reads them (the last one counts), also inside `sh -c "..."`, with Kubernetes'
`$(VAR)` and, inside a shell, `$VAR` and `${VAR}` looked up in the container's own environment.
"""

import itertools
import re
import shlex
from dataclasses import dataclass, field
from typing import Any, Final

from sidecar.api import names

_VARIABLE: Final = re.compile(r"\$\((\w+)\)|\$\{(\w+)\}|\$(\w+)")
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash"})


@dataclass(frozen=True, slots=True)
class Key:
    """One of SGLang's keys: a Secret's item, or what the agent's environment variable shall say."""

    secret: tuple[str, str] | None = None
    source: dict[str, Any] | None = field(default=None, repr=False)
    value: str | None = field(default=None, repr=False)


def words(container: dict[str, Any]) -> list[str]:
    """The command line in words; a shell's script is taken apart as the shell would."""
    line = [
        str(word) for word in [*(container.get("command") or []), *(container.get("args") or [])]
    ]
    if not line or line[0].rpartition("/")[2] not in _SHELLS:
        return line
    scripts = [i + 1 for i, word in enumerate(line) if re.fullmatch(r"-[a-z]*c", word)]
    if not scripts or scripts[0] >= len(line):
        return line
    return _split(line[scripts[0]]) + line[scripts[0] + 1 :]


def _split(script: str) -> list[str]:
    try:
        return shlex.split(script.replace("\\\n", " "))
    except ValueError:
        return script.split()


def launches_sglang(container: dict[str, Any]) -> bool:
    """Whether the command line starts SGLang's server."""
    line = words(container)
    started = any("sglang.launch_server" in w or w.endswith("launch_server.py") for w in line)
    pairs = itertools.pairwise(line)
    return started or any(a.rpartition("/")[2] == "sglang" and b == "serve" for a, b in pairs)


def option(line: list[str], name: str) -> str | None:
    """The value of `--name value` or `--name=value`, the last one."""
    found = None
    for position, word in enumerate(line):
        if word.startswith(f"{name}="):
            found = word.partition("=")[2]
        elif word == name and position + 1 < len(line):
            found = line[position + 1]
    return found


def find(containers: list[dict[str, Any]], wanted: str | None) -> list[dict[str, Any]]:
    """The containers that may be the engine: by the wanted name, else `sglang`, else all that launch SGLang."""
    by_name = [c for c in containers if c.get("name") == (wanted or names.ENGINE_CONTAINER)]
    if wanted or by_name:
        return by_name
    return [c for c in containers if launches_sglang(c)]


def port(container: dict[str, Any]) -> int:
    """Where the engine listens: `--port`, else the port named http, else SGLang's default."""
    said = _literal(option(words(container), "--port"), container)
    if said and re.fullmatch(r"[0-9]{1,5}", said) and 0 < int(said) < 65536:
        return int(said)
    for declared in container.get("ports") or []:
        if declared.get("name") == "http":
            return int(declared["containerPort"])
    return names.ENGINE_PORT


def certificate(container: dict[str, Any]) -> str | None:
    """The certificate file that the engine was given, None where it speaks http."""
    return _literal(option(words(container), "--ssl-certfile"), container)


def key(container: dict[str, Any], name: str) -> Key | None:
    """The key that the option `name` gives, literally or by a variable; None where there is none to be read."""
    said = option(words(container), name)
    if not said:
        return None
    whole = _VARIABLE.fullmatch(said)
    if whole:
        entry = environment(container).get(next(filter(None, whole.groups())), {})
        source = entry.get("valueFrom") or {}
        reference = source.get("secretKeyRef")
        if reference:
            return Key(secret=(reference["name"], reference["key"]))
        if source:
            return Key(source=source)
    value = _literal(said, container)
    return Key(value=value) if value else None


def environment(container: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The entries of the container's environment, by name."""
    return {entry["name"]: entry for entry in container.get("env") or []}


def _literal(said: str | None, container: dict[str, Any]) -> str | None:
    if said is None:
        return None
    entries = environment(container)

    def look_up(match: re.Match[str]) -> str:
        entry = entries.get(next(filter(None, match.groups())), {})
        return str(entry.get("value", match.group(0)))

    value = _VARIABLE.sub(look_up, said)
    return None if _VARIABLE.search(value) and value == said else value
