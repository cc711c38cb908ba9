"""Turns that are run again: what was said once gets one answer that counts."""

import asyncio
import json
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest

from chatlane.api.endpoint import ApiRequest, RequestHandler
from chatlane.domain.catalog import Agent
from chatlane.observability.metrics import Metrics
from chatlane.store.conversations.session_reads import SessionReads
from chatlane_schemas.codec import decode
from chatlane_schemas.session_api.sessions import ApiErrorCode, SessionChain
from chatlane_schemas.session_api.transcripts import TranscriptChanged
from tests.support.worlds.kernel import (
    DAY,
    SESSION_EVENTS,
    Fields,
    Kernel,
    at,
    catalog,
    change_service,
    event,
    open_kernel,
    texts,
)

pytestmark = pytest.mark.integration

ANN: Fields = {"chat": "701", "user": "701"}
ANN_HERSELF: Fields = {"platform": "telegram", "account": "bot", "id": "701"}
BEN_HIMSELF: Fields = {"platform": "telegram", "account": "bot", "id": "702"}


class Caller:
    """Asks for changes of transcripts as one principal."""

    def __init__(self, kernel: Kernel) -> None:
        service = change_service(kernel.store, kernel.writer)
        self._handlers = RequestHandler(Metrics()).changes(service.change)

    async def ask(self, verb: str, session_id: UUID, **fields: Any) -> TranscriptChanged:  # noqa: ANN401 - any field of a request
        identity = fields.pop("id", None) or uuid4().hex
        body = {"v": 1, "id": identity, "at": DAY.isoformat(), "session_id": str(session_id)}
        handle = self._handlers[f"transcript.{verb}"]
        return decode(
            TranscriptChanged, await handle(ApiRequest("web", json.dumps(body | fields).encode()))
        )

    async def done(self, verb: str, session_id: UUID, **fields: Any) -> TranscriptChanged:  # noqa: ANN401 - any field of a request
        reply = await self.ask(verb, session_id, **fields)
        assert reply.error is None, reply.error
        return reply

    async def refused(self, verb: str, session_id: UUID, **fields: Any) -> ApiErrorCode:  # noqa: ANN401 - any field of a request
        reply = await self.ask(verb, session_id, **fields)
        assert reply.error is not None
        return reply.error.code


@pytest.fixture
def caller(kernel: Kernel) -> Caller:
    return Caller(kernel)


async def test_the_last_turn_runs_again(kernel: Kernel, caller: Caller) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await kernel.run_turn(session, "one")
    await kernel.say(event(**ANN, mid="2", text="b"))
    await kernel.run_turn(session, "two")

    reply = await caller.done("retry", session, id="r1")
    again = await caller.done("retry", session, id="r1")
    claimed = await kernel.claim_live(session)
    await kernel.answer(claimed, "better")

    assert again == reply
    assert (reply.removed_rows, reply.undone_text) == (2, "b")
    assert claimed.turn_id == reply.turn_id
    assert texts(claimed) == ["b"]
    assert claimed.source is not None
    assert claimed.source.message_id == "2"
    assert await kernel.said(session) == ["a", "one", "b", "better"]
    answers = [said["text"] for said in await kernel.published("OUTBOUND")]
    assert answers == ["one", "two", "better"]


async def test_what_was_collected_runs_again_together(kernel: Kernel, caller: Caller) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await kernel.say(event(**ANN, mid="2", text="b"))
    await kernel.run_turn(session, "one")

    await caller.done("retry", session)

    assert texts(await kernel.claim_live(session)) == ["a", "b"]


async def test_what_was_not_answered_runs_again(kernel: Kernel, caller: Caller) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    claimed = await kernel.claim_live(session)
    await kernel.answer(claimed, outcome="failed", retry=False, parts=[])

    await caller.done("retry", session)
    await kernel.run_turn(session, "one")

    assert await kernel.said(session) == ["a", "one"]


