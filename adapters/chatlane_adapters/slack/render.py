"""Translate pieces of outbound messages into the arguments of calls of Slack."""

from collections.abc import Iterable, Sequence
from typing import Final

from chatlane_adapters.kit.markdown import SLACK, in_dialect, parse
from chatlane_adapters.slack.decode import URL_BUTTON
from chatlane_adapters.slack.text import Json, escaped, without_broadcasts
from chatlane_client import Piece, TextLimit, Undeliverable
from chatlane_schemas import Attachment, Button, DeliveryFailure, TextFormat

# The blocks of a message hold so much Markdown.
LIMIT: Final = TextLimit(12_000, "utf16")
# What notifications show; `chat.update` refuses more than 4,000 characters.
_MAX_NOTIFICATION: Final = 3_000
_MAX_LABEL: Final = 75
_MAX_VALUE: Final = 2_000
_MAX_ALT: Final = 2_000
_BUTTONS_OF_ROW: Final = 25
METADATA_TYPE: Final = "chatlane_message"


def content_of(piece: Piece, *, shows_images: bool = True) -> Json:
    """Return the content of a message: its blocks, and its text for notifications.

    Args:
        piece: The piece.
        shows_images: Whether Slack shows images by their addresses; else they are links.

    Raises:
        Undeliverable: Slack has no room for a value of a button.
    """
    is_markdown = piece.message.format is TextFormat.MARKDOWN
    images = [it for it in piece.attachments if shows_images and is_image(it)]
    links = [it for it in piece.attachments if it not in images]
    blocks = [
        *text_blocks(piece.text, is_markdown=is_markdown),
        *map(_image, images),
        *_links(links),
        *button_blocks(piece.buttons),
    ]
    names = " ".join(it.name or "" for it in piece.attachments)
    text = notification(piece.text or names, is_markdown=is_markdown)
    return {"blocks": blocks, "text": text}


def text_blocks(text: str | None, *, is_markdown: bool = True) -> list[Json]:
    """Return the blocks that show a text."""
    if text is None or not text.strip():
        return []
    if is_markdown:
        return [{"type": "markdown", "text": without_broadcasts(text)}]
    return [_rich_text([{"type": "text", "text": text}])]


def section_blocks(text: str) -> list[Json]:
    """Return the blocks that show Markdown outside of messages, which have no blocks of Markdown."""
    return [
        {"type": "section", "text": {"type": "mrkdwn", "text": notification(paragraph)}}
        for paragraph in text.split("\n\n")
        if paragraph.strip()
    ]


def button_blocks(buttons: Sequence[Button]) -> list[Json]:
    """Return the blocks that show buttons.

    Raises:
        Undeliverable: Slack has no room for a value.
    """
    shown = [_button(number, button) for number, button in enumerate(buttons)]
    rows = (shown[at : at + _BUTTONS_OF_ROW] for at in range(0, len(shown), _BUTTONS_OF_ROW))
    return [{"type": "actions", "elements": row} for row in rows]


def notification(text: str, *, is_markdown: bool = True) -> str:
    """Return the text that notifications show, in the markup of Slack and within all limits."""
    begin = text[:_MAX_NOTIFICATION]
    shown = in_dialect(parse(begin), SLACK) if is_markdown else escaped(begin)
    shown = shown.strip() or "…"
    # A sign or a link that is cut stays as it is.
    return shown if len(shown) <= _MAX_NOTIFICATION else shown[: _MAX_NOTIFICATION - 1] + "…"


def metadata_of(piece: Piece) -> Json:
    """Return the metadata by which a sent message is found again, and what it answers."""
    payload = {"key": piece.key}
    if piece.message.reply_to is not None:
        payload["answers"] = piece.message.reply_to
    return {"event_type": METADATA_TYPE, "event_payload": payload}


def draft_metadata(key: str) -> Json:
    """Return the metadata by which the draft of an answer is found again."""
    return {"event_type": METADATA_TYPE, "event_payload": {"key": key}}


def payload_of(message: Json) -> Json:
    """Return the metadata of a message that this adapter has sent; empty for any other one."""
    metadata = message.get("metadata") or {}
    payload: Json = metadata.get("event_payload") or {}
    return payload if metadata.get("event_type") == METADATA_TYPE else {}


def is_image(file: Attachment) -> bool:
    """Return whether Slack can show a file as an image."""
    return file.url is not None and file.media_type.startswith("image/")


def _image(file: Attachment) -> Json:
    alt_text = (file.name or "image")[:_MAX_ALT]
    return {"type": "image", "image_url": file.url, "alt_text": alt_text}


def _links(files: Iterable[Attachment]) -> list[Json]:
    elements: list[Json] = []
    for file in files:
        if elements:
            elements.append({"type": "text", "text": "\n"})
        name = file.name or file.media_type
        if file.url is None:
            elements.append({"type": "text", "text": f"📎 {name}"})
        else:
            elements.append({"type": "link", "url": file.url, "text": f"📎 {name}"})
    return [_rich_text(elements)] if elements else []


def _rich_text(elements: list[Json]) -> Json:
    return {
        "type": "rich_text",
        "elements": [{"type": "rich_text_section", "elements": elements}],
    }


def _button(number: int, button: Button) -> Json:
    label = button.label
    if len(label) > _MAX_LABEL:
        label = label[: _MAX_LABEL - 1] + "…"
    shown: Json = {"type": "button", "text": {"type": "plain_text", "text": label}}
    if button.url is not None:
        return {**shown, "action_id": f"{URL_BUTTON}{number}", "url": button.url}
    value = button.value or button.label
    if len(value) > _MAX_VALUE:
        reason = f"the value of a button is longer than {_MAX_VALUE} characters"
        raise Undeliverable(reason, failure=DeliveryFailure.TOO_LARGE)
    return {**shown, "action_id": f"chatlane-{number}", "value": value}
