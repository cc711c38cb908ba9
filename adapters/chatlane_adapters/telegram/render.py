"""Return the calls of the Bot API that show an outbound message."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

from aiogram.methods import (
    EditMessageText,
    SendAnimation,
    SendAudio,
    SendDocument,
    SendMediaGroup,
    SendMessage,
    SendMessageDraft,
    SendPhoto,
    SendSticker,
    SendVideo,
    SendVoice,
    TelegramMethod,
)
from aiogram.types import (
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputFile,
    InputMediaAudio,
    InputMediaDocument,
    InputMediaPhoto,
    InputMediaVideo,
    MessageEntity,
    ReplyParameters,
)

from chatlane_adapters.kit.markdown import EntityKind, EntityText, Renderer, with_entities
from chatlane_adapters.telegram.decode import topic_of
from chatlane_client import Piece, TextLimit, Undeliverable, chat_of
from chatlane_schemas import Attachment, Button, Source

Call: TypeAlias = TelegramMethod[Any]

MAX_TEXT: Final = TextLimit(4096, "utf16")
_MAX_CAPTION: Final = 1024
_MAX_ALBUM: Final = 10
_MAX_DATA: Final = 64
# Short labels stand side by side.
_ROW: Final = 24
_PER_ROW: Final = 3
_DRAFT: Final = "draft:"
_TYPES: Final = {
    EntityKind.BOLD: "bold",
    EntityKind.ITALIC: "italic",
    EntityKind.STRIKETHROUGH: "strikethrough",
    EntityKind.CODE: "code",
    EntityKind.LINK: "text_link",
    EntityKind.CODE_BLOCK: "pre",
    EntityKind.QUOTE: "blockquote",
}
_SINGLE: Final[dict[str, Any]] = {
    "photo": SendPhoto,
    "video": SendVideo,
    "animation": SendAnimation,
    "audio": SendAudio,
    "voice": SendVoice,
    "document": SendDocument,
    "sticker": SendSticker,
}
_ALBUM: Final[dict[str, Any]] = {
    "photo": InputMediaPhoto,
    "video": InputMediaVideo,
    "audio": InputMediaAudio,
    "document": InputMediaDocument,
}
# Photos and videos share an album.
_ALBUM_CLASS: Final = {
    "photo": "pictures",
    "video": "pictures",
    "audio": "audio",
    "document": "documents",
}


def _length(text: EntityText) -> int:
    return MAX_TEXT.measure(text.text)


RENDERER: Final[Renderer[EntityText]] = Renderer(with_entities, _length, MAX_TEXT.size)


def calls_of(piece: Piece, files: Sequence[str | InputFile]) -> tuple[Call, ...]:
    """Return the calls that show a piece; the first one shows its text and buttons.

    Args:
        piece: The piece, with its rendered text.
        files: For each attachment its address, its `file_id`, or its bytes.
    """
    return tuple(_calls(piece, files))


def _calls(piece: Piece, files: Sequence[str | InputFile]) -> Iterator[Call]:
    text: EntityText | None = piece.rendered
    where = where_of(piece.message.target)
    keyboard = keyboard_of(piece.buttons)
    kinds = [_kind(attachment) for attachment in piece.attachments]
    first = where if piece.reply_to is None else where | _reply(piece.reply_to)
    if piece.edits is not None and not is_draft(piece.edits):
        if text is not None:
            yield edit_of(piece.message.target, piece.edits, text, keyboard)
            first, text, keyboard = where, None, None
    elif text is not None and not _is_caption(text, kinds, keyboard):
        yield SendMessage(**first, **_words(text), reply_markup=keyboard)
        first, text, keyboard = where, None, None
    yield from _file_calls(list(zip(kinds, files, strict=True)), first, where, text, keyboard)


def _is_caption(
    text: EntityText, kinds: Sequence[str], keyboard: InlineKeyboardMarkup | None
) -> bool:
    """Return whether a text fits below the files, where an album has no buttons."""
    if not kinds or _length(text) > _MAX_CAPTION or "sticker" in kinds:
        return False
    return keyboard is None or len(kinds) == 1


def _file_calls(
    files: list[tuple[str, str | InputFile]],
    first: dict[str, Any],
    where: dict[str, Any],
    caption: EntityText | None,
    keyboard: InlineKeyboardMarkup | None,
) -> Iterator[Call]:
    """Yield the calls that send files; the caption stands below the first."""
    for group in _albums(files):
        words = {} if caption is None else _caption(caption)
        if len(group) == 1:
            kind, file = group[0]
            yield _SINGLE[kind](**first, **{kind: file}, **words, reply_markup=keyboard)
        else:
            media = [
                _ALBUM[kind](media=file, **({} if place else words))
                for place, (kind, file) in enumerate(group)
            ]
            yield SendMediaGroup(**first, media=media)
        first, caption, keyboard = where, None, None


def _albums(
    files: list[tuple[str, str | InputFile]],
) -> Iterator[list[tuple[str, str | InputFile]]]:
    """Yield files in groups that Telegram shows as one; the others alone."""
    for kind, run in groupby(files, key=lambda it: _ALBUM_CLASS.get(it[0])):
        group = list(run)
        size = 1 if kind is None else _MAX_ALBUM
        for begin in range(0, len(group), size):
            yield group[begin : begin + size]


def edit_of(
    target: Source, message_id: str, text: EntityText, keyboard: InlineKeyboardMarkup | None = None
) -> EditMessageText:
    """Return the call that replaces the text and the buttons of a message."""
    where = {
        name: value
        for name, value in where_of(target).items()
        if name in {"chat_id", "business_connection_id"}
    }
    return EditMessageText(
        **where, message_id=number_of(message_id), **_words(text), reply_markup=keyboard
    )


def send_of(target: Source, text: EntityText) -> SendMessage:
    """Return the call that sends a text."""
    return SendMessage(**where_of(target), **_words(text))


def draft_of(target: Source, draft_id: str, text: EntityText) -> SendMessageDraft:
    """Return the call that shows a text which is still being written, with a button to stop it."""
    number = int(draft_id.removeprefix(_DRAFT))
    return SendMessageDraft(**where_of(target), draft_id=number, **_words(text), can_stop=True)


def draft_id_of(number: int) -> str:
    """Return the id of a draft, which is no message of the chat."""
    return f"{_DRAFT}{number}"


def is_draft(message_id: str) -> bool:
    """Return whether an id is that of a draft, and not of a message."""
    return message_id.startswith(_DRAFT)


def where_of(target: Source) -> dict[str, Any]:
    """Return the parameters that name chat, topic and business connection."""
    chat = chat_of(target)
    chat_id = chat if chat.startswith("@") else number_of(chat)
    where: dict[str, Any] = {"chat_id": chat_id, **topic_of(target.thread_id)}
    return where if target.scope is None else where | {"business_connection_id": target.scope}


def number_of(id_: str) -> int:
    """Return an id as Telegram takes it.

    Raises:
        Undeliverable: It is no id of Telegram.
    """
    try:
        return int(id_)
    except ValueError:
        raise Undeliverable("an id is not one of Telegram") from None


def keyboard_of(buttons: Sequence[Button]) -> InlineKeyboardMarkup | None:
    """Return buttons as Telegram shows them under a message."""
    if not buttons:
        return None
    rows: list[list[InlineKeyboardButton]] = [[]]
    for button in buttons:
        row = rows[-1]
        length = sum(len(it.text) for it in row) + len(button.label)
        if row and (length > _ROW or len(row) == _PER_ROW):
            rows.append(row := [])
        row.append(_button(button))
    return InlineKeyboardMarkup(inline_keyboard=rows)


def _button(button: Button) -> InlineKeyboardButton:
    if button.url is not None:
        return InlineKeyboardButton(text=button.label, url=button.url)
    value = button.value
    if value is None or len(value.encode()) > _MAX_DATA:
        value = button.label.encode()[:_MAX_DATA].decode(errors="ignore")
    return InlineKeyboardButton(text=button.label, callback_data=value)


def _reply(message_id: str) -> dict[str, Any]:
    # The answered message may have been deleted meanwhile.
    return {
        "reply_parameters": ReplyParameters(
            message_id=number_of(message_id), allow_sending_without_reply=True
        )
    }


def _words(text: EntityText) -> dict[str, Any]:
    return {"text": text.text, "entities": entities_of(text)}


def _caption(text: EntityText) -> dict[str, Any]:
    return {"caption": text.text, "caption_entities": entities_of(text)}


def entities_of(text: EntityText) -> list[MessageEntity] | None:
    """Return the entities of a text in the form of Telegram."""
    return [
        MessageEntity(
            type=_TYPES[it.kind],
            offset=it.offset,
            length=it.length,
            url=it.url,
            language=it.language,
        )
        for it in text.entities
    ] or None


def _kind(file: Attachment) -> str:
    if file.kind in _SINGLE:
        return file.kind
    main, _, form = file.media_type.partition("/")
    if main == "image":
        return "animation" if form == "gif" else ("photo" if form != "svg+xml" else "document")
    return main if main in {"video", "audio"} else "document"
