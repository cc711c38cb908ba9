"""Try to send an outbound message, and report the outcome."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Final, NamedTuple, TypeAlias, assert_never
from uuid import UUID

from nats.aio.msg import Msg
from opentelemetry.trace import SpanKind

from chatlane_client.delivery.delivery_lease import DeliveryEndedError
from chatlane_client.delivery.pieces import Piece, Render, TextLimit, pieces_of
from chatlane_client.delivery.rate_budget import RateBudget, chat_of
from chatlane_client.delivery.receipts import Progress, ReceiptWriter, receipt_of
from chatlane_client.errors import ChatGone, RetryAfter, UndeliverableError
from chatlane_client.transport.retry import Backoff
from chatlane_client.transport.tracing import context_of, span
from chatlane_schemas import DeliveryFailure, DeliveryState, OutboundMessage

_log = logging.getLogger("chatlane_client")

Deliver = Callable[[OutboundMessage], Awaitable[str | Sequence[str] | None]]
"""Sends a message to its platform and returns once the platform has it.

It returns the platform's id of the message, or the ids of all messages that it became. It raises
`RetryAfter`, `ChatGone` or `Undeliverable` if the platform says so. After any other exception the
reader tries again, while other chats go on.
"""

SendPiece = Callable[[Piece], Awaitable[str | None]]
"""Sends one piece to its platform, and returns the platform's id of it; raises as `Deliver`."""

SendAll: TypeAlias = Callable[
    [OutboundMessage, Progress, Callable[[], Awaitable[None]]], Awaitable[None]
]
UntilFree: TypeAlias = Callable[[str], Awaitable[None]]
"""Waits until a call for a chat may be made."""
FindProgress: TypeAlias = Callable[[OutboundMessage, str], Awaitable[Progress | None]]

_BACKOFF: Final = Backoff(timedelta(milliseconds=200), timedelta(seconds=30))
# A message that takes longer is reported as handed to the adapter.
_REPORTED_AFTER: Final = 1.0
# Further tries that fail the same way are reported this seldom.
_REPORTED_EVERY: Final = 60.0
# A handler that failed less often is tried again, however old the message is.
_LEAST_ATTEMPTS: Final = 5
# Characters of a reason in the log.
_LONGEST_REASON: Final = 200
# Failures that pass within this many attempts are not reported.
_QUIET_ATTEMPTS: Final = 2


@dataclass(slots=True, eq=False)
class Delivery:
    """A message in delivery.

    Attributes:
        message: None while the server keeps the message, because its chat has to wait.
        raw: The newest copy, which is the one to acknowledge.
        was_handed: Whether the server gave the message to another process before, or to this one
            on an earlier connection.
        has_paused: Whether the pause before the message is over.
    """

    id: str
    session_id: UUID
    out_seq: int
    message: OutboundMessage | None
    raw: Msg
    was_handed: bool = False
    has_paused: bool = False
    attempts: int = 0
    given_up: DeliveryFailure | None = None
    progress: Progress | None = None
    came: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def chat(self) -> str:
        """Return the token of the chat."""
        return self.raw.subject.rpartition(".")[2]

    @property
    def sequence(self) -> int:
        """Return the position of the message in its stream."""
        sequence: int = self.raw.metadata.sequence.stream
        return sequence

    @property
    def stored_at(self) -> datetime:
        """Return when the message was stored, by the clock of the server."""
        stored_at: datetime = self.raw.metadata.timestamp
        return stored_at

    @property
    def age(self) -> timedelta:
        """Return the time since the message was stored."""
        return datetime.now(UTC) - self.stored_at

    def about(self) -> dict[str, object]:
        """Return the fields of a log line about the message."""
        return {"session_id": str(self.session_id), "out_seq": self.out_seq}


class Retry(NamedTuple):
    """The chat has to wait."""

    seconds: float
    failure: DeliveryFailure


class GivenUp(NamedTuple):
    """The message will not be delivered; `is_chat_gone` if no other message of the chat will."""

    failure: DeliveryFailure
    is_chat_gone: bool = False


class Delivered(NamedTuple):
    """The platform has the message."""


class Stopped(NamedTuple):
    """The process ends; the next one goes on."""


Outcome: TypeAlias = Retry | GivenUp | Delivered | Stopped


