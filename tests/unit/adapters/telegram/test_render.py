"""Outbound messages as calls of the Bot API."""

from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

import pytest

from chatlane_adapters.telegram.render import RENDERER, calls_of, keyboard_of
from chatlane_client import Piece, Undeliverable
from chatlane_client.delivery.pieces import pieces_of
from chatlane_schemas import (
    Attachment,
    Button,
    Chat,
    OutboundMessage,
    Source,
    TextFormat,
    new_envelope_id,
)

DM: Final = Source(platform="telegram", account="bot", chat=Chat(id="7"))
TOPIC: Final = DM.model_copy(update={"chat": Chat(id="-1001", kind="forum"), "thread_id": "3"})
BUSINESS: Final = DM.model_copy(update={"scope": "b1"})
INBOX: Final = DM.model_copy(update={"thread_id": "direct:12"})


def piece(text: str | None = "hello", target: Source = DM, **fields: Any) -> Piece:  # noqa: ANN401
    message = OutboundMessage(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        session_id=uuid4(),
        out_seq=1,
        agent="main",
        target=target,
        text=text,
        format=TextFormat.MARKDOWN,
        **fields,
    )
    return pieces_of(message, None, render=RENDERER)[0]


def calls(its: Piece) -> list[tuple[str, dict[str, Any]]]:
    """Return the names and the parameters of the calls for a piece."""
    files = [str(file.url) for file in its.attachments]
    return [
        (it.__api_method__, it.model_dump(exclude_none=True, exclude_unset=True))
        for it in calls_of(its, files)
    ]


def photo(number: int = 1) -> Attachment:
    return Attachment(url=f"https://files.test/{number}.png", media_type="image/png")


def test_a_text_with_its_entities() -> None:
    [(method, fields)] = calls(piece("**bold** 🙂 [link](https://e.test/)"))
    assert (method, fields["chat_id"], fields["text"]) == ("sendMessage", 7, "bold 🙂 link")
    found = [(it["type"], it["offset"], it["length"]) for it in fields["entities"]]
    assert found == [("bold", 0, 4), ("text_link", 8, 4)]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (TOPIC, {"chat_id": -1001, "message_thread_id": 3}),
        (BUSINESS, {"chat_id": 7, "business_connection_id": "b1"}),
        (INBOX, {"chat_id": 7, "direct_messages_topic_id": 12}),
        (
            DM.model_copy(update={"chat": Chat(id="@news", kind="channel")}),
            {"chat_id": "@news"},
        ),
    ],
)
def test_where_a_message_goes(target: Source, expected: dict[str, Any]) -> None:
    [(_, fields)] = calls(piece(target=target))
    assert {name: fields[name] for name in expected} == expected


def test_an_address_that_is_not_of_telegram_is_refused() -> None:
    with pytest.raises(Undeliverable):
        calls(piece(target=DM.model_copy(update={"chat": Chat(id="!room:x")})))


def test_a_reply_may_name_a_message_that_was_deleted() -> None:
    [(_, fields)] = calls(piece(reply_to="5"))
    assert fields["reply_parameters"]["message_id"] == 5
    assert fields["reply_parameters"]["allow_sending_without_reply"] is True


def test_a_file_has_the_text_below_it() -> None:
    [(method, fields)] = calls(piece("look", attachments=(photo(),)))
    assert (method, fields["photo"]) == ("sendPhoto", "https://files.test/1.png")
    assert fields["caption"] == "look"


def test_a_text_that_is_too_long_for_a_caption_comes_first() -> None:
    text, file = calls(piece("x" * 1025, attachments=(photo(),)))
    assert (text[0], file[0]) == ("sendMessage", "sendPhoto")


def test_pictures_share_an_album_and_documents_have_their_own() -> None:
    document = Attachment(url="https://files.test/a.pdf", media_type="application/pdf")
    files = (*map(photo, range(12)), document)
    first, second, third = calls(piece("look", attachments=files))
    assert [it[0] for it in (first, second, third)] == [
        "sendMediaGroup",
        "sendMediaGroup",
        "sendDocument",
    ]
    assert [len(it[1]["media"]) for it in (first, second)] == [10, 2]
    assert first[1]["media"][0]["caption"] == "look"
    assert "caption" not in first[1]["media"][1]


def test_an_album_has_no_buttons_so_they_stand_below_the_text() -> None:
    its = piece("which?", attachments=(photo(1), photo(2)), buttons=(Button(label="A"),))
    text, album = calls(its)
    assert (text[0], album[0]) == ("sendMessage", "sendMediaGroup")
    assert "reply_markup" in text[1]


@pytest.mark.parametrize(
    ("file", "method"),
    [
        ({"media_type": "image/gif"}, "sendAnimation"),
        ({"media_type": "image/svg+xml"}, "sendDocument"),
        ({"media_type": "audio/ogg", "kind": "voice"}, "sendVoice"),
        ({"media_type": "audio/mpeg"}, "sendAudio"),
        ({"media_type": "video/mp4"}, "sendVideo"),
        ({"media_type": "image/webp", "kind": "sticker"}, "sendSticker"),
        ({"media_type": "text/plain"}, "sendDocument"),
    ],
)
def test_how_a_file_is_sent(file: dict[str, str], method: str) -> None:
    attachment = Attachment.model_validate({"url": "https://files.test/1", **file})
    assert [it[0] for it in calls(piece(None, attachments=(attachment,)))] == [method]


def test_an_edit_names_its_message_and_a_draft_is_none() -> None:
    edit = Piece(**{**_fields(piece()), "edits": "9"})
    [(method, fields)] = calls(edit)
    assert (method, fields["message_id"]) == ("editMessageText", 9)
    draft = Piece(**{**_fields(piece()), "edits": "draft:77"})
    assert calls(draft)[0][0] == "sendMessage"


def _fields(its: Piece) -> dict[str, Any]:
    return {name: getattr(its, name) for name in Piece.__slots__}


def test_short_labels_stand_side_by_side_and_long_values_become_their_label() -> None:
    buttons = [Button(label=it) for it in ("Yes", "No", "A rather long label for a button")]
    buttons += [Button(label="Long", value="x" * 65), Button(label="Site", url="https://e.test")]
    keyboard = keyboard_of(buttons)
    assert keyboard is not None
    rows = [[it.text for it in row] for row in keyboard.inline_keyboard]
    assert rows == [["Yes", "No"], ["A rather long label for a button"], ["Long", "Site"]]
    long, site = keyboard.inline_keyboard[2]
    assert (long.callback_data, site.callback_data, site.url) == ("Long", None, "https://e.test")


def test_a_table_is_drawn_with_code() -> None:
    [(_, fields)] = calls(piece("| a | b |\n|---|---|\n| 1 | 2 |"))
    assert [it["type"] for it in fields["entities"]] == ["pre"]
