"""The full address of an inbound message, stored as received."""

from typing import Final

from pydantic import Field

from chatlane_schemas.codec import encode_part
from chatlane_schemas.envelope import Record
from chatlane_schemas.fields import Name, PlatformId, PlatformName
from chatlane_schemas.inbound import Chat, InboundEvent, ReturnAddress, Sender


class Source(Record):
    """Address that a message came from and its answer goes to, as the adapter published it."""

    platform: PlatformName = Field(description="Declared name of the platform.")
    account: Name = Field(description="Declared account of the platform.")
    scope: PlatformId | None = Field(default=None, description="Workspace or guild.")
    profile: PlatformId | None = Field(
        default=None, description="Persona that the message addresses."
    )
    chat: Chat | None = Field(default=None, description="Chat of the message.")
    thread_id: PlatformId | None = Field(default=None, description="Sub-conversation of the chat.")
    sender: Sender | None = Field(default=None, description="Author of the message.")
    message_id: PlatformId | None = Field(default=None, description="The platform's message id.")
    return_address: ReturnAddress | None = Field(
        default=None, description="Address that answers to this message need, until it ends."
    )


_FIELDS: Final = set(Source.model_fields)


def source_of(event: InboundEvent) -> Source:
    """Return the address of a decoded event.

    Skips validation, because decoding the event validated the fields.
    """
    return Source.model_construct(
        platform=event.platform,
        account=event.account,
        scope=event.scope,
        profile=event.profile,
        chat=event.chat,
        thread_id=event.thread_id,
        sender=event.sender,
        message_id=event.message_id,
        return_address=event.return_address,
    )


def source_json(event: InboundEvent) -> str:
    """Return `source_of(event)` as JSON text without building the model."""
    return encode_part(event, _FIELDS)
