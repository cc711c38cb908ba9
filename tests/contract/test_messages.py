"""What was written once can be read for ever.

`messages/` holds, for every message, one with all fields and one with the fewest; a release adds
files and never changes one.
"""

import json
from functools import cache
from pathlib import Path
from typing import Final

import jsonschema
import pytest
from pydantic import JsonValue

from chatlane_schemas import DeadReason, DecodeError, Envelope, decode, encode
from chatlane_schemas.topology.channels import messages
from chatlane_schemas.topology.documents import message_schema

FILES: Final = sorted((Path(__file__).parent / "messages").glob("*.json"))
# Objects whose keys are not ours.
FREE_FORM: Final = {
    *(
        "config",
        "config_patch",
        "costs",
        "data",
        "deleted",
        "gauges",
        "tool_calls",
        "usage",
        "values",
    )
}
MODELS: Final = {model.__name__: model for model in messages()}


def files(kind: str = "") -> list[Path]:
    return [path for path in FILES if path.stem.endswith(kind)]


def model_of(path: Path) -> type[Envelope]:
    return MODELS[path.name.split(".")[0]]


@cache
def validator_of(model: type[Envelope]) -> jsonschema.Draft202012Validator:
    """Return what validates a message; made once, for `validate` would check the schema each time."""
    return jsonschema.Draft202012Validator(message_schema(model))


def content(path: Path) -> dict[str, JsonValue]:
    read: dict[str, JsonValue] = json.loads(path.read_bytes())
    return read


def with_unknown_fields(value: JsonValue) -> JsonValue:
    """Return what a newer writer may send: another field in every object of ours."""
    match value:
        case dict():
            known = {
                key: item if key in FREE_FORM else with_unknown_fields(item)
                for key, item in value.items()
            }
            return {"not_known_yet": [{"x": 1.5}], **known}
        case list():
            return [with_unknown_fields(item) for item in value]
        case _:
            return value


def ids(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("kind", ["full", "minimal"])
def test_every_message_has_a_file(kind: str) -> None:
    assert {model_of(path) for path in files(kind)} == set(messages())


@pytest.mark.parametrize("path", files("full"), ids=ids)
def test_a_full_message_keeps_every_field(path: Path) -> None:
    assert json.loads(encode(decode(model_of(path), path.read_bytes()))) == content(path)


@pytest.mark.parametrize("model", messages(), ids=lambda model: model.__name__)
def test_the_full_messages_have_all_fields_of_the_model(model: type[Envelope]) -> None:
    written = [content(path).keys() for path in files("full") if model_of(path) is model]
    assert set().union(*written) == model.model_fields.keys()


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_a_message_survives_the_round_trip(path: Path) -> None:
    message = decode(model_of(path), path.read_bytes())
    assert decode(model_of(path), encode(message)) == message


@pytest.mark.parametrize("path", files("minimal"), ids=ids)
def test_a_minimal_message_has_nothing_to_spare(path: Path) -> None:
    message = content(path)
    decode(model_of(path), path.read_bytes())
    for name in message:
        without = {key: value for key, value in message.items() if key != name}
        with pytest.raises(DecodeError) as caught:
            decode(model_of(path), json.dumps(without).encode())
        assert caught.value.reason is DeadReason.INVALID


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_a_message_of_a_newer_release_is_understood(path: Path) -> None:
    body = json.dumps(with_unknown_fields(content(path))).encode()
    assert decode(model_of(path), body) == decode(model_of(path), path.read_bytes())


@pytest.mark.parametrize("path", FILES, ids=ids)
def test_files_and_what_is_written_follow_the_schema(path: Path) -> None:
    validator = validator_of(model_of(path))
    validator.validate(content(path))
    validator.validate(json.loads(encode(decode(model_of(path), path.read_bytes()))))


@pytest.mark.parametrize("path", files("minimal"), ids=ids)
def test_the_schema_demands_what_decoding_demands(path: Path) -> None:
    validator = validator_of(model_of(path))
    message = content(path)
    if model_of(path).__name__ == "ResultMessage":
        return  # Which of its two forms it is, JSON Schema does not say.
    for name in message:
        without = {key: value for key, value in message.items() if key != name}
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(without)
