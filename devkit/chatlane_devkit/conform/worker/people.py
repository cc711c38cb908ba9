"""People who write to the judged worker, and what its bus has seen of it."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeVar
from uuid import UUID, uuid4

from nats.aio.msg import Msg

from chatlane_client import AdapterClient, open_connection
from chatlane_schemas import (
    Chat,
    DecodeError,
    InboundEvent,
    OutboundMessage,
    ResultMessage,
    Sender,
    TurnPiece,
    decode,
    new_envelope_id,
)
from chatlane_schemas.envelope import Envelope
from chatlane_schemas.live_turns import TurnStarted

PLATFORM: Final = "conform"

EnvelopeT = TypeVar("EnvelopeT", bound=Envelope)


@dataclass(slots=True)
class People:
    """The people of a platform, and what was seen of the worker.

    Attributes:
        results: What the worker published as results, by turn, in order.
        pieces: Live pieces by turn, in order.
        started: The attempts that began, as turn and number, in order.
        turns: The last turn that began, by chat.
        unreadable: What the worker published that is no valid message.
    """

    account: str
    adapter: AdapterClient
    results: dict[UUID, list[ResultMessage]] = field(default_factory=lambda: defaultdict(list))
    pieces: dict[UUID, list[TurnPiece]] = field(default_factory=lambda: defaultdict(list))
    started: list[tuple[UUID, int]] = field(default_factory=list)
    turns: dict[str, UUID] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)
    _said: dict[str, dict[str, OutboundMessage]] = field(default_factory=lambda: defaultdict(dict))

    def new_chat(self) -> str:
        """Return the chat of a person who has written nothing yet."""
        return f"chat-{uuid4().hex[:12]}"

    async def write(self, chat: str, text: str) -> None:
        """Let the person write to the agent."""
        await self.adapter.publish(
            InboundEvent(
                id=new_envelope_id(),
                at=datetime.now(UTC),
                message_id=uuid4().hex,
                platform=PLATFORM,
                account=self.account,
                chat=Chat(id=chat, kind="dm"),
                sender=Sender(id=f"person-{chat}"),
                text=text,
            )
        )

    def shown(self, chat: str) -> list[str]:
        """Return the texts that the chat shows, in order."""
        texts = (message.text or "" for message in self._said[chat].values())
        return [line.strip() for text in texts for line in text.splitlines() if line.strip()]

    def messages(self, chat: str) -> list[OutboundMessage]:
        """Return the messages that the chat was sent."""
        return [*self._said[chat].values()]

    async def deliver(self, message: OutboundMessage) -> None:
        """Show a message; a repeated one is shown once."""
        chat = message.target.chat
        if chat is not None and chat.id is not None:
            self._said[chat.id][message.id] = message

    async def see_result(self, message: Msg) -> None:
        """Note a result."""
        if (result := self._read(ResultMessage, message)) and result.turn_id is not None:
            self.results[result.turn_id].append(result)

    async def see_piece(self, message: Msg) -> None:
        """Note a live piece."""
        if piece := self._read(TurnPiece, message):
            self.pieces[piece.turn_id].append(piece)

    async def see_start(self, message: Msg) -> None:
        """Note the beginning of an attempt."""
        if (started := self._read(TurnStarted, message)) is None:
            return
        self.started.append((started.turn_id, started.attempt))
        chat = started.source.chat
        if chat is not None and chat.id is not None:
            self.turns[chat.id] = started.turn_id

    def _read(self, kind: type[EnvelopeT], message: Msg) -> EnvelopeT | None:
        try:
            return decode(kind, message.data)
        except DecodeError as error:
            self.unreadable.append(f"{kind.__name__}: {error}")
            return None


@asynccontextmanager
async def open_people(nats_url: str, account: str, agent: str) -> AsyncIterator[People]:
    """Let people write, and watch the worker, for the length of the block."""
    async with open_connection(nats_url, name="conform people") as client:
        people = People(account, AdapterClient(client, platform=PLATFORM, account=account))
        watched: tuple[tuple[str, Callable[[Msg], object]], ...] = (
            (f"chat.v1.result.{agent}.*", people.see_result),
            (f"chat.v1.piece.{agent}.{PLATFORM}.{account}.>", people.see_piece),
            (f"chat.v1.event.turn.started.{PLATFORM}.{account}.>", people.see_start),
        )
        for subject, see in watched:
            await client.subscribe(subject, cb=see)  # type: ignore[arg-type]
        await client.flush()
        delivering = asyncio.create_task(people.adapter.deliver(people.deliver))
        try:
            yield people
        finally:
            delivering.cancel()
            with suppress(asyncio.CancelledError):
                await delivering
