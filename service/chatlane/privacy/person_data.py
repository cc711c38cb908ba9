"""Find the data of one person in database and streams, without changing anything."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from chatlane.domain.addressing.owners import identity_with
from chatlane.privacy import person_rows_sql
from chatlane.privacy.erasure_rules import Ids, names_in
from chatlane.store.addressing import identities
from chatlane_schemas.dead import Stage
from chatlane_schemas.topology.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from uuid import UUID

    from chatlane.nats.jetstream import StoredMessage
    from chatlane.postgres.pool import Transaction
    from chatlane.privacy.erasure_rules import ErasureScope, SenderSpan
    from chatlane.privacy.person_rows_sql import Letter, Reply
    from chatlane.privacy.stream_erasure import StreamErasure
    from chatlane_schemas.session_api.people import Person

_MESSAGES_AT_ONCE: Final = 1_000
_SESSIONS_AT_ONCE: Final = 50
# Clocks of a cluster's servers may differ by so much when the leader of a stream changes.
_CLOCKS: Final = timedelta(seconds=10)
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UUID: Final = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_STREAM_OF_STAGE: Final[Mapping[str, StreamName]] = {
    Stage.INBOUND: StreamName.INBOUND,
    Stage.RESULTS: StreamName.RESULTS,
    Stage.TURNS: StreamName.TURNS,
    Stage.ROUTED: StreamName.ROUTED,
}
_STREAM_OF_SUBJECT: Final = {
    "routed": StreamName.ROUTED,
    "turn": StreamName.TURNS,
    "outbound": StreamName.OUTBOUND,
    "event": StreamName.EVENTS,
    "dead": StreamName.DEAD,
}


class Finder:
    """Finds the data of a person.

    Args:
        transaction: Opens a transaction for each batch.
        streams: All streams.
    """

    def __init__(self, transaction: Transaction, streams: StreamErasure) -> None:
        self._transaction = transaction
        self._streams = streams

    async def find_ids(self, person: Person, at: datetime | None = None) -> Ids:
        """Return the identity of a person, with all current and former ids.

        Args:
            person: The person, named by an id.
            at: A time at which the person had the id; None for now.
        """
        async with self._transaction() as connection:
            identity = await identities.find(connection, person, at)
        # Sources may contain a text that is not a known id.
        scope = person.scope or None
        return Ids(identity or identity_with(person.platform, person.account, scope, person.id, ()))

    async def find_sessions(self, scope: ErasureScope) -> dict[UUID, str]:
        """Return keys of the sessions up to the end that belong to the person alone, by id."""
        found = await self._find_owned(scope)
        for session_id in await self._with_others(scope, found):
            del found[session_id]
        return found

    async def find_mixed(self, scope: ErasureScope) -> dict[UUID, str]:
        """Return keys of the sessions up to the end that the person owns but others wrote in, by id.

        Older releases left such sessions: they did not clear the owner of a shared session.
        """
        found = await self._find_owned(scope)
        return {
            session_id: found[session_id] for session_id in await self._with_others(scope, found)
        }

    async def _with_others(self, scope: ErasureScope, keys: Mapping[UUID, str]) -> set[UUID]:
        # Only sessions of lanes can be mixed: a thread's lane led others to a question's session.
        session_ids = sorted(
            session_id for session_id, key in keys.items() if key.startswith("agent:")
        )
        found: set[UUID] = set()
        for begin in range(0, len(session_ids), _SESSIONS_AT_ONCE):
            some = session_ids[begin : begin + _SESSIONS_AT_ONCE]
            async with self._transaction() as connection:
                senders = await person_rows_sql.senders_of(connection, some)
            found |= {
                spoken.session_id
                for spoken in senders
                if scope.ids.is_anothers(spoken.who, spoken.first_at, spoken.last_at)
            }
        return found

    async def _find_owned(self, scope: ErasureScope) -> dict[UUID, str]:
        ids, found = scope.ids, {}
        async with self._transaction() as connection:
            candidates = await person_rows_sql.owned(connection, ids.owners)
        like = f"agent:%:{ids.platform}:{ids.account}:%"
        candidates += [
            session
            async for session in person_rows_sql.walk_sessions(self._transaction, like)
            if ids.is_session(session.session_key, session.owner)
        ]
        later = []
        for session in candidates:
            if session.started_at is not None and session.started_at <= scope.until:
                found[session.session_id] = session.session_key
            else:
                later.append(session)
        async with self._transaction() as connection:
            old = await person_rows_sql.with_old_rows(
                connection, [session.session_id for session in later], scope.until
            )
        return found | {
            session.session_id: session.session_key
            for session in later
            if session.session_id in old
        }

    async def find_shared(self, scope: ErasureScope) -> dict[UUID, list[SenderSpan]]:
        """Return the sessions that the person wrote in, with the sender as sources name it there."""
        found: dict[UUID, list[SenderSpan]] = {}
        of = (scope.ids.platform, scope.ids.account)
        async for spoken in person_rows_sql.walk_senders(self._transaction, scope.until, of):
            for sender in scope.ids.sender_spans(spoken.who):
                # Another person may have had the id between the first and the last row.
                if sender.overlaps(spoken.first_at, spoken.last_at):
                    named = found.setdefault(spoken.session_id, [])
                    if sender not in named:
                        named.append(sender)
        if not scope.ids.was_always_one:
            found = await self._without_others(found, scope.until)
        return found

    async def _without_others(
        self, found: dict[UUID, list[SenderSpan]], until: datetime
    ) -> dict[UUID, list[SenderSpan]]:
        """Drop sessions with rows only before and after a time span, but none within it."""
        async with self._transaction() as connection:
            return {
                session_id: message_ids
                for session_id, message_ids in found.items()
                if await person_rows_sql.has_written(connection, session_id, message_ids, until)
            }

    async def find_quotes(
        self, scope: ErasureScope
    ) -> dict[UUID, list[tuple[str, datetime | None]]]:
        """Return the sessions in which rows of others quote the person, by the ids in the quotes.

        Each id has the time since which it is the person's. A quote may be older than its row, so it
        also counts after the id went to another person.
        """
        found: dict[UUID, list[tuple[str, datetime | None]]] = {}
        of = (scope.ids.platform, scope.ids.account)
        messages = {str(message_id) for message_id in scope.messages}
        async for quote in person_rows_sql.walk_quotes(self._transaction, scope.until, of):
            authors = [
                (quote.sender_id, span.since)
                for span in scope.ids.identity.spans_of(quote.sender_id or "")
                if quote.sender_id and (span.since is None or span.since <= quote.last_at)
            ]
            if authors or quote.message_id in messages:
                found.setdefault(quote.session_id, []).extend(authors)
        return found

    async def find_lanes(self, scope: ErasureScope) -> list[tuple[str, UUID]]:
        """Return the keys of lanes that belong to the person alone, with their session ids."""
        like = f"agent:%:{scope.ids.platform}:{scope.ids.account}:%"
        return [
            (lane.session_key, lane.session_id)
            async for lane in person_rows_sql.walk_lanes(self._transaction, like)
            # A lane that points to a later session belongs to a new conversation.
            if scope.ids.is_session(lane.session_key, lane.owner)
            and (lane.started_at is None or lane.started_at <= scope.until)
        ]

    async def find_letters(self, scope: ErasureScope) -> AsyncIterator[list[Letter]]:
        """Yield the dead letters of the person in batches."""
        async for letters in person_rows_sql.walk_pages(
            self._transaction, person_rows_sql.next_letters
        ):
            if found := [letter for letter in letters if _is_letter(scope, letter)]:
                yield found

    async def find_replies(
        self, scope: ErasureScope, answered_until: datetime
    ) -> AsyncIterator[list[tuple[str, str]]]:
        """Yield (principal, id) of requests whose stored replies may contain data of the person.

        Args:
            scope: Scope of the erasure.
            answered_until: Replies up to this time may quote rows that were blanked since.
        """
        async for replies in person_rows_sql.walk_pages(
            self._transaction, person_rows_sql.next_replies
        ):
            found = [
                (reply.principal, reply.id)
                for reply in replies
                if _is_reply(scope, answered_until, reply)
            ]
            if found:
                yield found

    async def find_audit_lines(self, scope: ErasureScope) -> AsyncIterator[list[int]]:
        """Yield the ids of audit lines that name the person, in batches."""
        async for page in person_rows_sql.walk_pages(
            self._transaction, person_rows_sql.next_audit_lines
        ):
            found = [
                line.id
                for line in page
                if (line.at <= scope.until or line.session_id in scope.sessions)
                and names_in(line.detail, scope.ids, line.at)
            ]
            if found:
                yield found

    async def count_in_outbox(self, scope: ErasureScope, through: int) -> int:
        """Return how many outbox rows up to an id belong to the person."""
        read = partial(person_rows_sql.next_outbox_rows, through=through)
        return sum(
            [
                any(
                    scope.holds(stream, row.created_at, row.payload)
                    for stream in _streams_named(row.stream)
                )
                async for rows in person_rows_sql.walk_pages(self._transaction, read)
                for row in rows
            ]
        )

    async def find_messages(
        self, scope: ErasureScope, stream: StreamName
    ) -> AsyncIterator[list[StoredMessage]]:
        """Yield the messages of a stream that belong to the person, in batches."""
        if await self._streams.state(stream) is None:
            return
        account, until = None, None
        if stream is StreamName.INBOUND:
            # An erasure leaves later events; other streams may mention the person later.
            account, until = (scope.ids.platform, scope.ids.account), scope.until + _CLOCKS
        found: list[StoredMessage] = []
        async for messages in self._streams.read(stream, account, until):
            found += [
                message
                for message in messages
                if scope.holds(stream, message.stored_at, message.body)
            ]
            if len(found) >= _MESSAGES_AT_ONCE:
                yield found
                found = []
            # Yield to the event loop: a router may share the processor.
            await asyncio.sleep(0)
        if found:
            yield found


def _is_letter(scope: ErasureScope, letter: Letter) -> bool:
    if letter.session_id in scope.sessions:
        return True
    if letter.body is None:
        return False
    return scope.holds(_stream_of(letter), letter.stored_at or letter.at, letter.body)


def _stream_of(letter: Letter) -> StreamName:
    stream = _STREAM_OF_STAGE.get(letter.stage)
    if stream is not None:
        return stream
    noun = (letter.subject or "").split(".")[2:3]
    return _STREAM_OF_SUBJECT.get(noun[0] if noun else "", StreamName.OUTBOUND)


def _streams_named(name: str) -> tuple[StreamName, ...]:
    """Return the stream with a name, or all streams if only a newer release knows the name."""
    return (StreamName(name),) if name in tuple(StreamName) else tuple(StreamName)


def _is_reply(scope: ErasureScope, answered_until: datetime, reply: Reply) -> bool:
    named = {text.decode() for text in _UUID.findall(reply.reply)}
    if any(str(session_id) in named for session_id in scope.sessions):
        return True
    if reply.at <= answered_until and any(str(shared_id) in named for shared_id in scope.shared):
        return True
    return reply.at <= scope.until and scope.ids.is_quoted(reply.reply, reply.at)
