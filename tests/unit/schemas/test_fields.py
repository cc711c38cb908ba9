"""What the fields of messages take and refuse."""

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from uuid import uuid4

import pytest
from pydantic import JsonValue, ValidationError

from chatlane_schemas import Attachment, Chat, Part, ResultMessage, Sender, TranscriptRow
from chatlane_schemas.envelope import Envelope, Record, new_envelope_id
from chatlane_schemas.fields import (
    MAX_ID_BYTES,
    Amounts,
    Counters,
    Instant,
    Name,
    PlatformId,
    PlatformName,
    Text,
    ToolCalls,
    scrubbed,
)

AT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Ids(Record):
    id: PlatformId


class Names(Record):
    account: Name = "main"
    platform: PlatformName = "telegram"


class Times(Record):
    at: Instant


class Texts(Record):
    text: Text


class Counts(Record):
    usage: Counters


class Costs(Record):
    costs: Amounts


class Calls(Record):
    tool_calls: ToolCalls


def errors_of(model: type[Record], **values: object) -> list[str]:
    """Return the types of the errors a body with these values has."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate_json(json.dumps(values))
    return [error["type"] for error in caught.value.errors()]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("12", "12"),
        (12, "12"),
        (-1001234567890123456789, "-1001234567890123456789"),
        (0, "0"),
        ("", ""),
        (" 12 ", " 12 "),
        ("Ärger\u212a", "Ärger\u212a"),
        ("a:b/%c", "a:b/%c"),
        ("x" * 256, "x" * 256),
        ("ü" * 128, "ü" * 128),
    ],
)
def test_ids_are_text_and_never_changed(sent: object, kept: str) -> None:
    assert Ids.model_validate_json(json.dumps({"id": sent})).id == kept


@pytest.mark.parametrize(
    "sent",
    [1.5, 1.0, 1e3, True, False, [], [1], {}, None, "a\0b", "\0", "x" * 257, "ü" * 129, 10**256],
)
def test_other_ids_are_refused(sent: object) -> None:
    assert errors_of(Ids, id=sent) == ["bad_id"]


def test_the_longest_integers_are_ids() -> None:
    for number in (10**MAX_ID_BYTES - 1, 1 - 10 ** (MAX_ID_BYTES - 1)):
        assert Ids.model_validate_json(f'{{"id": {number}}}').id == str(number)


def test_an_id_with_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(ValidationError, match="lone surrogate"):
        Ids(id="a\ud800")


@pytest.mark.parametrize("account", ["", "Main", "a.b", "*", ">", "a b", "x" * 65, "é", "a\n", 7])
def test_accounts_are_declared_names(account: object) -> None:
    assert errors_of(Names, account=account)


def test_platforms_are_folded_to_lower_case() -> None:
    assert Names(platform="TeleGram").platform == "telegram"


@pytest.mark.parametrize("platform", ["", "tele.gram", "x" * 65, "\u017flack", "\u212aik", "a\n"])
def test_platforms_are_declared_names(platform: str) -> None:
    assert errors_of(Names, platform=platform) == ["string_pattern_mismatch"]


@pytest.mark.parametrize(
    "kind", ["dm", "GROUP", "Supergroup", "channel", "forum", "room", "thread"]
)
def test_chat_kinds_are_folded_to_lower_case(kind: str) -> None:
    assert Chat(kind=kind).kind == kind.lower()


@pytest.mark.parametrize("kind", ["", "private", "dm ", "\u017fupergroup", 1, None])
def test_other_chat_kinds_are_refused(kind: object) -> None:
    assert errors_of(Chat, kind=kind)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("2026-03-01T12:00:00Z", AT),
        ("2026-03-01T14:00:00+02:00", AT),
        ("2026-03-01T12:00:00.123456789Z", AT + timedelta(microseconds=123456)),
    ],
)
def test_times_are_kept_in_utc(sent: str, kept: datetime) -> None:
    at = Times.model_validate_json(json.dumps({"at": sent})).at
    assert at == kept
    assert at.utcoffset() == timedelta(0)


def test_times_given_in_python_are_kept_in_utc() -> None:
    assert Times(at=AT.astimezone(timezone(timedelta(hours=-3)))).at.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    "sent",
    [
        "2026-03-01T12:00:00",
        "2026-03-01",
        1767225600,
        "soon",
        "",
        True,
        "0001-01-01T00:00:00+14:00",
    ],
)
def test_other_times_are_refused(sent: object) -> None:
    assert errors_of(Times, at=sent)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("plain", "plain"),
        ("nul \0 inside", "nul \ufffd inside"),
        ("über\0", "über\ufffd"),
        ("lone \ud800 high", "lone \ufffd high"),
        ("lone \udc00 low", "lone \ufffd low"),
        ("wrong order \udc00\ud800", "wrong order \ufffd\ufffd"),
        ("a pair \ud83d\ude00", "a pair 😀"),
        ("three \ud83d\ud83d\ude00", "three \ufffd😀"),
        ("😀 and \0 and \ud800", "😀 and \ufffd and \ufffd"),
    ],
)
def test_text_shows_what_cannot_be_stored(written: str, kept: str) -> None:
    assert scrubbed(written) == kept
    assert Texts(text=written).text == kept


@pytest.mark.parametrize("sent", [1, True, None, [], {}])
def test_text_is_text(sent: object) -> None:
    assert errors_of(Texts, text=sent) == ["string_type"]


def test_tool_calls_are_scrubbed_with_their_keys() -> None:
    calls = Calls(tool_calls=[{"out": "a\0b", "k\0": [1, 2.5, None, True, {"d\0": "\ud800"}]}])
    assert calls.tool_calls == [
        {"out": "a\ufffdb", "k\ufffd": [1, 2.5, None, True, {"d\ufffd": "\ufffd"}]}
    ]


@pytest.mark.parametrize("value", [float("inf"), float("nan"), {1, 2}, object(), b"x"])
def test_tool_calls_hold_what_jsonb_takes(value: object) -> None:
    with pytest.raises(ValidationError, match="not a finite JSON value"):
        Calls.model_validate({"tool_calls": [{"x": [value]}]})


def test_tool_calls_are_not_deep() -> None:
    value: JsonValue = 1
    for _ in range(40):
        value = [value]
    with pytest.raises(ValidationError, match="nested too deeply"):
        Calls(tool_calls=[{"x": value}])


@pytest.mark.parametrize("calls", [{}, [1], ["x"], "x", [{}] * 257])
def test_tool_calls_are_few_objects(calls: object) -> None:
    assert errors_of(Calls, tool_calls=calls)


def test_a_number_too_large_for_a_float_is_refused_in_tool_calls() -> None:
    with pytest.raises(ValidationError, match="not a finite JSON value"):
        Calls.model_validate_json('{"tool_calls": [{"x": 1e999}]}')


def test_usage_is_named_counts() -> None:
    assert Counts(usage={"input_tokens": 12}).usage == {"input_tokens": 12}


@pytest.mark.parametrize(
    "usage",
    [
        [],
        {"a": -1},
        {"a": 1.5},
        {"a": True},
        {"a": "1"},
        {"a": 2**63},
        {"a b": 1},
        {"\0": 1},
        {"": 1},
        {f"n{i}": 1 for i in range(65)},
    ],
)
def test_other_usage_is_refused(usage: object) -> None:
    assert len(errors_of(Counts, usage=usage)) == 1


@pytest.mark.parametrize(
    ("written", "amount"),
    [
        ('"0.1"', "0.1"),
        ("0.1", "0.1"),
        ("0.30000000000000004", "0.3"),
        ("1e-7", "0.0000001"),
        ('"1E-7"', "0.0000001"),
        ("7", "7"),
        ("100", "100"),
        ("1000000000000", "1000000000000"),
        ("0", "0"),
        ('"1e-13"', "0"),
    ],
)
def test_amounts_are_decimals(written: str, amount: str) -> None:
    costs = Costs.model_validate_json(f'{{"costs": {{"usd": {written}}}}}')
    assert costs.costs == {"usd": Decimal(amount)}
    assert json.loads(costs.model_dump_json()) == {"costs": {"usd": amount}}
    assert Costs.model_validate_json(costs.model_dump_json()) == costs


@pytest.mark.parametrize(
    "costs",
    [
        [],
        {"a": -1},
        {"a": "-0.1"},
        {"a": True},
        {"a": "x"},
        {"a": "NaN"},
        {"a": float("nan")},
        {"a": "Infinity"},
        {"a": "1e13"},
        {"a": "9" * 5000},
        {"a": None},
        {"a": {}},
        {"a b": 1},
        {"": 1},
        {f"n{i}": 1 for i in range(65)},
    ],
)
def test_other_amounts_are_refused(costs: object) -> None:
    assert len(errors_of(Costs, costs=costs)) == 1


def test_flags_and_numbers_are_not_guessed() -> None:
    assert errors_of(Sender, is_bot="true") == ["bool_type"]
    assert errors_of(Attachment, media_type="image/png", size_bytes="3") == ["int_type"]
    assert errors_of(Attachment, media_type="image/png", size_bytes=-3) == ["greater_than_equal"]
    assert errors_of(Attachment, media_type="image/png", size_bytes=2**63) == ["less_than_equal"]


@pytest.mark.parametrize("envelope_id", ["", "x" * 129, "a b", "ä", "a\r\nb: c", "a\n", 7])
def test_envelope_ids_fit_into_a_header(envelope_id: object) -> None:
    assert errors_of(Envelope, id=envelope_id, at=AT.isoformat())


def test_new_envelope_ids_differ() -> None:
    first, second = (Envelope(id=new_envelope_id(), at=AT) for _ in range(2))
    assert first.id != second.id


def test_messages_are_frozen() -> None:
    envelope = Envelope(id="a", at=AT)
    with pytest.raises(ValidationError, match="frozen"):
        envelope.id = "b"  # type: ignore[misc]


def turn_result(**values: object) -> ResultMessage:
    fields = {"attempt": 1, "token": "t", "outcome": "ok", "turn_id": str(uuid4()), **values}
    body = {"v": 1, "id": "a", "at": AT.isoformat(), "session_id": str(uuid4()), **fields}
    return ResultMessage.model_validate_json(json.dumps(body))


def test_a_result_ends_a_turn() -> None:
    result = turn_result(parts=[{"text": "hello"}], transcript=[{"role": "tool", "content": "x"}])
    assert result.parts == (Part(text="hello"),)
    assert [row.role for row in result.transcript] == ["tool"]


def test_a_result_answers_a_routed_message() -> None:
    result = turn_result(turn_id=None, reply_to="r1", text="hello", attempt=None)
    assert (result.reply_to, result.part) == ("r1", 0)


@pytest.mark.parametrize("values", [{"reply_to": "r1"}, {"turn_id": None}])
def test_a_result_is_one_of_both(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="exactly one of turn_id and reply_to"):
        turn_result(**values)


@pytest.mark.parametrize("missing", ["attempt", "token", "outcome"])
def test_the_result_of_a_turn_shows_its_claim(missing: str) -> None:
    with pytest.raises(ValidationError, match="attempt, token and outcome"):
        turn_result(**{missing: None})


def test_a_transcript_row_has_a_known_speaker() -> None:
    assert errors_of(TranscriptRow, role="narrator") == ["enum"]
