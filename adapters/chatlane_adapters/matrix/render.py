"""Render outbound messages as the content of events of a room."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from chatlane_adapters.kit.markdown import Document, Renderer, as_html
from chatlane_adapters.kit.markdown.document import plain_text
from chatlane_client import TextLimit
from chatlane_schemas import Attachment

# An event may have 65,536 bytes. An encrypted one is a third longer, and an edit holds its body
# twice. The rest is for ids and signatures.
_MAX_BYTES: Final = 44_000
# A draft shows so much of a text before it is rendered.
TEXT_LIMIT: Final = TextLimit(10_000, "bytes")
_HTML: Final = "org.matrix.custom.html"
_MESSAGE_TYPES: Final = (("image/", "m.image"), ("video/", "m.video"), ("audio/", "m.audio"))


@dataclass(frozen=True, slots=True)
class RoomText:
    """A text of a room.

    Attributes:
        body: For clients and notifications that show no HTML.
        html: With its structure; None if it has none.
    """

    body: str
    html: str | None = None

    def content(self, *, is_notice: bool = False) -> dict[str, Any]:
        """Return the content of a message with the text, which mentions no person."""
        kind = "m.notice" if is_notice else "m.text"
        content: dict[str, Any] = {"msgtype": kind, "body": self.body, "m.mentions": {}}
        if self.html is not None:
            content |= {"format": _HTML, "formatted_body": self.html}
        return content


def _rendered(document: Document) -> RoomText:
    body, html = plain_text(document), as_html(document)
    is_plain = html == f"<p>{escape(body, quote=False)}</p>".replace("\n", "<br>")
    return RoomText(body, None if is_plain else html)


def _size_of(text: RoomText) -> int:
    """Return the bytes that an edit to a text takes."""
    return 2 * len(json.dumps(text.body)) + len(json.dumps(text.html or ""))


RENDERER: Final = Renderer(_rendered, _size_of, _MAX_BYTES)


def file_content(file: Attachment, place: Mapping[str, Any], size_bytes: int) -> dict[str, Any]:
    """Return the content of a message with a file.

    Args:
        file: The file.
        place: Where it was uploaded to: the field `url`, or `file` with its key.
        size_bytes: Its size.
    """
    kinds = (kind for begin, kind in _MESSAGE_TYPES if file.media_type.startswith(begin))
    info: dict[str, Any] = {"mimetype": file.media_type, "size": size_bytes}
    if file.duration_ms is not None:
        info["duration"] = file.duration_ms
    content = {
        "msgtype": next(kinds, "m.file"),
        "body": name_of(file),
        "filename": name_of(file),
        "info": info,
        "m.mentions": {},
        **place,
    }
    if file.kind == "voice":
        content["org.matrix.msc3245.voice"] = {}
    return content


def name_of(file: Attachment) -> str:
    """Return the name under which a file is shown."""
    return file.name or (file.key or "").rpartition("/")[2] or "file"


def placed(
    content: dict[str, Any], *, thread_id: str | None, reply_to: str | None
) -> dict[str, Any]:
    """Return a content in a thread, and as the reply to a message."""
    relation: dict[str, Any] = {}
    if thread_id is not None:
        # Clients without threads show the message as a reply to the first one of the thread.
        relation = {
            "rel_type": "m.thread",
            "event_id": thread_id,
            "is_falling_back": reply_to is None,
        }
    answered = reply_to or thread_id
    if answered is not None:
        relation["m.in_reply_to"] = {"event_id": answered}
    return {**content, "m.relates_to": relation} if relation else content


def edit_of(message_id: str, content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of an event that replaces a message."""
    # The part outside is for clients that know no edits.
    return {
        "msgtype": content["msgtype"],
        "body": f"* {content['body']}",
        "m.mentions": {},
        "m.new_content": content,
        "m.relates_to": {"rel_type": "m.replace", "event_id": message_id},
    }
