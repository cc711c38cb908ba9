"""Content of chat messages besides text and files: replies, locations, polls, buttons."""

from typing import Annotated, Final

from pydantic import Field

from chatlane_schemas.envelope import Record
from chatlane_schemas.fields import Flag, Instant, PlatformId, Text

MAX_CONTACTS: Final = 32
MAX_OPTIONS: Final = 64


class Quote(Record):
    """The message that a reply answers, as the platform shows it once with the reply."""

    text: Text | None = Field(default=None, description="Quoted text; also a selected part of it.")
    sender_id: PlatformId | None = Field(default=None, description="Id of its author.")
    sender_name: Text | None = Field(default=None, description="Name of its author.")
    is_ours: Flag = Field(default=False, description="Whether our account wrote it.")


class Forward(Record):
    """The origin of a forwarded message, as far as the platform shows it."""

    sender_id: PlatformId | None = Field(default=None, description="Id of the first author.")
    sender_name: Text | None = Field(default=None, description="Name of the author or chat.")
    sent_at: Instant | None = Field(default=None, description="When it was first written.")


class Location(Record):
    """A place on the map."""

    latitude: Annotated[float, Field(ge=-90, le=90, allow_inf_nan=False)] = Field(
        description="Degrees north."
    )
    longitude: Annotated[float, Field(ge=-180, le=180, allow_inf_nan=False)] = Field(
        description="Degrees east."
    )
    name: Text | None = Field(default=None, description="Name of a venue.")
    address: Text | None = Field(default=None, description="Its postal address.")


class Contact(Record):
    """A shared contact."""

    name: Text | None = Field(default=None, description="Name of the contact.")
    phone: Text | None = Field(default=None, description="Phone number.")
    id: PlatformId | None = Field(default=None, description="Id of the person on the platform.")


_Options = Annotated[tuple[Text, ...], Field(max_length=MAX_OPTIONS, fail_fast=True)]


class Poll(Record):
    """A poll that is sent to the chat."""

    id: PlatformId | None = Field(default=None, description="Id of the poll.")
    question: Text | None = Field(default=None, description="What is asked.")
    options: _Options = Field(default=(), description="The possible answers.")


class Vote(Record):
    """An answer to a poll, on an event of kind `reaction`."""

    poll_id: PlatformId | None = Field(default=None, description="Id of the poll.")
    options: _Options = Field(default=(), description="The chosen answers.")


class Sticker(Record):
    """A sticker; its picture is an attachment."""

    emoji: Text | None = Field(default=None, description="Emoji that it stands for.")
    name: Text | None = Field(default=None, description="Name of the sticker or of its set.")


class Press(Record):
    """A pressed button, a choice from a menu or a postback."""

    id: PlatformId | None = Field(default=None, description="Name of the control on its message.")
    value: Text | None = Field(default=None, description="Data that the control carries.")
    label: Text | None = Field(default=None, description="Text that the person saw on it.")


_Contacts = Annotated[tuple[Contact, ...], Field(max_length=MAX_CONTACTS, fail_fast=True)]


class Content(Record):
    """The content of a message besides its text and files."""

    reply_to: PlatformId | None = Field(
        default=None,
        description="Platform's id of the message this one answers.",
    )
    quote: Quote | None = Field(
        default=None, description="What it quotes; for a message that we may not have."
    )
    forward: Forward | None = Field(default=None, description="Where it was forwarded from.")
    location: Location | None = Field(default=None, description="A place that it shows.")
    contacts: _Contacts | None = Field(default=None, description="Contacts that it shares.")
    poll: Poll | None = Field(default=None, description="A poll that it asks.")
    vote: Vote | None = Field(default=None, description="An answer to a poll.")
    sticker: Sticker | None = Field(default=None, description="A sticker.")
    press: Press | None = Field(default=None, description="A button that was pressed.")
    service: Text | None = Field(
        default=None,
        description="On a `service` event: what changed, such as `joined`, `left`, `pinned` or "
        "`title_changed`; the text holds the new value.",
    )
    removed: Flag | None = Field(
        default=None, description="On a `reaction`: whether it was taken back."
    )
    observed: Flag | None = Field(
        default=None,
        description="Whether we only overheard the message: it is kept as context for later "
        "turns, and not answered.",
    )
    expires_at: Instant | None = Field(
        default=None, description="When the platform removes the message from the chat."
    )


class StoredContent(Content):
    """The content of a message as the service shows it."""

    files_missing: Flag | None = Field(
        default=None, description="Whether files were announced and never came."
    )


CONTENT_FIELDS: Final = frozenset(Content.model_fields)
STORED_FIELDS: Final = frozenset(StoredContent.model_fields)
# The fields that an edit replaces, and that say something without a text.
EDITED_FIELDS: Final = ("location", "contacts", "poll", "sticker")
