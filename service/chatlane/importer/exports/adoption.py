"""Import conversations of other programs, one transaction each; a repeat adds only new rows.

Every id is derived from the ids of the other program, so that an import recognises what an earlier
one wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.domain.addressing.keys import ParsedKey, key_text
from chatlane.domain.effects import MessageRow, without_nulls
from chatlane.domain.ids import derived_id
from chatlane.errors import TransientError
from chatlane.importer import import_sql
from chatlane.importer.exports.spool import open_spool
from chatlane.importer.import_sql import AdoptedSession
from chatlane.importer.patience import patiently
from chatlane.store.conversations import sessions
from chatlane.store.history import messages
from chatlane_schemas.events import EndReason
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.session_openings import ImportOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime
    from uuid import UUID

    from chatlane.domain.states import Session
    from chatlane.importer.exports.conversation import Conversation
    from chatlane.importer.exports.spool import Spool, SpooledRow
    from chatlane.importer.records import Report
    from chatlane.postgres.pool import Connection, Store

_ROWS_AT_ONCE: Final = 500
_ACCOUNT: Final = "import"
# More branches than a person makes of one conversation.
_MOST_BRANCHES: Final = 1000


class Destination(NamedTuple):
    """The owner and the place of imported conversations.

    Attributes:
        profile: Profile in their keys.
        agent: Agent of the profile.
        owner: Identity that owns them, if any. Rows name no author, because an id may have
            been that of another person when they were written.
        is_continued: Whether the sessions are open; otherwise they are ended and read only.
    """

    profile: str
    agent: str
    owner: str | None = None
    is_continued: bool = False


class ExportAdoption:
    """One import."""

    def __init__(self, store: Store, report: Report, destination: Destination) -> None:
        self._store = store
        self._report = report
        self._writer = ConversationWriter(destination)

    async def run(
        self, conversations: Iterable[Conversation], progress: Callable[[int], None]
    ) -> None:
        """Import conversations; calls `progress` with the number of those that are done.

        Raises:
            StoreUnavailableError: Postgres became unavailable; what was imported before stays.
        """
        for number, conversation in enumerate(conversations, 1):
            await self._adopt_patiently(conversation)
            progress(number)

    async def _adopt_patiently(self, conversation: Conversation) -> None:
        try:
            with open_spool(conversation, self._report.omitted) as spool:
                done = await patiently(lambda: self._written(conversation, spool))
        except TransientError:
            raise
        except OSError as error:
            reason = f"cannot be read ({type(error).__name__})"
            self._report.omitted.add_damaged("file", reason, conversation.name)
        except Exception as error:  # noqa: BLE001 - one bad conversation must not cost the others
            reason = f"the database refuses it ({type(error).__name__})"
            self._report.omitted.add_damaged("session", reason, conversation.name)
        else:
            self._report.done[f"{done.outcome} sessions"] += 1
            self._report.done["messages"] += done.rows
            if done.left_out:
                self._report.omitted.add(
                    "newer messages of a session", done.left_out, conversation.name
                )

    async def _written(self, conversation: Conversation, spool: Spool) -> Adopted:
        async with self._store.transaction() as connection:
            return await self._writer.write(connection, conversation, spool)


class ConversationWriter:
    """Writes conversations to their destination."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination

    async def write(
        self, connection: Connection, conversation: Conversation, spool: Spool
    ) -> Adopted:
        """Write the new messages of a conversation.

        If another branch of it has become the current one, that branch becomes another session,
        linked to the first one.
        """
        target = self._session_id(conversation)
        before: UUID | None = None
        for _ in range(_MOST_BRANCHES):
            locked = (await sessions.lock(connection, [target])).get(target)
            if locked is None:
                session = self._session(conversation, target, before, spool)
                await import_sql.insert(connection, session)
                count = await self._append(connection, conversation, spool, target, 1)
                return Adopted(target, ImportOutcome.NEW, count)
            known = await self._known(connection, conversation, spool, target)
            if known.first_missing is None:
                return Adopted(target, ImportOutcome.UNCHANGED)
            if locked.next_seq - 1 == known.rows:
                count = await self._append(connection, conversation, spool, target, locked.next_seq)
                return Adopted(target, ImportOutcome.CONTINUED, count)
            if not await self._is_other_branch(connection, conversation, target, locked):
                return Adopted(
                    target, ImportOutcome.UNCHANGED, left_out="it has gone on here since"
                )
            before, target = target, self._session_id(conversation, known.first_missing)
        return Adopted(target, ImportOutcome.UNCHANGED, left_out="it has too many branches")

    async def _known(
        self,
        connection: Connection,
        conversation: Conversation,
        spool: Spool,
        target: UUID,
    ) -> _Known:
        count, first_missing = 0, None
        for part in spool.parts():
            ids = [_row_id(conversation, target, row.key) for row in part]
            found = await import_sql.known_messages(connection, ids)
            count += len(found)
            if first_missing is None:
                missing = (row.key for row, id_ in zip(part, ids, strict=True) if id_ not in found)
                first_missing = next(missing, None)
        return _Known(count, first_missing)

    async def _is_other_branch(
        self,
        connection: Connection,
        conversation: Conversation,
        target: UUID,
        locked: Session,
    ) -> bool:
        """Return whether all rows of a session are on some branch of the conversation."""
        count = 0
        for part in import_sql.chunks(conversation.keys, _ROWS_AT_ONCE):
            ids = [_row_id(conversation, target, key) for key in conversation.keys[part]]
            count += len(await import_sql.known_messages(connection, ids))
        return count == locked.next_seq - 1

    async def _append(
        self,
        connection: Connection,
        conversation: Conversation,
        spool: Spool,
        target: UUID,
        next_seq: int,
    ) -> int:
        """Append the rows that are not there yet, and return their number."""
        first = next_seq
        people = 0
        active_at: datetime | None = None
        last_at: datetime | None = None
        for part in spool.parts():
            rows = [self._row(conversation, target, row) for row in part]
            known = await import_sql.known_messages(
                connection, [row.id for row in rows if row.id is not None]
            )
            new = [
                (row, spooled.is_of_person)
                for row, spooled in zip(rows, part, strict=True)
                if row.id not in known
            ]
            await messages.insert(
                connection,
                [row._replace(seq=seq) for seq, (row, _) in enumerate(new, start=next_seq)],
            )
            next_seq += len(new)
            of_people = [row.created_at for row, is_of_person in new if is_of_person]
            people += len(of_people)
            active_at = max(filter(None, (active_at, *of_people)), default=None)
            message_times = (row.created_at for row, _ in new if row.role != Role.TOOL)
            last_at = max(filter(None, (last_at, *message_times)), default=None)
        await import_sql.grow(
            connection, target, next_seq, people, active_at, last_at, conversation.title
        )
        return next_seq - first

    def _session_id(self, conversation: Conversation, branch: str = "") -> UUID:
        parts = (conversation.source, self._destination.owner or "", conversation.id, branch)
        trigger = "\0".join(parts).encode()
        return derived_id(conversation.began_at, trigger, "imported session")

    def _session(
        self, conversation: Conversation, target: UUID, before: UUID | None, spool: Spool
    ) -> AdoptedSession:
        to = self._destination
        key = ParsedKey(to.profile, conversation.source, _ACCOUNT, "dm", str(target))
        ended_at = None if to.is_continued else spool.last_at
        return AdoptedSession(
            id=target,
            session_key=key_text(key),
            agent=to.agent,
            platform=conversation.source,
            parent_id=before,
            link_kind=None if before is None else "branch",
            started_at=spool.first_at,
            ended_at=ended_at,
            end_reason=None if ended_at is None else EndReason.IMPORTED,
            last_activity_at=None,
            last_message_at=None,
            next_seq=1,
            user_messages=0,
            title=conversation.title,
            cwd=conversation.cwd,
            # A model of another program says nothing to the agent that goes on.
            model=None if to.is_continued else conversation.model,
            config=None,
            usage=None,
            costs=None,
            origin=conversation.source,
            owner=to.owner,
            archived_at=spool.last_at if conversation.is_archived else None,
            pinned_at=spool.last_at if conversation.is_pinned else None,
            read_only=not to.is_continued,
        )

    def _row(self, conversation: Conversation, target: UUID, row: SpooledRow) -> MessageRow:
        details = dict(row.details or {})
        if row.thought is not None:
            details["reasoning"] = {"text": row.thought, "agent": self._destination.agent}
        if row.is_context:
            details["observed"] = True
        return MessageRow(
            session_id=target,
            seq=0,
            role=row.role,
            content=row.content,
            created_at=row.created_at,
            id=_row_id(conversation, target, row.key),
            details=without_nulls(details) if details else None,
        )


class _Known(NamedTuple):
    """How many rows of a conversation a session has, and the key of the first that it lacks."""

    rows: int
    first_missing: str | None


@dataclass(frozen=True, slots=True)
class Adopted:
    """Result of one transaction, reported only after its commit."""

    session_id: UUID
    outcome: ImportOutcome
    rows: int = 0
    left_out: str | None = None


def _row_id(conversation: Conversation, session_id: UUID, key: str) -> UUID:
    return derived_id(conversation.began_at, session_id.bytes + key.encode(), "imported message")
