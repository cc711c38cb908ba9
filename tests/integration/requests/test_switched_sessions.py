"""Lanes that are led to other sessions: back to old ones, and on to branches.

Real decisions on a real database; only NATS is not there.
"""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from chatlane.domain.catalog import Agent
from chatlane.domain.policy import ResetPolicy
from chatlane_schemas.events import EndReason
from chatlane_schemas.session_api.sessions import ApiErrorCode, SessionView
from tests.integration.requests.test_session_changes import (
    ANN,
    BEN,
    Caller,
    everything,
    person,
    request,
)
from tests.integration.turns.test_resets import KernelWith
from tests.support.worlds.kernel import DAY, SESSION_EVENTS, Kernel, catalog, event

pytestmark = pytest.mark.integration

ANNS = "agent:main:telegram:bot:dm:701"
BENS = "agent:main:telegram:bot:dm:702"
# Another chat with the same person.
ANNS_PHONE = {**ANN, "chat": "7011"}
ANN_ELSEWHERE = "agent:main:telegram:bot:dm:7011"


@pytest.fixture
def caller(kernel: Kernel) -> Caller:
    return Caller(kernel)


async def leads_to(caller: Caller, key: str) -> UUID:
    found = await caller.reads.find_by_key(key)
    assert found is not None
    return found.id


async def two_of_ann(kernel: Kernel, caller: Caller) -> tuple[UUID, UUID]:
    """Return an old session of hers and the one her chat leads to."""
    first = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await kernel.run_all()
    return first, (await caller.changed("reset", first)).id


async def switched(
    caller: Caller, target: UUID, expected: UUID, key: str = ANNS, **fields: object
) -> SessionView:
    return await caller.changed(
        "switch", target, session_key=key, expected_session_id=str(expected), **fields
    )


async def not_switched(
    caller: Caller, target: UUID, expected: UUID, key: str = ANNS, **fields: object
) -> ApiErrorCode:
    return await caller.refused(
        "switch", target, session_key=key, expected_session_id=str(expected), **fields
    )


async def test_a_chat_goes_back_to_an_old_session(kernel: Kernel, caller: Caller) -> None:
    first, second = await two_of_ann(kernel, caller)

    back = await switched(caller, first, second, acting_for=person("701"))
    placed = await kernel.say(event(**ANN, mid="2", text="b"))
    left = await caller.reads.find(second)

    assert (back.id, back.ended_at, back.end_reason) == (first, None, None)
    assert placed.session == first
    assert left is not None
    assert left.end_reason is EndReason.SWITCHED
    again = await switched(caller, second, first)
    assert (again.id, again.ended_at) == (second, None)
    reasons = [
        one["reason"] for one in kernel.relay.bodies("EVENTS", SESSION_EVENTS) if "reason" in one
    ]
    assert reasons.count("switched") == 2


async def test_the_session_a_title_names_is_gone_back_to(kernel: Kernel, caller: Caller) -> None:
    """C34: the old title stays with the old session, is found there, and is not given twice."""
    ann = person("701")
    first = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await caller.changed("title", first, title="plan")
    second = await caller.changed("reset", first)
    await kernel.say(event(**ANN, mid="4", text="b"))

    [found] = await caller.reads.find_by_title("plan", None, limit=9)
    back = await switched(caller, found.id, second.id, acting_for=ann)
    third = await caller.changed("reset", first)

    assert second.title is None
    assert back.id == first
    assert await caller.refused("title", third.id, title="plan") is ApiErrorCode.CONFLICT
    other = (await kernel.say(event(**BEN, mid="2", text="c"))).session
    assert (await caller.changed("title", other, title="plan")).title == "plan"


