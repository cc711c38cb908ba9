"""Each rule of a list of conversations has a test that names it, or a reason why it has none."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parents[2]
DOCS: Final = TESTS.parent / "docs"

# The numbers of the rules in each part. Numbers that are left out say what chatlane adds to them.
_RULES: Final = {
    2: (1,),
    3: range(1, 6),
    4: range(1, 9),
    5: range(1, 13),
    6: range(1, 5),
    7: range(1, 4),
    8: (1, 2, 3, 5, 6, 7),
    9: range(1, 4),
    10: range(1, 4),
    11: range(1, 8),
    12: range(1, 13),
    13: range(1, 5),
    14: range(1, 5),
    15: (1,),
    16: range(1, 4),
    17: range(1, 18),
    18: range(1, 6),
    19: (1, 3, 4, 5),
    20: range(1, 6),
    21: (1,),
    22: range(1, 4),
    25: (1,),
}
EVERY: Final = frozenset(
    [f"R{part}.{number}" for part, numbers in _RULES.items() for number in numbers]
    + [f"F{number}" for number in range(1, 28)]
    + [f"V{number}" for number in range(1, 25)]
)

_NAMED: Final = re.compile(r"\b([RFV])(?:(\d+)\.)?(\d+)(?: to (?:[RFV])?(?:\d+\.)?(\d+))?")


def rules_in(text: str) -> Iterator[str]:
    """Yield the rules that a text names, as `R5.1`, `F2` or `V3 to V5`."""
    for kind, part, first, last in _NAMED.findall(text):
        for number in range(int(first), int(last or first) + 1):
            yield f"{kind}{part}.{number}" if part else f"{kind}{number}"


def section(page: str, heading: str) -> str:
    """Return the text of a page below a heading."""
    text = (DOCS / page).read_text(encoding="utf-8")
    begin = text.index(f"\n{heading}\n") + len(heading) + 2
    level = heading.split(maxsplit=1)[0]
    end = re.search(rf"^#{{2,{len(level)}}} ", text[begin:], re.MULTILINE)
    return text[begin : None if end is None else begin + end.start()]


def rows(text: str) -> list[list[str]]:
    """Return the cells of the rows of tables."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if any(rules_in(row[0]))]


TESTED: Final = rows(section("cases.md", "## Catalogue"))
EXPLAINED: Final = rows(
    section("migrating-from-hermes.md", "### Rules of the web UI without a counterpart")
)


@cache
def words_of(path: str) -> dict[str, str]:
    """Return the name and the first lines of each test of a file, with rules as texts write them."""
    module = ast.parse((TESTS / path).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        node.name: f"{_spelled(node.name)} {ast.get_docstring(node) or ''}"
        for node in module.body
        if isinstance(node, functions)
    }


def _spelled(name: str) -> str:
    """Return the name of a test with its rules spelled: `test_v2_to_v5_r5_3` has V2 to V5, R5.3."""
    spelled = re.sub(r"_r(\d+)_(\d+)(?=_)", r" R\1.\2", name)
    spelled = re.sub(r"_([vf])(\d+)(?=_)", lambda m: f" {m[1].upper()}{m[2]}", spelled)
    return spelled.replace("_to ", " to ").replace("_", " ")


def test_every_rule_has_a_line() -> None:
    named = {rule for row in (*TESTED, *EXPLAINED) for rule in rules_in(row[0])}
    assert sorted(EVERY - named) == []


@pytest.mark.parametrize("row", TESTED, ids=lambda row: row[0])
def test_every_rule_is_named_by_a_test_of_its_line(row: list[str]) -> None:
    texts = [words_of(path)[name] for path, name in re.findall(r"`([\w/]+\.py)::(\w+)`", row[-1])]
    named = {rule for text in texts for rule in rules_in(text)}
    assert sorted(set(rules_in(row[0])) - named) == []


@pytest.mark.parametrize("row", EXPLAINED, ids=lambda row: row[0])
def test_every_rule_without_a_test_has_a_reason(row: list[str]) -> None:
    assert len(row) == 3
    assert all(len(cell) > 3 for cell in row)


def test_no_rule_is_both_tested_and_left_out() -> None:
    tested = {rule for row in TESTED for rule in rules_in(row[0])}
    assert sorted(tested & {rule for row in EXPLAINED for rule in rules_in(row[0])}) == []
