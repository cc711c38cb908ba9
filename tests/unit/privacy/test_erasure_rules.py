"""What is a person's, and what goes from where others wrote, too."""

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from chatlane.domain.addressing.owners import Span, identity_with
from chatlane.domain.addressing.sources import Address
from chatlane.domain.erasure_key import ErasureKey
from chatlane.privacy.erasure_rules import (
    ErasureScope,
    Ids,
    Listed,
    Row,
    listed,
    names_in,
    ranges,
    rows_to_blank,
    why_not_to_forget,
)
from chatlane_schemas.topology.streams import StreamName

UNTIL = datetime(2026, 5, 11, 9, tzinfo=UTC)
BEFORE, AFTER = UNTIL - timedelta(minutes=1), UNTIL + timedelta(minutes=1)


def whom(name: str, *spans: Span, platform: str = "telegram") -> Ids:
    return Ids(identity_with(platform, "bot", None, name, spans))


ANN = whom("701")
SESSION, TURN, MESSAGE, LETTER, OTHER = (UUID(int=number) for number in range(1, 6))
KEY = ErasureKey(b"a" * 32)


def source(sender: object = "701", **fields: object) -> dict[str, object]:
    return {
        "platform": "telegram",
        "account": "bot",
        "chat": {"id": "-1", "kind": "group"},
        "sender": {"id": sender},
        **fields,
    }


@pytest.mark.parametrize(
    ("named", "is_theirs"),
    [
        (source(), True),
        (source("702"), False),
        (source(sender={"id": "x"}), False),
        ({**source("x"), "sender": {"id": "x", "alt_id": "701"}}, True),
        ({**source("x"), "sender": {"id": "x", "aliases": ["y", "701"]}}, True),
        ({**source(), "account": "other"}, False),
        ({**source(), "platform": "slack"}, False),
        ({**source(), "scope": "T1"}, False),
        ({**source(), "scope": ""}, True),
        ({**source(), "sender": None}, False),
    ],
)
def test_a_source_names_its_sender(named: dict[str, object], is_theirs: bool) -> None:  # noqa: FBT001
    assert ANN.is_sender(named, BEFORE) is is_theirs


def test_every_form_of_an_id_is_the_person() -> None:
    ids = whom("99@lid", Span("99@lid"), Span("49170"), platform="whatsapp")
    assert ids.forms == {"49170", "99@lid"}
    for raw in ("49170@s.whatsapp.net", "49170:7@s.whatsapp.net", "+49170", "99:2@lid"):
        assert ids.is_sender({**source(raw), "platform": "whatsapp"}, BEFORE)


@pytest.mark.parametrize(
    ("key", "owner", "is_theirs"),
    [
        ("agent:main:telegram:bot:dm:701", None, True),
        ("agent:desk:telegram:bot:dm:701", None, True),
        ("agent:main:telegram:bot:dm:D9", "telegram:bot:701", True),
        ("agent:main:telegram:bot:dm:D9", "telegram:bot:702", False),
        ("agent:main:telegram:bot:group:-1:user=701", None, True),
        ("agent:main:telegram:bot:group:-1", None, False),
        ("agent:main:telegram:bot:group:701", None, False),
        ("agent:main:telegram:other:dm:701", None, False),
        ("agent:main:telegram:bot:dm:701:scope=T1", None, False),
        ("acp:1234", "telegram:bot:701", True),
        ("acp:1234", None, False),
    ],
)
def test_sessions_are_theirs_by_owner_or_key(
    key: str,
    owner: str | None,
    is_theirs: bool,  # noqa: FBT001
) -> None:
    assert ANN.is_session(key, owner) is is_theirs


def test_nobody_forgets_the_platform_or_us() -> None:
    anonymous = whom("1087968824")
    assert why_not_to_forget(anonymous, frozenset()) is not None
    assert why_not_to_forget(ANN, frozenset({"701"})) is not None
    assert why_not_to_forget(ANN, frozenset({"1"})) is None


def said(seq: int, *, theirs: bool = False, turn: UUID | None = None) -> Row:
    return Row(seq, "user", theirs, uuid4(), turn, None)


def answered(seq: int, turn: UUID | None = None, reply_to: UUID | None = None) -> Row:
    return Row(
        seq,
        "assistant",
        is_own=False,
        id=None,
        turn_id=turn,
        reply_to=reply_to,
        has_source=False,
    )


