"""The outbox in SQL: order of ids, who gets a row, who may take one over."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from chatlane.domain.effects import Publication
from chatlane.postgres.pool import Store
from chatlane.store import outbox
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

ME, OTHER, THIRD = uuid4(), uuid4(), uuid4()
SESSION = uuid4()
STREAMS = ("ROUTED", "TURNS", "OUTBOUND", "EVENTS", "DEAD")


def publication(
    text: str, session_id: UUID | None = SESSION, stream: str = "OUTBOUND"
) -> Publication:
    return Publication(session_id, stream, f"subject.{text}", text, text.encode())


async def insert(
    store: Store, router_id: UUID | None, *rows: Publication
) -> list[outbox.OutboxRow]:
    async with store.transaction() as connection:
        return await outbox.insert(connection, router_id, rows)


async def delete(store: Store, *rows: outbox.OutboxRow) -> None:
    async with store.transaction() as connection:
        await outbox.delete(connection, [row.id for row in rows])


async def adopt(
    store: Store, router_id: UUID, limit: int = 100, streams: Iterable[str] = STREAMS
) -> list[str]:
    async with store.transaction() as connection:
        return texts(await outbox.adopt(connection, router_id, streams, limit))


async def see(store: Store, router_id: UUID, until: timedelta = timedelta(minutes=1)) -> None:
    """Let a router be seen until some time from now; a negative one makes it dead."""
    async with store.transaction() as connection:
        await connection.execute(
            "INSERT INTO routers (id, version, seen_until) VALUES ($1, 'test', now() + $2)"
            " ON CONFLICT (id) DO UPDATE SET seen_until = excluded.seen_until",
            router_id,
            until,
        )


def texts(rows: list[outbox.OutboxRow]) -> list[str]:
    return [row.message_id for row in rows]


async def test_ids_follow_the_order_given(store: Store) -> None:
    wanted = [str(uuid4()) for _ in range(3000)]
    rows = await insert(store, ME, *(publication(text, uuid4()) for text in wanted))
    assert wanted == texts(rows)
    assert sorted(row.id for row in rows) == [row.id for row in rows]
    async with store.transaction() as connection:
        stored = await connection.fetch("SELECT message_id FROM outbox ORDER BY id")
    assert wanted == [row[0] for row in stored]


async def test_a_row_comes_back_as_it_was_given(store: Store) -> None:
    (row,) = await insert(store, ME, publication("one"))
    assert (
        row.session_id,
        row.stream,
        row.subject,
        row.message_id,
        row.payload,
    ) == (SESSION, "OUTBOUND", "subject.one", "one", b"one")
    assert row.created_at.tzinfo is not None


async def test_own_older_rows_hold_nothing_back(store: Store) -> None:
    await insert(store, ME, publication("one"))
    assert texts(await insert(store, ME, publication("two"))) == ["two"]


async def test_an_older_row_of_another_router_leaves_new_ones_to_the_sweep(store: Store) -> None:
    await insert(store, OTHER, publication("one"))
    assert await insert(store, ME, publication("two")) == []
    # The other's next row has to wait as well, for it comes after ours.
    assert await insert(store, OTHER, publication("three")) == []


@pytest.mark.parametrize(
    ("session_id", "stream"),
    [(SESSION, "ROUTED"), (uuid4(), "OUTBOUND"), (None, "OUTBOUND"), (SESSION, "TURNS")],
)
async def test_only_the_same_session_and_stream_waits(
    store: Store, session_id: UUID | None, stream: str
) -> None:
    for publications in ([publication("one")], [publication("events", stream="TURNS")]):
        await insert(store, OTHER, *publications)
    assert texts(await insert(store, ME, publication("two", session_id, stream))) == ["two"]


async def test_rows_without_order_are_never_held_back(store: Store) -> None:
    await insert(store, OTHER, publication("one", stream="EVENTS"))
    assert texts(await insert(store, ME, publication("two", stream="EVENTS"))) == ["two"]


async def test_published_rows_go_in_the_same_statement(store: Store) -> None:
    (first,) = await insert(store, ME, publication("one"))
    async with store.transaction() as connection:
        await outbox.insert(connection, ME, [publication("two")], published=[first.id])
        await outbox.insert(connection, ME, [], published=[first.id])
        assert (await outbox.backlog(connection)).rows == 1


async def test_a_doubtful_row_leaves_new_ones_to_the_sweep(store: Store) -> None:
    (first,) = await insert(store, ME, publication("one"))
    async with store.transaction() as connection:
        assert await outbox.insert(connection, ME, [publication("two")], doubtful=[first.id]) == []
    async with store.transaction() as connection:
        rows = await outbox.adopt(connection, ME, STREAMS, 10, doubtful=[first.id, 10**12])
    assert texts(rows) == ["one", "two"]


async def test_the_sweep_takes_what_was_left_to_it_in_order(store: Store) -> None:
    await see(store, OTHER)
    await see(store, THIRD)
    (first,) = await insert(store, OTHER, publication("one"))
    await insert(store, ME, publication("two"), publication("three"))
    assert await adopt(store, THIRD) == [], "the older row belongs to a router that lives"
    await delete(store, first)
    assert await adopt(store, THIRD) == ["two", "three"]
    assert await adopt(store, ME) == [], "they belong to somebody now"


async def test_the_sweep_takes_rows_of_dead_and_of_unknown_routers(store: Store) -> None:
    await see(store, OTHER)
    await insert(store, OTHER, publication("one"))
    await insert(store, THIRD, publication("unknown", uuid4()))
    await insert(store, ME, publication("two"))
    assert await adopt(store, ME) == ["unknown"]
    await see(store, OTHER, timedelta(seconds=-1))
    assert await adopt(store, ME) == ["one", "two"]


async def test_a_live_router_never_adopts_its_own_rows(store: Store) -> None:
    await insert(store, ME, publication("one"))
    assert await adopt(store, ME) == []


async def test_adoption_takes_the_oldest_of_all_first(store: Store) -> None:
    for number in range(6):
        router_id = (OTHER, THIRD, None)[number % 3]
        await insert(store, router_id, publication(str(number), uuid4()))
    assert await adopt(store, ME, limit=4) == ["0", "1", "2", "3"]
    assert await adopt(store, ME, limit=4) == ["4", "5"]


async def test_many_rows_of_one_stream_do_not_hold_back_those_of_another(store: Store) -> None:
    await insert(store, None, *(publication(f"event {n}", stream="EVENTS") for n in range(6)))
    await insert(store, THIRD, *(publication(f"word {n}", stream="DEAD") for n in range(6)))
    await insert(store, None, *(publication(f"answer {n}", uuid4()) for n in range(3)))

    assert await adopt(store, ME, limit=2, streams=["OUTBOUND", "DEAD"]) == [
        *("word 0", "word 1"),
        *("answer 0", "answer 1"),
    ]
    assert await adopt(store, ME, limit=2) == ["event 0", "event 1", "word 2", "word 3", "answer 2"]


async def test_rows_of_different_owners_are_taken_over_in_one_order(store: Store) -> None:
    """Of one session in particular: nothing may be taken before what is older."""
    await insert(store, OTHER, *(publication(f"other {n}", uuid4()) for n in range(4)))
    await insert(store, OTHER, publication("one"))
    await insert(store, ME, publication("two"))

    found = [await adopt(store, ME, limit=2) for _ in range(3)]

    assert found == [["other 0", "other 1"], ["other 2", "other 3"], ["one", "two"]]


async def test_rows_of_streams_that_are_left_go_to_the_sweep_in_order(store: Store) -> None:
    async with store.transaction() as connection:
        ours = await outbox.insert(
            connection,
            ME,
            [
                publication("one"),
                publication("event", stream="EVENTS"),
                publication("elsewhere", None),
            ],
            left=["EVENTS"],
        )
    assert texts(ours) == ["one", "elsewhere"]
    await delete(store, *ours)
    async with store.transaction() as connection:
        assert await outbox.insert(connection, ME, [publication("two")], left=["OUTBOUND"]) == []
        assert await outbox.insert(connection, ME, [publication("three")]) == []
    assert await adopt(store, ME) == ["event", "two", "three"]


async def test_held_back_rows_do_not_hold_back_others(store: Store) -> None:
    await see(store, OTHER)
    await insert(store, OTHER, publication("one"))
    await insert(store, ME, *(publication(f"held {number}") for number in range(5)))
    await insert(store, None, publication("free", uuid4()))
    assert await adopt(store, ME, limit=2) == ["free"]


async def test_two_sweeps_never_share_rows(store: Store) -> None:
    await insert(store, None, publication("one"))
    async with store.transaction() as first, store.transaction() as second:
        assert texts(await outbox.adopt(first, ME, STREAMS, 10)) == ["one"]
        assert await outbox.adopt(second, OTHER, STREAMS, 10) == []


async def test_an_adoption_waits_for_rows_in_the_order_in_which_they_are_deleted(
    store: Store,
) -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
    # Adoption looks for rows of one stream after the other.
    first, second = publication("one"), publication("two", stream="EVENTS")
    older, newer = await insert(store, OTHER, first, second)
    await insert(store, None, publication("three"))

    async def adopt_patiently() -> list[str]:
        async with store.transaction() as connection:
            await connection.execute("SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0")
            return texts(await outbox.adopt(connection, ME, ("EVENTS", "OUTBOUND"), 10))

    async with store.transaction() as deleting:
        await deleting.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        await outbox.delete(deleting, [older.id])
        adopting = asyncio.create_task(adopt_patiently())

        async def is_waiting() -> bool:
            return bool(await deleting.fetchval(waiting))

        await eventually(is_waiting)
        await outbox.delete(deleting, [newer.id])
    assert await adopting == ["three"]


async def test_reread_tells_which_rows_are_still_mine(store: Store) -> None:
    mine, gone, taken = await insert(store, ME, *(publication(text) for text in "abc"))
    await delete(store, gone)
    async with store.transaction() as connection:
        await connection.execute("UPDATE outbox SET router = $1 WHERE id = $2", OTHER, taken.id)
        ids = [row.id for row in (mine, gone, taken)]
        assert {mine.id} == await outbox.reread(connection, ME, ids)


async def test_backlog_counts_all_routers(store: Store) -> None:
    async with store.transaction() as connection:
        assert outbox.Backlog(0, None) == await outbox.backlog(connection)
    (first,) = await insert(store, ME, publication("one"))
    await insert(store, OTHER, publication("two"))
    async with store.transaction() as connection:
        assert outbox.Backlog(2, first.created_at) == await outbox.backlog(connection)
