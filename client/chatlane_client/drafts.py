"""Show answers in their chats while they are written, and let the stored answer take their place."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Final, Protocol
from uuid import UUID, uuid4, uuid5

from chatlane_client.delivery.pieces import TextLimit, split_text
from chatlane_client.delivery.rate_budget import RateBudget, chat_of
from chatlane_client.errors import RetryAfter, UndeliverableError
from chatlane_client.transport.retry import Backoff, cancel_until_ended, was_set_within
from chatlane_client.turn_reader import TurnUpdate
from chatlane_schemas.live_turns import (
    PieceKind,
    TurnAnswered,
    TurnAsked,
    TurnEnded,
    TurnPiece,
    TurnRecap,
    TurnStarted,
    TurnWaiting,
)
from chatlane_schemas.source import Source

_log = logging.getLogger("chatlane_client")

DRAFT_INTERVAL: Final = timedelta(seconds=1)
_MAX_TURNS: Final = 10_000
# Calls to delete a draft without an answer; before each further one is the pause of the platform.
_MOST_DELETIONS: Final = 5


class DraftPlatform(Protocol):
    """The calls of a platform that a draft needs."""

    async def send(self, target: Source, text: str, *, key: str, may_be_sent: bool) -> str:
        """Send a message and return the platform's id of it.

        Args:
            target: Where to.
            text: Its text.
            key: The same for each attempt to send it; an idempotency key.
            may_be_sent: Whether an earlier attempt may have sent it, also with another text. Then
                return its id. A platform that cannot find it raises `Undeliverable`, and sends
                nothing.
        """

    async def edit(self, target: Source, message_id: str, text: str) -> None:
        """Replace the text of a message."""

    async def delete(self, target: Source, message_id: str) -> None:
        """Delete a message."""


class Draft:
    """The answer of one turn as its chat sees it so far.

    The first text sends a message, later texts edit it, no more often than the interval and the
    budget allow. If the outcome of the first call is unknown, it is made again with the same key, so
    that no second message stays beside the answer. Behind a message that the turn sent meanwhile,
    the next text deletes the message before, and then sends another one: a process that dies in
    between leaves nothing that the next one does not know.

    Args:
        report: Called with the platform's id once the message is sent, and before it is edited. Then
            the stored answer names it, also for another process.
        message_id: The message that shows what an earlier attempt had written.
        turn_id: The turn. Its drafts have the same keys in each process, so that a platform with
            idempotent sends finds a message that a killed process did not report.
        is_repeated: Whether the turn had an attempt before. Such a message then shows its text.
    """

    def __init__(
        self,
        platform: DraftPlatform,
        target: Source,
        report: Callable[[str], Awaitable[None]],
        *,
        interval: timedelta = DRAFT_INTERVAL,
        limit: TextLimit | None = None,
        budget: RateBudget | None = None,
        message_id: str | None = None,
        turn_id: UUID | None = None,
        is_repeated: bool = False,
    ) -> None:
        self._platform = platform
        self._target = target
        self._report = report
        self._interval = interval.total_seconds()
        self._limit = limit
        self._budget = budget or RateBudget()
        self._text = ""
        self._has_news = asyncio.Event()
        self._closed = asyncio.Event()
        self._showing: asyncio.Task[None] | None = None
        self._namespace = turn_id or uuid4()
        self._key = self._key_behind(message_id)
        self._may_be_sent = False
        self._may_be_found = is_repeated
        self.message_id = message_id
        self.is_passed = False

    def show(self, text: str) -> None:
        """Show this text instead of the text before; of a long text its first piece."""
        if self._closed.is_set() or not text.strip():
            return
        if self._limit is not None:
            text = next(split_text(text, self._limit), "")
        if text == self._text:
            return
        self._text = text
        self._has_news.set()
        if self._showing is None:
            self._showing = asyncio.create_task(self._show())

    async def close(self) -> None:
        """End the draft, and wait for a call in progress: no edit comes after the answer."""
        self._closed.set()
        self._has_news.set()
        if self._showing is not None:
            await asyncio.wait([self._showing])

    async def finish(self) -> str | None:
        """End the draft, and return the message that the stored answer is to replace, if any.

        Raises:
            Exception: It is not known yet whether there is one; of the platform.
        """
        await self.close()
        if self._may_be_sent:
            try:
                await self._send()
            except UndeliverableError as exc:
                _log.warning("draft_not_shown", extra={"error": type(exc).__name__})
        return self.message_id

    async def cancel(self) -> None:
        """End the draft and delete its message, which no answer replaces.

        Raises:
            RetryAfter: The platform asks to wait; the message is still there.
        """
        with _pauses_only():
            await self.finish()
        with _pauses_only():
            if self.message_id is not None:
                await self._platform.delete(self._target, self.message_id)
        self.message_id = None

    def pass_by(self) -> None:
        """Note that another message of the turn is now behind the message of the draft."""
        self.is_passed = True

    async def _show(self) -> None:
        """Send the newest text until the draft ends."""
        pauses = Backoff().pauses()
        while not self._closed.is_set():
            chat = chat_of(self._target)
            if (pause := self._budget.try_take(chat)) > 0:
                await was_set_within(self._closed, pause)
                continue
            self._has_news.clear()
            edited = None if self.is_passed else self.message_id
            try:
                if edited is None:
                    await self._send()
                else:
                    await self._platform.edit(self._target, edited, self._text)
            except RetryAfter as exc:
                # The platform did nothing, so the same call may be made again.
                self._has_news.set()
                self._budget.pause_after(exc, chat)
            except Exception as exc:  # noqa: BLE001 - a draft must not end the adapter
                # Without the error text, which may quote the message.
                _log.warning("draft_not_shown", extra={"error": type(exc).__name__})
                if self._may_be_sent:
                    self._has_news.set()
                    await was_set_within(self._closed, next(pauses))
                elif edited is None:
                    return
            await was_set_within(self._closed, self._interval)
            await self._has_news.wait()

    async def _send(self) -> None:
        """Send the text as a message, which takes the place of the message before."""
        if self.message_id is not None:
            with suppress(UndeliverableError):
                await self._platform.delete(self._target, self.message_id)
            self.message_id = None
        # A message of the turn may come while the platform takes this one.
        was_passed, self.is_passed = self.is_passed, False
        was_doubtful = self._may_be_sent
        try:
            message_id = await self._platform.send(
                self._target, self._text, key=self._key, may_be_sent=was_doubtful
            )
        except BaseException as exc:
            self.is_passed = self.is_passed or was_passed
            if not isinstance(exc, RetryAfter):
                self._may_be_sent = not isinstance(exc, UndeliverableError)
            raise
        if was_doubtful:
            # It may be before a message that came meanwhile.
            self.is_passed = self.is_passed or was_passed
        if was_doubtful or self._may_be_found:
            # It may show an earlier text.
            self._has_news.set()
        self._key, self._may_be_sent = self._key_behind(message_id), False
        self._may_be_found = False
        self.message_id = message_id
        await self._report(message_id)

    def _key_behind(self, message_id: str | None) -> str:
        """Return the key of the message that takes the place of another one, or of the first one."""
        return uuid5(self._namespace, message_id or "").hex


class Drafts:
    """The drafts of all running turns of an account.

    Args:
        report: Called with a turn and the platform's id of its draft; returns once that is stored.
        limit: The longest text of a message on the platform.
        budget: Rates of the account, which drafts share with messages. A draft takes only what is
            free, so messages do not wait behind drafts.
    """

    def __init__(
        self,
        platform: DraftPlatform,
        report: Callable[[UUID, Source, str], Awaitable[None]],
        *,
        interval: timedelta = DRAFT_INTERVAL,
        limit: TextLimit | None = None,
        budget: RateBudget | None = None,
    ) -> None:
        self._platform = platform
        self._report = report
        self._interval = interval
        self._limit = limit
        self._budget = budget
        self._drafts: dict[UUID, Draft] = {}
        self._texts: dict[UUID, str] = {}
        # Messages of ended drafts. Late pieces of these turns must not begin another draft.
        self._finished: dict[UUID, str | None] = {}
        # Of these, those whose draft was before another message of the turn, and is deleted.
        self._passed: set[UUID] = set()
        # Ended turns with a draft whose answer or notice is not delivered yet.
        self._over: set[UUID] = set()
        self._ending: set[asyncio.Task[None]] = set()

    def update(self, update: TurnUpdate) -> None:
        """Take in what happens in a turn."""
        turn_id = update.turn_id
        if turn_id in self._finished:
            return
        match update:
            case TurnStarted():
                self._begin(update)
            case TurnPiece():
                if update.piece.kind is PieceKind.TEXT and turn_id in self._drafts:
                    self._texts[turn_id] += update.piece.text or ""
                    self._drafts[turn_id].show(self._texts[turn_id])
            case TurnRecap():
                if turn_id in self._drafts:
                    texts = [it.text or "" for it in update.pieces if it.kind is PieceKind.TEXT]
                    self._texts[turn_id] = "".join(texts)
                    self._drafts[turn_id].show(self._texts[turn_id])
            case TurnEnded():
                self._end(update)
            case TurnWaiting() | TurnAsked() | TurnAnswered():
                pass

    def _begin(self, started: TurnStarted) -> None:
        turn_id = started.turn_id
        self._texts[turn_id] = ""
        if turn_id not in self._drafts:
            self._drafts[turn_id] = Draft(
                self._platform,
                started.source,
                lambda message_id: self._report(turn_id, started.source, message_id),
                interval=self._interval,
                limit=self._limit,
                budget=self._budget,
                message_id=started.draft,
                turn_id=turn_id,
                is_repeated=started.attempt > 1,
            )
        while len(self._drafts) > _MAX_TURNS:
            self._forget(next(iter(self._drafts)), None)

    def _end(self, ended: TurnEnded) -> None:
        draft = self._drafts.get(ended.turn_id)
        if draft is None:
            return
        self._over.add(ended.turn_id)
        # The answer replaces the draft when it is delivered.
        end = draft.close() if ended.outbound_ids else self._delete(ended.turn_id, draft)
        task = asyncio.create_task(_ended(end))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _delete(self, turn_id: UUID, draft: Draft) -> None:
        """Delete a draft without an answer, also if the platform asks to wait."""
        self._forget(turn_id, None)
        for _ in range(_MOST_DELETIONS):
            try:
                await draft.cancel()
            except RetryAfter as exc:
                await asyncio.sleep(exc.after.total_seconds())
            else:
                return
        _log.warning("draft_not_deleted", extra={"error": RetryAfter.__name__})

    async def _cancel(self, turn_id: UUID, draft: Draft) -> None:
        # Known until it is deleted, so that a delivery that waits for the platform deletes it.
        await draft.cancel()
        self._forget(turn_id, None)

    def pass_by(self, turn_id: UUID) -> None:
        """Note that a message of a running turn was sent, so that the answer comes behind it."""
        if turn_id in self._drafts:
            self._drafts[turn_id].pass_by()

    def has_ended(self, turn_id: UUID) -> bool:
        """Return whether a turn is over, as far as its events have come."""
        return turn_id in self._over

    async def discard(self, turn_id: UUID, target: Source, message_id: str | None) -> None:
        """End the draft of a turn and delete its message.

        Args:
            turn_id: The turn.
            target: Where its answer goes.
            message_id: The draft as the service knows it, of this process or an earlier one.

        Raises:
            RetryAfter: The platform asks to wait.
        """
        draft = self._drafts.get(turn_id)
        if draft is None and message_id is not None and turn_id not in self._finished:
            draft = Draft(self._platform, target, _not_reported, message_id=message_id)
        if draft is not None:
            await self._cancel(turn_id, draft)

    async def finish(self, turn_id: UUID) -> str | None:
        """End the draft of a turn, and return the message that the answer is to replace, if any.

        Raises:
            RetryAfter: The platform asks to wait before it deletes a draft that was passed.
            Exception: It is not known yet whether there is one; of the platform.
        """
        draft = self._drafts.get(turn_id)
        message_id = self._finished.get(turn_id) if draft is None else await draft.finish()
        if draft is not None and draft.is_passed:
            await self._cancel(turn_id, draft)
            self._passed.add(turn_id)
            return None
        self._forget(turn_id, message_id)
        return message_id

    def is_passed(self, turn_id: UUID) -> bool:
        """Return whether the ended draft of a turn was deleted, so that no answer replaces it."""
        return turn_id in self._passed

    def _forget(self, turn_id: UUID, message_id: str | None) -> None:
        self._drafts.pop(turn_id, None)
        self._texts.pop(turn_id, None)
        self._over.discard(turn_id)
        self._finished[turn_id] = message_id
        while len(self._finished) > _MAX_TURNS:
            oldest = next(iter(self._finished))
            del self._finished[oldest]
            self._passed.discard(oldest)

    async def close(self) -> None:
        """End all drafts; their messages stay for the process that delivers the answers."""
        await cancel_until_ended(*self._ending)
        await asyncio.gather(*(draft.close() for draft in self._drafts.values()))


@contextmanager
def _pauses_only() -> Iterator[None]:
    """Let errors of a block pass only if the platform asks to wait; others must not end the adapter."""
    try:
        yield
    except RetryAfter:
        raise
    except Exception as exc:  # noqa: BLE001 - a draft must not end the adapter
        _log.warning("draft_not_deleted", extra={"error": type(exc).__name__})


async def _not_reported(_: str) -> None:
    pass


async def _ended(end: Awaitable[object]) -> None:
    await end