def test_answers_go_with_what_they_answer_and_others_stay() -> None:
    other = uuid4()
    rows = [
        said(1, theirs=True, turn=TURN),
        said(2, turn=TURN),
        answered(3, TURN),
        said(4, turn=other),
        answered(5, other),
        answered(6, reply_to=MESSAGE),
        answered(7, reply_to=uuid4()),
    ]
    assert rows_to_blank(rows, frozenset({TURN}), frozenset({MESSAGE})) == [1, 3, 6]


def test_rows_without_a_link_go_with_the_message_before_them() -> None:
    rows = [
        said(1),
        answered(2),
        said(3, theirs=True),
        answered(4),
        answered(5),
        said(6),
        answered(7),
    ]
    assert rows_to_blank(rows, frozenset(), frozenset()) == [3, 4, 5]


def test_a_summary_of_theirs_goes_and_what_comes_behind_it_stays() -> None:
    summary = Row(1, "user", is_own=False, id=None, turn_id=None, reply_to=None, has_source=False)
    rows = [summary, answered(2), said(3, turn=TURN), answered(4, TURN)]
    assert rows_to_blank(rows, frozenset(), frozenset(), has_summary=True) == [1, 2]
    assert rows_to_blank(rows, frozenset(), frozenset()) == []


@pytest.mark.parametrize(
    ("stream", "said_then", "stored_at", "is_theirs"),
    [
        (StreamName.INBOUND, source(), BEFORE, True),
        (StreamName.INBOUND, source(), AFTER, False),
        (StreamName.INBOUND, source("702"), BEFORE, False),
        (StreamName.INBOUND, {**source("1"), "chat": {"id": "D9"}}, BEFORE, True),
        (StreamName.INBOUND, {**source("1"), "chat": {"id": "D9", "kind": "group"}}, BEFORE, False),
        (StreamName.ROUTED, {"session_id": str(SESSION)}, AFTER, True),
        (StreamName.ROUTED, {"session_id": str(OTHER), "id": str(MESSAGE)}, AFTER, True),
        (StreamName.ROUTED, {"source": source()}, BEFORE, True),
        (StreamName.ROUTED, {"source": source()}, AFTER, False),
        (StreamName.TURNS, {"turn_id": str(TURN)}, AFTER, True),
        (StreamName.RESULTS, {"session_id": str(OTHER), "turn_id": str(TURN)}, AFTER, True),
        (StreamName.RESULTS, {"session_id": str(OTHER), "reply_to": str(MESSAGE)}, AFTER, True),
        (StreamName.RESULTS, {"session_id": str(OTHER), "reply_to": "no id"}, AFTER, False),
        (StreamName.OUTBOUND, {"target": source()}, BEFORE, True),
        (StreamName.OUTBOUND, {"target": source()}, AFTER, False),
        (StreamName.EVENTS, {"source": source()}, BEFORE, True),
        (StreamName.EVENTS, {"session_id": str(SESSION)}, AFTER, True),
        (StreamName.DEAD, {"id": str(LETTER)}, AFTER, True),
        (StreamName.DEAD, {"id": str(OTHER)}, AFTER, False),
    ],
)
def test_messages_of_streams_are_theirs(
    stream: StreamName,
    said_then: dict[str, object],
    stored_at: datetime,
    is_theirs: bool,  # noqa: FBT001
) -> None:
    gone = ErasureScope(ANN, UNTIL, {SESSION}, {TURN}, {MESSAGE}, set(), {LETTER}, {"D9"})
    assert gone.holds(stream, stored_at, json.dumps(said_then).encode()) is is_theirs


def test_what_cannot_be_decoded_is_theirs_when_it_names_them() -> None:
    gone = ErasureScope(ANN, UNTIL)
    assert gone.holds(StreamName.INBOUND, BEFORE, b'{"sender": {"id": "701"')
    assert not gone.holds(StreamName.INBOUND, AFTER, b'{"sender": {"id": "701"')
    assert not gone.holds(StreamName.INBOUND, BEFORE, b'{"sender": {"id": "7011"')
    assert not gone.holds(StreamName.INBOUND, BEFORE, b"[1]")


def test_the_end_counts_by_either_time() -> None:
    entry = Listed(b"", None, UNTIL, is_past=False)
    assert entry.covers(UNTIL, None)
    assert not entry.covers(AFTER, None)
    assert entry.covers(AFTER, BEFORE)
    # The clock of a platform may be a little behind ours: then the message is a new one.
    assert not entry.covers(AFTER, UNTIL - timedelta(seconds=1))


