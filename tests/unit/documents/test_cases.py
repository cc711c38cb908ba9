"""docs/cases.md names every case, and tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
TEXT = (TESTS.parent / "docs" / "cases.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", TEXT)))


def test_every_case_has_one_line() -> None:
    lines = re.findall(r"^\| (C\d\d) \|", TEXT, re.MULTILINE)
    assert len(lines) == len(set(lines))
    assert {f"C{number:02}" for number in range(1, 46)} <= set(lines)


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_every_test_it_names_exists(path: str, name: str) -> None:
    assert name in functions_of(path)


@cache
def functions_of(path: str) -> frozenset[str]:
    """Return the names of the functions of a file of tests."""
    module = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in module.body if isinstance(node, functions))


def test_every_case_names_a_test() -> None:
    untested = [line for line in TEXT.splitlines() if line.startswith("| C") and "::" not in line]
    assert untested == []
