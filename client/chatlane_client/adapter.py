"""Publish the events of a platform account and deliver its outbound messages."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID
from weakref import WeakValueDictionary

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from opentelemetry.trace import SpanKind

from chatlane_client.delivery.chat_queues import PARKED_FROM
from chatlane_client.delivery.delivery_lease import DeliveryLease
from chatlane_client.delivery.delivery_progress import DeliveryProgress
from chatlane_client.delivery.message_sender import (
    Deliver,
    MessageSender,
    SendAll,
    SendPiece,
    message_in_pieces,
    whole_message,
)
from chatlane_client.delivery.outbound_reader import GAP_PATIENCE, OutboundReader
from chatlane_client.delivery.pieces import Piece, Render, TextLimit
from chatlane_client.delivery.question_buttons import CloseQuestion, QuestionButtons
from chatlane_client.delivery.rate_budget import RateBudget
from chatlane_client.delivery.receipts import Progress, ReceiptWriter
from chatlane_client.drafts import DRAFT_INTERVAL, DraftPlatform, Drafts
from chatlane_client.errors import (
    ForeignEventError,
    RetryAfter,
    RetryLaterError,
    UndeclaredAccountError,
)
from chatlane_client.transport.connection import closed_error_first, principal_of
from chatlane_client.transport.cursors import Cursors
from chatlane_client.transport.retry import Backoff, cancel_until_ended
from chatlane_client.transport.tracing import span
from chatlane_client.transport.wire import Stored, ask, publish_stored
from chatlane_client.turn_reader import TurnReader, TurnWatch
from chatlane_client.typing_indicator import TYPING_INTERVAL, ShowTyping, TypingIndicator
from chatlane_schemas import (
    InboundEvent,
    Kind,
    OutboundKind,
    OutboundMessage,
    Source,
    new_envelope_id,
)
from chatlane_schemas.content.visible_text import is_blank
from chatlane_schemas.session_api.rooms import RoomMembers
from chatlane_schemas.session_api.sessions import ApiReply
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import StreamName, outbound_durable
from chatlane_schemas.topology.subjects import LiveTurnPath

if TYPE_CHECKING:
    from collections.abc import Iterator

# A receipt that is not confirmed is published again, unless the process is to stop.
_RECEIPT_PATIENCE: Final = timedelta(seconds=5)
GIVE_UP_AFTER: Final = timedelta(hours=24)
CURSOR_PATIENCE: Final = timedelta(seconds=30)
# Initial and longest delay that senders are asked to wait while the log is full.
_FULL: Final = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=30))


_LOOK_FOR: Final = timedelta(seconds=2)
# Error code of JetStream: the stream exists, and has no such consumer.
_NO_CONSUMER: Final = 10014


def _stored_id(subject: str, event: InboundEvent) -> str:
    """Return the id by which the log recognises a second publish of an event.

    An envelope id that an adapter derives from another id may repeat in another chat, account or
    message. The log would drop the second event without an error, so the id includes a hash of
    what the event says. Only the time at which it was made may differ in a second publish.
    """
    content = event.model_dump_json(exclude={"at"}, exclude_unset=True).encode()
    return f"{event.id}:{sha256(subject.encode() + content).hexdigest()[:16]}"


class AdapterClient:
    """Publishes and delivers for one account of one platform."""

    def __init__(
        self,
        client: Client,
        *,
        platform: str,
        account: str,
        gap_patience: timedelta = GAP_PATIENCE,
        budget: RateBudget | None = None,
        give_up_after: timedelta = GIVE_UP_AFTER,
    ) -> None:
        """Create the client.

        Args:
            client: An open connection.
            platform: Declared name of the platform.
            account: Declared name of the account. Of several processes, one at a time delivers and
                shows drafts and typing; another takes over within seconds of its end.
            gap_patience: How long a message waits for missing earlier messages.
            budget: Rates that the platform allows; None for no limit.
            give_up_after: Age at which a message that still fails is given up.

        Raises:
            SubjectError: The name cannot be declared, so no partition would receive its events.
        """
        self._client = client
        self._platform = subjects.declared_name(platform.lower())
        self._account = subjects.declared_name(account)
        self._gap_patience = gap_patience
        self._budget = budget or RateBudget()
        self._give_up_after = give_up_after
        self._lease = DeliveryLease(client, platform=self._platform, account=self._account)
        self._cursors = Cursors(client, platform=self._platform, account=self._account)
        self._stopping = asyncio.Event()
        self._has_looked = False
        self._looking = asyncio.Lock()
        self._drafts: Drafts | None = None
        self._typing: TypingIndicator | None = None
        self._buttons: QuestionButtons | None = None
        # Set while the log is full: the delay that the next sender is asked to wait.
        self._waits: Iterator[float] | None = None
        # The lock of a chat lives as long as a caller publishes to the chat.
        self._chats: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # Held by chat token while a message to the chat is sent and reported.
        self._sending: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(
        self, delivery: Coroutine[Any, Any, None], *beside: Coroutine[Any, Any, None]
    ) -> None:
        """Run a delivery and the other parts of an adapter until SIGTERM, SIGINT or `stop`.

        Args:
            delivery: Such as `deliver_pieces(send)`; messages in hand are finished at the end.
            beside: Such as `show_typing(show)` and the loop that receives events; cancelled at the
                end of the delivery. If any of them fails, all end.

        Raises:
            ConnectionClosedError: The connection is closed for good.
            ExceptionGroup: The errors of what failed.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        with closed_error_first():
            async with asyncio.TaskGroup() as tasks:
                others = [tasks.create_task(part) for part in beside]
                await delivery
                await cancel_until_ended(*others)

    async def run_leased(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run work in the process that holds the lease of the account, until cancelled.

        For platforms that let a single process receive, such as by long polls or a socket. The work
        is cancelled when the lease is lost, and begins again when this process takes the lease.

        Args:
            work: Makes the coroutine; called again for each time.

        Raises:
            ConnectionClosedError: The connection is closed for good.
        """
        await self._lease.run(work)

    def event(self, **fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
        """Return an event of this account, made now, with a new id.

        Raises:
            ValidationError: A field does not follow the contract.
        """
        return InboundEvent(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            platform=self._platform,
            account=self._account,
            **fields,
        )

    async def publish(
        self,
        event: InboundEvent,
        *,
        give_up_after: timedelta | None = None,
        waits_for_room: bool = False,
    ) -> Stored:
        """Publish an event and return once it is stored.

        Events of one chat are published in the order of the calls, one at a time: the service
        cannot restore an order that is lost before the log. A caller, also in another process, may
        publish the same event again if it keeps the id of the event.

        Args:
            event: An event of this account.
            give_up_after: None retries without a limit, unless the log is full.
            waits_for_room: Whether to wait while the log is full, as a loop does that reads updates
                one after the other. A webhook cannot wait.

        Raises:
            RetryLaterError: The log is full, and `waits_for_room` is false. Ask the sender to try
                again (an HTTP 503 with `Retry-After`), or keep the event and publish it again after
                the delay in the error, before the next event of its chat.
            UnconfirmedPublishError: Not confirmed in time. The event may be stored
                anyway, so publish it again before the next event of its chat.
            OversizedMessageError: The event was not sent.
            ForeignEventError: The event is of another account.
            UndeclaredAccountError: chatlane.toml does not declare the account.
            RefusedPublishError: The log will never accept the event.
            ConnectionClosedError: The connection is closed for good.
        """
        self._check_account(event)
        await self._require_declared()
        subject = subjects.inbound_for(event)
        chat = self._chats.setdefault(subject, asyncio.Lock())
        names = {"chatlane.platform": self._platform, "chatlane.account": self._account}
        async with self._behind_deliveries(event), chat:
            # A receipt begins no work that a trace could follow.
            with (
                nullcontext()
                if event.receipt is not None
                else span("publish INBOUND", SpanKind.PRODUCER, names)
            ):
                while True:
                    try:
                        return await self._publish(subject, event, give_up_after)
                    except RetryLaterError as error:
                        if not waits_for_room:
                            raise
                        await asyncio.sleep(error.after.total_seconds())

    @asynccontextmanager
    async def _behind_deliveries(self, event: InboundEvent) -> AsyncIterator[None]:
        """Let a message of staff wait for the receipt of a message that is being sent.

        The platform may show a message of the agent as a message of staff, before it has
        returned its id. The receipt then comes first, so the service recognises the copy.
        """
        if event.sender is None or not event.sender.is_staff:
            yield
            return
        async with self._sending_to(subjects.chat_token_of(event)):
            yield

    def _sending_to(self, chat: str) -> asyncio.Lock:
        return self._sending.setdefault(chat, asyncio.Lock())

    async def _require_declared(self) -> None:
        """Raise an error if no durable exists for the account; look once, with the first event.

        `chatlane admin apply` makes a durable for each declared account. A server that does not
        answer says nothing about the account.
        """
        async with self._looking:
            if self._has_looked or not self._client.is_connected:
                return
            durable = outbound_durable(self._platform, self._account)
            try:
                await self._client.jetstream().consumer_info(
                    StreamName.OUTBOUND, durable, timeout=_LOOK_FOR.total_seconds()
                )
            except nats.js.errors.NotFoundError as exc:
                if exc.err_code == _NO_CONSUMER:
                    raise UndeclaredAccountError(self._platform, self._account) from exc
            except nats.errors.Error:
                pass
            self._has_looked = True

    async def _publish(
        self, subject: str, event: InboundEvent, give_up_after: timedelta | None
    ) -> Stored:
        try:
            stored = await publish_stored(
                self._client,
                subject,
                event,
                message_id=_stored_id(subject, event),
                give_up_after=give_up_after,
                waits_for_room=False,
            )
        except RetryLaterError as error:
            self._waits = self._waits or _FULL.pauses()
            error.after = timedelta(seconds=next(self._waits))
            raise
        self._waits = None
        return stored

    async def report_members(
        self,
        chat_id: str,
        members: Sequence[str],
        read_at: datetime,
        until: datetime,
        *,
        scope: str | None = None,
    ) -> None:
        """Report all members of a room, who may read its shared conversations if the settings say so.

        Report a room after each change, and again before the report ends.

        Args:
            chat_id: Id of the room, as in events.
            members: Ids of the members, as senders of events have them; at most 5,000.
            read_at: A time before the members were read from the platform: a report with an earlier
                one than the kept report changes nothing.
            until: When the report ends; the service keeps it for at most two hours.
            scope: Workspace of the room, as in events.

        Raises:
            UnansweredRequestError: No answer in time; send a report with newer members.
            UnavailableServiceError: The service cannot answer now.
            StaleRequestError: A newer report is kept.
            RefusedRequestError: The settings of the account do not show rooms.
            OversizedMessageError: The report was not sent.
            ConnectionClosedError: The connection is closed for good.
        """
        request = RoomMembers(
            id=new_envelope_id(),
            at=read_at,
            platform=self._platform,
            account=self._account,
            scope=scope,
            chat_id=chat_id,
            members=tuple(members),
            until=until,
        )
        principal = principal_of(self._client) or "adapter"
        subject = subjects.api_for_account(
            principal, "room", "members", self._platform, self._account
        )
        await ask(self._client, subject, request, ApiReply)

    async def load_cursor(
        self, name: str, *, give_up_after: timedelta = CURSOR_PATIENCE
    ) -> str | None:
        """Return how far an earlier process has read the platform.

        Args:
            name: Name of the cursor, of `a-z0-9_-`; an account has a few.
            give_up_after: How long to wait for an answer.

        Returns:
            The newest value that was saved; None if there is none.

        Raises:
            SubjectError: The name has other characters.
            UnansweredRequestError: No answer in time. An adapter that went on without its cursor
                would lose messages.
            InvalidAnswerError: The value is none of this version.
            ConnectionClosedError: The connection is closed for good.
        """
        return await self._cursors.load(name, give_up_after)

    async def save_cursor(
        self, name: str, value: str, *, give_up_after: timedelta = CURSOR_PATIENCE
    ) -> None:
        """Store how far the platform was read, and return once it is stored.

        Save a cursor only after `publish` has returned for all before it. A process that lost the
        lease may still store an older value: the events behind it are then published again, and
        recognised by their ids.

        Args:
            name: Name of the cursor, of `a-z0-9_-`; an account has a few.
            value: Any text of at most 30,000 characters, without words of people.
            give_up_after: How long to try.

        Raises:
            SubjectError: The name has other characters.
            ValidationError: The value is too long.
            RetryLaterError: The stream is full; the earlier value stays.
            UnconfirmedPublishError: Not confirmed in time.
            RefusedPublishError: The stream will never accept the value.
            ConnectionClosedError: The connection is closed for good.
        """
        await self._cursors.save(name, value, give_up_after)

    async def show_typing(self, show: ShowTyping, *, interval: timedelta = TYPING_INTERVAL) -> None:
        """Repeat a typing state in each chat whose answer is being written, until cancelled.

        Args:
            show: Shows it for some seconds; typing ends if it is not called again. May raise
                `RetryAfter`.
            interval: Time between two calls for a chat.

        Raises:
            ConnectionClosedError: The connection is closed for good.
        """

        async def work() -> None:
            self._typing = TypingIndicator(
                self._client, show, interval=interval, budget=self._budget
            )
            async with self._turn_reader(with_pieces=False).open() as turns:
                await self._typing.run(turns)

        await self._lease.run(work)

    async def show_drafts(
        self,
        platform: DraftPlatform,
        *,
        interval: timedelta = DRAFT_INTERVAL,
        limit: TextLimit | None = None,
    ) -> None:
        """Show answers in their chats while they are written, until cancelled.

        The answer takes the place of its draft: `piece.edits` of `deliver_pieces` and
        `message.draft` of `deliver` is the message that shows the answer so far, and the handler
        edits it instead of sending another one.

        Args:
            platform: Sends, edits and deletes messages; may raise `RetryAfter`.
            interval: Time between two edits of a message.
            limit: The longest text of a message on the platform; a draft shows the first piece.

        Raises:
            ConnectionClosedError: The connection is closed for good.
        """

        async def work() -> None:
            self._drafts = drafts = Drafts(
                platform, self._report_draft, interval=interval, limit=limit, budget=self._budget
            )
            try:
                async with self._turn_reader().open() as turns:
                    async for update in turns.updates():
                        drafts.update(update)
            finally:
                await drafts.close()

        await self._lease.run(work)

    async def close_questions(self, close: CloseQuestion) -> None:
        """Take the buttons away from questions of turns that are over, until cancelled.

        It needs the ids that the handler of the deliveries returns. A question of an earlier
        process keeps its buttons; a press of them starts nothing.

        Args:
            close: Edits a message so that it has the given text and no buttons.

        Raises:
            ConnectionClosedError: The connection is closed for good.
        """

        async def work() -> None:
            self._buttons = QuestionButtons(close, self._budget)
            async with self._turn_reader(with_pieces=False).open() as turns:
                await self._buttons.run(turns)

        await self._lease.run(work)

    async def _report_draft(self, turn_id: UUID, target: Source, message_id: str) -> None:
        receipt = InboundEvent(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            kind=Kind.RECEIPT,
            platform=self._platform,
            account=self._account,
            scope=target.scope,
            profile=target.profile,
            chat=target.chat,
            thread_id=target.thread_id,
            sender=target.sender,
            message_id=message_id,
            draft_of=turn_id,
        )
        await self.publish(receipt)

    async def deliver(self, handler: Deliver) -> None:
        """Pass every outbound message of the account to a handler, until stopped.

        Delivers the messages of one chat one at a time and in order; chats do not wait for each
        other.

        Raises:
            ConnectionClosedError: The connection is closed for good.
        """

        async def deliver(message: OutboundMessage) -> str | Sequence[str] | None:
            sent = await handler(message)
            if self._buttons is not None and sent:
                last = sent if isinstance(sent, str) else sent[-1]
                await self._buttons.add(message, last, message.text)
            return sent

        await self._deliver(whole_message(deliver, self._until_free))

    async def deliver_pieces(
        self,
        handler: SendPiece,
        *,
        limit: TextLimit | None = None,
        has_buttons: bool = True,
        render: Render | None = None,
    ) -> None:
        """Pass every outbound message of the account to a handler in pieces, until stopped.

        As `deliver`, but text that is longer than the limit is split. The service keeps the
        progress: after a restart, the delivery goes on with the piece that is missing.

        Args:
            handler: Sends a piece.
            limit: The longest text of a message on the platform.
            has_buttons: Whether the platform has buttons. Without, they are numbered lines of the
                text.
            render: Renders the text for the platform, in parts that fit, instead of `limit`; a
                piece has its part in `rendered`. A question of several parts keeps its buttons when
                it is over.

        Raises:
            ConnectionClosedError: The connection is closed for good.
        """

        async def send(piece: Piece) -> str | None:
            sent = await handler(piece)
            shown = sent or piece.edits
            # With a renderer, the text of a single part is not known.
            has_text = render is None or piece.count == 1
            if self._buttons is not None and shown is not None and piece.buttons and has_text:
                await self._buttons.add(piece.message, shown, piece.text)
            return sent

        await self._deliver(
            message_in_pieces(send, limit, self._until_free, has_buttons=has_buttons, render=render)
        )

    async def _until_free(self, chat: str) -> None:
        pause = self._budget.paused_for(chat)
        if pause > PARKED_FROM:
            # The chat gives its messages back meanwhile, and a stop does not wait for it.
            raise RetryAfter(pause)
        await self._budget.wait(chat)
        await self._lease.require()

    async def _deliver(self, send: SendAll) -> None:
        """Deliver whenever this process holds the lease, until stopped."""
        async with self._lease.used():
            stopped = asyncio.create_task(self._stopping.wait())
            try:
                while not self._stopping.is_set():
                    held = asyncio.create_task(self._lease.until_held())
                    await asyncio.wait({held, stopped}, return_when=asyncio.FIRST_COMPLETED)
                    if held.done():
                        held.result()
                        await self._deliver_while_held(send, stopped)
                    await cancel_until_ended(held)
            finally:
                await cancel_until_ended(stopped)

    async def _deliver_while_held(
        self, send: SendAll, stopped: asyncio.Task[Literal[True]]
    ) -> None:
        ending = asyncio.Event()

        async def end() -> None:
            lost = asyncio.create_task(self._lease.until_lost())
            try:
                await asyncio.wait({lost, stopped}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await cancel_until_ended(lost)
            ending.set()

        watching = asyncio.create_task(end())
        try:
            await self._deliver_until(ending, send)
        finally:
            await cancel_until_ended(watching)

    async def _deliver_until(self, ending: asyncio.Event, send: SendAll) -> None:
        async def send_with_draft(
            message: OutboundMessage, progress: Progress, report: Callable[[], Awaitable[None]]
        ) -> None:
            await send(await self._with_draft(message), progress, report)
            if message.turn_id is not None:
                self._note_sent(message, message.turn_id)

        receipts = ReceiptWriter(self._publish_receipt, ending)
        known = DeliveryProgress(
            self._client,
            platform=self._platform,
            account=self._account,
            stopping=ending,
        )
        sender = MessageSender(
            send_with_draft,
            receipts,
            known.find,
            budget=self._budget,
            give_up_after=self._give_up_after,
            sending=self._sending_to,
        )
        reader = OutboundReader(
            self._client,
            sender,
            platform=self._platform,
            account=self._account,
            gap_patience=self._gap_patience,
            stopping=ending,
            show_pause=self._show_pause,
        )
        writing = asyncio.create_task(receipts.run())
        try:
            await reader.run()
        finally:
            await cancel_until_ended(writing)

    def _note_sent(self, message: OutboundMessage, turn_id: UUID) -> None:
        if message.is_interim:
            # The turn goes on.
            if self._drafts is not None and message.edits is None:
                self._drafts.pass_by(turn_id)
            return
        if self._typing is not None:
            self._typing.end(turn_id)

    def _show_pause(self, message: OutboundMessage) -> AbstractAsyncContextManager[None]:
        return nullcontext() if self._typing is None else self._typing.shown(message.target)

    async def _publish_receipt(self, receipt: InboundEvent) -> None:
        await self.publish(receipt, give_up_after=_RECEIPT_PATIENCE)

    async def _with_draft(self, message: OutboundMessage) -> OutboundMessage:
        """Return a message with its draft, which is not edited any more."""
        if self._drafts is None or message.turn_id is None or message.part or message.is_interim:
            return message
        if message.edits is not None or is_blank(message.text or ""):
            # It replaces another message, or has only files, which a draft cannot become.
            await self._drafts.discard(message.turn_id, message.target, message.draft)
            return message.model_copy(update={"draft": None})
        is_answer = message.kind is OutboundKind.ANSWER or message.draft is not None
        if not is_answer and not self._drafts.has_ended(message.turn_id):
            # A notice in the middle of the turn, for example that the agent is unavailable.
            return message
        draft = await self._drafts.finish(message.turn_id)
        if draft is None and not self._drafts.is_passed(message.turn_id):
            return message
        return message.model_copy(update={"draft": draft})

    def _turn_reader(self, *, with_pieces: bool = True) -> TurnReader:
        path = LiveTurnPath(self._platform, self._account)
        return TurnReader(self._client, [path], with_pieces=with_pieces)

    def watch(self) -> TurnWatch:
        """Return the updates of the turns that answer chats of the account, from now on."""
        return TurnWatch(self._turn_reader().open)

    @property
    def is_delivering(self) -> bool:
        """Return whether this process, and no other, sends the messages of the account now."""
        return self._lease.is_held

    def stop(self) -> None:
        """End `deliver` once the running handlers have returned."""
        self._stopping.set()

    def _check_account(self, event: InboundEvent) -> None:
        if (event.platform, event.account) != (self._platform, self._account):
            raise ForeignEventError(
                event.id, f"{event.platform}/{event.account}", f"{self._platform}/{self._account}"
            )
