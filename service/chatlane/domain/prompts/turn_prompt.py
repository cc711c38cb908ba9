"""Add the prompt context and the sender prefixes to what workers receive."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from chatlane_schemas.inbound import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chatlane.domain.prompts.context import Prompts
    from chatlane_schemas.routed import RoutedMessage
    from chatlane_schemas.source import Source
    from chatlane_schemas.turns import TurnMessage


class Prompted(NamedTuple):
    """The messages of a turn with their senders, and the context of the turn."""

    messages: tuple[TurnMessage, ...]
    context: str | None = None


def prompted(
    prompts: Prompts | None,
    target: Source | None,
    session_key: str,
    messages: Sequence[TurnMessage],
) -> Prompted:
    """Return the messages and the context that the agent of a turn receives.

    Args:
        prompts: None if the agent wants no context.
        target: Where the answer goes.
        session_key: Key of the session.
        messages: The messages that the turn answers.
    """
    shown = with_senders(prompts, session_key, messages)
    if prompts is None or target is None:
        return Prompted(shown)
    return Prompted(shown, prompts.context(_of_a_person(target, messages), session_key))


def with_senders(
    prompts: Prompts | None, session_key: str, messages: Sequence[TurnMessage]
) -> tuple[TurnMessage, ...]:
    """Return messages of a turn, each with its sender where several people write."""
    if prompts is None:
        return tuple(messages)
    prefixes = [
        prompts.sender_prefix(message.source, session_key, message.kind) for message in messages
    ]
    return tuple(
        message if prefix is None else message.model_copy(update={"sender_prefix": prefix})
        for message, prefix in zip(messages, prefixes, strict=True)
    )


def prompted_message(prompts: Prompts, routed: RoutedMessage) -> RoutedMessage:
    """Return a routed message with its context and its sender."""
    source, key = routed.source, routed.session_key
    added = {
        "prompt_context": prompts.context(source, key),
        "sender_prefix": prompts.sender_prefix(source, key, routed.kind),
    }
    return routed.model_copy(update=added)


def _of_a_person(target: Source, messages: Sequence[TurnMessage]) -> Source:
    """Return the address from the newest message of a person.

    A timer message as the last one names neither a sender nor the chat. The chat id comes from the
    target, which knows where a chat has moved to.
    """
    for message in reversed(messages):
        if message.kind is Kind.MESSAGE:
            chat = message.source.chat
            if chat is None or target.chat is None or chat.id == target.chat.id:
                return message.source
            return message.source.model_copy(
                update={"chat": chat.model_copy(update={"id": target.chat.id})}
            )
    return target
