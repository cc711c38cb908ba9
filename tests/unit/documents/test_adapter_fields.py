"""The document for authors of adapters names each field that they read or write."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from chatlane_schemas import InboundEvent, OutboundMessage

DOCUMENT = Path(__file__).parents[3] / "docs" / "writing-an-adapter.md"
# Every envelope has it, and the contract package writes it.
UNNAMED = {"v"}
# The client fills these from the outbound message.
OF_TARGET = "target."


def fields(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Yield the paths of all fields, with those of nested models."""
    for name, field in model.model_fields.items():
        nested = list(models(field.annotation))
        if not nested:
            yield f"{path}{name}"
        for inner in nested:
            yield from fields(inner, f"{path}{name}.")


def models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models(argument)


def rows() -> dict[str, str]:
    """Return the rows of all tables of fields by each name in their first column."""
    found: dict[str, str] = {}
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            first, _, rest = line.removeprefix("| ").partition(" | ")
            for name in re.findall(r"`([a-z_.]+)`", first):
                found[name] = found.get(name, "") + rest
    return found


@pytest.mark.parametrize("model", [InboundEvent, OutboundMessage])
def test_each_field_has_a_row_in_a_table(model: type[BaseModel]) -> None:
    known = rows()

    def is_named(path: str) -> bool:
        head, _, tail = path.rpartition(".")
        return path in known or (head in known and f"`{tail}`" in known[head])

    named = {path for path in fields(model) if not path.startswith(OF_TARGET)}
    assert sorted(path for path in named - UNNAMED if not is_named(path)) == []