async def test_nothing_runs_again_while_a_turn_runs(kernel: Kernel, caller: Caller) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session

    assert await caller.refused("retry", session) is ApiErrorCode.CONFLICT
    await kernel.claim_live(session)
    assert await caller.refused("retry", session) is ApiErrorCode.CONFLICT
    assert await kernel.turns_of(session) == 1


async def test_a_session_in_which_nobody_spoke_has_nothing_to_run_again(
    kernel: Kernel, caller: Caller
) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await kernel.run_turn(session, "one")
    await caller.done("rewind", session)

    assert await caller.refused("retry", session) is ApiErrorCode.CONFLICT
    assert await kernel.said(session) == []


async def test_what_was_deleted_does_not_run_again(kernel: Kernel, caller: Caller) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await kernel.say(event(**ANN, mid="2", text="b"))
    await kernel.run_turn(session, "one")
    await kernel.say(event(**ANN, kind="delete", mid="1"))

    await caller.done("retry", session)
    assert texts(await kernel.run_turn(session, "two")) == ["b"]
    await kernel.say(event(**ANN, kind="delete", mid="2"))

    assert await caller.refused("retry", session) is ApiErrorCode.CONFLICT


async def test_a_turn_of_another_version_is_not_run_again(kernel: Kernel, caller: Caller) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await kernel.run_turn(session, "one")

    refused = await caller.refused("retry", session, expected_version="0.1")

    assert refused is ApiErrorCode.STALE
    assert await kernel.said(session) == ["a", "one"]


async def test_rows_that_no_chat_brought_are_answered_where_the_lane_is(
    kernel: Kernel, caller: Caller
) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await kernel.run_turn(session, "one")
    await caller.done("append", session, rows=[{"role": "user", "content": "typed"}])

    await caller.done("retry", session)
    claimed = await kernel.claim_live(session)

    assert texts(claimed) == ["typed"]
    assert claimed.source is not None
    assert claimed.source.chat is not None
    assert claimed.source.chat.id == "701"


async def test_a_routed_message_is_routed_again_and_its_old_answer_is_late(
    database_url: str,
) -> None:
    stream = catalog(agents=[Agent("desk", delivery="stream")], profiles={"main": "desk"})
    async with open_kernel(database_url, stream) as kernel:
        session = (await kernel.say(event(**ANN, mid="1", text="a", reply_to="0"))).session
        [first] = await kernel.published("ROUTED")

        reply = await Caller(kernel).done("retry", session)
        [_, second] = await kernel.published("ROUTED")
        await kernel.decide([kernel.stream_answer(first, "old")])
        await kernel.decide([kernel.stream_answer(second, "new")])

        assert reply.turn_id is None
        assert (second["text"], second["reply_to"], second["seq"]) == ("a", "0", 2)
        assert second["id"] != first["id"]
        assert await kernel.said(session) == ["a", "new"]
        assert [said["text"] for said in await kernel.published("OUTBOUND")] == ["new"]


async def test_a_person_changes_only_what_is_theirs(kernel: Kernel, caller: Caller) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await kernel.run_turn(session, "one")
    before = await kernel.fetch("SELECT * FROM sessions")
    rows = [{"role": "user", "content": "x"}]
    changes: dict[str, Fields] = {
        "append": {"rows": rows},
        "replace": {"rows": rows, "expected_version": "0.3"},
        "compact": {"rows": rows, "expected_version": "0.3", "through_seq": 2},
        "rewind": {},
        "retry": {},
    }

    for verb, fields in changes.items():
        refused = await caller.refused(verb, session, acting_for=BEN_HIMSELF, **fields)
        assert refused is ApiErrorCode.NOT_FOUND
    assert await kernel.fetch("SELECT * FROM sessions") == before

    await caller.done("retry", session, acting_for=ANN_HERSELF)


async def test_a_retry_and_the_next_message_come_in_any_order(
    kernel: Kernel, caller: Caller
) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await kernel.run_turn(session, "one")
    await caller.done("retry", session)
    await kernel.say(event(**ANN, mid="2", text="b"), at("09:05"))

    assert texts(await kernel.claim_live(session)) == ["a", "b"]


