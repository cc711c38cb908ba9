"""Which sessions there are, and how many, against a real Postgres."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from chatlane.api.endpoint import ApiRequest, Handle, RequestHandler
from chatlane.api.sessions import SessionQueries
from chatlane.observability.metrics import Metrics
from chatlane.postgres.pool import open_store
from chatlane.store.conversations import session_reads
from chatlane.store.conversations.session_reads import SessionReads
from chatlane_schemas.codec import decode, encode
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.sessions import (
    SessionCount,
    SessionCountReply,
    SessionCounts,
    SessionList,
    SessionListReply,
)

pytestmark = pytest.mark.integration

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
ANN = Person(platform="telegram", account="bot", id="701")
BEN = Person(platform="telegram", account="bot", id="702")


def session_id(number: int) -> UUID:
    return UUID(int=(0x018F << 112) + number)


class Lists:
    """The handlers, and a connection to fill the table."""

    def __init__(self, handlers: dict[str, Handle], connection: asyncpg.Connection) -> None:
        self._handlers = handlers
        self.connection = connection

    async def add(self, *numbers: int, **columns: Any) -> None:  # noqa: ANN401 - any column
        row = {
            "agent": "main",
            "platform": "telegram",
            "origin": "chat",
            "owner": "telegram:bot:701",
            "last_activity_at": None,
            "archived_at": None,
            "ended_at": None,
        } | columns
        await self.connection.executemany(
            """
            INSERT INTO sessions (id, session_key, started_at, agent, platform, origin, owner,
                                  last_activity_at, archived_at, ended_at, end_reason)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
                    CASE WHEN $10::timestamptz IS NOT NULL THEN 'idle' END)
            """,
            [
                (session_id(n), f"key:{n}", AT + timedelta(minutes=n), *row.values())
                for n in numbers
            ],
        )

    async def write_in(self, number: int, at: datetime | None = None) -> None:
        """Let a person write in a session, by default after everybody else."""
        await self.connection.execute(
            """UPDATE sessions SET last_activity_at = coalesce(
                   $2, (SELECT max(coalesce(last_activity_at, started_at)) FROM sessions)
                       + interval '1 second')
               WHERE id = $1""",
            session_id(number),
            at,
        )

    async def page(self, **fields: Any) -> SessionListReply:  # noqa: ANN401 - any filter
        request = SessionList(id=new_envelope_id(), at=AT, **fields)
        reply = await self._handlers["session.list"](ApiRequest("someone", encode(request)))
        return decode(SessionListReply, reply)

    async def numbers(self, **fields: Any) -> list[int]:  # noqa: ANN401 - any filter
        """Return what all pages together show."""
        found: list[int] = []
        cursor = None
        while True:
            reply = await self.page(cursor=cursor, **fields)
            found += [session.id.int - session_id(0).int for session in reply.sessions]
            if (cursor := reply.next_cursor) is None:
                return found

    async def count(self, **fields: Any) -> SessionCounts:  # noqa: ANN401 - any filter
        request = SessionCount(id=new_envelope_id(), at=AT, **fields)
        reply = decode(
            SessionCountReply,
            await self._handlers["session.count"](ApiRequest("someone", encode(request))),
        )
        assert reply.counts is not None
        return reply.counts


@pytest.fixture
async def lists(database_url: str) -> AsyncIterator[Lists]:
    connection = await asyncpg.connect(database_url)
    async with open_store(database_url) as store:
        queries = SessionQueries(SessionReads(store))
        yield Lists(RequestHandler(Metrics()).reads(queries.table()), connection)
    await connection.close()


async def test_the_newest_come_first_page_by_page(lists: Lists) -> None:
    await lists.add(*range(1, 8))

    first = await lists.page(limit=3)

    assert [session.id for session in first.sessions] == [session_id(n) for n in (7, 6, 5)]
    assert await lists.numbers(limit=3) == [7, 6, 5, 4, 3, 2, 1]
    assert await lists.numbers(limit=7) == [7, 6, 5, 4, 3, 2, 1]
    assert (await lists.page(limit=7)).next_cursor is None


async def test_every_filter_leaves_what_it_says_and_all_work_together(lists: Lists) -> None:
    await lists.add(1, platform="slack", owner=None)
    await lists.add(2, agent="notes", owner="telegram:bot:702")
    await lists.add(3, origin="acp", archived_at=AT)
    await lists.add(4, last_activity_at=AT + timedelta(days=1))
    await lists.add(5, archived_at=AT, last_activity_at=AT + timedelta(days=1))
    await lists.add(6, origin="acp", agent="notes", platform="slack", ended_at=AT)

    assert await lists.numbers(platform="slack") == [6, 1]
    assert await lists.numbers(agent="notes") == [6, 2]
    assert await lists.numbers(origin="acp") == [6, 3]
    assert await lists.numbers(origin="chat") == [5, 4, 2, 1]
    assert await lists.numbers(active_since=AT + timedelta(hours=1)) == [5, 4]
    assert await lists.numbers(active_since=AT + timedelta(minutes=3)) == [5, 4]
    assert await lists.numbers(archived=True) == [5, 3]
    assert await lists.numbers(archived=False) == [6, 4, 2, 1]
    assert await lists.numbers(acting_for=ANN) == [6, 5, 4, 3]
    assert await lists.numbers(acting_for=BEN) == [2]
    assert await lists.numbers(acting_for=ANN, origin="acp", archived=False) == [6]
    assert await lists.numbers(platform="slack", agent="main") == [1]
    assert await lists.numbers(platform="discord") == []


async def test_a_person_has_what_was_opened_under_each_of_their_ids(lists: Lists) -> None:
    await lists.connection.execute(
        """
        INSERT INTO aliases (platform, account, kind, alias, canonical, first_seen_at)
        SELECT 'signal', 'bot', 'person', alias, '+491', now()
        FROM unnest(ARRAY['+491', '+492']) AS alias
        """
    )
    await lists.add(1, 4, 5, owner="signal:bot:+491")
    await lists.add(2, 6, owner="signal:bot:+492")
    await lists.add(3, owner="signal:bot:+493")
    person = Person(platform="signal", account="bot", id="+492")

    assert await lists.numbers(acting_for=person, limit=2) == [6, 5, 4, 2, 1]
    assert (await lists.count(acting_for=person)).total == 5


async def test_a_rare_match_takes_pages_and_not_one_long_look(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_reads, "_LOOKED_AT", 5)
    await lists.add(1, 12, archived_at=AT)
    await lists.add(*range(2, 12), *range(13, 20))

    first = await lists.page(archived=True)

    assert first.sessions == ()
    assert first.next_cursor is not None
    assert await lists.numbers(archived=True) == [12, 1]
    assert await lists.numbers(archived=True, limit=1) == [12, 1]


async def test_sessions_are_counted_up_to_a_number(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lists.add(1, 2, 3)
    await lists.add(4, ended_at=AT)
    await lists.add(5, archived_at=AT, platform="slack", owner=None)

    assert await lists.count() == SessionCounts(total=5, open=4, archived=1)
    assert await lists.count(platform="slack") == SessionCounts(total=1, open=1, archived=1)
    assert await lists.count(acting_for=ANN, archived=False) == SessionCounts(
        total=4, open=3, archived=0
    )
    monkeypatch.setattr(session_reads, "MOST_COUNTED", 4)
    assert (await lists.count()).is_complete is False
    assert (await lists.count(acting_for=ANN)).is_complete is True


async def test_a_page_is_one_statement_however_many_sessions_there_are(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C44: and it reads no transcript."""
    statements: list[str] = []
    fetch = asyncpg.Connection.fetch

    async def fetched(connection: asyncpg.Connection, query: str, *arguments: Any) -> Any:  # noqa: ANN401 - as asyncpg has it
        statements.append(query)
        return await fetch(connection, query, *arguments)

    monkeypatch.setattr(asyncpg.Connection, "fetch", fetched)
    await lists.add(*range(10))
    await lists.page(limit=10, archived=False)
    few = statements.copy()
    await lists.add(*range(10, 2000))
    await lists.page(limit=10, archived=False)

    assert statements == few * 2
    assert statements == [SessionReads._PAGE] * 2
    assert "messages" not in SessionReads._PAGE


