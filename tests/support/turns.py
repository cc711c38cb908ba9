"""Turns without a server, for handlers."""

from datetime import UTC, datetime
from uuid import uuid4

from chatlane_client import Turn
from chatlane_schemas import Chat, LivePiece, Source, TranscriptRow
from chatlane_schemas.session_api.transcripts import TranscriptEntry
from chatlane_schemas.turns import TurnMessage

SOURCE = Source(platform="test", account="bot", chat=Chat(id="1"))
NOW = datetime.now(UTC)


def turn_of(
    text: str, *, history: tuple[TranscriptEntry, ...] = (), shown: list[LivePiece] | None = None
) -> Turn:
    async def load_history(_: int) -> tuple[TranscriptEntry, ...]:
        return history

    async def publish_delta(_: str) -> None:
        pass

    async def publish_piece(piece: LivePiece) -> None:
        if shown is not None:
            shown.append(piece)

    return Turn(
        id=uuid4(),
        session_id=uuid4(),
        session_key="agent:main:test:bot:dm:1",
        agent="main",
        attempt=1,
        source=SOURCE,
        messages=(TurnMessage(seq=1, text=text, source=SOURCE, stored_at=NOW),),
        load_history=load_history,
        publish_delta=publish_delta,
        publish_piece=publish_piece,
    )


def entry_of(row: TranscriptRow, seq: int) -> TranscriptEntry:
    return TranscriptEntry(seq=seq, created_at=NOW, **row.model_dump(mode="json"))