async def test_what_runs_in_the_session_left_is_answered_there(
    kernel: Kernel, caller: Caller
) -> None:
    first, second = await two_of_ann(kernel, caller)
    await kernel.say(event(**ANN, mid="2", text="b"))
    claimed = await kernel.claim_live(second)
    await kernel.say(event(**ANN, mid="3", text="c"))

    await switched(caller, first, second)
    await kernel.say(event(**ANN, mid="4", text="d"))
    await kernel.answer(claimed)
    await kernel.run_all()

    assert await kernel.said(second) == ["b", "ok", "c", "ok"]
    assert await kernel.said(first) == ["a", "ok", "d", "ok"]


async def test_a_switch_from_what_the_chat_has_left_is_stale(
    kernel: Kernel, caller: Caller
) -> None:
    first, second = await two_of_ann(kernel, caller)
    third = (await caller.changed("reset", second)).id
    before = await everything(kernel)

    assert await not_switched(caller, first, second) is ApiErrorCode.STALE
    assert await everything(kernel) == before
    assert (await switched(caller, first, third)).id == first


async def test_nobody_is_led_to_what_is_anothers(kernel: Kernel, caller: Caller) -> None:
    """C33: neither another one's session, nor another one's chat; in the words for none."""
    anns = (await kernel.say(event(**ANN, mid="1", text="salary"))).session
    bens = (await kernel.say(event(**BEN, mid="1", text="b"))).session
    ben = person("702")
    before = await everything(kernel)

    async def error(target: UUID, expected: UUID, key: str) -> object:
        fields = {"session_key": key, "expected_session_id": str(expected), "acting_for": ben}
        return (await caller.ask("switch", target, **fields)).error

    nothing = UUID(int=9)
    assert await error(anns, bens, BENS) == await error(nothing, bens, BENS)
    nowhere = "agent:main:telegram:bot:dm:9"
    assert await error(bens, anns, ANNS) == await error(bens, anns, nowhere)
    forked = {"session_key": ANNS, "acting_for": ben}
    assert await caller.refused("fork", anns, acting_for=ben) is ApiErrorCode.NOT_FOUND
    assert await caller.refused("fork", bens, **forked) is ApiErrorCode.NOT_FOUND
    assert await everything(kernel) == before


async def test_a_private_session_is_not_shown_to_a_room(kernel: Kernel, caller: Caller) -> None:
    """C33, its last line: also not by its owner."""
    private = (await kernel.say(event(**ANN, mid="1", text="budget"))).session
    room = await kernel.say(
        event(chat="-90", kind_of_chat="group", user="701", mid="9", text="hello")
    )

    refused = await not_switched(caller, private, room.session, room.key, acting_for=person("701"))

    assert refused is ApiErrorCode.CONFLICT
    assert await leads_to(caller, room.key) == room.session


async def test_a_session_of_another_profile_is_no_target(
    kernel_with: KernelWith,
) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("notes")], profiles={"notes": "notes"}))
    caller = Caller(kernel)
    _, second = await two_of_ann(kernel, caller)
    notes = (await kernel.say(event(**ANN, mid="2", text="b", profile="notes"))).session

    assert await not_switched(caller, notes, second) is ApiErrorCode.CONFLICT
    assert await not_switched(caller, UUID(int=9), second) is ApiErrorCode.NOT_FOUND


async def test_two_lanes_on_one_session_take_turns(kernel: Kernel, caller: Caller) -> None:
    anns = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    bens = (await kernel.say(event(**ANNS_PHONE, mid="1", text="x"))).session
    await kernel.run_all()

    await switched(caller, anns, bens, ANN_ELSEWHERE)
    await kernel.say(event(**ANN, mid="2", text="b"))
    running = await kernel.claim_live(anns)
    placed = await kernel.say(event(**ANNS_PHONE, mid="2", text="y"))
    await kernel.say(event(**ANN, mid="3", text="c"))
    waiting = await kernel.live_turn(anns)
    await kernel.answer(running)
    rest = await kernel.run_all()

    assert placed.session == anns
    assert waiting == running.turn_id
    assert [[message.text for message in one.messages] for one in rest] == [["y"], ["c"]]
    assert [str(one.source.chat.id) for one in rest if one.source and one.source.chat] == [
        "7011",
        "701",
    ]