async def test_c94_a_list_by_activity_begins_with_who_wrote_last(lists: Lists) -> None:
    await lists.add(1, 2, 3)
    await lists.add(4, last_activity_at=AT - timedelta(days=1))
    await lists.add(5, last_activity_at=AT + timedelta(hours=5))
    await lists.add(6, owner="telegram:bot:702", last_activity_at=AT + timedelta(minutes=2))
    await lists.add(7, platform="slack", last_activity_at=AT + timedelta(hours=5, seconds=1))
    for limit in (1, 2, 3, 50):
        by_activity = {"order": "activity", "limit": limit}
        # Equal times are ordered by id.
        assert await lists.numbers(**by_activity) == [7, 5, 3, 6, 2, 1, 4]
        assert await lists.numbers(**by_activity, acting_for=BEN) == [6]
        assert await lists.numbers(**by_activity, acting_for=ANN) == [7, 5, 3, 2, 1, 4]
        assert await lists.numbers(**by_activity, platform="telegram") == [5, 3, 6, 2, 1, 4]
        assert await lists.numbers(**by_activity, active_since=AT) == [7, 5, 6]
        assert await lists.numbers(**by_activity, acting_for=ANN, platform="slack") == [7]
    assert await lists.numbers(limit=2) == [7, 6, 5, 4, 3, 2, 1]


