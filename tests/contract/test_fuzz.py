"""Whatever is in a body, decoding gives a message or a `DecodeError`, and soon.

The slowest of the largest bodies takes a tenth of a second. Were the cost of one to grow with the
square of its size, it would run into the time limit that every test has.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from chatlane_schemas import DecodeError, Envelope, InboundEvent, ResultMessage, decode, encode
from chatlane_schemas.envelope import MAX_BODY_BYTES
from chatlane_schemas.topology import subjects

Steps: TypeAlias = tuple[str | int, ...]

MESSAGES: Final = Path(__file__).parent / "messages"
SAMPLES: Final = {
    InboundEvent: [MESSAGES / "InboundEvent.full.json"],
    ResultMessage: [
        MESSAGES / "ResultMessage.full.json",
        MESSAGES / "ResultMessage.stream.full.json",
    ],
}

HOSTILE_TEXT: Final = st.sampled_from(
    [
        *("", "\0", "\ud800", "\udc00\ud800", "a\0b", "..", "*", ">", "a b", "é" * 200, "x" * 300),
        *("NaN", "-0", "1e999", "2026-02-30T00:00:00Z", "9999-12-31T23:59:59-14:00", "\u2028"),
        "[" * 50,
    ]
)
LEAVES: Final = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**18, max_value=10**400)
    | st.floats()
    | st.text(alphabet=st.characters())
    | HOSTILE_TEXT
)
JSON_VALUES: Final = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text() | HOSTILE_TEXT, inner, max_size=4)
    ),
    max_leaves=12,
)


def paths_of(value: JsonValue, path: Steps = ()) -> Iterator[Steps]:
    """Return the path to every value below this one."""
    members: Iterator[tuple[str | int, JsonValue]] = iter(())
    match value:
        case dict():
            members = iter(value.items())
        case list():
            members = iter(enumerate(value))
        case _:
            pass
    for key, item in members:
        yield (*path, key)
        yield from paths_of(item, (*path, key))


def replaced(value: JsonValue, path: Steps, new: JsonValue) -> JsonValue:
    """Return the value with another one at a path."""
    if not path:
        return new
    key, *rest = path
    match value, key:
        case dict(), str():
            return {**value, key: replaced(value[key], tuple(rest), new)}
        case list(), int():
            return [*value[:key], replaced(value[key], tuple(rest), new), *value[key + 1 :]]
        case _:
            raise AssertionError(path)


@st.composite
def mutated(draw: st.DrawFn, model: type[Envelope]) -> bytes:
    """Return the body of a real message with up to three values replaced."""
    message = json.loads(draw(st.sampled_from(SAMPLES[model])).read_bytes())
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(sorted(paths_of(message), key=str)))
        message = replaced(message, path, draw(JSON_VALUES))
    return json.dumps(message).encode()


def decoded(model: type[Envelope], body: bytes) -> Envelope | None:
    """Return what a body decodes to; an error has a reason and a short detail."""
    try:
        return decode(model, body)
    except DecodeError as error:
        refused = error
    assert refused.reason
    assert 0 < len(refused.detail) < 500
    assert refused.detail.isascii()
    return None


def check(model: type[Envelope], body: bytes) -> None:
    """Decode; what is understood can be written, read again and stored."""
    message = decoded(model, body)
    if message is not None:
        written = encode(message)
        if len(written) <= model.max_bytes:
            assert decode(model, written) == message
        assert b"\\u0000" not in written.replace(b"\\\\", b"")
        if isinstance(message, InboundEvent):
            subjects.inbound_for(message)


@pytest.mark.parametrize("model", SAMPLES)
def test_any_bytes(model: type[Envelope]) -> None:
    @given(st.binary(max_size=300))
    def run(body: bytes) -> None:
        check(model, body)

    run()


@pytest.mark.parametrize("model", SAMPLES)
def test_any_json(model: type[Envelope]) -> None:
    @given(JSON_VALUES)
    def run(value: JsonValue) -> None:
        check(model, json.dumps(value).encode())

    run()


@pytest.mark.parametrize("model", SAMPLES)
def test_messages_with_values_replaced(model: type[Envelope]) -> None:
    @given(mutated(model))
    def run(body: bytes) -> None:
        check(model, body)

    run()


@pytest.mark.parametrize("model", SAMPLES)
def test_messages_with_bytes_replaced(model: type[Envelope]) -> None:
    sample = SAMPLES[model][0].read_bytes()

    @given(st.integers(0, len(sample)), st.integers(0, 8), st.binary(max_size=8))
    def run(start: int, length: int, new: bytes) -> None:
        check(model, sample[:start] + new + sample[start + length :])

    run()


HEAD: Final = b'{"v":1,"id":"a","at":"2026-03-01T12:00:00Z","platform":"p","account":"a",'


def filled(start: bytes, unit: bytes, end: bytes = b"}") -> bytes:
    """Return an event as large as allowed."""
    return start + unit * ((MAX_BODY_BYTES - len(start) - len(end)) // len(unit)) + end


@pytest.mark.parametrize(
    "body",
    [
        filled(b"", b"[", b""),
        filled(b"", b"]", b""),
        filled(b"", b"[]", b""),
        filled(b"[", b"[],", b"[]]"),
        filled(b"[", b"[" * 30 + b"]" * 30 + b",", b"1]"),
        filled(b"", b'{"a":', b""),
        filled(b"", b'"', b""),
        filled(b"", b'\\"', b""),
        filled(b'"', b'\\"', b""),
        filled(b'"', b"\\", b""),
        filled(b"[" * 40, b'"\\', b""),
        filled(b"[" * 40, b'\\"[', b""),
        filled(HEAD + b'"text":"', rb"\ud800", b'"}'),
        filled(HEAD + b'"text":"NaN ', rb"\ud83d\ude00", b'"}'),
        filled(HEAD + b'"text":"NaN ', rb"\ud800\\", b'"}'),
        filled(HEAD + b'"text":"', rb"\u0000", b'"}'),
        filled(HEAD + b'"text":"', "汉".encode(), b'"}'),
        filled(HEAD + b'"message_id":', b"9"),
        filled(HEAD + b'"new":0.', b"9"),
        filled(HEAD + b'"new":1e', b"9"),
        filled(HEAD + b'"attachments":[', b"1,", b"1]}"),
        filled(HEAD + b'"attachments":[', b"{},", b"{}]}"),
        filled(HEAD + b'"sender":{"aliases":[', b"1,", b"1]}}"),
        filled(HEAD, b'"x":1,', b'"x":1}'),
        filled(HEAD + b'"text":"', b"[", b'"}'),
        filled(HEAD, b"NaN", b"}"),
    ],
    ids=lambda body: f"{body[:8]!r}..{body[-24:-16]!r}",
)
def test_the_worst_of_the_largest_bodies(body: bytes) -> None:
    check(InboundEvent, body)


def test_the_largest_results() -> None:
    head = b'{"v":1,"id":"a","at":"2026-03-01T12:00:00Z","reply_to":"r",'
    session = b'"session_id":"0195e6a0-4c00-8000-9b5e-2f0c6f1d0a01",'
    rows = head + session + b'"transcript":[{"role":"tool","tool_calls":[{"a":['
    for body in (
        filled(rows, b'{"k":[1]},', b"1]}]}]}"),
        filled(rows, b"[" * 25 + b"]" * 25 + b",", b"1]}]}]}"),
        filled(head + session + b'"usage":{', b'"k":1,', b'"k":1}}'),
        filled(head + session + b'"parts":[', b"{},", b"{}]}"),
    ):
        check(ResultMessage, body)