async def test_a_session_with_another_lane_stays_open(kernel: Kernel, caller: Caller) -> None:
    anns, second = await two_of_ann(kernel, caller)
    bens = (await kernel.say(event(**ANNS_PHONE, mid="1", text="x"))).session
    await switched(caller, second, bens, ANN_ELSEWHERE)

    await switched(caller, anns, second)

    shared = await caller.reads.find(second)
    assert shared is not None
    assert shared.ended_at is None
    assert await leads_to(caller, ANN_ELSEWHERE) == second
    following = await caller.changed("reset", second)
    assert await leads_to(caller, ANN_ELSEWHERE) == following.id
    assert following.session_key == ANN_ELSEWHERE


async def test_f10_no_lane_is_led_to_another_persons_session(
    kernel: Kernel, caller: Caller
) -> None:
    """Also by a caller that acts for nobody: the next message would lead it away again."""
    anns = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    bens = (await kernel.say(event(**BEN, mid="1", text="x"))).session
    assert await not_switched(caller, anns, bens, BENS) is ApiErrorCode.CONFLICT
    assert await leads_to(caller, BENS) == bens


async def test_of_two_who_switch_at_once_one_is_stale(kernel: Kernel, caller: Caller) -> None:
    first, second = await two_of_ann(kernel, caller)
    third = (await caller.changed("reset", second)).id
    bodies = [
        request(one, session_key=ANNS, expected_session_id=str(third)) for one in (first, second)
    ]

    async def answered(body: dict[str, object]) -> ApiErrorCode | None:
        while True:
            reply = await Caller(kernel).send("switch", body)
            code = None if reply.error is None else reply.error.code
            if code is not ApiErrorCode.UNAVAILABLE:
                return code

    codes = await asyncio.gather(*map(answered, bodies))

    assert sorted(codes, key=str) == [None, ApiErrorCode.STALE]
    open_ones = "SELECT count(*) FROM sessions WHERE ended_at IS NULL"
    assert await kernel.value(open_ones) == 1


async def test_messages_that_come_while_a_chat_is_switched_are_each_in_one_session(
    kernel: Kernel, caller: Caller
) -> None:
    first, second = await two_of_ann(kernel, caller)
    messages = [
        kernel.logged(event(**ANN, mid=f"m{n}", text=f"m{n}"), DAY + timedelta(minutes=n))
        for n in range(20)
    ]

    async def write() -> None:
        for message in messages:
            await kernel.decide_in_the_end([message])

    async def switch_to_and_fro() -> None:
        here, there = second, first
        for _ in range(10):
            body = request(there, session_key=ANNS, expected_session_id=str(here))
            while True:
                reply = await Caller(kernel).send("switch", body)
                if reply.error is None:
                    break
                assert reply.error.code is ApiErrorCode.UNAVAILABLE
            here, there = there, here

    await asyncio.gather(write(), switch_to_and_fro())

    placed = [await kernel.placed(message) for message in messages]
    assert {one.session for one in placed} <= {first, second}
    assert await leads_to(caller, ANNS) == second
    assert await kernel.value("SELECT count(*) FROM sessions WHERE ended_at IS NULL") == 1
    await kernel.run_all()
    said = [*await kernel.said(first), *await kernel.said(second)]
    assert sorted(text for text in said if text and text.startswith("m")) == sorted(
        f"m{n}" for n in range(20)
    )


async def test_the_policy_does_not_end_what_was_gone_back_to(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(reset=ResetPolicy("idle")))
    caller = Caller(kernel)
    first, second = await two_of_ann(kernel, caller)

    back = await switched(caller, first, second)
    placed = await kernel.say(event(**ANN, mid="2", text="b"), back.last_activity_at)

    assert placed.session == first


