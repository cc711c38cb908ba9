"""Export the stored data of one person as a stream of records, without holding it in memory.

The export finds a person's data in the same way as an erasure, so it contains what an erasure would
delete. In shared sessions it contains only the person's messages and the answers to them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from chatlane.privacy import catalogue_sql, export_sql
from chatlane.privacy.erasure_rules import ErasureScope, is_of_senders
from chatlane.privacy.export_records import (
    DeadLetterRecord,
    EndRecord,
    EventRecord,
    ExportRecord,
    LaneRecord,
    PersonRecord,
)
from chatlane_schemas.topology.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from chatlane.postgres.pool import Store
    from chatlane.privacy.erasure_rules import SenderSpan
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
        scope = ErasureScope(await self._finder.find_ids(person, at), _FAR)
        ids = scope.ids
        yield PersonRecord(
            platform=ids.platform,
            account=ids.account,
            scope=ids.scope,
            ids=sorted(ids.forms),
            exported_at=datetime.now(UTC),
        )
        for part in (self._names, self._conversations, self._elsewhere):
            async for record in part(scope):
                yield record

    async def _names(self, scope: ErasureScope) -> AsyncIterator[ExportRecord]:
        ids = scope.ids
        async with self._transaction() as connection:
            account = (ids.platform, ids.account)
            known = await export_sql.aliases(connection, account, ids.identity.name)
            folders = await catalogue_sql.folders(connection, ids.owners)
            drafts = await catalogue_sql.drafts(connection, ids.owners)
        for alias in known:
            yield alias
        for folder in folders:
            yield folder
        for draft in drafts:
            yield draft
        for session_key, session_id in await self._finder.find_lanes(scope):
            yield LaneRecord(session_key=session_key, session_id=session_id)

    async def _conversations(self, scope: ErasureScope) -> AsyncIterator[ExportRecord]:
        own = await self._finder.find_sessions(scope)
        scope.sessions |= own.keys()
        for session_id, key in sorted(own.items()):
            scope.add_chat(key)
            async for record in self._session(session_id):
                yield record
        shared = await self._finder.find_shared(scope)
        for session_id in sorted(shared.keys() - own.keys()):
            async for record in self._shared(session_id, shared[session_id]):
                yield record

    async def _elsewhere(self, scope: ErasureScope) -> AsyncIterator[ExportRecord]:
        async for letters in self._finder.find_letters(scope):
            for letter in letters:
                yield DeadLetterRecord(
                    id=letter.id,
                    at=letter.at,
                    stage=letter.stage,
                    body=(letter.body or b"").decode(errors="backslashreplace"),
                )
        async for messages in self._finder.find_messages(scope, StreamName.INBOUND):
            for message in messages:
                yield EventRecord(
                    sequence=message.sequence,
                    stored_at=message.stored_at,
                    event=message.body.decode(errors="backslashreplace"),
                )

    async def _session(self, session_id: UUID) -> AsyncIterator[ExportRecord]:
        async with self._transaction() as connection:
            known = await export_sql.sessions(connection, session_id)
            waiting = await export_sql.waiting(connection, session_id)
            revisions = await export_sql.revisions(connection, session_id)
        for session in known:
            yield session
        async for row in export_sql.rows(self._transaction, session_id):
            yield row.model_copy(update={"is_theirs": row.role == "user"})
        beside: list[ExportRecord] = [*waiting, *revisions]
        for record in beside:
            yield record

    async def _shared(
        self, session_id: UUID, sender_spans: list[SenderSpan]
    ) -> AsyncIterator[ExportRecord]:
        async with self._transaction() as connection:
            turns, answered = await export_sql.answered_in(connection, session_id, sender_spans)
            waiting = await export_sql.waiting(connection, session_id)
            revisions = await export_sql.revisions(connection, session_id)
        async for row in export_sql.rows(self._transaction, session_id):
            is_theirs = row.source is not None and is_of_senders(row.source, row.at, sender_spans)
            is_answer = row.role != "user" and (row.turn_id in turns or row.reply_to in answered)
            if is_theirs or is_answer:
                yield row.model_copy(update={"is_theirs": is_theirs})
        for message in waiting:
            if is_of_senders(message.source, message.at, sender_spans):
                yield message
        for revision in revisions:
            if revision.message_id in answered:
                yield revision