def whole_message(deliver: Deliver, until_free: UntilFree) -> SendAll:
    """Return how to send a message with one call of a handler."""

    async def send(
        message: OutboundMessage, progress: Progress, _: Callable[[], Awaitable[None]]
    ) -> None:
        await until_free(chat_of(message.target))
        try:
            ids = await deliver(message)
        except UndeliverableError as exc:
            if message.draft is None or isinstance(exc, ChatGone):
                raise
            # The draft may have been deleted.
            await until_free(chat_of(message.target))
            ids = await deliver(message.model_copy(update={"draft": None}))
        sent = [ids] if isinstance(ids, str) else list(ids or ())
        # A handler without ids has sent one message.
        progress.sent, progress.message_ids = max(1, len(sent)), sent
        progress.pieces = progress.sent

    return send


def message_in_pieces(
    send_piece: SendPiece,
    limit: TextLimit | None,
    until_free: UntilFree,
    *,
    has_buttons: bool = True,
    render: Render | None = None,
) -> SendAll:
    """Return how to send a message piece by piece, with progress that a restart keeps."""

    async def send(
        message: OutboundMessage, progress: Progress, report: Callable[[], Awaitable[None]]
    ) -> None:
        pieces = pieces_of(message, limit, has_buttons=has_buttons, render=render)
        progress.pieces = len(pieces)
        for piece in pieces[progress.sent :]:
            await until_free(chat_of(message.target))
            edits = next(iter(progress.edited_ids[piece.number :]), None) or None
            if piece.number == 0 and not piece.attachments:
                edits = edits or message.draft
            piece = replace(piece, may_be_sent=progress.may_be_sent, edits=edits)  # noqa: PLW2901
            try:
                message_id = await send_piece(piece)
            except UndeliverableError as exc:
                if edits is None or edits != message.draft or isinstance(exc, ChatGone):
                    raise
                # The draft may have been deleted.
                await until_free(chat_of(message.target))
                edits = None
                message_id = await send_piece(replace(piece, edits=None))
            # An edited message keeps its id.
            progress.add(message_id or edits)
            if progress.sent < len(pieces):
                await report()

    return send