SUMMARY: list[Fields] = [{"role": "system", "content": "in short"}]


async def talk(kernel: Kernel, *words: str) -> UUID:
    """Let Ann say something and be answered, again and again."""
    homes = []
    for number, word in enumerate(words):
        homes.append((await kernel.say(event(**ANN, mid=str(number), text=word))).session)
        await kernel.run_turn(homes[-1], f"re {word}")
    return homes[-1]


async def test_f05_a_compacted_talk_keeps_the_end_of_its_turn(
    kernel: Kernel, caller: Caller
) -> None:
    parent = await talk(kernel, "a", "b", "c")
    compact = {"rows": SUMMARY, "through_seq": 4, "expected_version": "0.5", "in_child": True}
    reply = await caller.done("compact", parent, **compact)
    ends = "SELECT asked_turn_ended_at FROM sessions WHERE id = $1"
    assert await kernel.value(ends, reply.session_id) == DAY == await kernel.value(ends, parent)


async def test_a_conversation_goes_on_behind_its_summary(kernel: Kernel, caller: Caller) -> None:
    parent = await talk(kernel, "a", "b", "c")
    await kernel.fetch(
        "UPDATE sessions SET title = 'plan', title_scope = owner, cwd = '/srv', model = 'm'"
    )

    compact = {"rows": SUMMARY, "through_seq": 4, "expected_version": "0.5", "in_child": True}
    reply = await caller.done("compact", parent, id="r1", **compact)
    assert reply == await caller.done("compact", parent, id="r1", **compact)
    child = reply.session_id

    assert child is not None
    assert await kernel.said(parent) == ["a", "re a", "b", "re b"]
    assert await kernel.transcript(child) == [
        (1, "system", "in short"),
        (2, "user", "c"),
        (3, "assistant", "re c"),
    ]
    assert (await kernel.say(event(**ANN, mid="9", text="d"))).session == child
    assert texts(await kernel.run_turn(child, "re d")) == ["d"]
    [old, new] = await kernel.fetch(
        "SELECT end_reason, parent_id, link_kind, title, cwd, model, owner,"
        "       next_seq - 1 - seq_gaps AS rows"
        " FROM sessions ORDER BY id"
    )
    assert tuple(old.values()) == ("compression", None, None, None, "/srv", "m", new["owner"], 4)
    assert tuple(new.values())[:6] == (None, parent, "compression", "plan", "/srv", "m")
    assert (new["owner"], new["rows"]) == ("telegram:bot:701", 5)
    told = [
        (one["session_id"], one.get("reason"))
        for one in await kernel.published("EVENTS", f"{SESSION_EVENTS}%")
    ]
    assert told == [(str(parent), None), (str(parent), "compression"), (str(child), None)]


async def test_a_chain_is_summed_from_its_root_to_its_tip(kernel: Kernel, caller: Caller) -> None:
    async def said(mid: str, **used: Any) -> UUID:  # noqa: ANN401 - any field of a result
        session = (await kernel.say(event(**ANN, mid=mid, text=mid))).session
        await kernel.answer(await kernel.claim_live(session), f"re {mid}", **used)
        return session

    async def continued(parent: UUID) -> UUID:
        version = await caller.done("append", parent, rows=[{"role": "system", "content": "x"}])
        compact = {"rows": SUMMARY, "through_seq": 2, "expected_version": version.version}
        reply = await caller.done("compact", parent, in_child=True, **compact)
        assert reply.session_id is not None
        return reply.session_id

    root = await said("1", usage={"in": 10}, costs={"usd": 0.1}, gauges={"context_tokens": 9})
    middle = await continued(root)
    assert await said("2", usage={"in": 5, "out": 1}) == middle
    tip = await continued(middle)
    assert await said("3", costs={"usd": 0.2}) == tip
    reads = SessionReads(kernel.store)

    views = [await reads.find(session, with_chain=True) for session in (root, middle, tip)]
    alone = await reads.find(tip)

    assert alone is not None
    assert (alone.chain, alone.costs, alone.gauges) == (None, {"usd": Decimal("0.2")}, {})
    for view in views:
        assert view is not None
        assert view.chain == SessionChain(
            root_id=root,
            tip_id=tip,
            sessions=3,
            usage={"in": 15, "out": 1},
            costs={"usd": Decimal("0.3")},
        )


