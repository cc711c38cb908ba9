"""Build events about existing messages: edits, deletes, reactions, presses, opened threads."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from chatlane_schemas import Attachment, InboundEvent, Kind, OutboundMessage, new_envelope_id
from chatlane_schemas.content.elements import EDITED_FIELDS, Press
from chatlane_schemas.inbound import ReturnAddress

# Fields that locate a message; the other fields hold its content and time.
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
        message: The message as it is *now*, built like the event of a new message: its text
            and attachments replace the earlier ones.
        version: Number or time of the edit, if the platform has one.
        event_id: The platform's id of this edit, by which a duplicate is recognised.
        counts_as_new: Whether the edit starts a turn if the message was never published, for
            example when an edit adds the mention that a bot requires.
    """
    return _about(
        message,
        Kind.EDIT,
        text=message.text,
        attachments=message.attachments,
        version=version,
        event_id=event_id,
        counts_as_new=counts_as_new or None,
        **{name: value for name in EDITED_FIELDS if (value := getattr(message, name)) is not None},
    )


def deleted(message: InboundEvent, *, event_id: str | int | None = None) -> InboundEvent:
    """Return the delete of a message.

    Args:
        message: Location of the message: only its address and `message_id` count. The chat must
            be the one it was published with, and where that had no id, the sender as well.
        event_id: The platform's id of this event, if it has one.
    """
    return _about(message, Kind.DELETE, event_id=event_id)


def reacted(
    message: InboundEvent,
    reaction: str,
    *,
    event_id: str | int | None = None,
    removed: bool = False,
) -> InboundEvent:
    """Return a reaction to a message.

    The agent sees it in the history of its next turn; it starts a turn if the agent is declared
    with `reaction_turns`.

    Args:
        message: Location of the message, with the author of the reaction as its sender.
        reaction: An emoji, or the platform's name of one.
        event_id: The platform's id of this event, if it has one.
        removed: Whether the reaction was taken back.
    """
    return _about(message, Kind.REACTION, text=reaction, event_id=event_id, removed=removed or None)


def pressed(
    message: InboundEvent,
    press: Press,
    *,
    event_id: str | int,
    return_address: ReturnAddress | None = None,
) -> InboundEvent:
    """Return the press of a button on a message, a choice from a menu or a postback.

    It starts a turn, whose answer replies to the message.

    Args:
        message: Location of the message with the button, with the person who pressed it as its
            sender.
        press: The button.
        event_id: The platform's id of the press, by which a duplicate is recognised.
        return_address: Address that the answer needs.
    """
    return _about(
        message, Kind.ACTION, event_id=event_id, press=press, return_address=return_address
    )


def thread_opened(answer: OutboundMessage, thread_id: str | int) -> InboundEvent:
    """Return the event that the platform opened a separate thread for an answer.

    Messages in the thread then continue the conversation of the answered message instead of
    starting a new one. Publish this event before any message of the thread. It is not needed if the
    thread is that of the answered message, or if the adapter publishes the bot's own answers when
    the platform echoes them, with their `thread_id` and `reply_to`.

    Args:
        answer: The delivered message.
        thread_id: The platform's id of the thread.
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
