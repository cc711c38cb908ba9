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
from chatlane.store.conversations import session_lists, session_views
from chatlane.store.conversations.session_lists import SessionLists
from chatlane.store.conversations.session_reads import SessionReads
from chatlane_schemas.codec import decode, encode
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.session_marks import SCHEDULED_PROJECT
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
        if row["ended_at"] is not None:
            row.setdefault("end_reason", "idle")
        rows = [
            {
                "id": session_id(n),
                "session_key": f"key:{n}",
                "started_at": AT + timedelta(minutes=n),
            }
            | row
            for n in numbers
        ]
        names = ", ".join(rows[0])
        places = ", ".join(f"${place}" for place in range(1, len(rows[0]) + 1))
        await self.connection.executemany(
            f"INSERT INTO sessions ({names}) VALUES ({places})",  # noqa: S608 - names of columns
            [tuple(values.values()) for values in rows],
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
        return decode(SessionListReply, await self.encoded_page(**fields))

    async def encoded_page(self, **fields: Any) -> bytes:  # noqa: ANN401 - any filter
        request = SessionList(id=new_envelope_id(), at=AT, **fields)
        return await self._handlers["session.list"](ApiRequest("someone", encode(request)))

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
        queries = SessionQueries(SessionReads(store), SessionLists(store))
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
    monkeypatch.setattr(session_lists, "_LOOKED_AT", 5)
    await lists.add(1, 12, archived_at=AT)
    await lists.add(*range(2, 12), *range(13, 20))

    first = await lists.page(archived=True)

    assert first.sessions == ()
    assert first.next_cursor is not None
    assert await lists.numbers(archived=True) == [12, 1]
    assert await lists.numbers(archived=True, limit=1) == [12, 1]


@pytest.mark.parametrize("order", ["started", "activity"])
async def test_a_page_reads_on_where_too_few_of_the_first_match(lists: Lists, order: str) -> None:
    await lists.add(1, 12, archived_at=AT)
    await lists.add(*range(2, 12), *range(13, 40))

    first = await lists.page(archived=True, limit=1, order=order)

    assert numbered(first) == [12]
    assert await lists.numbers(archived=True, limit=1, order=order) == [12, 1]


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
    monkeypatch.setattr(session_lists, "MOST_COUNTED", 4)
    assert (await lists.count()).is_complete is False
    assert (await lists.count(acting_for=ANN)).is_complete is True


async def test_a_page_is_two_statements_however_many_sessions_there_are(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C44: a second one reads the first words of those it shows, and no transcript."""
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
    assert statements == [session_lists.PAGE_SQL, session_views.BESIDE_SQL] * 2
    assert "FROM messages" not in session_lists.PAGE_SQL


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
    monkeypatch.setattr(session_lists, "_LOOKED_AT", 4)
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


def numbered(reply: SessionListReply) -> list[int]:
    return [session.id.int - session_id(0).int for session in reply.sessions]


async def test_v1_pinned_sessions_come_first_then_the_newest_message(lists: Lists) -> None:
    """R5.1: pinned ones are ordered among themselves in the same way."""
    at = {number: AT + timedelta(seconds=number) for number in (10, 20, 50)}
    await lists.add(1, last_activity_at=AT, last_message_at=at[10], pinned_at=AT)
    await lists.add(2, last_activity_at=AT, last_message_at=at[50])
    await lists.add(3, last_activity_at=AT, last_message_at=at[20], pinned_at=AT)
    await lists.add(
        4, last_activity_at=AT - timedelta(days=1), pinned_at=AT, owner="telegram:bot:702"
    )
    await lists.add(5, last_activity_at=AT - timedelta(days=1))
    await lists.connection.execute("UPDATE sessions SET started_at = $1", AT - timedelta(days=2))
    for limit in (1, 2, 3, 50):
        wanted = {"order": "activity", "limit": limit, "acting_for": ANN}
        assert await lists.numbers(**wanted, pinned_first=True) == [3, 1, 2, 5]
        assert await lists.numbers(**wanted) == [2, 3, 1, 5]
        assert await lists.numbers(**wanted, pinned_first=True, hide_empty=True) == []


async def test_pages_with_pinned_sessions_are_stable_under_changes(lists: Lists) -> None:
    await lists.add(*range(1, 21))
    await lists.add(*range(21, 31), pinned_at=AT)
    pinning = iter((3, 19, 7, 2))
    found: list[int] = []
    cursor = None
    while True:
        reply = await lists.page(
            order="activity", limit=4, cursor=cursor, acting_for=ANN, pinned_first=True
        )
        found += numbered(reply)
        if (cursor := reply.next_cursor) is None:
            break
        if (number := next(pinning, None)) is not None:
            await lists.connection.execute(
                "UPDATE sessions SET pinned_at = now() WHERE id = $1", session_id(number)
            )
    assert len(found) == len(set(found))
    assert found[:10] == list(range(30, 20, -1))
    assert set(range(1, 31)) - set(found) <= {3, 19, 7, 2}


async def test_v2_to_v5_an_empty_session_is_hidden_unless_there_is_something_to_find(
    lists: Lists,
) -> None:
    """R3.2, R5.3: a message, one that waits, a title, a turn or a worktree."""
    await lists.add(1)
    await lists.add(2)
    await lists.add(3, worktree='{"path": "/srv/trees/1"}')
    await lists.add(4, title="x", title_scope="x")
    await lists.add(5, active_turn=session_id(5))
    await lists.add(6, next_seq=2)
    await lists.add(7, next_seq=2, seq_gaps=1)
    await lists.connection.execute(
        "INSERT INTO waiting (session_id, arrival, session_key, message_id, size_bytes, content,"
        " details, source, stored_at) VALUES ($1, 1, '', $1, 1, ' hi ', '{}', '{}', $2)",
        session_id(2),
        AT,
    )
    for order in ("started", "activity"):
        assert await lists.numbers(order=order, hide_empty=True) == [6, 5, 4, 3, 2]
    assert (await lists.count(hide_empty=True)).total == 5
    [view] = [view for view in (await lists.page()).sessions if view.id == session_id(2)]
    assert view.waiting is not None
    assert (view.waiting.count, view.waiting.oldest_at) == (1, AT)
    assert (view.shown_title, view.title_source) == ("hi", "first_words")


@pytest.mark.parametrize("order", ["started", "activity"])
async def test_sessions_are_selected_by_their_state(lists: Lists, order: str) -> None:
    await lists.add(1)
    await lists.add(2, active_turn=session_id(2))
    await lists.add(3, ended_at=AT, read_only=True)
    await lists.connection.execute(
        "INSERT INTO waiting (session_id, arrival, session_key, message_id, size_bytes, content,"
        " details, source, stored_at) VALUES ($1, 1, '', $1, 1, 'hi', '{}', '{}', $2)",
        session_id(1),
        AT,
    )
    for state, number in (("waiting", 1), ("running", 2), ("read_only", 3)):
        assert await lists.numbers(order=order, state=state) == [number]
        assert await lists.numbers(order=order, state=state, acting_for=ANN) == [number]
        assert (await lists.count(state=state)).total == 1
        assert await lists.numbers(order=order, state=state, acting_for=BEN) == []


async def test_v6_an_archived_session_is_listed_with_its_flag(lists: Lists) -> None:
    """R5.5: the client hides it, or asks for others only."""
    await lists.add(1, archived_at=AT)
    [view] = (await lists.page()).sessions
    assert view.archived_at == AT
    assert await lists.numbers(archived=False) == []


async def test_v7_sessions_of_scheduled_jobs_are_left_out_and_in_a_built_in_folder(
    lists: Lists,
) -> None:
    """R5.4, R8.6 to R8.8: reading makes no folder."""
    folder = UUID(int=77)
    await lists.connection.execute(
        "INSERT INTO projects (id, owner, name, colour, place)"
        " VALUES ($1, 'telegram:bot:ann', 'Garden', '#6366f1', 1)",
        folder,
    )
    await lists.add(1)
    await lists.add(2, origin="cron")
    await lists.add(3, origin="cron", project_id=folder)
    await lists.add(4, project_id=folder)
    for order in ("started", "activity"):
        listed = {"order": order, "acting_for": ANN}
        assert await lists.numbers(**listed, without_origins=["cron"]) == [4, 1]
        assert await lists.numbers(**listed, project_id=SCHEDULED_PROJECT) == [2]
        assert await lists.numbers(**listed, project_id=folder) == [4, 3]
    folders = {session.id: session.project_id for session in (await lists.page()).sessions}
    assert folders == {
        session_id(1): None,
        session_id(2): SCHEDULED_PROJECT,
        session_id(3): folder,
        session_id(4): folder,
    }


async def test_every_new_filter_leaves_what_it_says(lists: Lists) -> None:
    """R5.8, R9.1, R9.3: a session has the profile of its key."""
    await lists.add(1, session_key="agent:main:telegram:bot:dm:1", cwd="/srv/a")
    await lists.add(2, session_key="agent:notes:telegram:bot:dm:2", labels=["garden", "roof"])
    await lists.add(3, session_key="agent:notes2:telegram:bot:dm:3", title="50 % of Ärger")
    await lists.add(
        4, end_reason="compression", ended_at=AT, last_message_at=AT + timedelta(days=1)
    )
    for order in ("started", "activity"):
        assert await lists.numbers(order=order, profile="default") == [1]
        assert await lists.numbers(order=order, profile="notes") == [2]
        assert await lists.numbers(order=order, cwd="/srv/a") == [1]
        assert await lists.numbers(order=order, cwd="/srv") == []
        assert await lists.numbers(order=order, label="roof") == [2]
        assert await lists.numbers(order=order, title_part="% OF ä") == [3]
        assert await lists.numbers(order=order, title_part="%") == [3]
        assert sorted(await lists.numbers(order=order, tips_only=True)) == [1, 2, 3]
        before = AT + timedelta(minutes=2)
        assert await lists.numbers(order=order, active_before=before) == [1]
    views = {view.id: view for view in (await lists.page()).sessions}
    assert [views[session_id(n)].profile for n in (1, 2)] == ["main", "notes"]
    assert views[session_id(2)].labels == ("garden", "roof")
    assert (views[session_id(1)].source, views[session_id(1)].source_label) == (
        "telegram",
        "Telegram",
    )


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        pytest.param(["x" * 70], "x" * 64, id="v11"),
        pytest.param([" \n", "hi"], "hi", id="v12"),
        pytest.param(["a\u202e\tb"], "a b", id="control characters"),
        pytest.param([], None, id="nothing"),
    ],
)
async def test_v11_to_v13_first_words_stand_for_a_title(
    lists: Lists, said: list[str], shown: str | None
) -> None:
    """R6.1, R6.2, R6.5: no word of ours stands for a missing title."""
    await lists.add(1)
    await lists.connection.executemany(
        "INSERT INTO messages (session_id, seq, role, content, created_at)"
        " VALUES ($1, $2, 'user', $3, $4)",
        [(session_id(1), place, text, AT) for place, text in enumerate([None, *said], 1)],
    )
    [view] = (await lists.page()).sessions
    assert view.shown_title == shown
    assert view.title_source == ("none" if shown is None else "first_words")


async def test_v24_a_row_names_the_root_the_tip_and_its_place(lists: Lists) -> None:
    """R5.9, R5.14: one chain is one line."""
    compacted = {"ended_at": AT, "end_reason": "compression"}
    linked = {"link_kind": "compression"}
    await lists.add(1, **compacted)
    await lists.add(2, **compacted, **linked, parent_id=session_id(1))
    await lists.add(3, **linked, parent_id=session_id(2))
    await lists.add(4, link_kind="branch", parent_id=session_id(3))
    shown = {
        view.id: (view.root_id, view.tip_id, view.segments)
        for view in (await lists.page()).sessions
    }
    assert shown == {
        session_id(1): (None, session_id(3), 1),
        session_id(2): (session_id(1), session_id(3), 2),
        session_id(3): (session_id(1), None, 3),
        session_id(4): (None, None, 1),
    }
    assert await lists.numbers(tips_only=True) == [4, 3]