async def test_what_holds_of_a_session_holds_behind_its_summary(
    kernel: Kernel, caller: Caller
) -> None:
    parent = await talk(kernel, "a", "b")
    await kernel.fetch(
        """
        UPDATE sessions SET model_override = '{"model": "m"}', origin = 'acp', answers = 7,
            held_until = now() + interval '1 hour', carry_over = 'remember', suspended_at = now()
        """
    )
    await kernel.fetch(
        "INSERT INTO session_holds SELECT id, 'build', now() + interval '1 hour' FROM sessions"
    )

    await caller.done(
        "compact", parent, rows=SUMMARY, through_seq=2, expected_version="0.5", in_child=True
    )

    [old, new] = await kernel.fetch(
        "SELECT model_override, origin, answers, held_until, carry_over, suspended_at"
        " FROM sessions ORDER BY id"
    )
    assert old == new
    [hold] = await kernel.fetch("SELECT session_id FROM session_holds")
    assert hold["session_id"] != parent


async def test_what_waits_is_answered_behind_the_summary(kernel: Kernel, caller: Caller) -> None:
    parent = await talk(kernel, "a", "b")
    await kernel.say(event(**ANN, mid="8", text="c"))
    await kernel.say(event(**ANN, mid="9", text="d"))

    reply = await caller.done(
        "compact", parent, rows=SUMMARY, through_seq=4, expected_version="0.5", in_child=True
    )
    assert reply.session_id is not None
    claimed = await kernel.claim_live(reply.session_id)
    await kernel.answer(claimed, "re cd")

    assert claimed.turn_id == reply.turn_id
    assert texts(claimed) == ["c", "d"]
    assert await kernel.said(reply.session_id) == ["in short", "c", "d", "re cd"]
    assert await kernel.live_turn(parent) is None


async def test_a_session_in_work_is_not_left(kernel: Kernel, caller: Caller) -> None:
    parent = await talk(kernel, "a", "b")
    await kernel.say(event(**ANN, mid="8", text="c"))
    claimed = await kernel.claim_live(parent)
    compact = {"rows": SUMMARY, "through_seq": 4, "expected_version": "0.5", "in_child": True}

    assert await caller.refused("compact", parent, **compact) is ApiErrorCode.CONFLICT
    await kernel.answer(claimed, "re c")

    child = (await caller.done("compact", parent, **compact)).session_id
    assert child is not None
    assert await kernel.said(child) == ["in short", "c", "re c"]


async def test_a_summary_of_rows_that_were_taken_back_opens_nothing(
    kernel: Kernel, caller: Caller
) -> None:
    parent = await talk(kernel, "a", "b")
    await caller.done("rewind", parent)
    before = await kernel.fetch("SELECT * FROM sessions")
    compact = {"rows": SUMMARY, "through_seq": 4, "expected_version": "0.5", "in_child": True}

    assert await caller.refused("compact", parent, **compact) is ApiErrorCode.STALE
    assert await kernel.fetch("SELECT * FROM sessions") == before


async def test_two_lanes_of_one_session_both_follow(kernel: Kernel, caller: Caller) -> None:
    parent = await talk(kernel, "a", "b")
    await kernel.fetch("INSERT INTO lanes VALUES ('agent:main:telegram:bot:dm:702', $1)", parent)

    child = (
        await caller.done(
            "compact", parent, rows=SUMMARY, through_seq=4, expected_version="0.5", in_child=True
        )
    ).session_id

    homes = await kernel.fetch("SELECT DISTINCT session_id FROM lanes")
    assert [home[0] for home in homes] == [child]


