"""What was kept long enough goes, in pieces; what is younger or in use stays."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from chatlane.domain.ids import derived_id
from chatlane.privacy.row_retention import Ages, Retaining
from tests.support.worlds.kernel import Kernel, event

pytestmark = pytest.mark.integration

NEVER = Ages(None, None, None, timedelta(days=3650), timedelta(days=3650))
DAY = timedelta(days=1)


async def talk(kernel: Kernel, chat: str) -> UUID:
    said = event(chat=chat, user=chat, mid=uuid4().hex, text="a")
    session = (await kernel.say(said, datetime.now(UTC))).session
    await kernel.run_turn(session)
    return session


async def ids(kernel: Kernel) -> set[UUID]:
    return {row["id"] for row in await kernel.fetch("SELECT id FROM sessions")}


async def test_without_ages_nothing_that_was_said_goes(kernel: Kernel) -> None:
    session = await talk(kernel, "1")
    await kernel.fetch("UPDATE sessions SET ended_at = '2020-01-01', end_reason = 'pruned'")
    done = await Retaining(kernel.owner, NEVER).run()
    assert sum(done.values()) == 0
    assert await ids(kernel) == {session}


async def test_sessions_that_ended_long_ago_go_and_leave_a_line(kernel: Kernel) -> None:
    old = [await talk(kernel, str(number)) for number in range(120)]
    led, young, open_one = [await talk(kernel, name) for name in ("led", "young", "open")]
    await kernel.fetch(
        "UPDATE sessions SET ended_at = clock_timestamp() - interval '3 days', end_reason = 'idle'"
    )
    await kernel.fetch("UPDATE sessions SET ended_at = clock_timestamp() WHERE id = $1", young)
    await kernel.fetch(
        "UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = $1", open_one
    )
    # A chat would find it again with its next message.
    await kernel.fetch("DELETE FROM lanes WHERE session_id <> $1", led)
    ages = Ages(2 * DAY, None, None, 3650 * DAY, 3650 * DAY)
    done = await Retaining(kernel.owner, ages).run()
    assert done["sessions"] == len(old)
    assert await ids(kernel) == {led, young, open_one}
    assert await kernel.value("SELECT count(*) FROM messages") == 6
    lines = "SELECT count(*) FROM audit WHERE action = 'session_removed'"
    assert await kernel.value(lines) == len(old)


async def test_turns_revisions_archive_holds_and_audit_go_by_their_ages(kernel: Kernel) -> None:
    session = await talk(kernel, "1")
    long_ago = datetime.now(UTC) - 10 * DAY
    old_turn = derived_id(long_ago, b"turn", "turn")
    await kernel.fetch(
        "INSERT INTO turns (id, session_id, agent, state, due_at) VALUES"
        " ($1, $2, 'main', 'done', now()), ($3, $2, 'main', 'ready', now())",
        old_turn,
        session,
        derived_id(long_ago, b"live", "turn"),
    )
    await kernel.fetch(
        "INSERT INTO message_revisions (session_id, platform_message_id, content, reason, at)"
        " VALUES ($1, '1', 'old', 'edited', $2), ($1, '1', 'new', 'edited', now())",
        session,
        long_ago,
    )
    await kernel.fetch(
        "INSERT INTO removed_messages (session_id, removal, seq, reason, removed_at, role,"
        " content, created_at) VALUES ($1, 1, 1, 'undone', $2, 'user', 'old', $2),"
        " ($1, 2, 2, 'undone', now(), 'user', 'new', now())",
        session,
        long_ago,
    )
    await kernel.fetch(
        "INSERT INTO session_holds VALUES ($1, 'over', $2), ($1, 'on', now())", session, long_ago
    )
    await kernel.fetch(
        "INSERT INTO audit (at, action, detail) VALUES ($1, 'old', '{}'), (now(), 'new', '{}')",
        long_ago,
    )
    ages = Ages(None, 2 * DAY, 2 * DAY, 2 * DAY, 2 * DAY)
    done = await Retaining(kernel.owner, ages).run()
    assert {name: count for name, count in done.items() if count} == {
        "turns": 1,
        "message_revisions": 1,
        "removed_messages": 1,
        "session_holds": 1,
        "audit": 1,
    }
    left = "SELECT content FROM {} WHERE session_id = $1 AND content <> 'a' AND content <> 'ok'"
    for table in ("message_revisions", "removed_messages"):
        assert [row[0] for row in await kernel.fetch(left.format(table), session)] == ["new"]
    assert await kernel.value("SELECT action FROM audit") == "new"
