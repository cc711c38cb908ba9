"""Publish the pieces of running turns, and recaps for readers that join late."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Final

from nats.aio.client import Client
from nats.aio.msg import Msg

from chatlane_client.claims import Grant
from chatlane_client.errors import OversizedMessageError
from chatlane_client.transport.connection import open_subscription
from chatlane_client.transport.retry import cancel_until_ended
from chatlane_client.transport.wire import publish_unstored
from chatlane_schemas import DecodeError, decode, new_envelope_id
from chatlane_schemas.live_turns import (
    MAX_RECAP_PIECES,
    LivePiece,
    PieceKind,
    TurnFollow,
    TurnPiece,
    TurnRecap,
)
from chatlane_schemas.topology import subjects

if TYPE_CHECKING:
    from uuid import UUID

_log = logging.getLogger("chatlane_client")

_RECAP_INTERVAL: Final = timedelta(seconds=1)
_MAX_RECAP_BYTES: Final = 64 * 1024
# What a piece takes besides its texts.
_PIECE_BYTES: Final = 100
_CONTINUED: Final = frozenset({PieceKind.TEXT, PieceKind.THOUGHT})
_REPLACED: Final = frozenset({PieceKind.PLAN, PieceKind.USAGE, PieceKind.PROGRESS})


class Recap:
    """The pieces of a turn so far, bounded; the oldest are dropped first."""

    def __init__(self, max_bytes: int = _MAX_RECAP_BYTES) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[LivePiece] = []
        self._bytes = 0
        self.is_shortened = False

    @property
    def pieces(self) -> tuple[LivePiece, ...]:
        """Return the pieces in order; text that continues is joined."""
        return tuple(self._pieces)

    def add(self, piece: LivePiece) -> None:
        """Add a piece, or change the earlier piece that it continues or replaces."""
        place = self._place_of(piece)
        if place is None:
            self._pieces.append(piece)
            self._bytes += _size(piece)
        else:
            before = self._pieces[place]
            after = _merged(before, piece)
            self._pieces[place] = after
            if piece.kind in _CONTINUED:
                # The text before may be long.
                self._bytes += len((piece.text or "").encode())
            else:
                self._bytes += _size(after) - _size(before)
        self._shorten()

    def _place_of(self, piece: LivePiece) -> int | None:
        if piece.kind in _CONTINUED:
            has_same = bool(self._pieces) and self._pieces[-1].kind is piece.kind
            return len(self._pieces) - 1 if has_same else None
        for place in range(len(self._pieces) - 1, -1, -1):
            known = self._pieces[place]
            is_same_call = piece.kind is PieceKind.TOOL_CALL and known.tool_id == piece.tool_id
            if known.kind is piece.kind and (piece.kind in _REPLACED or is_same_call):
                return place
        return None

    def _shorten(self) -> None:
        while len(self._pieces) > 1 and (
            self._bytes > self._max_bytes or len(self._pieces) > MAX_RECAP_PIECES
        ):
            self._bytes -= _size(self._pieces.pop(0))
            self.is_shortened = True
        if self._bytes > self._max_bytes:
            [piece] = self._pieces
            text = (piece.text or "").encode()[-self._max_bytes // 2 :].decode(errors="ignore")
            # The rest of a single piece that is too large cannot be cut.
            self._pieces = [piece.model_copy(update={"text": text, "plan": None})]
            self._bytes = _size(self._pieces[0])
            self.is_shortened = True


def _size(piece: LivePiece) -> int:
    texts = (piece.text, piece.tool_id, piece.tool_name, piece.title)
    length = sum(len(text.encode()) for text in texts if text)
    return _PIECE_BYTES + length + sum(len(entry.text.encode()) for entry in piece.plan or ())


def _merged(before: LivePiece, piece: LivePiece) -> LivePiece:
    if piece.kind in _CONTINUED:
        return before.model_copy(update={"text": (before.text or "") + (piece.text or "")})
    if piece.kind is PieceKind.TOOL_CALL:
        return before.model_copy(update=piece.model_dump(exclude_unset=True, exclude_none=True))
    return piece


class LiveOutput:
    """Publishes and numbers the pieces of one attempt at a turn."""

    def __init__(self, client: Client, agent: str, grant: Grant) -> None:
        self._client = client
        self._grant = grant
        self._agent = agent
        self._next_index = 0
        self._recap = Recap()
        self._recap_at = float("-inf")
        self._is_recap_due = False
        # A service of an earlier release does not say who talks in the session.
        self._path: subjects.LiveTurnPath | None = None
        if grant.audience is not None:
            source = grant.source
            self._path = subjects.LiveTurnPath(
                source.platform, source.account, grant.audience, grant.session_id
            )

    # Most turns show nothing.
    @cached_property
    def _subject(self) -> str:
        return "" if self._path is None else self._path.of(subjects.PIECE, agent=self._agent)

    @cached_property
    def follow_subject(self) -> str:
        """Subject on which its readers ask for a recap."""
        return "" if self._path is None else self._path.of(subjects.FOLLOW, agent=self._agent)

    async def show(self, piece: LivePiece) -> None:
        """Publish a piece to the present readers; it is not stored and may get lost."""
        if self._path is None:
            return
        index, self._next_index = self._next_index, self._next_index + 1
        self._recap.add(piece)
        message = TurnPiece(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            turn_id=self._grant.turn_id,
            session_id=self._grant.session_id,
            attempt=self._grant.attempt,
            index=index,
            piece=piece,
        )
        await publish_unstored(self._client, self._subject, message)

    async def repeat(self) -> None:
        """Publish a recap, at most once a second; requests in between share the next one."""
        if self._path is None or self._is_recap_due:
            return
        self._is_recap_due = True
        try:
            pause = self._recap_at + _RECAP_INTERVAL.total_seconds() - monotonic()
            await asyncio.sleep(max(0.0, pause))
        finally:
            self._is_recap_due = False
        self._recap_at = monotonic()
        recap = TurnRecap(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            turn_id=self._grant.turn_id,
            session_id=self._grant.session_id,
            attempt=self._grant.attempt,
            next_index=self._next_index,
            pieces=self._recap.pieces,
            is_shortened=self._recap.is_shortened,
        )
        with contextlib.suppress(OversizedMessageError):
            await publish_unstored(
                self._client, self._path.of(subjects.RECAP, agent=self._agent), recap
            )


class LiveOutputs:
    """The running turns of this process, by session, and the answers to readers that follow them."""

    def __init__(self, client: Client, agent: str) -> None:
        self._client = client
        self._agent = agent
        self._outputs: dict[UUID, LiveOutput] = {}
        self._repeating: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Answer readers for the length of the block."""
        subject = subjects.LiveTurnPath().of(subjects.FOLLOW, agent=self._agent)
        try:
            async with open_subscription(self._client, subject, self._hear):
                yield
        finally:
            await cancel_until_ended(*self._repeating)

    @contextmanager
    def open(self, grant: Grant) -> Iterator[LiveOutput]:
        """Yield the output of a turn, whose readers are answered during the block."""
        output = self._outputs[grant.session_id] = LiveOutput(self._client, self._agent, grant)
        try:
            yield output
        finally:
            if self._outputs.get(grant.session_id) is output:
                del self._outputs[grant.session_id]

    async def _hear(self, message: Msg) -> None:
        try:
            follow = decode(TurnFollow, message.data)
        except DecodeError as exc:
            _log.warning("follow_not_understood", extra={"error": str(exc)})
            return
        output = self._outputs.get(follow.session_id)
        # A reader of another account may not ask: permissions hold for the subject only.
        if output is None or message.subject != output.follow_subject:
            return
        task = asyncio.create_task(output.repeat())
        self._repeating.add(task)
        task.add_done_callback(self._repeated)

    def _repeated(self, task: asyncio.Task[None]) -> None:
        self._repeating.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("recap_failed", extra={"error": type(error).__name__})