async def test_c94_pages_by_activity_are_stable_while_people_write(lists: Lists) -> None:
    await lists.add(*range(1, 41))
    writing = iter((3, 39, 40, 12, 38, 1, 30, 25))
    found: list[int] = []
    cursor = None
    while True:
        reply = await lists.page(order="activity", limit=5, cursor=cursor)
        found += [session.id.int - session_id(0).int for session in reply.sessions]
        if (cursor := reply.next_cursor) is None:
            break
        await lists.write_in(next(writing))
    assert len(found) == len(set(found))
    # Only those in which people wrote before their page came are not on it.
    assert set(range(1, 41)) - set(found) <= {3, 12, 1, 30, 25}


@pytest.mark.parametrize(
    "cursor", ["x", "1.2", str(session_id(1)), f"{10**30}.{session_id(1)}", f".{session_id(1)}"]
)
async def test_c94_a_cursor_of_another_order_is_refused(lists: Lists, cursor: str) -> None:
    reply = await lists.page(order="activity", cursor=cursor)
    assert reply.error is not None
    assert reply.error.code == "invalid"


async def test_c94_a_rare_match_by_activity_is_found_over_pages(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_reads, "_LOOKED_AT", 4)
    await lists.add(*range(1, 31))
    await lists.add(31, platform="slack", last_activity_at=AT - timedelta(days=3))
    assert await lists.numbers(order="activity", platform="slack", limit=3) == [31]


async def test_c94_activity_within_an_hour_writes_no_index(lists: Lists) -> None:
    """An update that changes no indexed value is a heap-only one."""
    await lists.add(1)
    connection = lists.connection
    async with connection.transaction():
        for second in range(50):
            await lists.write_in(1, AT + timedelta(hours=2, seconds=second))
        query = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = 'sessions'"
        [(updated, heap_only)] = await connection.fetch(query)
    # The first one begins another hour; a full page makes at most some others leave it.
    assert updated == 50
    assert heap_only >= 40


@pytest.mark.parametrize("after", [timedelta(0), timedelta(minutes=2), timedelta(hours=3)])
async def test_c94_only_sessions_that_were_written_in_are_active(
    lists: Lists, after: timedelta
) -> None:
    await lists.add(1, 2, 3)
    await lists.add(4, last_activity_at=AT + timedelta(hours=3))
    await lists.add(5, last_activity_at=AT - timedelta(days=1))
    assert await lists.numbers(active_since=AT + after) == [4]
    assert await lists.numbers(active_since=AT + timedelta(hours=4)) == []
