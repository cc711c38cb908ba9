"""Index transcript rows in the background, a few rows per transaction."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from chatlane.jobs import Job
from chatlane.search import index_sql
from chatlane.search.tokens import MAX_CHARACTERS, document, marks_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chatlane.observability.metrics import Metrics
    from chatlane.postgres.pool import Connection, Transaction
    from chatlane.search.index_sql import Filling, Unsearchable, Walked


# Maximum rows per transaction, of transcripts and of the archive each.
_ROWS_AT_ONCE: Final = 256
_SESSIONS_AT_ONCE: Final = 128
# Maximum characters per transaction: a removal of rows of these sessions waits for it.
_CHARACTERS_AT_ONCE: Final = 4 * MAX_CHARACTERS
# Transactions per run, at two runs a second: a router that writes rows faster indexes them when
# its load drops.
_ROUNDS_AT_ONCE: Final = 2
_PAUSE: Final = timedelta(milliseconds=500)
_WALK_PAUSE: Final = timedelta(seconds=1)
# Rows to tokenise before yielding to the event loop, about 0.2 ms.
_YIELD_EVERY: Final = 8
# A longer text takes as long as many rows, so a thread tokenises it.
_LONG: Final = 4096
# The walk finds the sessions beyond this number.
_MOST_KNOWN: Final = 10_000
_WALKED_AT_ONCE: Final = 500
_START: Final = UUID(int=0)


class SearchFilling:
    """Keeps the search index up to date.

    Writers report sessions with new rows without waiting. These reports are lost when the process
    ends. Therefore a periodic walk over all sessions also finds unindexed rows, including rows
    that an import or an older release wrote.

    Args:
        transaction: Opens a transaction.
        metrics: Receives the number of indexed rows and of sessions with pending rows.
    """

    def __init__(self, transaction: Transaction, metrics: Metrics) -> None:
        self._transaction = transaction
        self._metrics = metrics
        self._known: dict[UUID, None] = {}
        self._walked_to = _START

    def written(self, sessions: Iterable[UUID]) -> None:
        """Record sessions that have new committed rows."""
        if len(self._known) < _MOST_KNOWN:
            self._known.update(dict.fromkeys(sessions))

    def jobs(self) -> tuple[Job, ...]:
        """Return the periodic jobs of a router."""
        return (
            Job("search", _PAUSE, self.fill),
            Job("search walk", _WALK_PAUSE, self.walk),
        )

    async def fill(self) -> int:
        """Index rows of sessions known to have new ones; returns how many.

        Raises:
            StoreUnavailableError: Postgres is unavailable; the next run retries.
        """
        filled = 0
        for _ in range(_ROUNDS_AT_ONCE):
            if not self._known:
                break
            filled += await self._fill_some()
        self._metrics.searchable_rows.inc(filled)
        self._metrics.unsearchable_sessions.set(len(self._known))
        return filled

    async def walk(self) -> None:
        """Check the next sessions for rows that are not searchable yet.

        Raises:
            StoreUnavailableError: Postgres is unavailable; the next run retries.
        """
        async with self._transaction() as connection:
            walked = await index_sql.walk(connection, self._walked_to, _WALKED_AT_ONCE)
        self._walked_to = walked[-1].session_id if len(walked) == _WALKED_AT_ONCE else _START
        self.written(session.session_id for session in walked if _has_some_to_come(session))

    async def _fill_some(self) -> int:
        chosen = list(self._known)[:_SESSIONS_AT_ONCE]
        for session_id in chosen:
            del self._known[session_id]
        try:
            async with self._transaction() as connection:
                filled, unfinished = await self._fill(connection, chosen)
        except BaseException:
            self.written(chosen)
            raise
        self.written(unfinished)
        return filled

    async def _fill(self, connection: Connection, chosen: list[UUID]) -> tuple[int, list[UUID]]:
        """Index the next rows of sessions; returns their number and the sessions that may have more."""
        fillings = await _with_marks(connection, await index_sql.lock(connection, chosen))
        found = await index_sql.next_rows(
            connection, fillings, _ROWS_AT_ONCE, max_length=MAX_CHARACTERS
        )
        rows = _short_enough(found)
        by_session = {filling.session_id: filling for filling in fillings}
        await index_sql.insert(connection, await _documents(rows, by_session))
        is_full = len(rows) < len(found) or any(
            sum((row.removal > 0) is is_removed for row in rows) == _ROWS_AT_ONCE
            for is_removed in (False, True)
        )
        reached = _reached(rows, by_session)
        if not is_full:
            reached = [
                filling._replace(seq=max(filling.seq, filling.last_seq)) for filling in reached
            ]
        await index_sql.advance(connection, reached)
        return len(rows), list(by_session) if is_full else []


async def _with_marks(connection: Connection, fillings: Iterable[Filling]) -> list[Filling]:
    """Reset sessions whose rows are indexed with outdated marks, and return all with current marks."""
    current = []
    changed = []
    for filling in fillings:
        marks = marks_of(filling.session_id, filling.agent, filling.owner)
        if filling.marks == marks:
            current.append(filling)
            continue
        if filling.marks:
            changed.append(filling.session_id)
        current.append(filling._replace(marks=marks, seq=0, removal=0, removed_seq=0))
    if changed:
        await index_sql.start_over(connection, changed)
    return current


def _short_enough(rows: list[Unsearchable]) -> list[Unsearchable]:
    """Return the first rows within the character limit of a transaction, at least one."""
    left = _CHARACTERS_AT_ONCE
    for number, row in enumerate(rows):
        left -= len(row.content or "")
        if left < 0 and number:
            return rows[:number]
    return rows


async def _documents(
    rows: Iterable[Unsearchable], sessions: dict[UUID, Filling]
) -> list[tuple[UUID, int, int, str]]:
    documents = []
    for number, row in enumerate(rows, 1):
        text, marks = row.content or "", sessions[row.session_id].marks
        terms = (
            document(text, marks)
            if len(text) <= _LONG
            else await asyncio.to_thread(document, text, marks)
        )
        if terms is not None:
            documents.append((row.session_id, row.removal, row.seq, terms))
        if number % _YIELD_EVERY == 0:
            await asyncio.sleep(0)
    return documents


def _has_some_to_come(walked: Walked) -> bool:
    if walked.is_unfinished:
        return True
    marks = marks_of(walked.session_id, walked.agent, walked.owner)
    return bool(walked.marks) and walked.marks != marks


def _reached(rows: Iterable[Unsearchable], sessions: dict[UUID, Filling]) -> list[Filling]:
    """Return the progress of each session after these rows, which are in order."""
    reached = dict(sessions)
    for row in rows:
        filling = reached[row.session_id]
        reached[row.session_id] = (
            filling._replace(removal=row.removal, removed_seq=row.seq)
            if row.removal
            else filling._replace(seq=row.seq)
        )
    return list(reached.values())
