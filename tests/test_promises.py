"""What docs/rules.md and docs/field-reports.md promise, tests carry as `rule(n)` and `field(n)`: no more, no less."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def marked(name: str) -> set[int]:
    """The numbers that tests, classes and modules carry as this marker."""
    return {
        number
        for file in (ROOT / "tests").rglob("test_*.py")
        for number in _marks(ast.parse(file.read_text()), name)
    }


def _marks(tree: ast.AST, name: str) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"pytest.mark.{name}":
            for argument in node.args:
                assert isinstance(argument, ast.Constant)
                yield argument.value


def told(page: str, row: str) -> list[int]:
    """The numbers of a page's rows."""
    text = (ROOT / "docs" / page).read_text()
    return [int(number) for number in re.findall(row, text, re.MULTILINE)]


@pytest.mark.parametrize(
    ("name", "page", "row"),
    [("rule", "rules.md", r"^(\d+)\. "), ("field", "field-reports.md", r"^\| (\d+) \|")],
)
def test_each_promise_has_a_test_and_each_test_its_promise(name: str, page: str, row: str) -> None:
    numbers = told(page, row)
    assert numbers == sorted(set(numbers))
    assert set(numbers) == marked(name)


def test_all_sixteen_rules_are_told() -> None:
    assert told("rules.md", r"^(\d+)\. ") == list(range(1, 17))
