"""Follow live turns: events of the service, and the pieces of workers without gaps."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic
from typing import Final, Self, TypeAlias
from uuid import UUID

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from chatlane_client.transport.connection import open_subscription, until_connected
from chatlane_client.transport.wire import publish_unstored
from chatlane_schemas import DecodeError, decode, new_envelope_id
from chatlane_schemas.live_turns import (
    TurnAnswered,
    TurnAsked,
    TurnEnded,
    TurnFollow,
    TurnPiece,
    TurnRecap,
    TurnStarted,
    TurnWaiting,
)
from chatlane_schemas.topology import subjects

_log = logging.getLogger("chatlane_client")

TurnUpdate: TypeAlias = (
    TurnStarted | TurnPiece | TurnRecap | TurnAsked | TurnAnswered | TurnWaiting | TurnEnded
)
"""Something that happens in a live turn.

Pieces of an attempt come in order and without gaps. After a loss there is a `TurnRecap` instead,
which takes the place of all pieces before it. The stored answer alone is the truth.
"""

# A reader that is slower than this loses pieces, and gets a recap instead.
_MAX_WAITING_PIECES: Final = 1000
# Events are few and small; beyond this many the reader has stopped to read.
_MAX_WAITING_EVENTS: Final = 10_000
_MAX_TURNS: Final = 10_000
_MAX_EARLY: Final = 1000
_LOOK_AGAIN: Final = timedelta(seconds=1)
# Longer than a worker waits between two recaps.
_ASK_AGAIN: Final = 2.0
_EVENTS: Final[dict[str, type[TurnUpdate]]] = {
    "started": TurnStarted,
    "asked": TurnAsked,
    "answered": TurnAnswered,
    "waiting": TurnWaiting,
    "ended": TurnEnded,
}
_VERB_TOKEN: Final = 4


@dataclass(slots=True)
class _Progress:
    """How far the pieces of a turn have been passed on.

    Attributes:
        next_index: Index of the next piece; None until a recap comes.
        asked_at: Monotonic time of the last request for a recap.
        is_over: Whether the turn has ended, so that late pieces are dropped.
    """

    agent: str
    attempt: int
    next_index: int | None = 0
    asked_at: float = float("-inf")
    is_over: bool = False


class TurnReader:
    """Reads the live turns on some paths, and passes their updates on in order.

    Updates that come while the connection is down are lost.
    """

    def __init__(
        self,
        client: Client,
        paths: Iterable[subjects.LiveTurnPath],
        *,
        agent: str | None = None,
        with_pieces: bool = True,
    ) -> None:
        """Create the reader; `open` starts it.

        Args:
            client: An open connection.
            paths: The turns to follow; permissions limit them.
            agent: The agent of the session, if the paths name one session. Without it, pieces of a
                turn are passed on only after its `TurnStarted`, which names the agent: the workers
                of another agent could forge them otherwise.
            with_pieces: Whether to read pieces, or events only.
        """
        self._client = client
        self._paths = tuple(paths)
        self._agent = agent
        self._with_pieces = with_pieces
        self._waiting: deque[tuple[str, TurnUpdate]] = deque()
        self._waiting_pieces = 0
        self._arrived = asyncio.Event()
        self._turns: dict[UUID, _Progress] = {}
        # Subjects of pieces that came before the `TurnStarted` of their turn.
        self._early: dict[UUID, str] = {}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Self]:
        """Subscribe for the length of the block."""
        async with AsyncExitStack() as stack:
            for path in self._paths:
                # One subscription for all events keeps them in order.
                await self._subscribe(stack, path.of(subjects.TURN_EVENT), None)
                if self._with_pieces:
                    await self._subscribe(stack, path.of(subjects.PIECE), TurnPiece)
                    await self._subscribe(stack, path.of(subjects.RECAP), TurnRecap)
            # Once the server has answered, it passes on what any client publishes.
            with suppress(nats.errors.Error):
                await self._client.flush()
            yield self

    async def _subscribe(
        self, stack: AsyncExitStack, subject: str, model: type[TurnUpdate] | None
    ) -> None:
        hear = partial(self._hear, model)
        await stack.enter_async_context(open_subscription(self._client, subject, hear))

    async def ask_for_recap(self, session_id: UUID) -> None:
        """Ask for a recap of the turn that a session runs now, on the paths that name a session."""
        for path in self._paths:
            if None not in path and self._agent is not None:
                await self._ask(path.of(subjects.FOLLOW, agent=self._agent), session_id)

    async def _ask(self, subject: str, session_id: UUID) -> None:
        follow = TurnFollow(id=new_envelope_id(), at=datetime.now(UTC), session_id=session_id)
        await publish_unstored(self._client, subject, follow)

    async def _hear(self, model: type[TurnUpdate] | None, message: Msg) -> None:
        """Queue an update; without a model, the event that its subject names."""
        model = model or _EVENTS.get(message.subject.split(".")[_VERB_TOKEN])
        if model is None:
            # An event of a newer release.
            return
        try:
            update = decode(model, message.data)
        except DecodeError as exc:
            # The message may be of a newer release.
            _log.warning("turn_update_not_understood", extra={"error": str(exc)})
            return
        if isinstance(update, TurnPiece):
            if self._waiting_pieces >= _MAX_WAITING_PIECES:
                return
            self._waiting_pieces += 1
        elif len(self._waiting) >= _MAX_WAITING_EVENTS:
            return
        self._waiting.append((message.subject, update))
        self._arrived.set()

    async def updates(self) -> AsyncIterator[TurnUpdate]:
        """Yield the updates of all turns, until cancelled.

        Raises:
            ConnectionClosedError: The connection is closed for good.
        """
        while True:
            for update in await self.take():
                yield update

    async def take(self, within: timedelta = _LOOK_AGAIN) -> list[TurnUpdate]:
        """Return the updates that have come; wait for one, but no longer than `within`.

        Raises:
            ConnectionClosedError: The connection is closed for good.
        """
        # A closed connection calls no callback, so its state is polled.
        await until_connected(self._client)
        if not self._waiting:
            self._arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(within.total_seconds()):
                    await self._arrived.wait()
        taken: list[TurnUpdate] = []
        while self._waiting:
            subject, update = self._waiting.popleft()
            self._waiting_pieces -= isinstance(update, TurnPiece)
            if await self._is_next(subject, update):
                taken.append(update)
        return taken

    async def _is_next(self, subject: str, update: TurnUpdate) -> bool:
        """Return whether an update may be passed on, and ask for a recap where pieces are missing."""
        match update:
            case TurnStarted():
                is_new = self._begin(update)
                if is_new:
                    await self._ask_for_early(update)
                return is_new
            case TurnPiece():
                known = self._progress(subject, update)
                if known is None and update.turn_id not in self._turns:
                    self._note_early(subject, update)
                return known is not None and await self._take(known, subject, update)
            case TurnRecap():
                known = self._progress(subject, update)
                return known is not None and _catch_up(known, update)
            case TurnEnded():
                self._note(update.turn_id, _Progress(update.agent, update.attempt, is_over=True))
                return True
            case _:
                return True

    def _begin(self, started: TurnStarted) -> bool:
        known = self._turns.get(started.turn_id)
        if known is not None and (known.attempt > started.attempt or known.is_over):
            return False
        # Its first piece may have come before it.
        if known is None or known.attempt < started.attempt:
            self._note(started.turn_id, _Progress(started.agent, started.attempt))
        return True

    async def _ask_for_early(self, started: TurnStarted) -> None:
        """Ask for a recap if pieces of a turn came too early; perhaps no other piece follows."""
        subject = self._early.pop(started.turn_id, None)
        known = self._turns[started.turn_id]
        if subject is None or known.next_index != 0:
            return
        _, _, _, agent, *_, session = subject.split(".")
        if (agent, session) == (started.agent, str(started.session_id)):
            known.next_index, known.asked_at = None, monotonic()
            await self._ask(subjects.follow_of(subject), started.session_id)

    def _note_early(self, subject: str, piece: TurnPiece) -> None:
        self._early[piece.turn_id] = subject
        while len(self._early) > _MAX_EARLY:
            del self._early[next(iter(self._early))]

    def _note(self, turn_id: UUID, progress: _Progress) -> None:
        self._turns.pop(turn_id, None)
        self._turns[turn_id] = progress
        while len(self._turns) > _MAX_TURNS:
            del self._turns[next(iter(self._turns))]

    def _progress(self, subject: str, update: TurnPiece | TurnRecap) -> _Progress | None:
        """Return the progress of the attempt that an update is of; None if it is to be dropped."""
        _, _, _, agent, *_, session = subject.split(".")
        known = self._turns.get(update.turn_id)
        if known is None and self._agent is not None:
            known = _Progress(self._agent, update.attempt)
            self._note(update.turn_id, known)
        if known is None or known.is_over or update.attempt < known.attempt:
            return None
        # Permissions hold for the subject only.
        if agent != known.agent or session != str(update.session_id):
            return None
        if update.attempt > known.attempt:
            known.attempt, known.next_index = update.attempt, 0
        return known

    async def _take(self, known: _Progress, subject: str, piece: TurnPiece) -> bool:
        if piece.index == known.next_index:
            known.next_index += 1
            return True
        if known.next_index is not None and piece.index < known.next_index:
            return False
        known.next_index = None
        now = monotonic()
        if now - known.asked_at >= _ASK_AGAIN:
            known.asked_at = now
            await self._ask(subjects.follow_of(subject), piece.session_id)
        return False


def _catch_up(known: _Progress, recap: TurnRecap) -> bool:
    if known.next_index is not None and recap.next_index <= known.next_index:
        return False
    known.next_index = recap.next_index
    return True


class TurnWatch:
    """The updates of some turns, for `async for`.

    Updates count from the first step of the iteration. To count from an earlier moment on, enter
    the watch first:

        async with sessions.watch(session_id) as updates:
            await sessions.submit(session_id, text)
            async for update in updates:
                ...
    """

    def __init__(self, open_reader: Callable[[], AbstractAsyncContextManager[TurnReader]]) -> None:
        self._open_reader = open_reader
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> AsyncIterator[TurnUpdate]:
        """Subscribe, and return the updates from now on."""
        reader = await self._stack.enter_async_context(self._open_reader())
        return reader.updates()

    async def __aexit__(self, *error: object) -> None:
        """Unsubscribe."""
        await self._stack.aclose()

    async def __aiter__(self) -> AsyncIterator[TurnUpdate]:
        """Yield the updates until the caller stops."""
        async with self as updates:
            async for update in updates:
                yield update
