"""Split the text of a message into pieces that a platform accepts."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from chatlane_client.delivery.text_cuts import place_to_cut
from chatlane_schemas import Attachment, Button, OutboundMessage
from chatlane_schemas.content.buttons import TextFormat
from chatlane_schemas.content.visible_text import is_blank

Unit: TypeAlias = Literal["utf16", "code_points", "bytes"]
Render: TypeAlias = Callable[[str, TextFormat | None], Sequence[object]]
"""Returns a text in the form of a platform, in parts that each fit into one of its messages.

The same text gives the same parts: after a restart, the delivery goes on behind those that were
sent. A text that shows something has at least one part.
"""

# A list item indents its code block. A line such as "```ls```" is a span of code and no fence.
_FENCE: Final = re.compile(r"^([ \t]*)(`{3,}(?=[^`\n]*$)|~{3,})[^\n]*$", re.MULTILINE)
# Links, code, bold, strikethrough and addresses lose their meaning where they are cut.
_WHOLE: Final = re.compile(
    r"!?\[[^\[\]\n]*\]\([^()\s]*\)|`[^`\n]+`|\*\*[^*\n]+\*\*|__[^_\n]+__|~~[^~\n]+~~|https?://\S+"
)


@dataclass(frozen=True, slots=True)
class TextLimit:
    """The longest text of one message on a platform.

    Attributes:
        size: How long it may be.
        unit: In what the platform counts: UTF-16 code units, code points, or bytes of UTF-8.
    """

    size: int
    unit: Unit = "code_points"

    def measure(self, text: str) -> int:
        """Return the length of a text in the unit of the platform."""
        if self.unit == "utf16":
            return len(text) + sum(character > "\uffff" for character in text)
        return len(text.encode()) if self.unit == "bytes" else len(text)

    def fitting(self, text: str) -> int:
        """Return how many characters of a text fit."""
        used = 0
        for place, character in enumerate(text):
            used += self.measure(character)
            if used > self.size:
                return place
        return len(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of an outbound message that goes to the platform as one message.

    Attributes:
        message: The whole message.
        number: Which piece it is, from 0.
        count: How many pieces the message has.
        text: Text of this piece; if a renderer splits the text, that of the whole message.
        rendered: What the renderer made of this piece; None without one.
        attachments: Files of the message, with its last piece.
        buttons: Buttons of the message, with its last piece.
        edits: Platform's id of the message that this piece replaces, for example the draft of the
            answer; None sends a new message. A piece that replaces a draft has no files.
        may_be_sent: Whether an earlier attempt may have sent this piece: its process ended, or the
            answer of the platform was lost. A platform that takes idempotency keys recognises it by
            `key`.
    """

    message: OutboundMessage
    number: int
    count: int
    text: str | None
    rendered: Any = None
    attachments: tuple[Attachment, ...] = ()
    buttons: tuple[Button, ...] = ()
    edits: str | None = None
    may_be_sent: bool = False

    @property
    def key(self) -> str:
        """The same for every attempt to send this piece."""
        return f"{self.message.id}-{self.number}"

    @property
    def reply_to(self) -> str | None:
        """Platform's id of the message that is answered; only the first piece answers it."""
        return self.message.reply_to if self.number == 0 else None


def pieces_of(
    message: OutboundMessage,
    limit: TextLimit | None,
    *,
    has_buttons: bool = True,
    render: Render | None = None,
) -> tuple[Piece, ...]:
    """Return the pieces of a message; the same arguments give the same pieces.

    A message that says nothing has none.

    Args:
        message: The message.
        limit: The longest text of a piece; None for no limit.
        has_buttons: Whether the platform has buttons; without, they become numbered lines.
        render: Splits and renders the text instead of the limit.
    """
    text = None if message.text is None or is_blank(message.text) else message.text
    if message.buttons and (text is None or not has_buttons):
        text = "\n\n".join(filter(None, (text, _as_text(message.buttons))))
    parts: list[tuple[str | None, object]] = [(None, None)]
    if text is not None:
        parts = _parts_of(text, message, limit, render)
    elif not message.attachments:
        return ()
    if message.draft is not None and len(parts) == 1 and message.attachments and text is not None:
        # A platform cannot add files to the text that the draft is.
        parts.append((None, None))
    last = len(parts) - 1
    return tuple(
        Piece(
            message=message,
            number=number,
            count=len(parts),
            text=part,
            rendered=rendered,
            attachments=message.attachments if number == last else (),
            buttons=(message.buttons or ()) if number == last and has_buttons else (),
        )
        for number, (part, rendered) in enumerate(parts)
    )


def _parts_of(
    text: str, message: OutboundMessage, limit: TextLimit | None, render: Render | None
) -> list[tuple[str | None, object]]:
    """Return text and rendering of each piece."""
    if render is not None:
        return [(text, it) for it in render(text, message.format)]
    texts = [text] if limit is None else split_text(text, limit)
    return [(it, None) for it in texts]


def _as_text(buttons: tuple[Button, ...]) -> str:
    """Return buttons as numbered lines; a person answers with the number or the label."""
    lines = (
        f"{number}. {button.label}" + (f": {button.url}" if button.url else "")
        for number, button in enumerate(buttons, 1)
    )
    return "\n".join(lines)


def split_text(text: str, limit: TextLimit) -> Iterator[str]:
    """Yield a text in pieces within the limit.

    It is cut between paragraphs, else lines, else words. A fenced code block that does not fit is
    closed at the end of a piece and opened again in the next one. Links, code, bold text and
    addresses stay whole unless they are longer than a piece, and characters that are seen as one
    always.
    """
    rest, opening = text, ""
    while limit.measure(opening + rest) > limit.size:
        head, rest, opening = _cut(opening, rest, limit)
        if not is_blank(head):
            yield head
    if not is_blank(rest):
        yield opening + rest


def _cut(opening: str, rest: str, limit: TextLimit) -> tuple[str, str, str]:
    """Return a piece, what remains, and the line that opens the code block of the next piece."""
    # Room for the end of a code block, in case the cut is inside of one.
    marks = (_end_of(found) for found in _FENCE.finditer(opening + rest[: limit.size]))
    end = max(map(limit.measure, marks), default=0)
    room = TextLimit(limit.size - limit.measure(opening) - end - len("\n"), limit.unit)
    fitting = room.fitting(rest)
    if fitting < 1:
        # A piece cannot hold the fence and any of its text: the fence is given up.
        opening, fitting = "", max(1, limit.fitting(rest))
    whole = [found.span() for found in _WHOLE.finditer(rest) if found.start() < fitting]
    place = place_to_cut(rest, fitting, whole)
    head, tail = rest[:place], rest[place:]
    fence = _open_fence(opening + head)
    if fence is not None:
        line, mark = fence
        piece = f"{opening}{head}{mark}" if head.endswith("\n") else f"{opening}{head}\n{mark}"
        if limit.measure(piece) <= limit.size:
            return piece, tail, f"{line}\n"
    return opening + head.rstrip(), tail.lstrip("\n") if head.endswith("\n") else tail, ""


def _open_fence(text: str) -> tuple[str, str] | None:
    """Return the opening line of a code block that a text does not end, and the line to end it."""
    opened: re.Match[str] | None = None
    for found in _FENCE.finditer(text):
        if opened is None:
            opened = found
        elif found[2].startswith(opened[2]) and found[0].strip() == found[2]:
            opened = None
    return None if opened is None else (opened[0], _end_of(opened))


def _end_of(fence: re.Match[str]) -> str:
    """Return the line that ends a code block, indented as the line that opens it."""
    return fence[1] + fence[2]