async def compacted(kernel: Kernel, session: UUID, number: int) -> UUID:
    """Let a session go on in a child, as a compaction leaves it."""
    child = UUID(int=session.int + number)
    await kernel.fetch(
        """
        INSERT INTO sessions (id, session_key, agent, platform, started_at, parent_id, link_kind,
                              owner)
        SELECT $2, session_key, agent, platform, now(), id, 'compression', owner
        FROM sessions WHERE id = $1
        """,
        session,
        child,
    )
    await kernel.fetch(
        "UPDATE sessions SET ended_at = now(), end_reason = 'compression' WHERE id = $1", session
    )
    return child


async def test_a_compacted_session_is_followed_to_where_it_goes_on(
    kernel: Kernel, caller: Caller
) -> None:
    first = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await kernel.run_all()
    tip = await compacted(kernel, await compacted(kernel, first, 1), 1)

    placed = await kernel.say(event(**ANN, mid="2", text="b"))
    later = (await caller.changed("reset", tip)).id
    back = await switched(caller, first, later)

    assert placed.session == tip
    assert back.id == tip
    assert await caller.refused("reopen", first) is ApiErrorCode.CONFLICT


async def test_a_chain_in_a_circle_or_to_its_end_starts_anew(
    kernel: Kernel, caller: Caller
) -> None:
    first = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    tip = await compacted(kernel, first, 1)
    await kernel.fetch(
        "UPDATE sessions SET ended_at = now(), end_reason = 'compression', parent_id = $2,"
        " link_kind = 'compression' WHERE id = $1",
        first,
        tip,
    )
    await kernel.fetch(
        "UPDATE sessions SET ended_at = now(), end_reason = 'compression' WHERE id = $1", tip
    )

    placed = await kernel.say(event(**ANN, mid="2", text="b"))

    assert placed.session not in {first, tip}
    gone = placed.session
    await kernel.fetch("DELETE FROM sessions WHERE id = $1", gone)
    healed = await kernel.say(event(**ANN, mid="3", text="c"))
    assert healed.session not in {first, tip, gone}
    assert await leads_to(caller, ANNS) == healed.session


async def six_rows(kernel: Kernel, user: str = "701") -> UUID:
    """Return a session with the rows u1 a1 u2 a2 u3 a3."""
    session = None
    for number in range(1, 4):
        text = f"u{number}"
        placed = await kernel.say(event(chat=user, user=user, mid=str(number), text=text))
        session = placed.session
        await kernel.run_turn(session, f"a{number}")
    assert session is not None
    return session


async def test_a_branch_has_exactly_the_rows_up_to_its_point(
    kernel: Kernel, caller: Caller
) -> None:
    """C36."""
    parent = await six_rows(kernel)
    one_row = (await kernel.say(event(**BEN, mid="1", text="question"))).session
    await kernel.claim_live(one_row)

    b = await caller.changed("fork", parent, through_seq=4)
    await append(kernel, b.id, "x")
    await append(kernel, parent, "y")
    c = await caller.changed("fork", parent, through_seq=4)
    d = await caller.changed("fork", b.id)
    e = await caller.changed("fork", one_row)

    four = ["u1", "a1", "u2", "a2"]
    assert await kernel.said(b.id) == [*four, "x"]
    assert await kernel.said(parent) == [*four, "u3", "a3", "y"]
    assert await kernel.said(c.id) == four
    assert await kernel.said(d.id) == [*four, "x"]
    assert await kernel.said(e.id) == ["question"]
    assert [one.message_count for one in (b, c, d, e)] == [4, 4, 5, 1]
    links = await kernel.fetch(
        "SELECT id, parent_id, link_kind FROM sessions WHERE parent_id IS NOT NULL ORDER BY id"
    )
    assert {(row["id"], row["parent_id"], row["link_kind"]) for row in links} == {
        (b.id, parent, "branch"),
        (c.id, parent, "branch"),
        (d.id, b.id, "branch"),
        (e.id, one_row, "branch"),
    }
    await kernel.run_all()
    assert await kernel.turns_of(e.id) == 0