def test_f01_what_came_before_an_id_was_theirs_is_not_on_the_list() -> None:
    entry = Listed(b"", BEFORE, UNTIL, is_past=False)
    long_ago = BEFORE - timedelta(hours=1)
    assert entry.covers(BEFORE, None)
    assert not entry.covers(long_ago, None)
    assert not entry.covers(AFTER, long_ago)


def test_f01_the_list_names_each_id_for_the_time_in_which_it_was_theirs() -> None:
    number, uuid = "+155509", "3fa85f64-5717-4562-b3fc-2c963f66afa6"
    kim = whom(number, Span(number, None, BEFORE), Span(uuid), platform="signal").identity
    lee = whom("lee", Span(number, BEFORE), platform="signal").identity
    digest = KEY.digest("signal", "bot", None, number)
    instant = timedelta(microseconds=1)
    assert listed(KEY, kim, UNTIL) == [
        Listed(digest, None, BEFORE - instant, is_past=True),
        Listed(KEY.digest("signal", "bot", None, uuid), None, UNTIL, is_past=False),
    ]
    assert listed(KEY, lee, UNTIL) == [Listed(digest, BEFORE, UNTIL, is_past=False)]


def test_f01_a_number_beside_a_lasting_id_names_nobody() -> None:
    number, lee = "+155509", "7d444840-9dc0-11d1-b245-5ffdce74fad2"
    ids = whom("lee", Span(number, BEFORE), Span(lee), platform="signal")
    said = {**source(number), "platform": "signal"}
    assert ids.is_sender(said, AFTER)
    assert not ids.is_sender(said, BEFORE - timedelta(seconds=1))
    other = {**said, "sender": {"id": number, "alt_id": "3fa85f64-5717-4562-b3fc-2c963f66afa6"}}
    assert not ids.is_sender(other, AFTER)


def test_f01_a_list_that_an_older_database_does_not_know_names_nobody_else() -> None:
    number = "+155509"
    kim = whom(number, platform="signal")
    known = kim.had_since(number, BEFORE)
    assert known.owners == frozenset()
    assert not known.is_session(f"agent:main:signal:bot:dm:{number}", None)
    said = {**source(number), "platform": "signal"}
    assert known.is_sender(said, AFTER)
    assert not known.is_sender(said, BEFORE - timedelta(seconds=1))
    lee = whom("lee", Span(number, BEFORE), platform="signal")
    assert lee.had_since(number, BEFORE) is lee


def test_digests_tell_nothing_without_the_key() -> None:
    digest = KEY.digest("telegram", "bot", None, "701")
    assert digest == KEY.digest("telegram", "bot", None, "701")
    others = {
        KEY.digest("telegram", "bot", None, "702"),
        KEY.digest("telegram", "bot", "T1", "701"),
        KEY.digest("telegram", "other", None, "701"),
        KEY.digest("slack", "bot", None, "701"),
        ErasureKey(b"b" * 32).digest("telegram", "bot", None, "701"),
    }
    assert len(others) == 5
    assert digest not in others
    assert ErasureKey(b"b" * 32).id != KEY.id


def test_an_event_is_looked_up_by_all_ids_of_its_sender() -> None:
    address = Address("telegram", "bot", chat_id="701", sender_id="701", sender_alt_id="a")
    assert KEY.digests_of(address) == {
        KEY.digest("telegram", "bot", None, "701"),
        KEY.digest("telegram", "bot", None, "a"),
    }
    assert KEY.digests_of(Address("telegram", "bot", chat_id="-1", chat_kind="group")) == set()


def test_details_name_people_by_ids_and_keys() -> None:
    assert names_in({"origin_key": "agent:main:telegram:bot:dm:701"}, ANN, BEFORE)
    assert names_in({"a": [{"b": "701"}]}, ANN, BEFORE)
    assert names_in({"owner": "telegram:bot:701"}, ANN, BEFORE)
    assert not names_in({"origin_key": "agent:main:telegram:bot:dm:7011", "n": 701}, ANN, BEFORE)


def test_numbers_are_told_as_ranges() -> None:
    assert ranges([5, 1, 2, 3, 9, 2]) == [[1, 3], [5, 5], [9, 9]]
    assert ranges([]) == []
