"""Translate pieces of outbound messages into messages of WhatsApp Cloud."""

from collections.abc import Sequence
from typing import Final

from chatlane_adapters.kit.markdown import WHATSAPP, Renderer, in_dialect
from chatlane_adapters.whatsapp.decode import Json
from chatlane_client import Piece, TextLimit
from chatlane_schemas import Attachment, Button

LIMIT: Final = TextLimit(4096)
RENDERER: Final = Renderer(lambda document: in_dialect(document, WHATSAPP), len, LIMIT.size)
# With the words of the template at most 1,024 characters.
_MAX_TEMPLATE_TEXT: Final = 900
_MAX_CAPTION: Final = 1024
_MAX_BODY: Final = 1024
_MAX_BUTTONS: Final = 3
_MAX_TITLE: Final = 20
_MAX_ROWS: Final = 10
_MAX_ROW_TITLE: Final = 24
_MAX_ID: Final = 256
_MENU_LABEL: Final = "Choose"
_MEDIA: Final = {"image": "image", "video": "video", "audio": "audio"}


def messages_of(piece: Piece) -> list[Json]:
    """Return the messages that show a piece, without their recipient, in order.

    Buttons that WhatsApp has no room for are numbered lines.
    """
    text = piece.rendered
    files = [it for it in piece.attachments if it.url is not None]
    if piece.buttons:
        shown = interactive(text or "…", piece.buttons)
        return [*(_media(it, None) for it in files), shown or _text(_numbered(text, piece.buttons))]
    takes_caption = len(files) == 1 and text and len(text) <= _MAX_CAPTION and _is_shown(files[0])
    if takes_caption:
        return [_media(files[0], text)]
    return [*([_text(text)] if text else []), *(_media(it, None) for it in files)]


def template_of(message: Json, name: str, language: str) -> Json | None:
    """Return a template that has the text of a message; None if it cannot have all of it.

    Line breaks become spaces, because WhatsApp refuses them in a placeholder.
    """
    text = " ".join(message["text"]["body"].split()) if message["type"] == "text" else ""
    if not 0 < len(text) <= _MAX_TEMPLATE_TEXT:
        return None
    body = {"type": "body", "parameters": [{"type": "text", "text": text}]}
    template = {"name": name, "language": {"code": language}, "components": [body]}
    return {"type": "template", "template": template}


def interactive(text: str, buttons: Sequence[Button]) -> Json | None:
    """Return a message with buttons or a menu; None if WhatsApp has no room for them."""
    values = [button.value or button.label for button in buttons]
    longest = max(len(button.label) for button in buttons)
    if len(text) > _MAX_BODY or any(button.url for button in buttons):
        return None
    if max(map(len, values)) > _MAX_ID or len(set(values)) < len(values):
        return None
    pairs = list(zip(values, buttons, strict=True))
    if len(buttons) <= _MAX_BUTTONS and longest <= _MAX_TITLE:
        replies = [{"id": value, "title": button.label} for value, button in pairs]
        action: Json = {"buttons": [{"type": "reply", "reply": it} for it in replies]}
        return _interactive("button", text, action)
    if len(buttons) <= _MAX_ROWS and longest <= _MAX_ROW_TITLE:
        rows = [{"id": value, "title": button.label} for value, button in pairs]
        action = {"button": _MENU_LABEL, "sections": [{"rows": rows}]}
        return _interactive("list", text, action)
    return None


def _interactive(kind: str, text: str, action: Json) -> Json:
    body = {"text": text}
    return {"type": "interactive", "interactive": {"type": kind, "body": body, "action": action}}


def _numbered(text: str | None, buttons: Sequence[Button]) -> str:
    lines = (
        f"{number}. {button.label}" + (f": {button.url}" if button.url else "")
        for number, button in enumerate(buttons, 1)
    )
    return "\n".join(filter(None, (text, *lines)))


def _text(text: str) -> Json:
    return {"type": "text", "text": {"body": text}}


def _is_shown(file: Attachment) -> bool:
    return file.media_type.partition("/")[0] != "audio"


def _media(file: Attachment, caption: str | None) -> Json:
    kind = _MEDIA.get(file.media_type.partition("/")[0], "document")
    shown: Json = {"link": file.url}
    if caption is not None:
        shown["caption"] = caption
    if kind == "document":
        shown["filename"] = file.name or "file"
    return {"type": kind, kind: shown}