async def append(kernel: Kernel, session: UUID, text: str) -> None:
    await kernel.fetch(
        """
        WITH placed AS (
            UPDATE sessions SET next_seq = next_seq + 1 WHERE id = $1 RETURNING next_seq - 1 AS seq
        )
        INSERT INTO messages (session_id, seq, role, content, created_at)
        SELECT $1, seq, 'assistant', $2, now() FROM placed
        """,
        session,
        text,
    )


@pytest.mark.parametrize("row", [0, -1, 7, 99])
async def test_a_branch_at_a_row_that_is_not_there_is_refused(
    kernel: Kernel, caller: Caller, row: int
) -> None:
    """C36."""
    parent = await six_rows(kernel)
    before = await everything(kernel)

    assert await caller.refused("fork", parent, through_seq=row) is ApiErrorCode.INVALID
    assert await everything(kernel) == before


async def test_the_same_fork_again_is_the_same_branch(kernel: Kernel, caller: Caller) -> None:
    """C36."""
    parent = await six_rows(kernel)
    body = request(parent, through_seq=4)

    first = await caller.send("fork", body)
    again = await Caller(kernel.restarted()).send("fork", body)

    assert first.error is None
    assert again == first
    assert await kernel.value("SELECT count(*) FROM sessions") == 2


async def test_a_chat_goes_on_in_its_branch_and_back(kernel: Kernel, caller: Caller) -> None:
    """C36: the key points to the child, and the parent can be resumed."""
    parent = await six_rows(kernel)
    await caller.changed("update", parent, model="small-1", config={"a": 1})
    await caller.changed("override", parent, override={"model": "large-1"})

    branch = await caller.changed(
        "fork", parent, through_seq=2, session_key=ANNS, acting_for=person("701")
    )
    placed = await kernel.say(event(**ANN, mid="9", text="other way"))
    claimed = await kernel.run_turn(placed.session)
    left = await caller.reads.find(parent)
    back = await switched(caller, parent, branch.id)

    assert placed.session == branch.id
    assert claimed.history is not None
    assert await kernel.said(branch.id) == ["u1", "a1", "other way", "ok"]
    assert (branch.model, branch.config, branch.title) == ("small-1", {"a": 1}, None)
    assert branch.model_override is not None
    assert branch.model_override.model == "large-1"
    assert left is not None
    assert left.end_reason is EndReason.SWITCHED
    assert (back.id, back.ended_at) == (parent, None)
    stale = await caller.refused("fork", branch.id, session_key=ANNS)
    assert stale is ApiErrorCode.STALE


async def test_a_branch_leaves_out_what_was_undone(kernel: Kernel, caller: Caller) -> None:
    parent = await six_rows(kernel)
    await kernel.fetch("DELETE FROM messages WHERE session_id = $1 AND seq IN (3, 4)", parent)
    await kernel.fetch("UPDATE sessions SET seq_gaps = 2 WHERE id = $1", parent)

    branch = await caller.changed("fork", parent, through_seq=5)

    assert await kernel.transcript(branch.id) == [
        (1, "user", "u1"),
        (2, "assistant", "a1"),
        (5, "user", "u3"),
    ]
    assert branch.message_count == 3
    assert await caller.refused("fork", parent, through_seq=4) is ApiErrorCode.INVALID


async def test_a_large_transcript_is_copied(kernel: Kernel, caller: Caller) -> None:
    parent = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await kernel.run_all(DAY)
    await kernel.fetch(
        """
        INSERT INTO messages (session_id, seq, role, content, created_at)
        SELECT $1, n, 'user', 'row ' || n, now() FROM generate_series(3, 20000) AS n
        """,
        parent,
    )
    await kernel.fetch("UPDATE sessions SET next_seq = 20001 WHERE id = $1", parent)

    branch = await caller.changed("fork", parent)

    assert branch.message_count == 20000
    counted = "SELECT count(*) FROM messages WHERE session_id = $1"
    assert await kernel.value(counted, branch.id) == 20000
