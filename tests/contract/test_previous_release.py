"""What crosses the bus between this release and the one before it, in both directions."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from chatlane_schemas import decode, encode
from chatlane_schemas.topology.channels import messages
from chatlane_schemas.topology.documents import message_schema
from tests.support.service.previous_release import HistoryMissingError, PreviousRelease, unpack

MODELS: Final = {model.__name__: model for model in messages()}
OURS: Final = sorted((Path(__file__).parent / "messages").glob("*.json"))

# Reads files with the models of the release that runs it: what it made of them, or why nothing.
_READ: Final = """
import json, pathlib, sys
from chatlane_schemas.channels import messages
from chatlane_schemas.codec import decode, encode
models, told = {it.__name__: it for it in messages()}, {}
for path in map(pathlib.Path, sys.argv[1:]):
    model = models.get(path.name.split(".")[0])
    if model is not None:
        try:
            told[path.stem] = json.loads(encode(decode(model, path.read_bytes())))
        except Exception as error:
            told[path.stem] = str(error)
print(json.dumps(told))
"""

# What comes only of what the newer release is asked for, such as a new value of a closed set: who
# asks for it does so when no old reader is left (docs/operations.md). Nothing else may be here.
UNREADABLE: Final = {
    # A session that a request opened, which the previous release could not do.
    "SessionStarted.minimal": "invalid: source: missing",
    # A pressed button, which an adapter publishes once all routers are of this release.
    "InboundEvent.content.full": "invalid: kind: enum",
}


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> PreviousRelease:
    """The release before ours."""
    try:
        return unpack(tmp_path_factory.mktemp("previous"))
    except HistoryMissingError as missing:
        pytest.skip(str(missing))


def model_name(path: Path) -> str:
    return path.name.split(".")[0]


def differing(written: object, read: object, place: str = "") -> Iterator[str]:
    """Yield where something is read otherwise than it was written; one side may have more."""
    if isinstance(written, dict) and isinstance(read, dict):
        for key in written.keys() & read.keys():
            yield from differing(written[key], read[key], f"{place}/{key}")
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for number, (one, other) in enumerate(zip(written, read, strict=True)):
            yield from differing(one, other, f"{place}/{number}")
    elif written != read:
        yield f"{place}: {written!r} became {read!r}"


def names_in(value: object) -> Iterator[str]:
    """Yield the names of all fields."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from names_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from names_in(item)


def test_what_the_previous_release_wrote_is_read_whole(previous: PreviousRelease) -> None:
    assert len(previous.messages) > 40
    for path in previous.messages:
        written = json.loads(path.read_bytes())
        read = json.loads(encode(decode(MODELS[model_name(path)], path.read_bytes())))
        assert list(differing(written, read)) == [], path.stem
        assert set(names_in(written)) <= set(names_in(read)), path.stem


async def test_what_we_write_is_read_by_the_previous_release(previous: PreviousRelease) -> None:
    told = json.loads(await previous.run("-c", _READ, *map(str, OURS)))
    known = {model_name(path) for path in previous.messages}
    assert told.keys() == {path.stem for path in OURS if model_name(path) in known}
    refused = {stem: its for stem, its in told.items() if isinstance(its, str)}
    assert refused == UNREADABLE
    changed = [
        f"{path.stem}{place}"
        for path in OURS
        if path.stem in told.keys() - refused.keys()
        for place in differing(json.loads(path.read_bytes()), told[path.stem])
    ]
    assert changed == []


def test_no_message_is_narrower_than_the_previous_release_wrote_it(
    previous: PreviousRelease,
) -> None:
    found = [
        f"{model}{place}"
        for model in sorted({model_name(path) for path in previous.messages})
        for place in narrowed(Schema(previous.schema(model)), Schema(message_schema(MODELS[model])))
    ]
    assert found == []


