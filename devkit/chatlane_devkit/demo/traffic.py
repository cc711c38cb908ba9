"""Print the traffic: messages, answers, sessions and dead letters, one line each.

For `chatlane dev` only: the service itself never logs message bodies.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from nats.aio.msg import Msg

from chatlane_client.transport.connection import open_connection
from chatlane_schemas import (
    DeadLetter,
    DecodeError,
    Envelope,
    InboundEvent,
    OutboundMessage,
    SessionEnded,
    SessionStarted,
    decode,
)

_SESSION_STARTED: Final = "chat.v1.event.session.started"
_SESSION_ENDED: Final = "chat.v1.event.session.ended"
_SUBJECTS: Final[dict[str, type[Envelope]]] = {
    "chat.v1.inbound.>": InboundEvent,
    "chat.v1.outbound.>": OutboundMessage,
    _SESSION_STARTED: SessionStarted,
    _SESSION_ENDED: SessionEnded,
    "chat.v1.dead.>": DeadLetter,
}

Tell = Callable[[str], None]


async def follow_traffic(nats_url: str, tell: Tell) -> None:
    """Print new traffic until cancelled, without messages that cannot be read."""
    async with open_connection(nats_url, name="chatlane dev") as client:
        for subject, model in _SUBJECTS.items():
            await client.subscribe(subject, cb=partial(_pass_on, tell, model))
        await asyncio.Event().wait()


async def _pass_on(tell: Tell, model: type[Envelope], message: Msg) -> None:
    try:
        tell(sentence(decode(model, message.data)))
    except DecodeError as error:
        tell(f"{message.subject}: {error}")


def sentence(message: Envelope) -> str:
    """Describe a message in one sentence."""
    match message:
        case InboundEvent(text=text, kind=kind):
            return f"{_who(message)} → {message.platform}: {text or f'({kind})'}"
        case OutboundMessage(text=text, agent=agent, target=target):
            return f"{agent} → {target.platform}: {text or '(files)'}"
        case SessionStarted(session_id=session_id, session_key=key, reason=reason):
            return f"session {session_id} started{f' ({reason})' if reason else ''}: {key}"
        case SessionEnded(session_id=session_id, reason=end_reason):
            return f"session {session_id} ended ({end_reason})"
        case DeadLetter(reason=dead_reason, detail=detail):
            return f"dead letter: {dead_reason}{f', {detail}' if detail else ''}"
        case _:
            return type(message).__name__


def _who(event: InboundEvent) -> str:
    sender = event.sender
    return (sender.name or sender.id if sender else None) or "somebody"
