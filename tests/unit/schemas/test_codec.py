"""From bodies to messages and back, and what is refused with which reason."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from chatlane_schemas import (
    ClaimReply,
    DeadReason,
    DecodeError,
    Envelope,
    InboundEvent,
    OutboundMessage,
    Outcome,
    Part,
    ResultMessage,
    RoutedMessage,
    Source,
    decode,
    encode,
    source_of,
)
from chatlane_schemas.envelope import MAX_BODY_BYTES, MAX_PAYLOAD_BYTES
from chatlane_schemas.source import source_json

EVENT = {
    "v": 1,
    "id": "e1",
    "at": "2026-03-01T12:00:00Z",
    "platform": "telegram",
    "account": "main_bot",
    "chat": {"id": 701},
    "text": "hello",
}
CANARY = "canary-7d1f"


def body(**changes: object) -> bytes:
    return json.dumps({**EVENT, **changes}).encode()


def raw(member: str) -> bytes:
    """Return an event with one more member, written as given."""
    return body()[:-1] + b", " + member.encode("utf-8", "surrogatepass") + b"}"


def refusal(data: bytes, model: type[Envelope] = InboundEvent) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        decode(model, data)
    return caught.value


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def test_a_body_becomes_a_message() -> None:
    event = decode(InboundEvent, body())
    assert event.chat is not None
    assert (event.chat.id, event.text) == ("701", "hello")
    assert event.at == datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_what_is_none_is_not_written() -> None:
    event = decode(InboundEvent, body(text=None, chat=None))
    assert encode(event) == (
        b'{"v":1,"id":"e1","at":"2026-03-01T12:00:00Z","kind":"message","platform":"telegram",'
        b'"account":"main_bot","attachments":[]}'
    )


def test_a_source_is_written_as_if_it_had_been_made() -> None:
    sender = {"id": "7", "name": "Ann", "aliases": ["+1"]}
    event = decode(InboundEvent, body(scope="", sender=sender, message_id=7, thread_id="t"))
    written = source_json(event)
    assert Source.model_validate_json(written) == source_of(event)
    assert json.loads(written) == json.loads(source_of(event).model_dump_json(exclude_none=True))


def test_encoded_text_is_utf_8() -> None:
    assert "grüße 😀".encode() in encode(decode(InboundEvent, body(text="grüße 😀")))


def test_unknown_fields_are_ignored_at_every_level() -> None:
    changed = body(new=[{"x": 1}], chat={"id": 701, "new": None}, sender={"new": 1e3})
    assert decode(InboundEvent, changed).chat == decode(InboundEvent, body()).chat


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"hello",
        b"{",
        b'{"v": 1,}',
        b"{'v': 1}",
        b"{} {}",
        b"\xef\xbb\xbf{}",
        b"\xff\xfe{\x00}\x00",
        b'{"v": 1, "text": "\xff"}',
        b'{"v": 1, "text": "\xed\xa0\x80"}',
        b'{"v": 1, "text": "a\x00b"}',
        b'{"v": 1, "text": "a\nb"}',
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
        b'{"v": 1, "text": "\\ud8"}',
        b'{"v": 1, "text": "\\',
        b'{"v": 01}',
    ],
)
def test_what_is_no_json(data: bytes) -> None:
    assert refusal(data).reason is DeadReason.NOT_JSON


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_does_not_know(number: str) -> None:
    assert refusal(raw(f'"new": [{number}]')).reason is DeadReason.NOT_JSON


def test_a_text_about_such_numbers_is_read() -> None:
    text = "NaN and Infinity and \ufffd"
    assert decode(InboundEvent, raw(r'"text": "NaN and Infinity and \ud800"')).text == text


@pytest.mark.parametrize("data", [b"[]", b"null", b"1", b'"x"', b"{}", body(kind="dance")])
def test_json_that_is_no_message(data: bytes) -> None:
    assert refusal(data).reason is DeadReason.INVALID


@pytest.mark.parametrize("version", [2, 0, 1.0, "1", None, True, [1], "x" * 5000])
def test_another_version_explains_all_other_errors(version: object) -> None:
    error = refusal(body(v=version, chat={"id": 1.5}, platform=7))
    assert error.reason is DeadReason.UNKNOWN_VERSION


def test_a_body_says_its_version() -> None:
    without = {key: value for key, value in EVENT.items() if key != "v"}
    error = refusal(json.dumps(without).encode())
    assert (error.reason, error.detail) == (DeadReason.INVALID, "v: missing")


def test_the_size_is_counted_in_bytes() -> None:
    room = MAX_BODY_BYTES - len(body(text=""))
    assert len(decode(InboundEvent, body(text="x" * room)).text or "") == room
    assert refusal(body(text="x" * (room + 1))).reason is DeadReason.OVERSIZED
    wide = raw('"text": "' + "汉" * (MAX_BODY_BYTES // 3) + '"')
    assert refusal(wide).reason is DeadReason.OVERSIZED


def test_what_the_service_says_may_be_larger_than_what_it_was_made_from() -> None:
    assert RoutedMessage.max_bytes == ClaimReply.max_bytes == MAX_PAYLOAD_BYTES
    assert OutboundMessage.max_bytes == MAX_PAYLOAD_BYTES
    assert InboundEvent.max_bytes == ResultMessage.max_bytes == MAX_BODY_BYTES


@pytest.mark.parametrize(
    ("member", "is_too_deep"),
    [
        (f'"new": {nested(31)}', False),
        (f'"new": {nested(32)}', True),
        (f'"new": [{", ".join([nested(30)] * 50)}]', False),
        (f'"new": [{", ".join([nested(31)] * 50)}]', True),
        ('"new": ' + '{"a": ' * 31 + "1" + "}" * 31, False),
        ('"new": ' + '{"a": ' * 32 + "1" + "}" * 32, True),
        (f'"text": "{"[" * 500}"', False),
        (f'"text": "\\"{"[" * 500}"', False),
        (f'"text": "\\\\", "new": {nested(40)}', True),
        (f'"{"[" * 500}": 1', False),
    ],
)
def test_nesting_is_limited(member: str, *, is_too_deep: bool) -> None:
    data = raw(member)
    if is_too_deep:
        assert refusal(data).reason is DeadReason.TOO_DEEP
    else:
        decode(InboundEvent, data)


@pytest.mark.parametrize("data", [b"[" * 200_000, b'{"a":' * 40_000, b"[{" * 100_000])
def test_endless_nesting_is_too_deep(data: bytes) -> None:
    assert refusal(data).reason is DeadReason.TOO_DEEP


@pytest.mark.parametrize(
    "changes",
    [
        {"chat": {"id": 1.5}},
        {"chat": {"id": "70\x001"}},
        {"message_id": True},
        {"thread_id": ["1"]},
        {"sender": {"aliases": ["a", {}]}},
        {"scope": "x" * 3000},
        {"profile": "\0"},
    ],
)
def test_ids_that_are_none(changes: dict[str, object]) -> None:
    assert refusal(body(**changes)).reason is DeadReason.BAD_ID


@pytest.mark.parametrize("escape", [r"\ud800", r"\uDFFF", r"\ud83d\ud83d", r"a\udc00b", r"\u0000"])
def test_an_id_is_no_place_for_what_cannot_be_stored(escape: str) -> None:
    error = refusal(raw(f'"message_id": "{escape}"'))
    assert (error.reason, error.detail) == (DeadReason.BAD_ID, "message_id: bad_id")


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (r"\ud800", "\ufffd"),
        (r"a\udc00b", "a\ufffdb"),
        (r"\ud83d\ude00\ud83d", "😀\ufffd"),
        (r"\ud83d\ud83d\ude00", "\ufffd😀"),
        (r"\\ud800", r"\ud800"),
        (r"\\\ud800", "\\\ufffd"),
        (r"\\\\ud800 \ud800", "\\\\ud800 \ufffd"),
        (r"\uD83D\uDE00", "😀"),
        (r"\u0000 \ud800", "\ufffd \ufffd"),
        (r"\ud800汉", "\ufffd汉"),
    ],
)
def test_text_is_read_whatever_it_holds(escaped: str, text: str) -> None:
    assert decode(InboundEvent, raw(f'"text": "{escaped}"')).text == text


def test_a_name_with_a_lone_surrogate_is_invalid() -> None:
    assert refusal(raw(r'"account": "\ud800"')).reason is DeadReason.INVALID


def test_keys_of_tool_calls_are_read_whatever_they_hold() -> None:
    head = f'{{"v": 1, "id": "a", "at": "2026-03-01T12:00:00Z", "session_id": "{uuid4()}", '
    rows = r'"transcript": [{"role": "tool", "tool_calls": [{"k\u0000": "a\ud800b"}]}]}'
    data = f'{head} "reply_to": "r", {rows}'.encode()
    assert decode(ResultMessage, data).transcript[0].tool_calls == [{"k\ufffd": "a\ufffdb"}]


@pytest.mark.parametrize("digits", [300, 4300, 5000, 200_000])
@pytest.mark.parametrize("name", ["message_id", "new", "v"])
def test_long_integers_are_an_error_and_no_crash(name: str, digits: int) -> None:
    data = raw(f'"{name}": {"9" * digits}')
    if name == "new" and digits <= 4300:
        decode(InboundEvent, data)
    else:
        refusal(data)


def test_of_repeated_keys_the_last_wins() -> None:
    assert decode(InboundEvent, raw('"text": "second"')).text == "second"


@pytest.mark.parametrize(
    "data",
    [
        body(chat={"id": CANARY * 100}),
        body(kind=CANARY),
        body(platform=f"{CANARY}!"),
        body(v=CANARY),
        body(at=CANARY),
        body(attachments=[{CANARY: CANARY}]),
        body(sender={"aliases": [CANARY, 1.5]}),
        body(text=[CANARY]),
        f'{{"{CANARY}": NaN}}'.encode(),
        f'{{"{CANARY}"'.encode(),
        body(text=CANARY)[:-2],
    ],
)
def test_an_error_repeats_nothing_of_the_body(data: bytes) -> None:
    error = refusal(data)
    assert CANARY not in f"{error} {error!r} {error.detail} {error.__cause__!r}"


@pytest.mark.parametrize(
    "changes",
    [
        {"usage": {CANARY: -1}},
        {"usage": {f"{CANARY} ": 1}},
        {"transcript": [{"role": "tool", "tool_calls": [{CANARY: CANARY}, CANARY]}]},
        {"transcript": [{"role": CANARY}]},
        {"error": {CANARY: 1}},
    ],
)
def test_an_error_in_a_result_repeats_nothing_of_it(changes: dict[str, object]) -> None:
    head = {"v": 1, "id": "a", "at": "2026-03-01T12:00:00Z", "session_id": str(uuid4())}
    error = refusal(json.dumps({**head, "reply_to": "r", **changes}).encode(), ResultMessage)
    assert error.reason is DeadReason.INVALID
    assert CANARY not in error.detail


def test_an_error_names_the_first_few_places() -> None:
    error = refusal(body(kind=1, platform=2, account=3, text=4))
    assert error.detail == "kind: enum, platform: string_type, account: string_type"


def test_many_errors_are_not_collected() -> None:
    error = refusal(body(attachments=[1] * 50_000))
    assert error.reason is DeadReason.INVALID
    assert len(error.detail) < 200


def test_a_part_of_a_message_is_written_alone_in_a_process_that_has_just_begun() -> None:
    """The store writes parts of results, such as buttons, without the model around them."""
    program = """
from pydantic_core import to_json
from chatlane_schemas import ResultMessage
result = ResultMessage.model_validate_json({body!r})
print(to_json(result.parts[0].buttons).decode())
"""
    part = {"text": "Which?", "buttons": [{"label": "Red", "value": "red"}]}
    result = ResultMessage(
        id="r1",
        at=datetime(2026, 3, 1, tzinfo=UTC),
        session_id=uuid4(),
        turn_id=uuid4(),
        attempt=1,
        token="t" * 32,
        outcome=Outcome.OK,
        parts=(Part.model_validate(part),),
    )
    text = program.format(body=encode(result).decode())
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", text], check=True, capture_output=True, text=True
    )
    assert json.loads(done.stdout)[0]["label"] == "Red"
