"""What happens to messages and answers later, as events an adapter publishes."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from chatlane_schemas import Attachment, InboundEvent, Kind, OutboundMessage, new_envelope_id

# What says where a message is; the rest is about what it says and when.
_ADDRESS: Final = (
    "platform",
    "account",
    "scope",
    "profile",
    "chat",
    "thread_id",
    "sender",
    "message_id",
)


def edited(
    message: InboundEvent,
    *,
    version: str | int | None = None,
    event_id: str | int | None = None,
    counts_as_new: bool = False,
) -> InboundEvent:
    """Return the edit of a message.

    Args:
        message: The message as it is *now*, made like the event of a new one: its text and its
            attachments replace what was there.
        version: Which edit it is, where the platform numbers them or tells the time of each.
        event_id: The platform's id of this edit, so that it is known when it comes again.
        counts_as_new: Whether it is to run if the message itself was never published, as when
            somebody adds the mention of a bot that hears nothing else.
    """
    return _about(
        message,
        Kind.EDIT,
        text=message.text,
        attachments=message.attachments,
        version=version,
        event_id=event_id,
        counts_as_new=counts_as_new or None,
    )


def deleted(message: InboundEvent, *, event_id: str | int | None = None) -> InboundEvent:
    """Return the delete of a message.

    Args:
        message: Where it was: of its fields only the address and `message_id` count. The chat
            has to be the one it was published with, and where that had no id, the sender.
        event_id: The platform's id of this event, if it has one.
    """
    return _about(message, Kind.DELETE, event_id=event_id)


def reacted(
    message: InboundEvent, reaction: str, *, event_id: str | int | None = None
) -> InboundEvent:
    """Return a reaction to a message, which starts nothing.

    Args:
        message: Where it is, with who reacted as its sender.
        reaction: An emoji, or the platform's name of one.
        event_id: The platform's id of this event, if it has one.
    """
    return _about(message, Kind.REACTION, text=reaction, event_id=event_id)


def thread_opened(answer: OutboundMessage, thread_id: str | int) -> InboundEvent:
    """Return the report that an answer went into a thread of its own.

    What is said in the thread then goes on with the conversation of the message that was
    answered, instead of beginning another one. Publish it before anything that is said there.
    Not needed where the thread is that of the message, or where our own answers are published
    as they come back, with their `thread_id` and `reply_to`.

    Args:
        answer: What was delivered.
        thread_id: Where the platform put it.
    """
    target = answer.target
    return InboundEvent(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        kind=Kind.SERVICE,
        platform=target.platform,
        account=target.account,
        scope=target.scope,
        profile=target.profile,
        chat=target.chat,
        sender=target.sender,
        thread_id=str(thread_id),
        reply_to=answer.reply_to,
    )


def _about(
    message: InboundEvent,
    kind: Kind,
    *,
    text: str | None = None,
    attachments: Sequence[Attachment] = (),
    **fields: Any,  # noqa: ANN401 - any field of an event
) -> InboundEvent:
    return InboundEvent(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        kind=kind,
        text=text,
        attachments=tuple(attachments),
        **{name: getattr(message, name) for name in _ADDRESS},
        **fields,
    )
