"""One chat in which everybody talks: a thousand messages wait, and the transcript is long."""

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from chatlane.api.endpoint import MAX_REPLY_BYTES, ApiRequest, RequestHandler
from chatlane.api.transcripts import TranscriptQueries
from chatlane.observability.metrics import Metrics
from chatlane.store.history import transcript_changes
from chatlane.store.history.transcripts import TranscriptReads
from chatlane_schemas.codec import decode, encode
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.transcripts import TranscriptLoad, TranscriptReply
from tests.integration.requests.test_transcript_changes import Caller
from tests.support.worlds.kernel import DAY, Fields, Kernel, event, texts

if TYPE_CHECKING:
    from chatlane_schemas.turns import ClaimReply

pytestmark = pytest.mark.integration

TEAM: Fields = {"chat": "-90", "kind_of_chat": "group", "thr": "5"}


async def pile_up(kernel: Kernel, words: list[str], at_once: int = 250) -> UUID:
    """Let messages arrive while a turn runs; returns their session, the turn answered."""
    session = (await kernel.say(event(**TEAM, user="1", mid="0", text="first"))).session
    running = await kernel.claim_live(session)
    for first in range(0, len(words), at_once):
        await kernel.say_together(
            event(**TEAM, user=str(number % 40), mid=str(number + 1), text=words[number])
            for number in range(first, min(first + at_once, len(words)))
        )
    await kernel.answer(running)
    return session


@pytest.mark.slow
async def test_a_thousand_that_wait_are_answered_in_order(kernel: Kernel) -> None:
    words = [f"m{number}" for number in range(1000)]
    session = await pile_up(kernel, words)

    told: list[str | None] = []
    sizes = []
    while await kernel.live_turn(session):
        claimed: ClaimReply = await kernel.run_turn(session)
        sizes.append(len(claimed.messages))
        assert len(encode(claimed)) <= MAX_REPLY_BYTES
        told += texts(claimed)

    assert told == words
    assert sizes == [50] * 20


async def test_long_messages_that_wait_fill_no_claim_beyond_its_size(kernel: Kernel) -> None:
    words = [f"{number:03d} " + "汉" * 10_000 for number in range(100)]
    session = await pile_up(kernel, words, at_once=50)

    told: list[str | None] = []
    while await kernel.live_turn(session):
        claimed = await kernel.run_turn(session)
        assert len(encode(claimed)) <= MAX_REPLY_BYTES
        told += texts(claimed)

    assert told == words


async def test_a_long_transcript_is_read_changed_and_left(kernel: Kernel) -> None:
    session = (await kernel.say(event(**TEAM, user="1", mid="0", text="first"))).session
    await kernel.run_turn(session)
    await kernel.fetch(
        """
        INSERT INTO messages (session_id, seq, role, content, created_at)
        SELECT $1, n, CASE WHEN n % 2 = 1 THEN 'user' ELSE 'assistant' END, 'row ' || n, $2
        FROM generate_series(3, 20000) AS n
        """,
        session,
        DAY,
    )
    await kernel.fetch("UPDATE sessions SET next_seq = 20001")
    caller = Caller(kernel)

    undone = await caller.done("rewind", session)
    again = await caller.done("retry", session)
    await kernel.run_turn(session, "better")
    compact: Fields = {
        "rows": [{"role": "system", "content": "in short"}],
        "through_seq": 4,
        "expected_version": again.version.replace(".20001", ".20003") if again.version else "",
        "in_child": True,
    }
    child = (await caller.done("compact", session, **compact)).session_id
    assert child is not None

    assert (undone.removed_rows, undone.undone_text) == (2, "row 19999")
    assert again.undone_text == "row 19997"
    said = await kernel.said(child)
    assert len(said) == 1 + 19_998 - 4
    assert (said[0], said[1], said[-1]) == ("in short", "row 5", "better")
    assert len(await kernel.said(session)) == 4


async def test_rows_are_moved_one_by_one_also_by_a_plan_for_a_small_table(kernel: Kernel) -> None:
    """Connections keep plans: one that compares each row with each would never end later."""
    explain = "EXPLAIN (FORMAT TEXT) " + transcript_changes.MOVE_TAIL_SQL
    lines = await kernel.fetch(explain, UUID(int=1), 4, UUID(int=2), 2)

    plan = "\n".join(row[0] for row in lines)
    assert "Tid Scan on messages" in plan
    assert "Join Filter" not in plan


async def test_long_rows_make_pages_and_no_oversized_reply(kernel: Kernel) -> None:
    session = (await kernel.say(event(**TEAM, user="1", mid="0", text="first"))).session
    await kernel.run_turn(session)
    await kernel.fetch(
        """
        INSERT INTO messages (session_id, seq, role, content, created_at)
        SELECT $1, n, 'user', repeat('汉', 20000), $2 FROM generate_series(3, 500) AS n
        """,
        session,
        DAY,
    )
    queries = TranscriptQueries(TranscriptReads(kernel.store))
    handlers = RequestHandler(Metrics()).reads_of_callers(queries.table())
    seen: list[int] = []
    before = None
    for _ in range(5):
        request = TranscriptLoad(
            id=new_envelope_id(), at=DAY, session_id=session, limit=500, before_seq=before
        )
        body = await handlers["transcript.load"](ApiRequest("web", encode(request)))
        assert len(body) <= MAX_REPLY_BYTES
        reply = decode(TranscriptReply, body)
        seen += [row.seq for row in reversed(reply.rows)]
        before = reply.next_before_seq

    assert seen == list(range(500, 500 - len(seen), -1))
    # What the database handed over was no more than a reply holds, either.
    rows = await TranscriptReads(kernel.store).rows(
        session, below_seq=501, limit=500, max_bytes=MAX_REPLY_BYTES
    )
    assert sum(len((row.content or "").encode()) for row in rows.rows) <= MAX_REPLY_BYTES
