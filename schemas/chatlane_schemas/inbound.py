"""Inbound events, which adapters publish."""

from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

from pydantic import Field, StringConstraints, WithJsonSchema

from chatlane_schemas.content.elements import EDITED_FIELDS, Content
from chatlane_schemas.content.visible_text import is_blank
from chatlane_schemas.deliveries import Receipt
from chatlane_schemas.envelope import Envelope, Record
from chatlane_schemas.fields import BigNumber, Flag, Instant, Name, PlatformId, PlatformName, Text

MAX_ATTACHMENTS: Final = 100
MAX_ALIASES: Final = 32
CHAT_KINDS: Final = ("dm", "group", "supergroup", "channel", "forum", "room", "thread")

# Folds ASCII only: under Unicode rules a long s would match as an s and stay unchanged.
ChatKind = Annotated[
    str,
    StringConstraints(pattern=rf"^(?i-u:{'|'.join(CHAT_KINDS)})$", to_lower=True),
    WithJsonSchema({"type": "string", "enum": list(CHAT_KINDS)}),
]


class Kind(StrEnum):
    """Kind of an inbound event; `message`, `action` and `system` start turns.

    `edit` and `delete` change the message with their `message_id`. They carry the same chat (and,
    where a chat has no id, the same sender) as that message. An edit carries the whole message as
    it is now; parts that it leaves out are removed. `attachments` carries the files of a message
    that was published with `awaits_files` and has the same `message_id`, or its text, such as the
    words of a voice message. Without files and text it says that none will come.
    """

    MESSAGE = "message"
    EDIT = "edit"
    DELETE = "delete"
    REACTION = "reaction"
    RECEIPT = "receipt"
    SERVICE = "service"
    MIGRATION = "migration"
    SYSTEM = "system"
    ATTACHMENTS = "attachments"
    ACTION = "action"


class Chat(Record):
    """The chat a message was written in."""

    id: PlatformId | None = Field(default=None, description="Id of the chat.")
    kind: ChatKind = Field(default="dm", description="`dm`, or a many-person kind.")
    name: Text | None = Field(default=None, description="Display name.")
    topic: Text | None = Field(
        default=None,
        description="Topic of the chat, as set on the platform; sent always or never.",
    )
    parent_id: PlatformId | None = Field(default=None, description="Chat that contains this one.")
    is_forum: Flag | None = Field(
        default=None,
        description="Whether threads of this chat are conversations, also in a DM; false makes "
        "them a part of the address only. Without it the settings of the platform decide.",
    )


class Sender(Record):
    """The author of a message."""

    id: PlatformId | None = Field(default=None, description="Id of the person.")
    alt_id: PlatformId | None = Field(
        default=None,
        description="More stable id of the same person; preferred to `id`.",
    )
    name: Text | None = Field(default=None, description="Display name.")
    is_bot: Flag = Field(default=False, description="Whether a bot wrote the message.")
    is_staff: Flag = Field(
        default=False,
        description="Whether one of our people wrote it to the person of a direct chat, in our name.",
    )
    sender_chat_id: PlatformId | None = Field(
        default=None,
        description="Chat on whose behalf the message was written (anonymous admin, linked channel).",
    )
    aliases: Annotated[tuple[PlatformId, ...], Field(max_length=MAX_ALIASES, fail_fast=True)] = (
        Field(
            default=(),
            description="Other ids of the same person (phone, LID, device form).",
        )
    )


class Attachment(Record):
    """A reference to a file; messages never carry its bytes."""

    url: Text | None = Field(default=None, repr=False, description="URL of the file.")
    key: Text | None = Field(default=None, description="Key of the file in an object store.")
    media_type: Text = Field(description="Media type, such as `image/png`.")
    size_bytes: BigNumber | None = Field(default=None, description="Size of the file.")
    name: Text | None = Field(default=None, description="File name shown to people.")
    kind: Text | None = Field(
        default=None,
        description="What the platform shows it as: `photo`, `video`, `animation`, `audio`, "
        "`voice`, `video_note`, `sticker` or `file`; else the media type tells.",
    )
    duration_ms: BigNumber | None = Field(default=None, description="Length of sound or video.")


