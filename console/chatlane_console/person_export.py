"""Export the conversations of a person as JSON Lines, from what the person may read."""

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from pydantic import BaseModel

from chatlane_client import SessionNotFoundError
from chatlane_console.conversations import Conversations
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.transcripts import TranscriptEntry

_ROWS_AT_ONCE: Final = 200


async def export_lines(conversations: Conversations, person: Person) -> AsyncIterator[bytes]:
    """Yield the lines; `record` is the kind of each, and the last one is an `end`.

    Args:
        conversations: The requests that reach the sessions of the person.
        person: The person.
    """
    about = person.model_dump(mode="json", exclude_none=True)
    yield _line("person", about | {"exported_at": datetime.now(UTC).isoformat()})
    count = 1
    async for line in _records(conversations):
        count += 1
        yield line
    yield _line("end", {"records": count})


async def _records(conversations: Conversations) -> AsyncIterator[bytes]:
    for folder in await conversations.projects.list_all():
        yield _line("folder", _fields(folder))
    async for session in conversations.sessions.list_all():
        yield _line("session", _fields(session))
        # A session may be deleted meanwhile.
        with suppress(SessionNotFoundError):
            async for line in _transcript(conversations, session.id):
                yield line


async def _transcript(conversations: Conversations, session_id: UUID) -> AsyncIterator[bytes]:
    """Yield the rows, newest page first, each with its earlier texts, and then the removed rows."""
    transcripts = conversations.transcripts
    about = {"session_id": str(session_id)}
    async for page in transcripts.pages(
        session_id, page_size=_ROWS_AT_ONCE, as_stored=True, reasoning=True
    ):
        for row in page:
            yield _line("row", about | await _whole(conversations, session_id, row))
            if row.state is not None:
                async for revision in transcripts.revisions(session_id, row.seq):
                    yield _line("revision", about | {"seq": row.seq} | _fields(revision))
    async for removed in transcripts.removed(session_id, page_size=_ROWS_AT_ONCE):
        yield _line("removed_row", about | _fields(removed))


async def _whole(
    conversations: Conversations, session_id: UUID, row: TranscriptEntry
) -> dict[str, object]:
    fields = _fields(row)
    if row.content_bytes is not None:
        with suppress(LookupError):
            fields["content"] = await conversations.transcripts.content(session_id, row.seq)
    return fields


def _fields(record: BaseModel) -> dict[str, object]:
    return record.model_dump(mode="json", exclude_none=True)


def _line(record: str, fields: dict[str, object]) -> bytes:
    return json.dumps({"record": record, **fields}, ensure_ascii=False).encode() + b"\n"
