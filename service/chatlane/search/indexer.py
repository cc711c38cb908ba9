"""Makes what was said searchable: behind the conversation, a little at a time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from chatlane.jobs import Job
from chatlane.search import index_sql
from chatlane.search.tokens import MAX_CHARACTERS, document, marks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractAsyncContextManager

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.observability.metrics import Metrics
    from chatlane.search.index_sql import Filling, Unsearchable, Walked

    Transaction = Callable[[], AbstractAsyncContextManager[PoolConnectionProxy]]

# Of one transaction: at most so many rows of transcripts, and as many of the archive.
_ROWS_AT_ONCE: Final = 256
_SESSIONS_AT_ONCE: Final = 128
# And so many characters: whoever takes rows of these sessions out waits for it.
_CHARACTERS_AT_ONCE: Final = 4 * MAX_CHARACTERS
# Of one run, two a second: a router that has more to route than this makes it searchable when it
# has less to do.
_ROUNDS_AT_ONCE: Final = 2
_PAUSE: Final = timedelta(milliseconds=500)
_WALK_PAUSE: Final = timedelta(seconds=1)
# Rows of which the words are taken before messages have their turn, about 0.2 ms.
_BREATH: Final = 8
# Characters that take as long as many rows; messages have their turn meanwhile.
_LONG: Final = 4096
# What is forgotten beyond that is found by the walk.
_MOST_KNOWN: Final = 10_000
_WALKED_AT_ONCE: Final = 500
_START: Final = UUID(int=0)


class SearchFilling:
    """Fills in what searches look into.

    Which sessions have new rows is known where the rows are written, and told without waiting.
    That is forgotten when the process ends; so all sessions are walked over besides, again and
    again, which also finds what an import or an older release wrote.

    Args:
        transaction: Opens one.
        metrics: Told how many rows became searchable, and how many sessions have some to come.
    """

    def __init__(self, transaction: Transaction, metrics: Metrics) -> None:
        self._transaction = transaction
        self._metrics = metrics
        self._known: dict[UUID, None] = {}
        self._walked_to = _START

    def written(self, sessions: Iterable[UUID]) -> None:
        """Note that these sessions have new rows; committed ones."""
        if len(self._known) < _MOST_KNOWN:
            self._known.update(dict.fromkeys(sessions))

    def jobs(self) -> tuple[Job, ...]:
        """Return what a router has to do again and again."""
        return (
            Job("search", _PAUSE, self.fill),
            Job("search walk", _WALK_PAUSE, self.walk),
        )

    async def fill(self) -> int:
        """Make rows of sessions that are known to have some searchable; returns how many.

        Raises:
            StoreUnavailableError: Next time.
        """
        filled = 0
        for _ in range(_ROUNDS_AT_ONCE):
            if not self._known:
                break
            filled += await self._fill_some()
        self._metrics.record_searchable(filled, len(self._known))
        return filled

    async def walk(self) -> None:
        """Look at the next sessions, whether all of them is searchable.

        Raises:
            StoreUnavailableError: Next time.
        """
        async with self._transaction() as connection:
            walked = await index_sql.walk(connection, self._walked_to, _WALKED_AT_ONCE)
        self._walked_to = walked[-1].session_id if len(walked) == _WALKED_AT_ONCE else _START
        self.written(one.session_id for one in walked if _has_some_to_come(one))

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

    async def _fill(
        self, connection: PoolConnectionProxy, chosen: list[UUID]
    ) -> tuple[int, list[UUID]]:
        """Make the next rows of sessions searchable; returns how many, and who may have more."""
        fillings = await _with_marks(connection, await index_sql.lock(connection, chosen))
        found = await index_sql.next_rows(
            connection, fillings, _ROWS_AT_ONCE, max_length=MAX_CHARACTERS
        )
        rows = _short_enough(found)
        by_session = {one.session_id: one for one in fillings}
        await index_sql.insert(connection, await _documents(rows, by_session))
        is_full = len(rows) < len(found) or any(
            sum((row.removal > 0) is is_removed for row in rows) == _ROWS_AT_ONCE
            for is_removed in (False, True)
        )
        reached = _reached(rows, by_session)
        if not is_full:
            reached = [one._replace(seq=max(one.seq, one.last_seq)) for one in reached]
        await index_sql.advance(connection, reached)
        return len(rows), list(by_session) if is_full else []


async def _with_marks(
    connection: PoolConnectionProxy, fillings: Iterable[Filling]
) -> list[Filling]:
    """Let sessions start over whose rows are found by marks that are true no more."""
    current = []
    changed = []
    for one in fillings:
        marks = marks_of(one.session_id, one.agent, one.owner)
        if one.marks == marks:
            current.append(one)
            continue
        if one.marks:
            changed.append(one.session_id)
        current.append(one._replace(marks=marks, seq=0, removal=0, removed_seq=0))
    if changed:
        await index_sql.start_over(connection, changed)
    return current


def _short_enough(rows: list[Unsearchable]) -> list[Unsearchable]:
    """Return the first rows, whose words are taken while a change of their sessions may wait."""
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
        if number % _BREATH == 0:
            await asyncio.sleep(0)
    return documents


def _has_some_to_come(walked: Walked) -> bool:
    if walked.is_unfinished:
        return True
    marks = marks_of(walked.session_id, walked.agent, walked.owner)
    return bool(walked.marks) and walked.marks != marks


def _reached(rows: Iterable[Unsearchable], sessions: dict[UUID, Filling]) -> list[Filling]:
    """Return how far rows, in order, take each session."""
    reached = dict(sessions)
    for row in rows:
        one = reached[row.session_id]
        reached[row.session_id] = (
            one._replace(removal=row.removal, removed_seq=row.seq)
            if row.removal
            else one._replace(seq=row.seq)
        )
    return list(reached.values())
