"""The engine in a pod: which container it is, and what its command line says about port, certificate and keys.

Command lines are read as argparse reads them (the last one counts), also inside `sh -c "..."`. Variables are looked up
in the container's own environment: `$(VAR)` as Kubernetes does, and in a shell `$VAR` and `${VAR}` too. What cannot be
resolved so is unknown, never a text with a hole in it: Kubernetes or the shell will make something else of it.
"""

import itertools
import re
import shlex
from dataclasses import dataclass, field
from typing import Any, Final

from sidecar.api import names

_KUBERNETES: Final = re.compile(r"\$\$|\$\((?P<name>[-._a-zA-Z][-._a-zA-Z0-9]*)\)")
_SHELL: Final = re.compile(r"\$\((?P<a>\w+)\)|\$\{(?P<b>\w+)\}|\$(?P<c>[a-zA-Z_]\w*)|[$`]")
_SCRIPT: Final = re.compile(r"-[a-z]*c")
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "zsh"})
_COPIED: Final = frozenset({"fieldRef", "configMapKeyRef"})


@dataclass(frozen=True, slots=True)
class Key:
    """One of SGLang's keys: a Secret's item, or what the agent's environment variable shall say.

    With none of them the engine has a key that cannot be told from the pod.
    """

    secret: tuple[str, str] | None = None
    source: dict[str, Any] | None = field(default=None, repr=False)
    value: str | None = field(default=None, repr=False)

    @property
    def known(self) -> bool:
        """Whether the agent can be given it."""
        return bool(self.secret or self.source or self.value)


@dataclass(frozen=True, slots=True)
class Option:
    """What an option of the command line says: its text as it stands there, and its value where that is known."""

    text: str = field(repr=False)
    value: str | None = field(repr=False)


class Line:
    """The command line of a container, read once: its words, where a shell sees them taken apart as it would."""

    def __init__(self, container: dict[str, Any]) -> None:
        self.words, self.shell = _words(container)
        self.environment = environment(container)
        self._options = _options(self.words)

    def launches_sglang(self) -> bool:
        """Whether it starts SGLang's server."""
        started = any(
            "sglang.launch_server" in w or w.endswith("launch_server.py") for w in self.words
        )
        pairs = itertools.pairwise(self.words)
        return started or any(a.rpartition("/")[2] == "sglang" and b == "serve" for a, b in pairs)

    def read(self, name: str) -> Option | None:
        """An option, the last one of its name, None where it is not there."""
        text = self._options.get(name)
        return None if text is None else Option(text, self._value(text))

    def key(self, name: str) -> Key | None:
        """The key that the option `name` gives, literally or by a variable; None where there is no such option."""
        said = self.read(name)
        if said is None or not said.text:
            return None
        source = self.environment.get(self._variable(said.text), {}).get("valueFrom") or {}
        if reference := source.get("secretKeyRef"):
            return Key(secret=(reference["name"], reference["key"]))
        if len(source) == 1 and set(source) <= _COPIED:
            # The agent must start also where the engine's container would not.
            [(kind, what)] = source.items()
            return Key(source={kind: what | ({"optional": True} if "key" in what else {})})
        return Key(value=said.value)

    def _variable(self, text: str) -> str:
        """The name of the variable that a text is nothing but; empty where it is more or less."""
        whole = (_SHELL if self.shell else _KUBERNETES).fullmatch(text)
        return next((name for name in whole.groups() if name), "") if whole else ""

    def _value(self, text: str) -> str | None:
        """A text with its variables resolved; None where one of them cannot be."""
        if "$" not in text and "`" not in text:
            return text
        holes = False

        def look_up(match: re.Match[str]) -> str:
            nonlocal holes
            if match[0] == "$$":
                return "$"
            name = next(filter(None, match.groups()), "")
            value = self.environment.get(name, {}).get("value")
            holes = holes or value is None or "$(" in value
            return str(value or "").replace("$$", "$")

        value = (_SHELL if self.shell else _KUBERNETES).sub(look_up, text)
        return None if holes else value


def _options(words: list[str]) -> dict[str, str]:
    """The values of `--name value` and `--name=value`; of several the last, as argparse takes it."""
    found = {}
    for word, following in itertools.zip_longest(words, words[1:]):
        if word.startswith("--"):
            name, given, value = word.partition("=")
            if given or following is not None:
                found[name] = value if given else following
    return found


def _words(container: dict[str, Any]) -> tuple[list[str], bool]:
    """The words, and whether a shell sees them."""
    line = [
        str(word) for word in [*(container.get("command") or []), *(container.get("args") or [])]
    ]
    shells = [i for i, word in enumerate(line) if word.rpartition("/")[2] in _SHELLS]
    if not shells:
        return line, False
    flags = [i for i, word in enumerate(line) if _SCRIPT.fullmatch(word)]
    # Only what stands before the script itself can be its shell, such as in `tini -- bash -lc "..."`.
    found = [i + 1 for i in flags if shells[0] < i]
    if not found or found[0] >= len(line):
        return line, False
    return _split(line[found[0]]) + line[found[0] + 1 :], True


def _split(script: str) -> list[str]:
    try:
        return shlex.split(script.replace("\\\n", " "))
    except ValueError:
        return script.split()


def find(containers: list[dict[str, Any]], wanted: str | None) -> list[dict[str, Any]]:
    """The containers that may be the engine: by the wanted name, else `sglang`, else all that launch SGLang."""
    by_name = [c for c in containers if c.get("name") == (wanted or names.ENGINE_CONTAINER)]
    if wanted or by_name:
        return by_name
    return [c for c in containers if Line(c).launches_sglang()]


def port(container: dict[str, Any], line: Line) -> int:
    """Where the engine listens: `--port` where it is known, else the port named http, else SGLang's default."""
    said = line.read("--port")
    if said and is_port(said.value):
        return int(said.value or 0)
    for declared in container.get("ports") or []:
        if declared.get("name") == "http":
            return int(declared["containerPort"])
    return names.ENGINE_PORT


def is_port(value: str | None) -> bool:
    """Whether a text is a port's number."""
    return bool(value and re.fullmatch(r"[0-9]{1,5}", value) and 0 < int(value) < 65536)


def environment(container: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The entries of the container's environment, by name."""
    return {entry["name"]: entry for entry in container.get("env") or []}