class Schema:
    """A part of a JSON Schema, with the definitions it refers to."""

    def __init__(self, part: dict[str, Any], definitions: dict[str, Any] | None = None) -> None:
        self.definitions = part.get("$defs", {}) if definitions is None else definitions
        while "$ref" in part:
            part = self.definitions[part["$ref"].rpartition("/")[2]]
        self.part = part

    def below(self, part: dict[str, Any]) -> "Schema":
        """Return a part of this part."""
        return Schema(part, self.definitions)

    @property
    def choices(self) -> "list[Schema]":
        """What a value may be: several, or this alone; nothing is said of `null`."""
        every = self.part.get("anyOf") or self.part.get("oneOf") or [self.part]
        return [one for one in map(self.below, every) if one.part.get("type") != "null"]

    @property
    def values(self) -> set[Any] | None:
        """The closed set a value is of, if it is."""
        if "const" in self.part:
            return {self.part["const"]}
        return set(self.part["enum"]) if "enum" in self.part else None


_LEAST: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_MOST: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")


def narrowed(before: Schema, now: Schema, place: str = "") -> Iterator[str]:
    """Yield where a value that was allowed is not any more."""
    if len(before.choices) > 1 or len(now.choices) > 1:
        for one in before.choices:
            found = [list(narrowed(one, other, place)) for other in now.choices]
            if all(found):
                yield min(found, key=len)[0]
        return
    (before,), (now,) = before.choices, now.choices
    yield from (f"{place}: {its}" for its in _narrower_values(before, now))
    yield from (f"{place}: {its}" for its in _narrower_fields(before.part, now.part))
    properties = now.part.get("properties", {})
    for name, one in before.part.get("properties", {}).items():
        if name in properties:
            yield from narrowed(before.below(one), now.below(properties[name]), f"{place}/{name}")
    for name in ("items", "additionalProperties"):
        old, new = before.part.get(name), now.part.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from narrowed(before.below(old), now.below(new), f"{place}/{name}")


def _narrower_values(before: Schema, now: Schema) -> Iterator[str]:
    old, new = before.part, now.part
    if now.values is not None and (before.values is None or before.values - now.values):
        yield f"was one of {before.values}, is one of {now.values}"
    if "type" in new and old.get("type") != new["type"] and before.values is None:
        yield f"was {old.get('type')}, is {new['type']}"
    for names, is_narrower in ((_LEAST, _is_more), (_MOST, _is_less)):
        for name in names:
            if name in new and is_narrower(new[name], old.get(name)):
                yield f"{name} is {new[name]}, was {old.get(name)}"
    if new.get("pattern") not in {None, old.get("pattern")}:
        yield f"pattern is {new['pattern']}, was {old.get('pattern')}"


def _narrower_fields(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for name in set(new.get("required", ())) - set(old.get("required", ())):
        yield f"{name} has to be there"
    for name in old.get("properties", {}).keys() - new.get("properties", {}).keys():
        yield f"{name} is not known any more"
    if new.get("additionalProperties") is False and old.get("additionalProperties") is not False:
        yield "other fields are refused"


def _is_more(new: float, old: float | None) -> bool:
    return old is None or new > old


def _is_less(new: float, old: float | None) -> bool:
    return old is None or new < old


@pytest.mark.parametrize(
    ("before", "now", "what"),
    [
        ({"type": "string"}, {"type": "integer"}, ": was string, is integer"),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, ": was one of"),
        ({"type": "string"}, {"type": "string", "maxLength": 3}, ": maxLength is 3, was None"),
        ({"properties": {}}, {"properties": {"x": {}}, "required": ["x"]}, ": x has to be there"),
        ({"properties": {"x": {}}}, {"properties": {}}, ": x is not known any more"),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            ": was integer, is string",
        ),
    ],
)
def test_what_is_narrower_is_found(before: dict[str, Any], now: dict[str, Any], what: str) -> None:
    (found,) = narrowed(Schema(before), Schema(now))
    assert found.startswith(what)
    assert list(narrowed(Schema(before), Schema(before))) == []
