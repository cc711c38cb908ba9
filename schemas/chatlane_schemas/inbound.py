"""Inbound events, which adapters publish."""

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, StringConstraints, WithJsonSchema

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
    """Kind of an inbound event; `message` and `system` start turns.

    `edit` and `delete` change the message with their `message_id`. They carry the same chat (and,
    where a chat has no id, the same sender) as that message. An edit carries the whole message as
    it is now; parts that it leaves out are removed. `attachments` carries the files of a message
    that was published with `awaits_files` and has the same `message_id`.
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


class Chat(Record):
    """The chat a message was written in."""

    id: PlatformId | None = Field(default=None, description="Id of the chat.")
    kind: ChatKind = Field(default="dm", description="`dm`, or a many-person kind.")
    name: Text | None = Field(default=None, description="Name shown to people.")
    topic: Text | None = Field(
        default=None,
        description="What the chat is about, as it says itself; sent always or never.",
    )
    parent_id: PlatformId | None = Field(default=None, description="Chat this one belongs to.")
    is_forum: Flag | None = Field(
        default=None,
        description="Whether threads of a group are topics; false makes them address only.",
    )


class Sender(Record):
    """The author of a message."""

    id: PlatformId | None = Field(default=None, description="Id of the person.")
    alt_id: PlatformId | None = Field(
        default=None,
        description="A more stable id of the same person; it is used before `id`.",
    )
    name: Text | None = Field(default=None, description="Name shown to people.")
    is_bot: Flag = Field(default=False, description="Whether a bot wrote it.")
    sender_chat_id: PlatformId | None = Field(
        default=None,
        description="Chat on whose behalf it was written (anonymous admin, linked channel).",
    )
    aliases: Annotated[tuple[PlatformId, ...], Field(max_length=MAX_ALIASES, fail_fast=True)] = (
        Field(
            default=(),
            description="Other ids of the same person (phone, LID, device form).",
        )
    )


class Attachment(Record):
    """A reference to a file; messages never carry its bytes."""

    url: Text | None = Field(default=None, repr=False, description="Where the file can be read.")
    key: Text | None = Field(default=None, description="Key of the file in an object store.")
    media_type: Text = Field(description="Media type, such as `image/png`.")
    size_bytes: BigNumber | None = Field(default=None, description="Size of the file.")
    name: Text | None = Field(default=None, description="File name shown to people.")


# Validation stops at the first invalid item: 256 kB hold 100,000 items, and each error costs time.
Attachments = Annotated[tuple[Attachment, ...], Field(max_length=MAX_ATTACHMENTS, fail_fast=True)]


class InboundEvent(Envelope):
    """An event in a chat."""

    message_id: PlatformId | None = Field(default=None, description="The platform's message id.")
    event_id: PlatformId | None = Field(
        default=None,
        description="The platform's id of this event, where edits and reactions have one.",
    )
    version: PlatformId | None = Field(
        default=None,
        description="Which edit of the message. An older one than was applied changes nothing: "
        "numbers, also with dots between them, compare as numbers, and anything else by its bytes. "
        "Without it `event_id` tells, where it is such a number, and else the order of arrival.",
    )
    kind: Kind = Field(default=Kind.MESSAGE, description="What happened.")
    platform: PlatformName = Field(description="Declared name of the platform.")
    account: Name = Field(description="Declared name of our identity on the platform.")
    scope: PlatformId | None = Field(
        default=None,
        description="Workspace or guild that makes ids unique; sent always or never.",
    )
    profile: PlatformId | None = Field(
        default=None,
        description="Persona that is spoken to; the account must be allowed to address it.",
    )
    chat: Chat | None = Field(default=None, description="Where it happened.")
    thread_id: PlatformId | None = Field(
        default=None,
        description="Sub-conversation of the chat. Of our own message, or of a `service` event, it "
        "says together with `reply_to` that this thread was opened on that message.",
    )
    sender: Sender | None = Field(default=None, description="Who did it.")
    migrate_to: PlatformId | None = Field(
        default=None,
        description="New id of the chat, on a `migration`.",
    )
    reply_to: PlatformId | None = Field(
        default=None,
        description="Platform's id of the message this one answers.",
    )
    sent_at: Instant | None = Field(default=None, description="The platform's time; data only.")
    text: Text | None = Field(default=None, description="What was written.")
    attachments: Attachments = Field(default=(), description="References to files.")
    counts_as_new: Flag | None = Field(
        default=None,
        description="On an `edit`: whether it is a message where the message itself never came, "
        "as when the edit mentions us for the first time.",
    )
    delivered: PlatformId | None = Field(
        default=None,
        description="On a `receipt`: id of the `OutboundMessage` to which the platform gave this "
        "`message_id`. Where the platform shows that message to the adapter as well, it is known "
        "as ours and never runs. The chat is said as that message says it.",
    )
    album_id: PlatformId | None = Field(
        default=None,
        description="The same for messages that the platform shows as one; they are one turn.",
    )
    awaits_files: Flag | None = Field(
        default=None,
        description="Its files are still being prepared: it keeps its place, and an event of kind "
        "`attachments` brings them. Without them it runs once it has waited long enough.",
    )
