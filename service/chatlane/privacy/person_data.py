"""Finds what is one person's, in database and streams; looks only."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

from chatlane.domain.addressing.identities import identity_with
from chatlane.privacy import erase_sql
from chatlane.privacy.erasure_rules import Ids, names_in
from chatlane.store.addressing import identities
from chatlane_schemas.dead import Stage
from chatlane_schemas.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.nats.jetstream import StoredMessage, StreamState
    from chatlane.privacy.erase_sql import Letter, Reply
    from chatlane.privacy.erasure_rules import Gone, Said
    from chatlane_schemas.people import Person

    Transaction = Callable[[], AbstractAsyncContextManager[PoolConnectionProxy]]

_MESSAGES_AT_ONCE: Final = 1_000
_SESSIONS_AT_ONCE: Final = 50
# Servers of a cluster may differ by that much when the leader of a stream changes.
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


class Streams(Protocol):
    """The streams as this sees them."""

    async def clock(self) -> datetime:
        """Return the time by the clock of the streams."""
        ...

    async def state(self, stream: StreamName) -> StreamState | None:
        """Return how far a stream goes."""
        ...

    async def find_stored_at(self, stream: str, sequence: int) -> datetime | None:
        """Return when a message was stored, if it is there."""
        ...

    async def first_stored_at(self, stream: StreamName) -> datetime | None:
        """Return when the oldest message of a stream was stored."""
        ...

    def read(
        self,
        stream: StreamName,
        account: tuple[str, str] | None = None,
        until: datetime | None = None,
    ) -> AsyncIterator[list[StoredMessage]]:
        """Yield all messages of a stream up to a time, or those of INBOUND of an account."""
        ...

    async def delete(self, stream: str, sequences: Iterable[int], *, overwrite: bool) -> None:
        """Delete messages for good, and perhaps overwrite them on disk."""
        ...


class Finder:
    """Finds a person.

    Args:
        transaction: Opens one for each piece of what is looked through.
        streams: All streams.
    """

    def __init__(self, transaction: Transaction, streams: Streams) -> None:
        self._transaction = transaction
        self._streams = streams

    async def find_ids(self, person: Person, at: datetime | None = None) -> Ids:
        """Return the identity of a person, with all ids that are or were theirs.

        Args:
            person: Named by an id.
            at: When the id was theirs; None for now.
        """
        async with self._transaction() as connection:
            identity = await identities.find(connection, person, at)
        # A text that is no id may stand in sources all the same.
        scope = person.scope or None
        return Ids(identity or identity_with(person.platform, person.account, scope, person.id, ()))

    async def find_sessions(self, gone: Gone) -> dict[UUID, str]:
        """Return the sessions of before the end that are theirs alone, with their keys."""
        found = await self._find_owned(gone)
        for session_id in await self._with_others(gone, found):
            del found[session_id]
        return found

    async def find_mixed(self, gone: Gone) -> dict[UUID, str]:
        """Return the sessions of before the end that they own and others wrote in, with their keys.

        Releases before shared sessions lost their owner left them.
        """
        found = await self._find_owned(gone)
        return {
            session_id: found[session_id] for session_id in await self._with_others(gone, found)
        }

    async def _with_others(self, gone: Gone, keys: Mapping[UUID, str]) -> set[UUID]:
        # Only a thread's lane led others to the session of a question, and both have a lane.
        every = sorted(session_id for session_id, key in keys.items() if key.startswith("agent:"))
        found: set[UUID] = set()
        for begin in range(0, len(every), _SESSIONS_AT_ONCE):
            some = every[begin : begin + _SESSIONS_AT_ONCE]
            async with self._transaction() as connection:
                senders = await erase_sql.senders_of(connection, some)
            found |= {
                spoken.session_id
                for spoken in senders
                if gone.ids.is_anothers(spoken.who, spoken.first_at, spoken.last_at)
            }
        return found

    async def _find_owned(self, gone: Gone) -> dict[UUID, str]:
        ids, found = gone.ids, {}
        async with self._transaction() as connection:
            every = await erase_sql.owned(connection, ids.owners)
        like = f"agent:%:{ids.platform}:{ids.account}:%"
        every += [
            one
            async for one in erase_sql.walk_sessions(self._transaction, like)
            if ids.is_session(one.session_key, one.owner)
        ]
        later = []
        for one in every:
            if one.started_at is not None and one.started_at <= gone.until:
                found[one.session_id] = one.session_key
            else:
                later.append(one)
        async with self._transaction() as connection:
            old = await erase_sql.with_old_rows(
                connection, [one.session_id for one in later], gone.until
            )
        return found | {one.session_id: one.session_key for one in later if one.session_id in old}

    async def find_shared(self, gone: Gone) -> dict[UUID, list[Said]]:
        """Return the sessions they wrote in besides their own, and how sources name them there."""
        found: dict[UUID, list[Said]] = {}
        of = (gone.ids.platform, gone.ids.account)
        async for spoken in erase_sql.walk_senders(self._transaction, gone.until, of):
            for said in gone.ids.said_as(spoken.who):
                # Between the first and the last somebody else may have had the id.
                if said.overlaps(spoken.first_at, spoken.last_at):
                    named = found.setdefault(spoken.session_id, [])
                    if said not in named:
                        named.append(said)
        if not gone.ids.was_always_one:
            found = await self._without_others(found, gone.until)
        return found

    async def _without_others(
        self, found: dict[UUID, list[Said]], until: datetime
    ) -> dict[UUID, list[Said]]:
        """Leave out sessions that hold rows of before and after, and none of the time itself."""
        async with self._transaction() as connection:
            return {
                session_id: said
                for session_id, said in found.items()
                if await erase_sql.has_said(connection, session_id, said, until)
            }

    async def find_lanes(self, gone: Gone) -> list[tuple[str, UUID]]:
        """Return keys of lanes of theirs alone, with the sessions they lead to."""
        like = f"agent:%:{gone.ids.platform}:{gone.ids.account}:%"
        return [
            (lane.session_key, lane.session_id)
            async for lane in erase_sql.walk_lanes(self._transaction, like)
            # One that leads to what they began later is a new conversation.
            if gone.ids.is_session(lane.session_key, lane.owner)
            and (lane.started_at is None or lane.started_at <= gone.until)
        ]

    async def find_letters(self, gone: Gone) -> AsyncIterator[list[Letter]]:
        """Yield dead letters of theirs, some at a time."""
        async for letters in erase_sql.walk_letters(self._transaction):
            if its := [one for one in letters if _is_letter(gone, one)]:
                yield its

    async def find_replies(
        self, gone: Gone, answered_until: datetime
    ) -> AsyncIterator[list[tuple[str, str]]]:
        """Yield (principal, id) of requests whose kept answers may say something of theirs.

        Args:
            gone: Whose.
            answered_until: What was answered up to then may tell of what was blanked since.
        """
        after = (_BEGINNING, "", "")
        while True:
            async with self._transaction() as connection:
                replies = await erase_sql.next_replies(connection, after)
            if not replies:
                return
            after = (replies[-1].at, replies[-1].principal, replies[-1].id)
            its = [
                (one.principal, one.id) for one in replies if _is_reply(gone, answered_until, one)
            ]
            if its:
                yield its

    async def find_audit_lines(self, gone: Gone) -> AsyncIterator[list[int]]:
        """Yield ids of lines that name them, some at a time."""
        after = 0
        while True:
            async with self._transaction() as connection:
                lines = await erase_sql.next_audit_lines(connection, after)
            if not lines:
                return
            after = lines[-1].id
            its = [
                one.id
                for one in lines
                if (one.at <= gone.until or one.session_id in gone.sessions)
                and names_in(one.detail, gone.ids, one.at)
            ]
            if its:
                yield its

    async def count_in_outbox(self, gone: Gone, through: int) -> int:
        """Return how many of the rows up to one are theirs."""
        after, found = 0, 0
        while True:
            async with self._transaction() as connection:
                rows = await erase_sql.next_outbox_rows(connection, after, through)
            if not rows:
                return found
            after = rows[-1].id
            found += sum(
                any(
                    gone.holds(stream, row.created_at, row.payload)
                    for stream in _streams_named(row.stream)
                )
                for row in rows
            )

    async def find_messages(
        self, gone: Gone, stream: StreamName
    ) -> AsyncIterator[list[StoredMessage]]:
        """Yield messages of a stream that are theirs, some at a time."""
        if await self._streams.state(stream) is None:
            return
        account, until = None, None
        if stream is StreamName.INBOUND:
            # What came later is not theirs to lose; other streams may tell of them later.
            account, until = (gone.ids.platform, gone.ids.account), gone.until + _CLOCKS
        found: list[StoredMessage] = []
        async for messages in self._streams.read(stream, account, until):
            found += [one for one in messages if gone.holds(stream, one.stored_at, one.body)]
            if len(found) >= _MESSAGES_AT_ONCE:
                yield found
                found = []
            # It shares a processor with nobody's traffic, but it may share one with a router.
            await asyncio.sleep(0)
        if found:
            yield found


def _is_letter(gone: Gone, letter: Letter) -> bool:
    if letter.session_id in gone.sessions:
        return True
    if letter.body is None:
        return False
    return gone.holds(_stream_of(letter), letter.stored_at or letter.at, letter.body)


def _stream_of(letter: Letter) -> StreamName:
    """Return the stream that a dead letter was meant for, or came from."""
    stream = _STREAM_OF_STAGE.get(letter.stage)
    if stream is not None:
        return stream
    noun = (letter.subject or "").split(".")[2:3]
    return _STREAM_OF_SUBJECT.get(noun[0] if noun else "", StreamName.OUTBOUND)


def _streams_named(name: str) -> tuple[StreamName, ...]:
    """Return the stream of a name; all of them for one that only a newer release knows."""
    return (StreamName(name),) if name in tuple(StreamName) else tuple(StreamName)


def _is_reply(gone: Gone, answered_until: datetime, one: Reply) -> bool:
    """Return whether what a request was answered may say something of a person."""
    named = {text.decode() for text in _UUID.findall(one.reply)}
    if any(str(session_id) in named for session_id in gone.sessions):
        return True
    if one.at <= answered_until and any(str(its) in named for its in gone.shared):
        return True
    return one.at <= gone.until and gone.ids.is_quoted(one.reply, one.at)
