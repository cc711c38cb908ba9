"""What was erased does not come back by way of the logs."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from chatlane.decisions.batch_decision import BatchDecision, decoded
from chatlane.domain.effects import ErasedRow
from chatlane.domain.erasure_key import ErasureKey
from chatlane.domain.log import PartitionId
from chatlane.errors import SchemaMismatchError
from chatlane.ingest.partition_reader import record_lost_range
from chatlane.nats.log_inspection import LogTruncated
from chatlane.privacy import erasure_list_sql
from chatlane.privacy.erasure_list import require_keys
from chatlane.privacy.erasure_rules import Listed
from tests.support.worlds.kernel import SLOTS, Kernel, event

pytestmark = pytest.mark.integration

KEY = ErasureKey(b"k" * 32)
NOW = datetime(2026, 5, 11, 9, tzinfo=UTC)
EARLIER, LATER = NOW - timedelta(minutes=5), NOW + timedelta(minutes=5)


async def forget(
    kernel: Kernel,
    form: str,
    until: datetime,
    since: datetime | None = None,
    *,
    is_past: bool = False,
) -> None:
    async with kernel.owner.transaction() as connection:
        entries = [Listed(KEY.digest("telegram", "bot", None, form), since, until, is_past)]
        await erasure_list_sql.begin(connection, uuid4(), until, KEY.id, entries)


async def hear(kernel: Kernel, stored_at: datetime, **fields: Any) -> list[str]:  # noqa: ANN401 - any field of an event
    """Let somebody write; returns what the transcripts and lines hold after that."""
    message = kernel.logged(event(**fields), stored_at)
    async with kernel.writer.begin() as unit_of_work:
        await BatchDecision(kernel.catalog, SLOTS, KEY).run(
            unit_of_work, [decoded(message, kernel.catalog)]
        )
    rows = await kernel.fetch("SELECT content FROM waiting ORDER BY stored_at")
    return [row["content"] for row in rows]


async def test_what_was_written_before_has_no_effect_however_it_comes(kernel: Kernel) -> None:
    await forget(kernel, "701", NOW)
    ann = {"chat": "701", "user": "701"}
    assert await hear(kernel, EARLIER, **ann, mid="1", text="old") == []
    again = {**ann, "mid": "2", "text": "old", "sent_at": EARLIER.isoformat()}
    assert await hear(kernel, LATER, **again) == []
    assert await hear(kernel, LATER, chat="-1", kind_of_chat="group", user="702", text="b") == ["b"]
    pending = await kernel.fetch("SELECT stream, erased_at FROM erased_messages")
    assert [tuple(row) for row in pending] == [("INBOUND", None)] * 2
    # Without its time it is known by its mark.
    assert await hear(kernel, LATER, **ann, mid="2", text="old") == ["b"]
    assert await hear(kernel, LATER, **ann, mid="3", text="new") == ["b", "new"]


async def test_what_was_marked_before_it_was_erased_comes_again_without_effect(
    kernel: Kernel,
) -> None:
    ann = {"chat": "701", "user": "701", "mid": "1", "text": "old"}
    sent = {"sent_at": EARLIER.isoformat()}
    assert await hear(kernel, EARLIER, **ann, **sent) == ["old"]
    await forget(kernel, "701", NOW)
    await hear(kernel, LATER, **ann, **sent)
    pending = await kernel.fetch("SELECT stream, stored_at FROM erased_messages")
    assert [tuple(row) for row in pending] == [("INBOUND", LATER)]
    assert await kernel.value("SELECT count(*) FROM waiting") == 1


async def test_a_restored_database_knows_again_where_erasures_left_gaps(kernel: Kernel) -> None:
    rows = [ErasedRow("INBOUND", sequence, NOW) for sequence in (3, 4, 5)]
    loss = LogTruncated(first_missing=3, cursor=5, generation="g")
    partition = PartitionId("inbound", 0)
    async with kernel.owner.transaction() as connection:
        await erasure_list_sql.note_messages(connection, [*rows, ErasedRow("INBOUND", 9, NOW)])
        await erasure_list_sql.place_messages(connection, rows, "g")
        await erasure_list_sql.messages_gone(connection, rows[:2])
        first = await erasure_list_sql.read_positions(connection, None, 2)
        kept = [*first, *await erasure_list_sql.read_positions(connection, first[-1], 2)]
        assert [(one.sequence, one.erased_at is None) for one in kept] == [
            (3, False),
            (4, False),
            (5, True),
        ]
        lines = [one.text() for one in kept]
        await connection.execute("DELETE FROM erased_messages")
        for _ in range(2):
            restored = [erasure_list_sql.parsed_line(line) for line in lines]
            await erasure_list_sql.restore_list(connection, restored)
        assert await erasure_list_sql.read_positions(connection, None, 9) == kept
        assert not await record_lost_range(connection, partition, loss)


async def test_what_is_written_later_opens_another_session(kernel: Kernel) -> None:
    ann = {"chat": "701", "user": "701"}
    await hear(kernel, EARLIER, **ann, mid="1", text="old")
    await forget(kernel, "701", NOW)
    await hear(kernel, LATER, **ann, mid="2", text="new")
    await hear(kernel, LATER + timedelta(seconds=1), **ann, mid="3", text="newer")
    rows = await kernel.fetch(
        "SELECT started_at, array_agg(content ORDER BY arrival) AS said, parent_id, start_reason"
        " FROM sessions JOIN waiting ON session_id = id GROUP BY id ORDER BY started_at"
    )
    assert [(row["started_at"], row["said"]) for row in rows] == [
        (EARLIER, ["old"]),
        (LATER, ["new", "newer"]),
    ]
    assert (rows[1]["parent_id"], rows[1]["start_reason"]) == (None, None)


async def test_f01_what_was_written_before_an_id_came_to_the_forgotten_one_is_kept(
    kernel: Kernel,
) -> None:
    """The log is read again: messages of who had the id before are decided as they were."""
    await forget(kernel, "701", NOW, since=EARLIER)
    chat = {"chat": "701", "user": "701"}
    long_ago = EARLIER - timedelta(hours=1)
    assert await hear(kernel, long_ago, **chat, mid="1", text="of another") == ["of another"]
    assert await hear(kernel, EARLIER, **chat, mid="2", text="erased") == ["of another"]
    again = {**chat, "mid": "3", "sent_at": long_ago.isoformat()}
    assert await hear(kernel, LATER, **again, text="late") == ["of another", "late"]


async def test_f01_who_has_the_id_of_a_forgotten_one_keeps_what_they_began(kernel: Kernel) -> None:
    """Their session may be older than the time at which the id came to them."""
    chat = {"chat": "701", "user": "701"}
    await hear(kernel, EARLIER, **chat, mid="1", text="a")
    await forget(kernel, "701", NOW - timedelta(minutes=1), is_past=True)
    assert await hear(kernel, NOW, **chat, mid="2", text="b") == ["a", "b"]
    assert await kernel.value("SELECT count(*) FROM sessions") == 1


async def test_sessions_that_others_share_go_on(kernel: Kernel) -> None:
    room = {"chat": "-1", "kind_of_chat": "group", "thr": "5"}
    first = await hear(kernel, EARLIER, **room, user="701", mid="1", text="old")
    await forget(kernel, "701", NOW)
    await hear(kernel, LATER, **room, user="701", mid="2", text="new")
    assert first == ["old"]
    assert await kernel.value("SELECT count(*) FROM sessions") == 1


async def test_a_log_that_begins_later_because_it_was_erased_is_no_loss(kernel: Kernel) -> None:
    rows = [ErasedRow("INBOUND", sequence, NOW) for sequence in (3, 4, 5)]
    loss = LogTruncated(first_missing=3, cursor=5, generation="g")
    partition = PartitionId("inbound", 0)
    async with kernel.store.transaction() as connection:
        await erasure_list_sql.note_messages(connection, rows)
        await erasure_list_sql.place_messages(connection, rows, "g")
        assert not await record_lost_range(connection, partition, loss)
        other = LogTruncated(first_missing=3, cursor=6, generation="g")
        assert await record_lost_range(connection, partition, other)
        assert await record_lost_range(
            connection, partition, LogTruncated(first_missing=3, cursor=5, generation="another")
        )
    assert await kernel.value("SELECT count(*) FROM dead_letters") == 2


async def test_nobody_routes_without_the_key_of_the_list(kernel: Kernel) -> None:
    async with kernel.store.transaction() as connection:
        await require_keys(connection, None)
        await require_keys(connection, KEY)
    await forget(kernel, "701", NOW)
    async with kernel.store.transaction() as connection:
        await require_keys(connection, KEY)
        for key in (None, ErasureKey(b"x" * 32)):
            with pytest.raises(SchemaMismatchError):
                await require_keys(connection, key)
