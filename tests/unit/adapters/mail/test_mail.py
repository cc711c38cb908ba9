"""What mail becomes, and what answers look like."""

from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any
from uuid import uuid4

import pytest

from chatlane_adapters.mail.decode import event_of, files_of, with_file_names
from chatlane_adapters.mail.render import mail_of, message_id_of
from chatlane_client import Piece
from chatlane_schemas import InboundEvent, OutboundMessage, TextFormat, new_envelope_id
from chatlane_schemas.source import source_of

OURS = "desk@shop.test"


def make(**fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
    return InboundEvent(
        id=new_envelope_id(), at=datetime.now(UTC), platform="mail", account="desk", **fields
    )


def written(text: str = "hello", **headers: str) -> EmailMessage:
    mail = EmailMessage()
    usual = {"From": "Ann <Ann@x.test>", "Message_ID": "<1@x.test>", "Subject": "My order"}
    for name, value in {**usual, **headers}.items():
        mail[name.replace("_", "-")] = value
    mail.set_content(text)
    return mail


def decoded(mail: EmailMessage) -> InboundEvent:
    event = event_of(make, mail.as_bytes())
    assert event is not None
    return event


def test_a_mail_begins_a_thread_with_its_subject() -> None:
    event = decoded(written())
    assert event.chat is not None
    assert (event.chat.id, event.message_id, event.thread_id) == (
        "ann@x.test",
        "1@x.test",
        "1@x.test",
    )
    assert event.text == "Subject: My order\n\nhello"
    assert event.sender is not None
    assert (event.sender.name, event.sender.is_bot) == ("Ann", False)


def test_a_reply_is_in_the_thread_of_the_first_mail() -> None:
    text = "and now?\n\nOn Monday, Desk <desk@shop.test> wrote:\n> hello\n> you"
    headers = {"In_Reply_To": "<2@s.test>", "References": "<1@x.test> <2@s.test>"}
    event = decoded(written(text, Message_ID="<3@x.test>", **headers))
    assert (event.thread_id, event.reply_to) == ("1@x.test", "2@s.test")
    assert event.text == "and now?"
    assert event.quote is not None
    assert event.quote.text == "hello\nyou"


def test_html_is_read_as_text() -> None:
    mail = written()
    mail.set_content("<style>p {}</style><p>Hello&nbsp;<b>you</b></p><p>bye</p>", subtype="html")
    assert decoded(mail).text == "Subject: My order\n\nHello you\n\nbye"


def test_an_attached_file_is_found_and_named() -> None:
    mail = written()
    mail.add_attachment(b"x", maintype="application", subtype="pdf", filename="bill.pdf")
    [file] = files_of(mail.as_bytes())
    assert (file.name, file.media_type, file.content) == ("bill.pdf", "application/pdf", b"x")
    named = with_file_names(decoded(mail), [file])
    assert (named.text or "").endswith("hello\n\n[attached file: bill.pdf]")


@pytest.mark.parametrize(
    "headers",
    [{"Auto_Submitted": "auto-replied"}, {"Precedence": "bulk"}, {"List_Id": "<l.test>"}],
)
def test_a_program_is_a_bot(headers: dict[str, str]) -> None:
    sender = decoded(written(**headers)).sender
    assert sender is not None
    assert sender.is_bot


def test_a_bounce_is_dropped() -> None:
    assert event_of(make, written(Return_Path="<>").as_bytes()) is None
    assert event_of(make, b"Subject: nobody\r\n\r\nx") is None


def test_a_mail_without_an_id_is_recognised_by_its_content() -> None:
    content = b"From: a@x.test\r\n\r\nhello"
    first, second = event_of(make, content), event_of(make, content)
    assert first is not None
    assert second is not None
    assert first.message_id == second.message_id


def test_an_answer_is_shown_below_the_mail() -> None:
    asked = decoded(written())
    message = OutboundMessage(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        session_id=uuid4(),
        out_seq=1,
        agent="main",
        target=source_of(asked),
        reply_to=asked.message_id,
        format=TextFormat.MARKDOWN,
    )
    piece = Piece(message=message, number=0, count=1, text="**well**")
    mail = mail_of(piece, address=OURS, name="Desk")
    assert mail["Subject"] == "Re: My order"
    assert mail["To"] == "ann@x.test"
    assert (mail["In-Reply-To"], mail["References"]) == ("<1@x.test>", "<1@x.test>")
    assert mail["Message-ID"] == f"<{message_id_of(piece, OURS)}>"
    assert mail["Auto-Submitted"] == "auto-replied"
    plain, html = mail.get_body(("plain",)), mail.get_body(("html",))
    assert plain is not None
    assert html is not None
    assert plain.get_content().strip() == "**well**"
    assert "<strong>well</strong>" in html.get_content()
