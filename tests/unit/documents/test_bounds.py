"""Nothing waits without a bound: docs/reliability.md lists what waits in a process."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import chatlane
import chatlane_client

QUEUES: Final = {
    "Queue",
    "LifoQueue",
    "PriorityQueue",
    "SimpleQueue",
    "create_memory_object_stream",
}
MODULES: Final = [
    path
    for package in (chatlane, chatlane_client)
    for path in sorted(Path(package.__path__[0]).rglob("*.py"))
]


def unbounded(source: str) -> Iterator[int]:
    """Yield the lines that make a queue without saying how much it holds."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node.func, ast.Name) else name
            if name in QUEUES and not (node.args or node.keywords):
                yield node.lineno


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_queue_is_made_without_a_bound(path: Path) -> None:
    assert list(unbounded(path.read_text("utf-8"))) == []


def test_one_would_be_found() -> None:
    source = "queue = asyncio.Queue()\nother = Queue(maxsize=3)\nthird = PriorityQueue()"
    assert sorted(unbounded(source)) == [1, 3]
