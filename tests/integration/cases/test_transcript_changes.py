"""Turns that are run again: what was said once gets one answer that counts."""

import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from chatlane.api.answering import Answering
from chatlane.api.asked import Asked
from chatlane.api.transcript_changes import TranscriptChangeHandlers
from chatlane.domain.catalog import Agent
from chatlane.metrics import Metrics
from chatlane_schemas.codec import decode
from chatlane_schemas.sessions import ApiErrorCode
from chatlane_schemas.transcripts import TranscriptChanged
from tests.support.kernel import (
    DAY,
    Fields,
    Kernel,
    at,
    catalog,
    event,
    open_kernel,
    texts,
    transcript_desk,
)

pytestmark = pytest.mark.integration

ANN: Fields = {"chat": "701", "user": "701"}
ANN_HERSELF: Fields = {"platform": "telegram", "account": "bot", "id": "701"}
BEN_HIMSELF: Fields = {"platform": "telegram", "account": "bot", "id": "702"}


class Caller:
    """Asks for changes of transcripts as one principal."""

    def __init__(self, kernel: Kernel) -> None:
        desk = transcript_desk(kernel.store, kernel.writer)
        self._handlers = TranscriptChangeHandlers(desk, Answering(Metrics()))

    async def ask(self, verb: str, session_id: UUID, **fields: Any) -> TranscriptChanged:  # noqa: ANN401 - any field of a request
        identity = fields.pop("id", None) or uuid4().hex
        body = {"v": 1, "id": identity, "at": DAY.isoformat(), "session_id": str(session_id)}
        handle = getattr(self._handlers, verb)
        return decode(
            TranscriptChanged, await handle(Asked("web", json.dumps(body | fields).encode()))
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
