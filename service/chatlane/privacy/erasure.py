"""Forgets a person: everything of theirs goes from database and streams, and does not come back.

In this order, each piece in a transaction of its own with its line of the receipt, so that it can
be run again after it was interrupted:

1. The person is put on the erasure list, with an end some seconds ahead. Once everybody who
   decides knows the list and the end has come, what they wrote up to it is decided no more, and
   what they write later opens new sessions.
2. Sessions of theirs alone are deleted. In those that others share, what they wrote and what was
   answered is blanked; what waits of it is dropped. Turns that run on it are told to end, and
   awaited.
3. Dead letters, kept answers of requests, the audit, lanes.
4. Once nothing of it is in the outbox any more, the streams: what is to go is noted first, so that
   nobody takes it for a loss.
5. All of it is looked for again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from chatlane.domain.addressing.aliases import chat_alias
from chatlane.domain.addressing.dedupe import digests_of_message
from chatlane.domain.addressing.owners import shared_key
from chatlane.domain.addressing.sources import address_of
from chatlane.domain.effects import ErasedRow
from chatlane.domain.sessions.session_flags import share_session
from chatlane.errors import PermanentError, StoreUnavailableError
from chatlane.privacy import erase_sql, erasure_list_sql
from chatlane.privacy.erasure_list_sql import Receipt
from chatlane.privacy.erasure_rules import Gone, listed, ranges, rows_to_blank, why_not_to_forget
from chatlane.privacy.person_data import Finder
from chatlane.store import audit, turns
from chatlane.store.conversations import removals, sessions
from chatlane_schemas.codec import DecodeError, decode
from chatlane_schemas.inbound import InboundEvent, Kind
from chatlane_schemas.streams import STREAMS_OF_PEOPLE, StreamName

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.erasure_key import ErasureKey
    from chatlane.postgres.pool import Store
    from chatlane.privacy.erasure_rules import Ids, Said
    from chatlane.privacy.person_data import Streams
    from chatlane_schemas.people import Person

    Transaction = Callable[[], AbstractAsyncContextManager[PoolConnectionProxy]]

PATIENCE: Final = timedelta(seconds=30)
# How far ahead the end of what goes is announced; everybody has to know of it by then.
_AHEAD: Final = timedelta(seconds=2)
_LOOK_EVERY: Final = timedelta(milliseconds=200)
# What routers tell from memory, such as that a session has changed, is told within a second.
_TOLD_WITHIN: Final = timedelta(seconds=1.5)
_SESSIONS_AT_ONCE: Final = 50
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FAR: Final = datetime(9999, 1, 1, tzinfo=UTC)
_MOST_PASSES: Final = 5
# Rows of a session that one transaction deletes without anybody noticing.
_TRIM_ABOVE: Final = 20_000


class NotErasedError(PermanentError):
    """An erasure has not come to its end; the text says what to do. It can be run again."""


@dataclass(frozen=True, slots=True)
class Erased:
    """What became of an erasure.

    Attributes:
        receipt: By store, what was deleted.
        left: By store, how much is still found; empty when it is done.
    """

    id: UUID
    until: datetime
    receipt: Mapping[str, Receipt]
    left: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Run:
    """One run of an erasure, and what it has come to know."""

    id: UUID
    gone: Gone
    #: In sessions that others share, how sources name the person.
    shared: dict[UUID, list[Said]] = field(default_factory=dict)
    early: set[bytes] = field(default_factory=set)
    #: What requests were answered up to then may be about what was blanked.
    answered_until: datetime = _BEGINNING

    @property
    def ids(self) -> Ids:
        return self.gone.ids

    @property
    def until(self) -> datetime:
        return self.gone.until


class Erasing:
    """Forgets people, one at a time.

    Args:
        store: With longer timeouts than a router has.
        streams: All streams.
        key: Of the erasure list.
        own_ids: Of an account of ours, which nobody may forget.
        told: Is told what is being done.
        patience: How long to wait for routers, for turns and for the outbox.
        overwrite: Whether deleted messages of streams are overwritten on disk at once.
    """

    def __init__(
        self,
        store: Store,
        streams: Streams,
        key: ErasureKey,
        *,
        own_ids: frozenset[str] = frozenset(),
        told: Callable[[str], None] = lambda _: None,
        patience: timedelta = PATIENCE,
        overwrite: bool = False,
    ) -> None:
        self._overwrite = overwrite
        self._store = store
        self._transaction = store.transaction
        self._streams = streams
        self._finder = Finder(store.transaction, streams)
        self._key = key
        self._own_ids = own_ids
        self._told = told
        self._patience = patience

    async def erase(
        self,
        person: Person,
        until: datetime | None = None,
        *,
        at: datetime | None = None,
        since: datetime | None = None,
    ) -> Erased:
        """Forget a person, or go on where that was interrupted.

        Args:
            person: Whom, named by an id.
            until: Only what they wrote up to then, as an older erasure says; None for up to now.
            at: When the id was theirs; None for now.
            since: When the id came to them, as an older erasure says; None if nobody had it before,
                or where no older erasure is asked.

        Raises:
            NotErasedError: Something does not get on; to be run again.
            TransientError: The same.
        """
        ids = await self._finder.find_ids(person, at)
        if since is not None:
            ids = ids.had_since(person.id, since)
        if (reason := why_not_to_forget(ids, self._own_ids)) is not None:
            raise NotErasedError(reason)
        run = await self._begin(ids, until)
        left: dict[str, int] = {}
        for _ in range(_MOST_PASSES):
            await self._pass(run)
            left = await self._look(run)
            if not left:
                break
            # Somebody was faster in between, such as a turn that ended: what that left goes, too.
            self._told(f"still there: {', '.join(f'{left[one]} {one}' for one in left)}")
        async with self._transaction() as connection:
            if not left:
                await erasure_list_sql.finish(connection, run.id)
            receipt = await erasure_list_sql.receipts(connection, run.id)
        return Erased(run.id, run.until, receipt, left)

    async def _pass(self, run: _Run) -> None:
        await self._share_mixed(run)
        self._told("sessions of theirs alone")
        await self._remove_sessions(run)
        self._told("what they wrote among others")
        await self._blank_shared(run)
        self._told("lanes, dead letters, kept answers, audit")
        await self._delete_lanes(run)
        await self._delete_letters(run)
        await self._forget_replies(run)
        await self._clear_audit(run)
        self._told("outbox")
        await self._await_outbox(run)
        self._told("streams")
        for stream in STREAMS_OF_PEOPLE:
            await self._erase_stream(run, stream)
        await self._delete_early_edits(run)
        await self._delete_aliases(run)

    async def _begin(self, ids: Ids, until: datetime | None) -> _Run:
        """Put the person on the list, so that everybody who decides knows of it in time."""
        await self._await_routers()
        async with self._transaction() as connection:
            known = await erasure_list_sql.find(connection, listed(self._key, ids.identity, _FAR))
        is_begun = known is not None and known.finished_at is None
        if known is not None and is_begun and known.is_fenced and until in {None, known.until}:
            self._told("going on with what was begun")
            return await self._resumed(known.id, Gone(ids, known.until))
        erasure_id = known.id if known is not None and is_begun else uuid4()
        end = await self._fence(erasure_id, ids, until)
        return await self._resumed(erasure_id, Gone(ids, end))

    async def _resumed(self, erasure_id: UUID, gone: Gone) -> _Run:
        async with self._transaction() as connection:
            gone.sessions |= await erasure_list_sql.read_ids(connection, erasure_id, "session")
            gone.turns |= await erasure_list_sql.read_ids(connection, erasure_id, "turn")
            gone.messages |= await erasure_list_sql.read_ids(connection, erasure_id, "message")
            gone.shared |= await erasure_list_sql.read_ids(connection, erasure_id, "shared")
        return _Run(erasure_id, gone)

    async def _until_none(self, count: Callable[[], Awaitable[int]], problem: str) -> None:
        """Wait until there are no more of something.

        Raises:
            NotErasedError: There still are, and what that is and what to do about it.
        """
        deadline = monotonic() + self._patience.total_seconds()
        while left := await count():
            if monotonic() > deadline:
                raise NotErasedError(f"{left} {problem}")
            await asyncio.sleep(_LOOK_EVERY.total_seconds())

    async def _await_routers(self) -> None:
        async def heedless() -> int:
            async with self._transaction() as connection:
                return await erasure_list_sql.count_heedless(connection, self._key.id)

        await self._until_none(
            heedless,
            "running routers do not ask the erasure list under this key: set erasure.key to the "
            "same secret everywhere, and upgrade and restart them",
        )

    async def _fence(self, erasure_id: UUID, ids: Ids, until: datetime | None) -> datetime:
        deadline = monotonic() + self._patience.total_seconds()
        while monotonic() < deadline:
            end = until or await self._streams.clock() + _AHEAD
            async with self._transaction() as connection:
                entries = listed(self._key, ids.identity, end)
                await erasure_list_sql.begin(connection, erasure_id, end, self._key.id, entries)
            try:
                async with self._transaction() as connection:
                    await erasure_list_sql.fence(connection)
            except StoreUnavailableError as error:
                if not error.is_held_up:
                    raise
                continue
            if until is None and await self._streams.clock() >= end:
                continue
            async with self._transaction() as connection:
                await erasure_list_sql.fenced(connection, erasure_id)
            # The clock of another machine tells nobody when it is time.
            while await self._streams.clock() < end:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_EVERY.total_seconds())
            return end
        raise NotErasedError("routers do not get on with what they read: run it again")

    # Sessions of theirs alone

    async def _share_mixed(self, run: _Run) -> None:
        """Take the owner off sessions that others wrote in, as the next message there would."""
        for session_id, key in (await self._finder.find_mixed(run.gone)).items():
            async with self._transaction() as connection:
                lanes = await erase_sql.lanes_to(connection, session_id)
                locked = await sessions.lock(connection, [session_id])
                for session in locked.values():
                    share_session(session, shared_key(session_id, key, lanes))
                await sessions.update(connection, locked.values())

    async def _remove_sessions(self, run: _Run) -> None:
        found = await self._finder.find_sessions(run.gone)
        for key in found.values():
            run.gone.add_chat(key)
        every = sorted(found)
        for begin in range(0, len(every), _SESSIONS_AT_ONCE):
            await self._remove(run, every[begin : begin + _SESSIONS_AT_ONCE], found)

    async def _remove(self, run: _Run, ids: Sequence[UUID], keys: Mapping[UUID, str]) -> None:
        async with self._transaction() as connection:
            await erasure_list_sql.note_ids(connection, run.id, "session", ids)
        run.gone.sessions |= set(ids)
        for one in ids:
            await self._trim(run, one)
        async with self._transaction() as connection:
            locked = await sessions.lock(connection, ids)
            gone = sorted(locked)
            if not gone:
                return
            counts = await erase_sql.sizes(connection, gone)
            await removals.remove(connection, gone)
            await erase_sql.delete_lane_aliases(connection, {keys[one] for one in gone})
            for one in gone:
                await audit.write(connection, "session_removed", one, {"erasure": run.id})
            await self._note(connection, run, Receipt("sessions", len(gone), gone))
            for store, count in counts.items():
                await self._note(connection, run, Receipt(store, count))

    async def _trim(self, run: _Run, session_id: UUID) -> None:
        """Delete most of a long transcript, for nobody is to wait for all of it."""
        while True:
            async with self._transaction() as connection:
                if (await erase_sql.sizes(connection, [session_id]))["messages"] <= _TRIM_ABOVE:
                    return
                await sessions.lock(connection, [session_id])
                count = await erase_sql.trim(connection, session_id)
                await self._note(connection, run, Receipt("messages", count))

    # Sessions that others share

    async def _blank_shared(self, run: _Run) -> None:
        run.shared |= await self._finder.find_shared(run.gone)
        async with self._transaction() as connection:
            await erasure_list_sql.note_ids(connection, run.id, "shared", run.shared)
        run.gone.shared |= run.shared.keys()
        async with self._transaction() as connection:
            heirs = await erase_sql.heirs_of(connection, run.shared)
            kin = await erase_sql.of_same_lanes(connection, run.shared.keys() | heirs)
        if heirs:
            await self._note_said(run)
        # Those that go on with a summary first: what shows that they may is in the others.
        for session_id in (*sorted(heirs), *sorted(run.shared.keys() - heirs)):
            await self._blank(run, session_id, has_summary=session_id in heirs)
        kept = sorted(kin)
        for begin in range(0, len(kept), _SESSIONS_AT_ONCE):
            some = kept[begin : begin + _SESSIONS_AT_ONCE]
            async with self._transaction() as connection:
                await sessions.lock(connection, some)
                count = await erase_sql.clear_notes(connection, some)
                await self._note(connection, run, Receipt("notes", count))
        await self._await_turns(run)
        async with self._transaction() as connection:
            run.answered_until = await erase_sql.now(connection)

    async def _note_said(self, run: _Run) -> None:
        """Find out which turns are theirs before copies of them are looked at."""
        for session_id, whos in run.shared.items():
            async with self._transaction() as connection:
                rows = await erase_sql.rows_of(connection, session_id, whos, run.until)
            theirs = [row for row in rows if row.is_theirs]
            run.gone.messages |= {row.id for row in theirs if row.id is not None}
            run.gone.turns |= {row.turn_id for row in theirs if row.turn_id is not None}

    async def _blank(self, run: _Run, session_id: UUID, *, has_summary: bool) -> None:
        whos = run.shared.get(session_id, [])
        async with self._transaction() as connection:
            if not await sessions.lock(connection, [session_id]):
                return
            line = await erase_sql.waiting_of(connection, session_id, whos, run.until)
            rows = await erase_sql.rows_of(connection, session_id, whos, run.until)
            archive = await erase_sql.archived_rows_of(connection, session_id, whos, run.until)
            archived = [row for removal in archive.values() for row in removal]
            theirs = [row for row in (*rows, *archived) if row.is_theirs]
            said = {row.id for row in theirs if row.id is not None} | {one[1] for one in line}
            answered = {row.turn_id for row in theirs if row.turn_id is not None}
            run.gone.messages |= said
            run.gone.turns |= answered
            has_summary = has_summary or any(row.is_theirs for row in archived)
            turns_gone, messages_gone = frozenset(run.gone.turns), frozenset(run.gone.messages)
            blanked = rows_to_blank(rows, turns_gone, messages_gone, has_summary=has_summary)
            away = [
                (removal, seq)
                for removal, its in archive.items()
                for seq in rows_to_blank(its, turns_gone, messages_gone, has_summary=has_summary)
            ]
            await erasure_list_sql.note_ids(connection, run.id, "turn", answered)
            await erasure_list_sql.note_ids(connection, run.id, "message", said)
            await turns.lock(connection, answered)
            await erase_sql.clear_turns(connection, answered)
            await erase_sql.delete_waiting(connection, session_id, [one[0] for one in line])
            if blanked or away:
                await erase_sql.blank(connection, session_id, blanked)
            await erase_sql.delete_archived(connection, session_id, away)
            revised = await erase_sql.delete_revisions(connection, said)
            late = await erase_sql.delete_late(connection, session_id, answered, said)
            place = {"session": session_id}
            for store, count, its_ids in (
                ("waiting", len(line), [one[1] for one in line]),
                ("messages", len(blanked), [{**place, "seq": ranges(blanked)}]),
                ("removed_messages", len(away), [{**place, "removals": sorted(archive)}]),
                ("message_revisions", revised, [place]),
                ("late_results", late, [place]),
            ):
                await self._note(connection, run, Receipt(store, count, its_ids))

    async def _await_turns(self, run: _Run) -> None:
        """Wait until nobody works any more on what was blanked, and blank what that left."""

        async def running() -> int:
            async with self._transaction() as connection:
                await turns.lock(connection, run.gone.turns)
                await erase_sql.clear_turns(connection, run.gone.turns)
                return await erase_sql.count_running(connection, run.gone.turns)

        await self._until_none(
            running, "turns still run on what is to go: run it again when they are over"
        )
        async with self._transaction() as connection:
            left = await erase_sql.with_answers(connection, run.gone.turns, run.gone.messages)
        for session_id in sorted(left):
            await self._blank(run, session_id, has_summary=False)

    # What is not in sessions

    async def _delete_lanes(self, run: _Run) -> None:
        lanes = await self._finder.find_lanes(run.gone)
        for key, _ in lanes:
            run.gone.add_chat(key)
        async with self._transaction() as connection:
            count = await erase_sql.delete_lanes(connection, sorted(lanes))
            names = await erase_sql.delete_lane_aliases(connection, {key for key, _ in lanes})
            await self._note(connection, run, Receipt("lanes", count))
            await self._note(connection, run, Receipt("lane_aliases", names))

    async def _delete_letters(self, run: _Run) -> None:
        async for found in self._finder.find_letters(run.gone):
            letters = [one.id for one in found]
            async with self._transaction() as connection:
                await erase_sql.delete_letters(connection, letters)
                await self._note(connection, run, Receipt("dead_letters", len(letters), letters))
            run.gone.letters |= set(letters)
        async with self._transaction() as connection:
            receipt = await erasure_list_sql.receipts(connection, run.id)
        if "dead_letters" in receipt:
            # Of a run that was interrupted, for their announcements.
            run.gone.letters |= {UUID(str(one)) for one in receipt["dead_letters"].ids}

    async def _forget_replies(self, run: _Run) -> None:
        async for requests in self._finder.find_replies(run.gone, run.answered_until):
            async with self._transaction() as connection:
                await erase_sql.forget_replies(connection, requests)
                await self._note(connection, run, Receipt("api_requests", len(requests)))

    async def _clear_audit(self, run: _Run) -> None:
        async for lines in self._finder.find_audit_lines(run.gone):
            async with self._transaction() as connection:
                await erase_sql.clear_audit_lines(connection, lines)
                await self._note(connection, run, Receipt("audit", len(lines), lines))

    async def _await_outbox(self, run: _Run) -> None:
        """Wait until what was said before is in the streams: from there it can be deleted."""
        async with self._transaction() as connection:
            through = await erase_sql.last_outbox_row(connection)
        await self._until_none(
            lambda: self._finder.count_in_outbox(run.gone, through),
            "rows of the outbox are not published: is a router running, is a stream full? Run it "
            "again after that",
        )
        await asyncio.sleep(_TOLD_WITHIN.total_seconds())

    async def _delete_early_edits(self, run: _Run) -> None:
        first = await self._streams.first_stored_at(StreamName.INBOUND)
        before = min(first or run.until, run.until)
        async with self._transaction() as connection:
            count = await erase_sql.delete_early_edits(connection, run.early, before)
            await self._note(connection, run, Receipt("early_edits", count))

    async def _delete_aliases(self, run: _Run) -> None:
        ids = run.ids
        chats = [chat_alias(chat, ids.scope) for chat in run.gone.chats]
        async with self._transaction() as connection:
            here, until = (ids.platform, ids.account), run.until
            count = await erase_sql.delete_ids(connection, here, ids.identity.name, until)
            count += await erase_sql.delete_chat_aliases(connection, here, chats, until)
            await self._note(connection, run, Receipt("aliases", count))

    # Streams

    async def _erase_stream(self, run: _Run, stream: StreamName) -> None:
        async for messages in self._finder.find_messages(run.gone, stream):
            rows = [ErasedRow(stream, one.sequence, one.stored_at) for one in messages]
            if stream is StreamName.INBOUND:
                for one in messages:
                    run.early |= _edited_in(one.body, run.ids)
            state = await self._streams.state(stream)
            async with self._transaction() as connection:
                await erasure_list_sql.note_messages(connection, rows)
                if state is not None:
                    # Where they are placed, routers leave them to us.
                    await erasure_list_sql.place_messages(connection, rows, state.generation)
            await delete_noted(self._transaction, self._streams, rows, overwrite=self._overwrite)
            async with self._transaction() as connection:
                places = ranges(one.sequence for one in rows)
                await self._note(connection, run, Receipt(stream, len(rows), places))

    async def _look(self, run: _Run) -> dict[str, int]:
        """Return how much is left, by store; nothing once it is all gone."""
        self._told("looking whether anything is left")
        gone = run.gone
        ids = gone.ids
        async with self._transaction() as connection:
            known = await erase_sql.count_ids(
                connection, (ids.platform, ids.account), ids.identity.name, gone.until
            )
            answers = await erase_sql.with_answers(connection, gone.turns, gone.messages)
            through = await erase_sql.last_outbox_row(connection)
        found = {
            "sessions": len(await self._finder.find_sessions(gone)),
            "shared sessions": len((await self._finder.find_shared(gone)).keys() | answers),
            "lanes": len(await self._finder.find_lanes(gone)),
            "dead_letters": sum([len(its) async for its in self._finder.find_letters(gone)]),
            "api_requests": sum(
                [len(its) async for its in self._finder.find_replies(run.gone, run.answered_until)]
            ),
            "audit": sum([len(its) async for its in self._finder.find_audit_lines(gone)]),
            "outbox": await self._finder.count_in_outbox(gone, through),
            "aliases": known,
        }
        for stream in STREAMS_OF_PEOPLE:
            found[stream] = sum(
                [len(its) async for its in self._finder.find_messages(gone, stream)]
            )
        return {store: count for store, count in found.items() if count}

    @staticmethod
    async def _note(connection: PoolConnectionProxy, run: _Run, receipt: Receipt) -> None:
        await erasure_list_sql.note_receipt(connection, run.id, receipt)


def _edited_in(body: bytes, ids: Ids) -> set[bytes]:
    """Return the digests of the message that an event edits, if it is an edit."""
    try:
        event = decode(InboundEvent, body)
    except DecodeError:
        return set()
    if event.kind not in {Kind.EDIT, Kind.DELETE}:
        return set()
    address = address_of(event)
    return {
        digest
        for person in (None, *ids.forms, *ids.identity.names)
        for digest in digests_of_message(event.message_id, event, address, person)
    }


async def delete_noted(
    transaction: Transaction, streams: Streams, rows: Sequence[ErasedRow], *, overwrite: bool
) -> None:
    """Delete messages of one stream that were noted, and note that they are gone.

    In which stream they are is noted before that: whoever finds them missing then asks.
    """
    stream = rows[0].stream
    state = await streams.state(StreamName(stream))
    if state is not None:
        async with transaction() as connection:
            await erasure_list_sql.place_messages(connection, rows, state.generation)
        await streams.delete(stream, [row.sequence for row in rows], overwrite=overwrite)
    async with transaction() as connection:
        await erasure_list_sql.messages_gone(connection, rows)
