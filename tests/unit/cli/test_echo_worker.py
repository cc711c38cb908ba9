"""The echo agent says what it heard, in the words that the verdict reads."""

from datetime import UTC, datetime
from uuid import UUID

from chatlane.cli.echo_worker import echo, heard
from chatlane_devkit.demo.player import answer_of
from chatlane_devkit.judge.history import Heard, Received
from chatlane_devkit.scenario.feed import Address
from chatlane_schemas import (
    Attachment,
    Chat,
    OutboundMessage,
    Sender,
    Source,
    TurnMessage,
)

SOURCE = Source(
    platform="telegram",
    account="assistant",
    chat=Chat(id="7", kind="dm"),
    sender=Sender(id="8"),
    message_id="9",
)
NOON = datetime(2026, 3, 12, 12, tzinfo=UTC)


def message(seq: int, text: str | None, *names: str | None) -> TurnMessage:
    files = tuple(Attachment(media_type="image/png", name=name) for name in names)
    return TurnMessage(seq=seq, text=text, attachments=files, source=SOURCE, stored_at=NOON)


def outbound(text: str, **more: object) -> OutboundMessage:
    fields = {
        "id": "o1",
        "at": NOON,
        "session_id": UUID(int=1),
        "out_seq": 2,
        "agent": "main",
        "target": SOURCE,
        "text": text,
    }
    return OutboundMessage.model_validate(fields | more)


def test_files_are_told_by_name_behind_the_text() -> None:
    files = message(1, None, "cat.png", None).attachments
    assert heard(3, "look", files) == "#3 heard: look [cat.png] [image/png]"
    assert heard(3, None, files) == "#3 heard: [cat.png] [image/png]"
    assert heard(3, "look") == "#3 heard: look"


def test_what_is_said_can_be_read_back() -> None:
    text = echo([message(1, "one"), message(2, "two\nlines"), message(3, None, "cat.png")])
    assert list(answer_of(outbound(text)).heard_messages()) == [
        Heard(1, "one"),
        Heard(2, "two\nlines"),
        Heard(3, "[cat.png]"),
    ]


def test_an_outbound_message_is_judged_by_address_and_cause() -> None:
    answer = answer_of(outbound("hi", turn_id=UUID(int=5)))
    assert answer == Received(
        key="",
        id=answer.id,
        reply_to="",
        session_id=str(UUID(int=1)),
        out_seq=2,
        agent="main",
        address=Address("telegram", "assistant", "", "7", "", "8"),
        kind="answer",
        cause=f"turn {UUID(int=5)}",
        part=0,
        text="hi",
    )


def test_an_answer_without_a_turn_is_told_by_what_it_replies_to() -> None:
    assert answer_of(outbound("hi", reply_to="44")).cause == "message 44"
