"""Python in the documents is part of a tested example, or runs as it is: imports, names and methods are there."""

import ast
import builtins
import inspect
import symtable
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import chatlane_client
from tests.unit.documents.test_documents import ROOT, blocks, each_document, text_of

EXAMPLES: Final = sorted((ROOT / "examples").glob("*.py"))


def faults_of(block: str) -> list[str]:
    """Return what is missing in a program when it runs: names, and methods of the client."""
    module: dict[str, object] = {"__name__": "snippet"}
    exec(compile(block, "snippet", "exec"), module)  # noqa: S102 - text of this repository
    known = {*module, *vars(builtins)}
    used = _global_names(symtable.symtable(block, "snippet", "exec"))
    return sorted({name for name in used if name not in known}) + sorted(_unknown_methods(block))


def _global_names(table: symtable.SymbolTable) -> Iterator[str]:
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module"):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _global_names(child)


def _unknown_methods(block: str) -> Iterator[str]:
    """Yield calls that the class of the client does not take, such as `turn.ask` with a wrong name."""
    tree = ast.parse(block)
    classes: dict[str, type] = {"turn": chatlane_client.Turn}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(variable)], value=ast.Call(func=ast.Name(name))) if (
                inspect.isclass(found := getattr(chatlane_client, name, None))
            ):
                classes[variable] = found
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(ast.Name(variable), method)) if variable in classes:
                try:
                    function = getattr(classes[variable], method)
                    names = {keyword.arg: None for keyword in node.keywords if keyword.arg}
                    inspect.signature(function).bind(None, *node.args, **names)
                except (AttributeError, TypeError):
                    yield f"{variable}.{method}"


@each_document
def test_python_in_it_runs_as_it_is_or_is_part_of_an_example_that_it_names(document: Path) -> None:
    named = [text_of(path) for path in EXAMPLES if path.name in text_of(document)]
    own = [
        block
        for block in blocks(document, "python")
        if not any(block in example for example in named)
    ]
    assert {block: faults for block in own if (faults := faults_of(block))} == {}


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ("async def answer(turn):\n    return timedelta(hours=1)\n", "timedelta"),
        ("async def answer(turn):\n    return await turn.inquire('?')\n", "turn.inquire"),
        ("async def answer(turn):\n    return await turn.ask('?', until=1)\n", "turn.ask"),
    ],
)
def test_what_does_not_run_is_found(wrong: str, fault: str) -> None:
    assert faults_of(wrong) == [fault]