class ReturnAddress(Record):
    """An opaque address for answers, such as an interaction token or a response URL."""

    value: Text = Field(repr=False, description="The address; it comes back with each answer.")
    expires_at: Instant = Field(description="When it ends; it is deleted after that.")


# Validation stops at the first invalid item: 256 kB hold 100,000 items, and each error costs time.
Attachments = Annotated[tuple[Attachment, ...], Field(max_length=MAX_ATTACHMENTS, fail_fast=True)]


class InboundEvent(Content, Envelope):
    """An event in a chat."""

    message_id: PlatformId | None = Field(default=None, description="The platform's message id.")
    event_id: PlatformId | None = Field(
        default=None,
        description="The platform's id of this event, if edits, reactions and presses have one. "
        "Without `message_id` it identifies the event, such as a slash command.",
    )
    version: PlatformId | None = Field(
        default=None,
        description="Version of the edit. An older version than the applied one changes nothing. "
        "Numbers, also with dots between them, compare as numbers, everything else as bytes. "
        "Without a version, a numeric `event_id` decides, otherwise the order of arrival.",
    )
    kind: Kind = Field(default=Kind.MESSAGE, description="Kind of the event.")
    platform: PlatformName = Field(description="Declared name of the platform.")
    account: Name = Field(description="Declared account of the platform.")
    scope: PlatformId | None = Field(
        default=None,
        description="Workspace or guild that makes ids unique; sent always or never.",
    )
    profile: PlatformId | None = Field(
        default=None,
        description="Persona that the message addresses; the account must be allowed to address it.",
    )
    chat: Chat | None = Field(default=None, description="Chat of the event.")
    thread_id: PlatformId | None = Field(
        default=None,
        description="Sub-conversation of the chat. In our own message or a `service` event with "
        "`reply_to`: the thread that was opened on that message.",
    )
    sender: Sender | None = Field(default=None, description="Person or bot that caused the event.")
    migrate_to: PlatformId | None = Field(
        default=None,
        description="New id of the chat, in a `migration`.",
    )
    sent_at: Instant | None = Field(
        default=None, description="Time that the platform reported; data only."
    )
    text: Text | None = Field(default=None, description="Text of the message.")
    attachments: Attachments = Field(default=(), description="References to files.")
    counts_as_new: Flag | None = Field(
        default=None,
        description="In an `edit`: whether it counts as a message if the message itself never arrived, "
        "for example if the edit is the first to mention the bot.",
    )
    delivered: PlatformId | None = Field(
        default=None,
        description="In a `receipt`: id of the `OutboundMessage` that it is about; `message_id` is the "
        "platform's id of it, or of its first piece. If the platform also delivers that message to "
        "the adapter, it is recognised as our own and starts no turn. `chat` is the chat of that "
        "message.",
    )
    receipt: Receipt | None = Field(
        default=None,
        description="On a `receipt` with `delivered`: what became of that message. Without it the "
        "platform has all of the message under `message_id`.",
    )
    draft_of: UUID | None = Field(
        default=None,
        description="On a `receipt`: turn whose answer is shown under this `message_id` while it is "
        "written. The first message of the answer then names it as `draft`.",
    )
    album_id: PlatformId | None = Field(
        default=None,
        description="Common id of messages that the platform shows as one; they are one turn.",
    )
    return_address: ReturnAddress | None = Field(
        default=None,
        description="Address that answers to this event need.",
    )
    awaits_files: Flag | None = Field(
        default=None,
        description="Whether its files are still being prepared: the message keeps its place, and an "
        "event of kind `attachments` brings them. After a time limit it runs without them.",
    )

    @property
    def is_empty(self) -> bool:
        """Return whether it says nothing: no visible text, no file, nothing else to see."""
        if not is_blank(self.text or "") or self.attachments or self.awaits_files:
            return False
        return self.press is None and not any(getattr(self, name) for name in EDITED_FIELDS)
