"""What pieces become in Slack."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from chatlane_adapters.slack.render import (
    LIMIT,
    button_blocks,
    content_of,
    metadata_of,
    notification,
    payload_of,
)
from chatlane_adapters.slack.text import without_broadcasts
from chatlane_client import Piece, Undeliverable
from chatlane_devkit.platforms.slack.blocks import MAX_EDITED_TEXT, checked_blocks
from chatlane_schemas import (
    Attachment,
    Button,
    Chat,
    OutboundMessage,
    Source,
    TextFormat,
    new_envelope_id,
)

MESSAGE = OutboundMessage(
    id=new_envelope_id(),
    at=datetime.now(UTC),
    session_id=uuid4(),
    out_seq=1,
    agent="main",
    target=Source(platform="slack", account="app", scope="T1", chat=Chat(id="C1")),
    format=TextFormat.MARKDOWN,
)


def blocks_of(**fields: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - any field of a piece
    message = MESSAGE.model_copy(update={"format": fields.pop("format", TextFormat.MARKDOWN)})
    piece = Piece(message=message, number=0, count=1, **{"text": None, **fields})
    content = content_of(piece)
    assert len(content["text"]) <= MAX_EDITED_TEXT
    return checked_blocks(content["blocks"])


def test_markdown_stays_markdown() -> None:
    text = "# Title\n\n| a |\n|---|\n| **b** |\n\n```py\nx < 1\n```"
    assert blocks_of(text=text) == [{"type": "markdown", "text": text}]


def test_plain_text_has_no_markup() -> None:
    [block] = blocks_of(text="*a* <b> &", format=TextFormat.PLAIN)
    [section] = block["elements"]
    assert section["elements"] == [{"type": "text", "text": "*a* <b> &"}]


def test_the_longest_piece_is_accepted() -> None:
    text = "&" * LIMIT.size
    buttons = (Button(label="x" * 200),)
    assert len(blocks_of(text=text, buttons=buttons)) == 2


def test_images_are_shown_and_other_files_are_links() -> None:
    photo = Attachment(url="https://f.test/1.png", media_type="image/png")
    paper = Attachment(url="https://f.test/1.pdf", media_type="application/pdf", name="paper.pdf")
    blocks = blocks_of(text="see", attachments=(photo, paper))
    assert [block["type"] for block in blocks] == ["markdown", "image", "rich_text"]
    [link] = blocks[2]["elements"][0]["elements"]
    assert (link["url"], link["text"]) == ("https://f.test/1.pdf", "📎 paper.pdf")
    piece = Piece(message=MESSAGE, number=0, count=1, text=None, attachments=(photo,))
    [block] = content_of(piece, shows_images=False)["blocks"]
    assert block["type"] == "rich_text"


def test_buttons_are_rows_of_25_with_different_names() -> None:
    blocks = button_blocks([Button(label=f"b{number}") for number in range(30)])
    assert [len(block["elements"]) for block in checked_blocks(blocks)] == [25, 5]
    assert blocks[0]["elements"][0]["value"] == "b0"


def test_a_button_may_open_a_page() -> None:
    [row] = button_blocks([Button(label="Open", url="https://a.test")])
    [button] = row["elements"]
    assert button["url"] == "https://a.test"
    assert "value" not in button


def test_a_value_without_room_is_refused() -> None:
    with pytest.raises(Undeliverable):
        button_blocks([Button(label="x", value="v" * 2001)])


@pytest.mark.parametrize("word", ["<!channel>", "<!here|here>", "<!everyone>", "<!subteam^S1>"])
def test_no_answer_notifies_everybody(word: str) -> None:
    shown = without_broadcasts(f"hi {word} and <@U1>")
    assert word not in shown
    assert "<@U1>" in shown
    assert "<!" not in shown


def test_a_notification_is_short_and_escaped() -> None:
    assert notification("a < b & **c**") == "a &lt; b &amp; *c*"
    assert notification("*a* &", is_markdown=False) == "*a* &amp;"
    assert len(notification("&" * 5000)) == 3000


def test_a_sent_message_is_found_by_its_key() -> None:
    piece = Piece(message=MESSAGE, number=0, count=1, text="a")
    assert payload_of({"metadata": metadata_of(piece)}) == {"key": piece.key}
    foreign = {"event_type": "task_created", "event_payload": {"key": piece.key}}
    assert payload_of({"metadata": foreign}) == {}
    assert payload_of({}) == {}
