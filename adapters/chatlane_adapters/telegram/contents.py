"""Decode the content of a message of Telegram: text, files, quotes, places, polls."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from aiogram.types import (
    Animation,
    Audio,
    Document,
    Message,
    MessageEntity,
    MessageOriginChannel,
    MessageOriginChat,
    MessageOriginHiddenUser,
    MessageOriginUser,
    PhotoSize,
    User,
    Video,
    VideoNote,
    Voice,
)

from chatlane_schemas import Attachment
from chatlane_schemas.content.elements import (
    Contact,
    Forward,
    Location,
    Poll,
    Press,
    Quote,
    Sticker,
)

# A file of Telegram: its `file_id` stands behind the prefix.
FILE_KEY: Final = "telegram:"
_FORMATS: Final = {"photo": "image/jpeg", "voice": "audio/ogg", "audio": "audio/mpeg"}
_MAX_QUOTE: Final = 1000


def text_of(message: Message) -> str | None:
    """Return the words of a message; hidden addresses of links are shown as in Markdown."""
    text = message.text if message.text is not None else message.caption
    if text is not None:
        return _with_addresses(text, message.entities or message.caption_entities or [])
    if message.dice is not None:
        return f"{message.dice.emoji} {message.dice.value}"
    if message.game is not None:
        return message.game.title
    if message.invoice is not None:
        return f"{message.invoice.title}\n{message.invoice.description}"
    if message.checklist is not None:
        tasks = (
            f"[{'x' if task.completion_date else ' '}] {task.text}"
            for task in message.checklist.tasks
        )
        return "\n".join((message.checklist.title, *tasks))
    return None


def _with_addresses(text: str, entities: list[MessageEntity]) -> str:
    links = [it for it in entities if it.type == "text_link" and it.url]
    if not links:
        return text
    encoded = text.encode("utf-16-le")
    parts, place = [], 0
    for link in sorted(links, key=lambda it: it.offset):
        begin, end = 2 * link.offset, 2 * (link.offset + link.length)
        if begin < place:
            continue
        label = encoded[begin:end].decode("utf-16-le", "replace")
        parts += [encoded[place:begin].decode("utf-16-le", "replace"), f"[{label}]({link.url})"]
        place = end
    return "".join((*parts, encoded[place:].decode("utf-16-le", "replace")))


def attachments_of(message: Message) -> tuple[Attachment, ...]:
    """Return the files of a message, with the `file_id` of Telegram in their keys."""
    return tuple(_attachment(kind, file) for kind, file in _files(message))


def _files(message: Message) -> Iterator[tuple[str, Any]]:
    if message.photo:
        # The same picture in several sizes.
        yield "photo", max(message.photo, key=lambda it: it.width * it.height)
    elif message.animation is not None:
        # Its message has it as a document, too.
        yield "animation", message.animation
    elif message.sticker is not None:
        yield "sticker", message.sticker
    elif message.live_photo is not None:
        yield "video", message.live_photo
    for kind in ("video", "video_note", "voice", "audio"):
        if (file := getattr(message, kind)) is not None:
            yield kind, file
    if message.document is not None and message.animation is None:
        yield "file", message.document


def _attachment(
    kind: str, file: PhotoSize | Animation | Video | VideoNote | Voice | Audio | Document
) -> Attachment:
    media_type = getattr(file, "mime_type", None) or _FORMATS.get(kind)
    if kind == "sticker":
        media_type = _sticker_format(file)
    elif media_type is None:
        media_type = "application/octet-stream" if kind == "file" else "video/mp4"
    seconds = getattr(file, "duration", None)
    return Attachment(
        key=f"{FILE_KEY}{file.file_id}",
        media_type=media_type,
        size_bytes=file.file_size,
        name=getattr(file, "file_name", None),
        kind=kind,
        duration_ms=None if seconds is None else round(1000 * float(seconds)),
    )


def _sticker_format(sticker: Any) -> str:  # noqa: ANN401 - one of the files above
    if sticker.is_animated:
        return "application/x-tgsticker"
    return "video/webm" if sticker.is_video else "image/webp"


def elements_of(message: Message) -> dict[str, Any]:
    """Return the other content of a message, as fields of an event."""
    found: dict[str, Any] = {}
    if message.venue is not None:
        venue, place = message.venue, message.venue.location
        found["location"] = Location(
            latitude=place.latitude,
            longitude=place.longitude,
            name=venue.title,
            address=venue.address,
        )
    elif message.location is not None:
        place = message.location
        found["location"] = Location(latitude=place.latitude, longitude=place.longitude)
    if message.contact is not None:
        contact = message.contact
        found["contacts"] = (
            Contact(
                name=" ".join(filter(None, (contact.first_name, contact.last_name))),
                phone=contact.phone_number,
                id=None if contact.user_id is None else str(contact.user_id),
            ),
        )
    if message.poll is not None:
        poll = message.poll
        options = tuple(option.text for option in poll.options)
        found["poll"] = Poll(id=poll.id, question=poll.question, options=options)
    if message.sticker is not None:
        found["sticker"] = Sticker(emoji=message.sticker.emoji, name=message.sticker.set_name)
    if message.web_app_data is not None:
        data = message.web_app_data
        found["press"] = Press(value=data.data, label=data.button_text)
    return found


def reply_of(message: Message, me: User) -> dict[str, Any]:
    """Return which message is answered and what is quoted of it, as fields of an event."""
    replied = message.reply_to_message
    if replied is not None and _opened_topic(replied, message):
        # Telegram sends each message of a topic as a reply to the message that opened it.
        replied = None
    selected = message.quote.text if message.quote is not None else None
    if replied is not None:
        author = replied.from_user
        text = selected or (text_of(replied) or "")[:_MAX_QUOTE] or None
        quote = Quote(
            text=text,
            sender_id=None if author is None else str(author.id),
            sender_name=_name_of_author(replied),
            is_ours=author is not None and author.id == me.id,
        )
        return {"reply_to": str(replied.message_id), "quote": quote}
    external = message.external_reply
    if external is not None:
        forward = _origin(external.origin)
        name, sender_id = forward.sender_name, forward.sender_id
        return {"quote": Quote(text=selected, sender_id=sender_id, sender_name=name)}
    return {}


def _opened_topic(replied: Message, message: Message) -> bool:
    return replied.forum_topic_created is not None or (
        bool(message.is_topic_message) and replied.message_id == message.message_thread_id
    )


def _name_of_author(message: Message) -> str | None:
    if message.sender_chat is not None:
        return message.sender_chat.title
    return None if message.from_user is None else message.from_user.full_name


def forward_of(message: Message) -> Forward | None:
    """Return where a message was forwarded from."""
    return None if message.forward_origin is None else _origin(message.forward_origin)


def _origin(origin: Any) -> Forward:  # noqa: ANN401 - a union of the library
    sent_at = as_time(origin.date)
    match origin:
        case MessageOriginUser():
            author = origin.sender_user
            return Forward(sender_id=str(author.id), sender_name=author.full_name, sent_at=sent_at)
        case MessageOriginHiddenUser():
            return Forward(sender_name=origin.sender_user_name, sent_at=sent_at)
        case MessageOriginChat():
            chat = origin.sender_chat
            return Forward(sender_id=str(chat.id), sender_name=chat.title, sent_at=sent_at)
        case MessageOriginChannel():
            chat = origin.chat
            return Forward(sender_id=str(chat.id), sender_name=chat.title, sent_at=sent_at)
        case _:
            return Forward(sent_at=sent_at)


def as_time(moment: datetime | int | None) -> datetime | None:
    """Return a time of Telegram; the library reads some as a time and others as seconds."""
    if isinstance(moment, int):
        return datetime.fromtimestamp(moment, UTC) if moment else None
    return moment
