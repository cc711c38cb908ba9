"""Metrics of an adapter, and the counting of what goes through it."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from enum import StrEnum
from typing import Final

from prometheus_client import Counter, Gauge
from typing_extensions import override

from chatlane_adapters.kit.platform import Platform
from chatlane_client import AdapterClient, ChatGone, Piece, RetryAfter, Undeliverable, chat_of
from chatlane_client.transport.wire import Stored
from chatlane_schemas import InboundEvent, Kind, Source

_log: Final = logging.getLogger(__name__)

_OF_ACCOUNT: Final = ("platform", "account")


class PieceOutcome(StrEnum):
    """The outcome of an attempt to send a piece."""

    DELIVERED = "delivered"
    RATE_LIMITED = "rate_limited"
    CHAT_GONE = "chat_gone"
    UNDELIVERABLE = "undeliverable"
    FAILED = "failed"


class PlatformCall(StrEnum):
    """A kind of call that a platform may refuse for its rate."""

    PIECE = "piece"
    DRAFT = "draft"
    TYPING = "typing"


EVENTS: Final = Counter(
    "chatlane_adapter_events", "Events stored, by kind.", (*_OF_ACCOUNT, "kind")
)
PIECES: Final = Counter(
    "chatlane_adapter_pieces", "Attempts to send a piece, by outcome.", (*_OF_ACCOUNT, "outcome")
)
RATE_LIMITS: Final = Counter(
    "chatlane_adapter_rate_limits",
    "Calls that the platform refused for its rate, by kind of call.",
    (*_OF_ACCOUNT, "call"),
)
STRAY_DRAFTS: Final = Counter(
    "chatlane_adapter_stray_drafts",
    "Drafts that may stay beside their answer: the platform did not answer, and finds no message.",
    _OF_ACCOUNT,
)
WAITING_CHATS: Final = Gauge(
    "chatlane_adapter_waiting_chats",
    "Chats whose last piece was not sent and is tried again.",
    _OF_ACCOUNT,
)
ACCOUNT_REFUSED: Final = Gauge(
    "chatlane_adapter_account_refused",
    "Credentials of the account that the platform refuses; its messages wait.",
    _OF_ACCOUNT,
)
CONNECTED: Final = Gauge(
    "chatlane_adapter_connected", "1 while the platform can be reached.", _OF_ACCOUNT
)
DELIVERING: Final = Gauge(
    "chatlane_adapter_delivering", "1 in the process that sends for the account.", _OF_ACCOUNT
)


class CountingAdapter(AdapterClient):
    """Publishes for an account, and counts what was stored."""

    @override
    async def publish(
        self,
        event: InboundEvent,
        *,
        give_up_after: timedelta | None = None,
        waits_for_room: bool = False,
    ) -> Stored:
        stored = await super().publish(
            event, give_up_after=give_up_after, waits_for_room=waits_for_room
        )
        EVENTS.labels(event.platform, event.account, event.kind.value).inc()
        return stored


class CountedPlatform:
    """Calls a platform, and counts how the calls end.

    Args:
        platform: The platform.
        names: Declared names of platform and account.
    """

    def __init__(self, platform: Platform, names: tuple[str, str]) -> None:
        self._platform = platform
        self._names = names
        self._waiting: set[str] = set()
        for kind in Kind:
            EVENTS.labels(*names, kind.value)
        for outcome in PieceOutcome:
            PIECES.labels(*names, outcome.value)
        for call in PlatformCall:
            RATE_LIMITS.labels(*names, call.value)
        STRAY_DRAFTS.labels(*names)
        ACCOUNT_REFUSED.labels(*names).set_function(lambda: len(platform.refused))
        CONNECTED.labels(*names).set_function(lambda: platform.is_connected)

    def watch(self, adapter: AdapterClient) -> None:
        """Show whether this process sends, and how many of its chats wait."""
        DELIVERING.labels(*self._names).set_function(lambda: adapter.is_delivering)
        WAITING_CHATS.labels(*self._names).set_function(
            lambda: len(self._waiting) if adapter.is_delivering else 0
        )

    async def deliver(self, piece: Piece) -> str | None:
        """Send a piece; see `Platform.deliver`."""
        chat = chat_of(piece.message.target)
        outcome = PieceOutcome.FAILED
        self._waiting.add(chat)
        try:
            async with self._counted(PlatformCall.PIECE):
                sent = await self._platform.deliver(piece)
            outcome = PieceOutcome.DELIVERED
        except RetryAfter:
            outcome = PieceOutcome.RATE_LIMITED
            raise
        except ChatGone:
            outcome = PieceOutcome.CHAT_GONE
            raise
        except Undeliverable:
            outcome = PieceOutcome.UNDELIVERABLE
            raise
        finally:
            PIECES.labels(*self._names, outcome.value).inc()
            if outcome not in {PieceOutcome.RATE_LIMITED, PieceOutcome.FAILED}:
                self._waiting.discard(chat)
        return sent

    async def send(self, target: Source, text: str, *, key: str, may_be_sent: bool) -> str:
        """Send a draft; see `Platform.send`."""
        try:
            async with self._counted(PlatformCall.DRAFT):
                return await self._platform.send(target, text, key=key, may_be_sent=may_be_sent)
        except Undeliverable:
            if may_be_sent:
                STRAY_DRAFTS.labels(*self._names).inc()
                _log.warning("draft_may_be_left")
            raise

    async def edit(self, target: Source, message_id: str, text: str) -> None:
        """Replace the text of a message; see `Platform.edit`."""
        async with self._counted(PlatformCall.DRAFT):
            await self._platform.edit(target, message_id, text)

    async def delete(self, target: Source, message_id: str) -> None:
        """Delete a message; see `Platform.delete`."""
        async with self._counted(PlatformCall.DRAFT):
            await self._platform.delete(target, message_id)

    async def show_typing(self, target: Source) -> None:
        """Show that an answer is being written; see `Platform.show_typing`."""
        async with self._counted(PlatformCall.TYPING):
            await self._platform.show_typing(target)

    @asynccontextmanager
    async def _counted(self, call: PlatformCall) -> AsyncIterator[None]:
        try:
            yield
        except RetryAfter:
            RATE_LIMITS.labels(*self._names, call.value).inc()
            raise
