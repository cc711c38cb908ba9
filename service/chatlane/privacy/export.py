"""Export the stored data of one person as a stream of records, without holding it in memory.

The export finds a person's data in the same way as an erasure, so it contains what an erasure would
delete. In shared sessions it contains only the person's messages and the answers to them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from chatlane.privacy import export_sql
from chatlane.privacy.erasure_rules import ErasureScope, is_said
from chatlane.privacy.export_records import (
    AliasRecord,
    DeadLetterRecord,
    EndRecord,
    EventRecord,
    ExportRecord,
    LaneRecord,
    PersonRecord,
    RevisionRecord,
    RowRecord,
    SessionRecord,
    WaitingRecord,
)
from chatlane_schemas.topology.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator
    from uuid import UUID

    from chatlane.postgres.pool import Store
    from chatlane.privacy.erasure_rules import Said
    from chatlane.privacy.person_data import Finder
    from chatlane_schemas.session_api.people import Person

_FAR: Final = datetime(9999, 1, 1, tzinfo=UTC)


class Export:
    """Reads the stored data of a person.

    Args:
        finder: Finds the person's data.
    """

    def __init__(self, store: Store, finder: Finder) -> None:
        self._transaction = store.transaction
        self._finder = finder

    async def run(self, person: Person, at: datetime | None = None) -> AsyncIterator[ExportRecord]:
        """Yield all records; the last one is an `EndRecord`.

        Args:
            person: The person, named by an id.
            at: A time at which the person had the id; None for now.
        """
        count = 0
        async for record in self._records(person, at):
            count += 1
            yield record
        yield EndRecord(records=count)

    async def _records(self, person: Person, at: datetime | None) -> AsyncIterator[ExportRecord]:
        gone = ErasureScope(await self._finder.find_ids(person, at), _FAR)
        ids = gone.ids
        yield PersonRecord(
            platform=ids.platform,
            account=ids.account,
            scope=ids.scope,
            ids=sorted(ids.forms),
            exported_at=datetime.now(UTC),
        )
        for part in (self._names, self._conversations, self._elsewhere):
            async for record in part(gone):
                yield record

    async def _names(self, gone: ErasureScope) -> AsyncIterator[ExportRecord]:
        ids = gone.ids
        async with self._transaction() as connection:
            account = (ids.platform, ids.account)
            known = await export_sql.aliases(connection, account, ids.identity.name)
        for known_id in known:
            yield AliasRecord(
                id=known_id.id,
                canonical=known_id.canonical,
                first_seen_at=known_id.first_seen_at,
                since=known_id.since,
                until=known_id.until,
            )
        for session_key, session_id in await self._finder.find_lanes(gone):
            yield LaneRecord(session_key=session_key, session_id=session_id)

    async def _conversations(self, gone: ErasureScope) -> AsyncIterator[ExportRecord]:
        own = await self._finder.find_sessions(gone)
        gone.sessions |= own.keys()
        for session_id, key in sorted(own.items()):
            gone.add_chat(key)
            async for record in self._session(session_id):
                yield record
        shared = await self._finder.find_shared(gone)
        for session_id in sorted(shared.keys() - own.keys()):
            async for record in self._shared(session_id, shared[session_id]):
                yield record

    async def _elsewhere(self, gone: ErasureScope) -> AsyncIterator[ExportRecord]:
        async for letters in self._finder.find_letters(gone):
            for letter in letters:
                yield DeadLetterRecord(
                    id=letter.id,
                    at=letter.at,
                    stage=letter.stage,
                    body=(letter.body or b"").decode(errors="backslashreplace"),
                )
        async for messages in self._finder.find_messages(gone, StreamName.INBOUND):
            for message in messages:
                yield EventRecord(
                    sequence=message.sequence,
                    stored_at=message.stored_at,
                    event=message.body.decode(errors="backslashreplace"),
                )

    async def _session(self, session_id: UUID) -> AsyncIterator[ExportRecord]:
        async with self._transaction() as connection:
            known = await export_sql.facts(connection, [session_id])
            line = await export_sql.waiting(connection, session_id)
            before = await export_sql.revisions(connection, session_id)
        for session_facts in known:
            yield SessionRecord(
                session_id=session_facts.id,
                session_key=session_facts.session_key,
                agent=session_facts.agent,
                platform=session_facts.platform,
                started_at=session_facts.started_at,
                ended_at=session_facts.ended_at,
                title=session_facts.title,
                note=session_facts.note,
                opening_note=session_facts.opening_note,
            )
        async for row in export_sql.rows(self._transaction, session_id):
            yield _row(session_id, row, is_theirs=row.role == "user")
        for record in _beside(session_id, line, before):
            yield record

    async def _shared(self, session_id: UUID, said_as: list[Said]) -> AsyncIterator[ExportRecord]:
        async with self._transaction() as connection:
            turns, said = await export_sql.answered_in(connection, session_id, said_as)
            line = await export_sql.waiting(connection, session_id)
            before = await export_sql.revisions(connection, session_id)
        async for row in export_sql.rows(self._transaction, session_id):
            is_theirs = row.source is not None and is_said(row.source, row.at, said_as)
            is_answer = row.role != "user" and (row.turn_id in turns or row.reply_to in said)
            if is_theirs or is_answer:
                yield _row(session_id, row, is_theirs=is_theirs)
        own_waiting = [waiting for waiting in line if is_said(waiting.source, waiting.at, said_as)]
        revised = [revision for revision in before if revision.message_id in said]
        for record in _beside(session_id, own_waiting, revised):
            yield record


def _beside(
    session_id: UUID, line: Iterable[export_sql.Waits], before: Iterable[export_sql.Revised]
) -> Iterator[ExportRecord]:
    """Yield the records of a session besides its rows: waiting messages and earlier revisions."""
    for waiting in line:
        yield WaitingRecord(
            session_id=session_id,
            id=waiting.id,
            at=waiting.at,
            text=waiting.text,
            details=waiting.details,
            source=waiting.source,
        )
    for revised in before:
        yield RevisionRecord(
            session_id=session_id,
            message_id=revised.message_id,
            at=revised.at,
            text=revised.text,
            attachments=revised.attachments,
        )


def _row(session_id: UUID, row: export_sql.Told, *, is_theirs: bool) -> RowRecord:
    return RowRecord(
        session_id=session_id,
        seq=row.seq,
        is_archived=row.removal > 0,
        is_theirs=is_theirs,
        role=row.role,
        at=row.at,
        id=row.id,
        text=row.text,
        details=None if row.details is None else dict(row.details),
        source=None if row.source is None else dict(row.source),
    )
