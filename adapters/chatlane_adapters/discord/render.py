"""Bodies of the calls that send and edit messages."""

from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Final

from chatlane_adapters.discord.decode import custom_id_of
from chatlane_adapters.discord.rest import Json
from chatlane_adapters.kit.markdown import DISCORD, Renderer, in_dialect
from chatlane_client import TextLimit
from chatlane_schemas import Button

LIMIT: Final = TextLimit(2000, "utf16")
RENDERER: Final = Renderer(
    render=lambda document: in_dialect(document, DISCORD), measure=LIMIT.measure, size=LIMIT.size
)
MAX_BUTTONS: Final = 25
_BUTTONS_IN_ROW: Final = 5
_MAX_LABEL: Final = 80
_ROW, _BUTTON = 1, 2
_PRIMARY, _LINK = 1, 5
# An answer of a model must not notify everybody.
_MENTIONS: Final = {"parse": ["users"], "replied_user": True}


def content(text: str | None, buttons: tuple[Button, ...] = ()) -> Json:
    """Return the body of an edit; buttons that are not named are taken away."""
    return {"content": text or "", "components": _rows(buttons), "allowed_mentions": _MENTIONS}


def new_message(
    text: str | None, buttons: tuple[Button, ...] = (), *, key: str, reply_to: str | None = None
) -> Json:
    """Return the body of a message that Discord sends once, however often it gets it.

    Args:
        text: What it says.
        buttons: At most 25.
        key: The same for each attempt.
        reply_to: Id of the message that it answers.
    """
    body = {**content(text, buttons), "nonce": _nonce(key), "enforce_nonce": True}
    if reply_to is not None and reply_to.isdecimal():
        # A message that is deleted meanwhile is still answered.
        body["message_reference"] = {"message_id": reply_to, "fail_if_not_exists": False}
    return body


def _nonce(key: str) -> str:
    """Return a key in 22 characters, of which Discord takes 25."""
    return urlsafe_b64encode(sha256(key.encode()).digest()[:16]).rstrip(b"=").decode()


def _rows(buttons: tuple[Button, ...]) -> list[Json]:
    shown = [_control(number, it) for number, it in enumerate(buttons[:MAX_BUTTONS])]
    rows = (shown[at : at + _BUTTONS_IN_ROW] for at in range(0, len(shown), _BUTTONS_IN_ROW))
    return [{"type": _ROW, "components": row} for row in rows]


def _control(number: int, button: Button) -> Json:
    label = button.label[:_MAX_LABEL] or "\u200b"
    if button.url is not None:
        return {"type": _BUTTON, "style": _LINK, "label": label, "url": button.url}
    custom_id = custom_id_of(number, button.value or button.label, button.label)
    return {"type": _BUTTON, "style": _PRIMARY, "label": label, "custom_id": custom_id}