async def test_an_answer_that_is_still_to_come_keeps_a_stream_session(database_url: str) -> None:
    stream = catalog(agents=[Agent("desk", delivery="stream")], profiles={"main": "desk"})
    async with open_kernel(database_url, stream) as kernel:
        caller = Caller(kernel)
        said = [event(**ANN, mid=str(number), text="a") for number in range(4)]
        session = (await kernel.say_together(said))[-1].session
        compact = {"rows": SUMMARY, "through_seq": 3, "expected_version": "0.5", "in_child": True}

        assert await caller.refused("compact", session, **compact) is ApiErrorCode.CONFLICT
        [*_, last] = await kernel.published("ROUTED")
        await kernel.decide([kernel.stream_answer(last, "re a")])

        child = (await caller.done("compact", session, **compact)).session_id
        assert child is not None
        assert await kernel.said(child) == ["in short", "a", "re a"]


async def test_what_comes_at_the_same_moment_is_said_in_the_child(
    kernel: Kernel, caller: Caller
) -> None:
    session = await talk(kernel, "a", "b")
    for number in range(10):
        message = kernel.logged(event(**ANN, mid=f"m{number}", text=f"m{number}"), at("09:05"))
        version = await kernel.value(
            "SELECT revision || '.' || next_seq FROM sessions WHERE id = $1", session
        )
        compact = {
            "rows": SUMMARY,
            "through_seq": 2,
            "expected_version": version,
            "in_child": True,
        }
        reply, _ = await asyncio.gather(
            caller.done("compact", session, **compact), kernel.decide_in_the_end([message])
        )
        assert reply.session_id is not None
        session = reply.session_id
        assert (await kernel.placed(message)).session == session
        await kernel.run_turn(session, f"re m{number}")
        assert (await kernel.said(session))[-2:] == [f"m{number}", f"re m{number}"]


async def test_what_was_taken_back_is_gone_after_a_restart(kernel: Kernel, caller: Caller) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="u1"))).session
    called: list[Fields] = [
        {"role": "assistant", "tool_calls": [{"id": "t2"}, {"id": "t3"}]},
        {"role": "tool", "tool_call_id": "t2", "content": "r2"},
        {"role": "tool", "tool_call_id": "t3", "content": "r3"},
        {"role": "assistant", "content": "a"},
    ]
    await kernel.answer(await kernel.claim_live(session), transcript=called)
    await kernel.say(event(**ANN, mid="2", text="u2"))
    await kernel.answer(await kernel.claim_live(session), transcript=called)
    before = await kernel.said(session)

    await caller.done("rewind", session, id="undo")
    restarted = kernel.restarted()
    await Caller(restarted).done("rewind", session, id="undo")

    assert await restarted.said(session) == before[:5]
    await restarted.say(event(**ANN, mid="3", text="u3"))
    assert texts(await restarted.claim_live(session)) == ["u3"]


async def test_rows_with_what_the_database_refuses_are_shown(
    kernel: Kernel, caller: Caller
) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await kernel.run_turn(session, "one")
    out: Fields = {
        "role": "assistant",
        "content": "a\u0000b",
        "tool_calls": [{"id": "t", "k\u0000": {"out": "a\u0000b"}, "lone": "\ud800"}],
    }
    answer: Fields = {"role": "tool", "tool_call_id": "t", "content": "\u0000"}

    reply = await caller.done("append", session, rows=[out, answer])

    assert [place.seq for place in reply.placed] == [3, 4]
    assert await kernel.said(session) == ["a", "one", "a\ufffdb", "\ufffd"]
    [details] = await kernel.fetch("SELECT details FROM messages WHERE seq = 3")
    assert json.loads(details[0])["tool_calls"] == [
        {"id": "t", "k\ufffd": {"out": "a\ufffdb"}, "lone": "\ufffd"}
    ]


async def test_a_title_with_what_the_database_refuses_is_shown(kernel: Kernel) -> None:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await kernel.say(event(**ANN, mid="2", text="/title fi\u0000g"))

    title = await kernel.value("SELECT title FROM sessions WHERE id = $1", session)

    assert title == "fi\ufffdg"