class MessageSender:
    """Sends the messages of an account and reports what becomes of them.

    Args:
        send: Sends a message.
        receipts: Reports to the service.
        find_progress: Returns what earlier processes reported about a message; None if unknown.
        budget: Rates of the account.
        give_up_after: Age at which a message that still fails is given up.
        sending: Returns what to hold while a message to a chat, given its token, is sent and
            reported.
    """

    def __init__(
        self,
        send: SendAll,
        receipts: ReceiptWriter,
        find_progress: FindProgress,
        *,
        budget: RateBudget,
        give_up_after: timedelta,
        sending: Callable[[str], AbstractAsyncContextManager[object]],
    ) -> None:
        self._send = send
        self._receipts = receipts
        self._find_progress = find_progress
        self._budget = budget
        self._give_up_after = give_up_after
        self._sending = sending
        self._began_at = datetime.now(UTC)
        # Chats in which the message that an earlier process may have been sending is found.
        self._continued: set[str] = set()

    async def attempt(self, delivery: Delivery, message: OutboundMessage) -> Outcome:
        """Try once, report the outcome, and return what to do with the message."""
        progress = await self._progress_of(delivery, message)
        if progress.is_final:
            return Delivered()
        async with self._sending(delivery.chat):
            if delivery.given_up is None:
                outcome = await self._try(delivery, message, progress)
            else:
                outcome = GivenUp(delivery.given_up)
            return outcome if await self._tell(delivery, message, outcome) else Stopped()

    async def _try(
        self, delivery: Delivery, message: OutboundMessage, progress: Progress
    ) -> Outcome:
        delivery.attempts += 1
        try:
            async with self._handed_meanwhile(delivery, message):
                with _span(delivery, message):
                    await self._send(message, progress, lambda: self._hand(delivery, message))
        except DeliveryEndedError:
            return Stopped()
        except UndeliverableError as exc:
            reason = exc.reason[:_LONGEST_REASON]
            _log.error("outbound_dropped: %s", reason, extra=delivery.about() | {"reason": reason})
            return GivenUp(exc.failure, isinstance(exc, ChatGone))
        except RetryAfter as exc:
            self._budget.pause_after(exc, chat_of(message.target))
            _log.warning("outbound_rate_limited", extra=delivery.about())
            retry = Retry(exc.after.total_seconds(), DeliveryFailure.RATE_LIMITED)
            return self._again(delivery, retry)
        except Exception:  # noqa: BLE001 - on any error this chat waits
            _log.exception("outbound_delivery_failed", extra=delivery.about())
            # The platform may have the piece although its answer was lost.
            progress.may_be_sent = True
            pause = _pause_after(delivery.attempts)
            return self._again(delivery, Retry(pause, DeliveryFailure.UNKNOWN))
        return Delivered()

    def _again(self, delivery: Delivery, retry: Retry) -> Outcome:
        is_old = delivery.age >= self._give_up_after
        if not is_old or delivery.attempts < _LEAST_ATTEMPTS:
            return retry
        _log.error("outbound_given_up", extra=delivery.about())
        return GivenUp(retry.failure)

    async def _tell(self, delivery: Delivery, message: OutboundMessage, outcome: Outcome) -> bool:
        """Report an outcome; return False if the process ends before the report is stored."""
        match outcome:
            case Delivered():
                return await self._report(delivery, message, DeliveryState.DELIVERED)
            case GivenUp(failure):
                return await self._report(delivery, message, DeliveryState.FAILED, failure)
            case Retry(seconds, failure):
                if failure is DeliveryFailure.UNKNOWN and delivery.attempts <= _QUIET_ATTEMPTS:
                    return True
                state = DeliveryState.FAILED
                return await self._report(delivery, message, state, failure, seconds)
            case Stopped():
                return False
            case _:
                assert_never(outcome)

    async def _progress_of(self, delivery: Delivery, message: OutboundMessage) -> Progress:
        if delivery.progress is not None:
            return delivery.progress
        found: Progress | None = None
        # A server that was killed forgets which messages it has given to a process.
        is_earlier = delivery.stored_at < self._began_at
        if delivery.was_handed or is_earlier:
            found = await self._find_progress(message, delivery.chat)
        delivery.progress = found or Progress()
        if not delivery.progress.is_final:
            # A process sends a single message of a chat at a time, and reports it before the next.
            is_first = is_earlier and delivery.chat not in self._continued
            delivery.progress.may_be_sent = delivery.was_handed or is_first
            if is_first:
                self._continued.add(delivery.chat)
        if message.edits is not None and not delivery.progress.is_final:
            edited = message.model_copy(update={"id": str(message.edits)})
            earlier = await self._find_progress(edited, delivery.chat)
            delivery.progress.edited_ids = tuple(earlier.message_ids) if earlier else ()
        if found is not None and not found.is_final:
            await self._report(delivery, message, DeliveryState.UNKNOWN)
        return delivery.progress

    @asynccontextmanager
    async def _handed_meanwhile(
        self, delivery: Delivery, message: OutboundMessage
    ) -> AsyncIterator[None]:
        """Report a message as handed to the adapter if the block takes long."""

        async def report() -> None:
            await asyncio.sleep(_REPORTED_AFTER)
            await self._report(delivery, message, DeliveryState.HANDED)

        reporting = asyncio.create_task(report())
        try:
            yield
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)

    async def _hand(self, delivery: Delivery, message: OutboundMessage) -> None:
        if not await self._report(delivery, message, DeliveryState.HANDED):
            raise DeliveryEndedError

    async def _report(
        self,
        delivery: Delivery,
        message: OutboundMessage,
        state: DeliveryState,
        failure: DeliveryFailure | None = None,
        retry_in: float | None = None,
    ) -> bool:
        """Store a receipt, unless the last one says the same; return False if the process ends."""
        progress = delivery.progress or Progress()
        state_key = (state, failure, progress.sent)
        is_passing = state is DeliveryState.FAILED and retry_in is not None
        is_known = progress.reported == state_key and (
            is_passing or state is not DeliveryState.FAILED
        )
        if is_known and monotonic() - progress.reported_at < _REPORTED_EVERY:
            return True
        progress.reported, progress.reported_at = state_key, monotonic()
        receipt = receipt_of(message, progress, state, failure, retry_in)
        return await self._receipts.write(receipt)


def _pause_after(attempts: int) -> float:
    pauses = _BACKOFF.pauses()
    for _ in range(min(attempts, 10) - 1):
        next(pauses)
    return next(pauses)


def _span(delivery: Delivery, message: OutboundMessage) -> AbstractContextManager[object]:
    about: dict[str, str | int] = {
        "chatlane.platform": message.target.platform,
        "chatlane.account": message.target.account,
        "chatlane.session_id": str(message.session_id),
        "chatlane.out_seq": message.out_seq,
    }
    parent = context_of(delivery.raw.headers)
    return span("deliver OUTBOUND", SpanKind.CONSUMER, about, parent=parent)
