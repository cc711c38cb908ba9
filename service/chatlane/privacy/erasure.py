"""Erase a person: delete their data from database and streams, and prevent its return.

The steps run in this order. Each piece commits in its own transaction together with its line of
the receipt, so that an interrupted erasure can run again:

1. Add the person to the erasure list, with an end some seconds ahead. Once every router knows the
   entry and the end has passed, no router decides messages that the person wrote up to the end.
   Later messages open new sessions.
2. Delete the sessions that belong to the person alone. In shared sessions, blank what the person
   wrote and the answers to it, and drop their waiting messages. Cancel the turns that run on them,
   and wait for their end.
3. Delete dead letters, stored replies of requests, details of the audit, and lanes.
4. Wait until the outbox holds none of it, then erase the streams. Note each message before its
   deletion, so that no comparison reports it as a loss.
5. Search for all of it again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from chatlane.domain.addressing.alias_rows import chat_alias
from chatlane.domain.addressing.dedupe import digests_of_message
from chatlane.domain.addressing.owners import shared_key
from chatlane.domain.addressing.sources import address_of
from chatlane.domain.effects import ErasedRow
from chatlane.domain.sessions.session_flags import share_session
from chatlane.errors import PermanentError, StoreUnavailableError
from chatlane.privacy import catalogue_sql, erase_sql, erasure_list_sql, person_rows_sql
from chatlane.privacy.erasure_list_sql import Receipt
from chatlane.privacy.erasure_rules import (
    ErasureScope,
    listed,
    ranges,
    rows_to_blank,
    why_not_to_forget,
)
from chatlane.privacy.person_data import Finder
from chatlane.store import audit, questions, turns
from chatlane.store.conversations import removals, sessions
from chatlane_schemas.codec import DecodeError, decode
from chatlane_schemas.inbound import InboundEvent, Kind
from chatlane_schemas.topology.streams import STREAMS_OF_PEOPLE, StreamName

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.erasure_key import ErasureKey
    from chatlane.postgres.pool import Store, Transaction
    from chatlane.privacy.erasure_rules import Ids, SenderSpan
    from chatlane.privacy.stream_erasure import StreamErasure
    from chatlane_schemas.session_api.people import Person

TIMEOUT: Final = timedelta(seconds=30)
# How far ahead the end of an erasure is announced; every router has to know it by then.
_AHEAD: Final = timedelta(seconds=2)
_LOOK_EVERY: Final = timedelta(milliseconds=200)
# Routers publish notifications from memory, such as a changed session, within a second.
_TOLD_WITHIN: Final = timedelta(seconds=1.5)
_SESSIONS_AT_ONCE: Final = 50
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FAR: Final = datetime(9999, 1, 1, tzinfo=UTC)
_MOST_PASSES: Final = 5
# Rows of a session that one transaction can delete without a noticeable delay for others.
_TRIM_ABOVE: Final = 20_000


class NotErasedError(PermanentError):
    """An erasure is not complete; the text says what to do. It can run again."""


@dataclass(frozen=True, slots=True)
class Erased:
    """Result of an erasure.

    Attributes:
        receipt: By store, what was deleted.
        left: By store, how much is still found; empty if the erasure is complete.
    """

    id: UUID
    until: datetime
    receipt: Mapping[str, Receipt]
    left: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Run:
    """One run of an erasure, and the data that it has found."""

    id: UUID
    scope: ErasureScope
    #: By shared session, how the sources of its rows name the person.
    shared: dict[UUID, list[SenderSpan]] = field(default_factory=dict)
    early: set[bytes] = field(default_factory=set)
    #: Replies to requests up to this time may quote rows that were blanked.
    answered_until: datetime = _BEGINNING

    @property
    def ids(self) -> Ids:
        return self.scope.ids

    @property
    def until(self) -> datetime:
        return self.scope.until


class Erasing:
    """Erases people, one at a time.

    Args:
        store: Database access with longer timeouts than a router has.
        streams: All streams.
        key: Key of the erasure list.
        own_ids: Ids of our own account, which cannot be erased.
        on_progress: Callback for progress messages.
        patience: How long to wait for routers, for turns and for the outbox.
        overwrite: True to overwrite deleted messages of streams on disk at once.
    """

    def __init__(
        self,
        store: Store,
        streams: StreamErasure,
        key: ErasureKey,
        *,
        own_ids: frozenset[str] = frozenset(),
        on_progress: Callable[[str], None] = lambda _: None,
        patience: timedelta = TIMEOUT,
        overwrite: bool = False,
    ) -> None:
        self._overwrite = overwrite
        self._store = store
        self._transaction = store.transaction
        self._streams = streams
        self._finder = Finder(store.transaction, streams)
        self._key = key
        self._own_ids = own_ids
        self._report_progress = on_progress
        self._patience = patience

    async def erase(
        self,
        person: Person,
        until: datetime | None = None,
        *,
        at: datetime | None = None,
        since: datetime | None = None,
    ) -> Erased:
        """Erase a person, or continue an interrupted erasure.

        Args:
            person: The person, named by an id.
            until: Erase only what they wrote up to this time, as an older erasure says; None for
                up to now.
            at: A time at which the person had the id; None for now.
            since: When the person got the id, as an older erasure says; None if the id had no
                earlier holder, or if no older erasure is replayed.

        Raises:
            NotErasedError: A step made no progress; run the erasure again.
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
            # Another process wrote in between, such as a turn that ended: erase that as well.
            self._report_progress(
                f"remaining: {', '.join(f'{left[store]} {store}' for store in left)}"
            )
        async with self._transaction() as connection:
            if not left:
                await erasure_list_sql.finish(connection, run.id)
            receipt = await erasure_list_sql.receipts(connection, run.id)
        return Erased(run.id, run.until, receipt, left)

    async def _pass(self, run: _Run) -> None:
        await self._share_mixed(run)
        self._report_progress("deleting the sessions of this person")
        await self._remove_sessions(run)
        self._report_progress("blanking messages in shared sessions")
        await self._blank_shared(run)
        await self._forget_quotes(run)
        self._report_progress("deleting lanes, dead letters, stored replies, audit details")
        await self._delete_lanes(run)
        await self._delete_letters(run)
        await self._forget_replies(run)
        await self._clear_audit(run)
        self._report_progress("waiting for the outbox")
        await self._await_outbox(run)
        self._report_progress("deleting from streams")
        for stream in STREAMS_OF_PEOPLE:
            await self._erase_stream(run, stream)
        await self._delete_early_edits(run)
        await self._delete_aliases(run)

    async def _begin(self, ids: Ids, until: datetime | None) -> _Run:
        """Add the person to the erasure list, so that every router knows the entry in time."""
        await self._await_routers()
        async with self._transaction() as connection:
            known = await erasure_list_sql.find(connection, listed(self._key, ids.identity, _FAR))
        is_begun = known is not None and known.finished_at is None
        if known is not None and is_begun and known.is_fenced and until in {None, known.until}:
            self._report_progress("continuing an interrupted erasure")
            return await self._resumed(known.id, ErasureScope(ids, known.until))
        erasure_id = known.id if known is not None and is_begun else uuid4()
        end = await self._fence(erasure_id, ids, until)
        return await self._resumed(erasure_id, ErasureScope(ids, end))

    async def _resumed(self, erasure_id: UUID, scope: ErasureScope) -> _Run:
        async with self._transaction() as connection:
            scope.sessions |= await erasure_list_sql.read_ids(connection, erasure_id, "session")
            scope.turns |= await erasure_list_sql.read_ids(connection, erasure_id, "turn")
            scope.messages |= await erasure_list_sql.read_ids(connection, erasure_id, "message")
            scope.shared |= await erasure_list_sql.read_ids(connection, erasure_id, "shared")
        return _Run(erasure_id, scope)

    async def _until_none(self, count: Callable[[], Awaitable[int]], problem: str) -> None:
        """Wait until a count reaches zero.

        Raises:
            NotErasedError: It did not in time; the text says what is left and what to do.
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
            "running routers do not check the erasure list under this key: set erasure.key to the "
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
            # Poll the clock of the streams: our own clock may differ.
            while await self._streams.clock() < end:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_EVERY.total_seconds())
            return end
        raise NotErasedError("routers do not finish their batches: run the command again")

    # Sessions that belong to the person alone

    async def _share_mixed(self, run: _Run) -> None:
        """Clear the owner of sessions that others wrote in, as the next message there would."""
        for session_id, key in (await self._finder.find_mixed(run.scope)).items():
            async with self._transaction() as connection:
                lanes = await person_rows_sql.lanes_to(connection, session_id)
                locked = await sessions.lock(connection, [session_id])
                for session in locked.values():
                    share_session(session, shared_key(session_id, key, lanes))
                await sessions.update(connection, locked.values())

    async def _remove_sessions(self, run: _Run) -> None:
        found = await self._finder.find_sessions(run.scope)
        for key in found.values():
            run.scope.add_chat(key)
        session_ids = sorted(found)
        for begin in range(0, len(session_ids), _SESSIONS_AT_ONCE):
            await self._remove(run, session_ids[begin : begin + _SESSIONS_AT_ONCE], found)

    async def _remove(self, run: _Run, ids: Sequence[UUID], keys: Mapping[UUID, str]) -> None:
        async with self._transaction() as connection:
            await erasure_list_sql.note_ids(connection, run.id, "session", ids)
        run.scope.sessions |= set(ids)
        for session_id in ids:
            await self._trim(run, session_id)
        async with self._transaction() as connection:
            locked = await sessions.lock(connection, ids)
            removed = sorted(locked)
            if not removed:
                return
            counts = await erase_sql.sizes(connection, removed)
            await removals.remove(connection, removed)
            await erase_sql.delete_lane_aliases(
                connection, {keys[session_id] for session_id in removed}
            )
            for session_id in removed:
                await audit.write(connection, "session_removed", session_id, {"erasure": run.id})
            await self._note(connection, run, Receipt("sessions", len(removed), removed))
            for store, count in counts.items():
                await self._note(connection, run, Receipt(store, count))

    async def _trim(self, run: _Run, session_id: UUID) -> None:
        """Delete most of a long transcript in batches, so that no transaction gets too long."""
        while True:
            async with self._transaction() as connection:
                if (await erase_sql.sizes(connection, [session_id]))["messages"] <= _TRIM_ABOVE:
                    return
                await sessions.lock(connection, [session_id])
                count = await erase_sql.trim(connection, session_id)
                await self._note(connection, run, Receipt("messages", count))

    # Sessions that others share

    async def _blank_shared(self, run: _Run) -> None:
        run.shared |= await self._finder.find_shared(run.scope)
        async with self._transaction() as connection:
            await erasure_list_sql.note_ids(connection, run.id, "shared", run.shared)
        run.scope.shared |= run.shared.keys()
        async with self._transaction() as connection:
            continuations = await erase_sql.heirs_of(connection, run.shared)
            same_lanes = await erase_sql.of_same_lanes(
                connection, run.shared.keys() | continuations
            )
        if continuations:
            await self._note_said(run)
        # Blank sessions with a summary first: the other sessions hold the evidence for them.
        for session_id in (*sorted(continuations), *sorted(run.shared.keys() - continuations)):
            await self._blank(run, session_id, has_summary=session_id in continuations)
        kept = sorted(same_lanes)
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
        """Find the turns of the person before checking copies of them."""
        for session_id, whos in run.shared.items():
            async with self._transaction() as connection:
                rows = await person_rows_sql.rows_of(connection, session_id, whos, run.until)
            own_rows = [row for row in rows if row.is_own]
            run.scope.messages |= {row.id for row in own_rows if row.id is not None}
            run.scope.turns |= {row.turn_id for row in own_rows if row.turn_id is not None}

    async def _blank(self, run: _Run, session_id: UUID, *, has_summary: bool) -> None:
        whos = run.shared.get(session_id, [])
        async with self._transaction() as connection:
            if not await sessions.lock(connection, [session_id]):
                return
            line = await person_rows_sql.waiting_of(connection, session_id, whos, run.until)
            rows = await person_rows_sql.rows_of(connection, session_id, whos, run.until)
            archive = await person_rows_sql.archived_rows_of(
                connection, session_id, whos, run.until
            )
            archived = [row for removal in archive.values() for row in removal]
            own_rows = [row for row in (*rows, *archived) if row.is_own]
            message_ids = {row.id for row in own_rows if row.id is not None} | {
                waiting[1] for waiting in line
            }
            answered = {row.turn_id for row in own_rows if row.turn_id is not None}
            run.scope.messages |= message_ids
            run.scope.turns |= answered
            has_summary = has_summary or any(row.is_own for row in archived)
            turns_gone, messages_gone = frozenset(run.scope.turns), frozenset(run.scope.messages)
            blanked = rows_to_blank(rows, turns_gone, messages_gone, has_summary=has_summary)
            archived_places = [
                (removal, seq)
                for removal, removal_rows in archive.items()
                for seq in rows_to_blank(
                    removal_rows, turns_gone, messages_gone, has_summary=has_summary
                )
            ]
            await erasure_list_sql.note_ids(connection, run.id, "turn", answered)
            await erasure_list_sql.note_ids(connection, run.id, "message", message_ids)
            await turns.lock(connection, answered)
            await erase_sql.clear_turns(connection, answered)
            if own_rows:
                # One of them may be an answer to a turn of others.
                await questions.forget_answers(connection, session_id)
            await erase_sql.delete_waiting(connection, session_id, [waiting[0] for waiting in line])
            if blanked or archived_places:
                await erase_sql.blank(connection, session_id, blanked)
            await erase_sql.delete_archived(connection, session_id, archived_places)
            revised = await erase_sql.delete_revisions(connection, message_ids)
            late = await erase_sql.delete_late(connection, session_id, answered, message_ids)
            place = {"session": session_id}
            for store, count, receipt_ids in (
                ("waiting", len(line), [waiting[1] for waiting in line]),
                ("messages", len(blanked), [{**place, "seq": ranges(blanked)}]),
                (
                    "removed_messages",
                    len(archived_places),
                    [{**place, "removals": sorted(archive)}],
                ),
                ("message_revisions", revised, [place]),
                ("late_results", late, [place]),
            ):
                await self._note(connection, run, Receipt(store, count, receipt_ids))

    async def _forget_quotes(self, run: _Run) -> None:
        """Remove what the person said from rows of others that quote it."""
        for session_id, authors in sorted((await self._finder.find_quotes(run.scope)).items()):
            async with self._transaction() as connection:
                await sessions.lock(connection, [session_id])
                count = await erase_sql.forget_quotes(
                    connection, session_id, authors, run.scope.messages, run.until
                )
                await self._note(
                    connection, run, Receipt("quotes", count, [{"session": session_id}])
                )

    async def _await_turns(self, run: _Run) -> None:
        """Wait until no worker runs a blanked turn, and blank the answers that came meanwhile."""

        async def running() -> int:
            async with self._transaction() as connection:
                await turns.lock(connection, run.scope.turns)
                await erase_sql.clear_turns(connection, run.scope.turns)
                return await erase_sql.count_running(connection, run.scope.turns)

        await self._until_none(
            running,
            "turns still run on erased messages: run the command again when they have ended",
        )
        async with self._transaction() as connection:
            left = await erase_sql.with_answers(connection, run.scope.turns, run.scope.messages)
        for session_id in sorted(left):
            await self._blank(run, session_id, has_summary=False)

    # Data outside of sessions

    async def _delete_lanes(self, run: _Run) -> None:
        lanes = await self._finder.find_lanes(run.scope)
        for key, _ in lanes:
            run.scope.add_chat(key)
        async with self._transaction() as connection:
            count = await erase_sql.delete_lanes(connection, sorted(lanes))
            names = await erase_sql.delete_lane_aliases(connection, {key for key, _ in lanes})
            kept = await catalogue_sql.delete(connection, run.ids.owners, run.until)
            for store, deleted in {"lanes": count, "lane_aliases": names, **kept}.items():
                await self._note(connection, run, Receipt(store, deleted))

    async def _delete_letters(self, run: _Run) -> None:
        async for found in self._finder.find_letters(run.scope):
            letters = [letter.id for letter in found]
            async with self._transaction() as connection:
                await erase_sql.delete_letters(connection, letters)
                await self._note(connection, run, Receipt("dead_letters", len(letters), letters))
            run.scope.letters |= set(letters)
        async with self._transaction() as connection:
            receipt = await erasure_list_sql.receipts(connection, run.id)
        if "dead_letters" in receipt:
            # Also letters of an interrupted run, to find their announcements.
            run.scope.letters |= {UUID(str(letter)) for letter in receipt["dead_letters"].ids}

    async def _forget_replies(self, run: _Run) -> None:
        async for requests in self._finder.find_replies(run.scope, run.answered_until):
            async with self._transaction() as connection:
                await erase_sql.forget_replies(connection, requests)
                await self._note(connection, run, Receipt("api_requests", len(requests)))

    async def _clear_audit(self, run: _Run) -> None:
        async for line_ids in self._finder.find_audit_lines(run.scope):
            async with self._transaction() as connection:
                await erase_sql.clear_audit_lines(connection, line_ids)
                await self._note(connection, run, Receipt("audit", len(line_ids), line_ids))

    async def _await_outbox(self, run: _Run) -> None:
        """Wait until earlier outbox rows are in the streams, where they can be deleted."""
        async with self._transaction() as connection:
            through = await person_rows_sql.last_outbox_row(connection)
        await self._until_none(
            lambda: self._finder.count_in_outbox(run.scope, through),
            "rows of the outbox are not published: check that a router runs and that no stream is "
            "full, then run the command again",
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
        chats = [chat_alias(chat, ids.scope) for chat in run.scope.chats]
        async with self._transaction() as connection:
            here, until = (ids.platform, ids.account), run.until
            count = await erase_sql.delete_ids(connection, here, ids.identity.name, until)
            count += await erase_sql.delete_chat_aliases(connection, here, chats, until)
            await self._note(connection, run, Receipt("aliases", count))

    # Streams

    async def _erase_stream(self, run: _Run, stream: StreamName) -> None:
        async for messages in self._finder.find_messages(run.scope, stream):
            rows = [ErasedRow(stream, message.sequence, message.stored_at) for message in messages]
            if stream is StreamName.INBOUND:
                for message in messages:
                    run.early |= _edited_in(message.body, run.ids)
            state = await self._streams.state(stream)
            async with self._transaction() as connection:
                await erasure_list_sql.note_messages(connection, rows)
                if state is not None:
                    # Routers leave messages with a generation to the erasure.
                    await erasure_list_sql.place_messages(connection, rows, state.generation)
            await delete_noted(self._transaction, self._streams, rows, overwrite=self._overwrite)
            async with self._transaction() as connection:
                places = ranges(message.sequence for message in rows)
                await self._note(connection, run, Receipt(stream, len(rows), places))

    async def _look(self, run: _Run) -> dict[str, int]:
        """Return how much is left by store; empty if nothing is left."""
        self._report_progress("searching for remaining data")
        scope = run.scope
        ids = scope.ids
        async with self._transaction() as connection:
            here = (ids.platform, ids.account)
            known = await erase_sql.count_ids(connection, here, ids.identity.name, scope.until)
            answers = await erase_sql.with_answers(connection, scope.turns, scope.messages)
            kept = await catalogue_sql.count(connection, ids.owners, scope.until)
            through = await person_rows_sql.last_outbox_row(connection)
        found = {
            "sessions": len(await self._finder.find_sessions(scope)),
            "shared sessions": len((await self._finder.find_shared(scope)).keys() | answers),
            "quotes": len(await self._finder.find_quotes(scope)),
            "lanes": len(await self._finder.find_lanes(scope)),
            "dead_letters": sum([len(batch) async for batch in self._finder.find_letters(scope)]),
            "api_requests": sum(
                [
                    len(batch)
                    async for batch in self._finder.find_replies(run.scope, run.answered_until)
                ]
            ),
            "audit": sum([len(batch) async for batch in self._finder.find_audit_lines(scope)]),
            "outbox": await self._finder.count_in_outbox(scope, through),
            "aliases": known,
        } | kept
        for stream in STREAMS_OF_PEOPLE:
            found[stream] = sum(
                [len(batch) async for batch in self._finder.find_messages(scope, stream)]
            )
        return {store: count for store, count in found.items() if count}

    @staticmethod
    async def _note(connection: PoolConnectionProxy, run: _Run, receipt: Receipt) -> None:
        await erasure_list_sql.note_receipt(connection, run.id, receipt)


def _edited_in(body: bytes, ids: Ids) -> set[bytes]:
    """Return the digests of the message that an event edits or deletes; empty for other events."""
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
    transaction: Transaction, streams: StreamErasure, rows: Sequence[ErasedRow], *, overwrite: bool
) -> None:
    """Delete noted messages of one stream, and note that they are scope.

    The generation of the stream is noted first, so that a comparison that finds them missing can
    explain the loss.
    """
    stream = rows[0].stream
    state = await streams.state(StreamName(stream))
    if state is not None:
        async with transaction() as connection:
            await erasure_list_sql.place_messages(connection, rows, state.generation)
        await streams.delete(stream, [row.sequence for row in rows], overwrite=overwrite)
    async with transaction() as connection:
        await erasure_list_sql.messages_gone(connection, rows)
