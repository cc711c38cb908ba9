"""What a model thought: kept with its row, and given only to those who may have it."""

import json
from typing import Any, Final
from uuid import UUID

import pytest
from pydantic import ValidationError

from chatlane.api.endpoint import ApiRequest, RequestHandler
from chatlane.api.transcripts import TranscriptQueries
from chatlane.domain.catalog import Agent
from chatlane.observability.metrics import Metrics
from chatlane.search.indexer import SearchFilling
from chatlane.store.conversations.session_reads import SessionReads
from chatlane.store.history.transcripts import TranscriptReads
from chatlane_client import prompt_of
from chatlane_schemas import Reasoning, TranscriptRow
from chatlane_schemas.codec import decode, encode
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.results import MAX_REASONING_BYTES
from chatlane_schemas.session_api.transcripts import RowReasoning, TranscriptLoad, TranscriptReply
from tests.integration.requests.test_transcript_changes import Caller
from tests.integration.turns.test_resets import KernelWith
from tests.support.worlds.kernel import DAY, Fields, Kernel, catalog, event

pytestmark = pytest.mark.integration

ANN: Final[Fields] = {"chat": "701", "user": "701"}
DATA: Final[list[dict[str, Any]]] = [
    {"type": "thinking", "signature": "EqQ=", "n": 1.5, "none": None}
]
THOUGHT: Final = {"text": "pondering", "data": DATA}
ROWS: Final = [
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "name": "look"}],
        "reasoning": THOUGHT,
    },
    {"role": "tool", "content": "seen", "tool_call_id": "c"},
    {"role": "assistant", "content": "done"},
]
KEPT: Final = RowReasoning(text="pondering", data=DATA, agent="main")


async def talked(kernel: Kernel) -> UUID:
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    await kernel.answer(await kernel.claim_live(session), "done", transcript=ROWS)
    return session


async def load(kernel: Kernel, session: UUID, agent: str | None = None, **fields: Any) -> bytes:  # noqa: ANN401 - any field of a request
    handlers = RequestHandler(Metrics(), agent_of=SessionReads(kernel.store).agent_of)
    queries = TranscriptQueries(TranscriptReads(kernel.store, kernel.catalog), kernel.catalog)
    request = TranscriptLoad(id=new_envelope_id(), at=DAY, session_id=session, **fields)
    handle = handlers.reads_of_callers(queries.table())["transcript.load"]
    return await handle(ApiRequest("someone", encode(request), agent=agent))


def thoughts(body: bytes) -> list[RowReasoning | None]:
    return [row.reasoning for row in decode(TranscriptReply, body).rows]


@pytest.fixture
async def thinking(kernel_with: KernelWith) -> Kernel:
    return await kernel_with(catalog(agents=[Agent("main", reasoning=True)]))


async def test_a_worker_gets_reasoning_back_if_its_agent_declares_it(thinking: Kernel) -> None:
    session = await talked(thinking)
    body = await load(thinking, session, agent="main")
    assert thoughts(body) == [None, KEPT, None, None]
    plain = thinking.restarted(catalog())
    for asked in (False, True):
        body = await load(plain, session, agent="main", reasoning=asked)
        assert thoughts(body) == [None] * 4
        assert b"pondering" not in body


async def test_a_worker_gets_no_reasoning_of_another_agent(thinking: Kernel) -> None:
    session = await talked(thinking)
    await thinking.fetch("UPDATE sessions SET agent = 'desk'")
    agents = [Agent("main", reasoning=True), Agent("desk", reasoning=True)]
    kernel = thinking.restarted(catalog(agents=agents, profiles={"main": "desk"}))
    assert thoughts(await load(kernel, session, agent="desk")) == [None] * 4


@pytest.mark.parametrize("as_stored", [False, True])
async def test_others_get_reasoning_if_they_ask_for_it(thinking: Kernel, as_stored: bool) -> None:  # noqa: FBT001 - a parameter of a test
    session = await talked(thinking)
    body = await load(thinking, session, as_stored=as_stored)
    assert b"pondering" not in body
    assert b"EqQ=" not in body
    shown = await load(thinking, session, reasoning=True, as_stored=as_stored)
    assert thoughts(shown) == [None, KEPT, None, None]


async def test_a_placeholder_has_no_reasoning(thinking: Kernel) -> None:
    session = (await thinking.say(event(**ANN, mid="1", text="a"))).session
    await thinking.answer(await thinking.claim_live(session), "done", transcript=ROWS[:1])
    rows = decode(TranscriptReply, await load(thinking, session, reasoning=True)).rows
    assert [(row.is_placeholder, row.reasoning, row.row_id is None) for row in rows] == [
        (False, None, False),
        (False, KEPT, False),
        (True, None, True),
    ]


@pytest.mark.parametrize("declared", [False, True])
async def test_a_repeated_attempt_gets_the_reasoning_of_its_steps(
    kernel_with: KernelWith,
    declared: bool,  # noqa: FBT001 - a parameter of a test
) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("main", reasoning=declared)]))
    session = (await kernel.say(event(**ANN, mid="1", text="a"))).session
    claimed = await kernel.claim_live(session)
    back: Fields = {"outcome": "failed", "retry": True, "hand_back": "stopping", "parts": []}
    await kernel.answer(claimed, transcript=ROWS[:2], **back)
    again = await kernel.claim(claimed.turn_id)
    assert [row.reasoning for row in again.earlier_rows] == [
        Reasoning(text="pondering", data=DATA) if declared else None,
        None,
    ]


async def test_reasoning_is_in_no_search_no_prompt_and_no_message(thinking: Kernel) -> None:
    session = await talked(thinking)
    filling = SearchFilling(thinking.store.transaction, Metrics())
    filling.written({session})
    assert await filling.fill() == 4
    terms = await thinking.fetch("SELECT terms::text FROM searchable")
    assert "ponder" not in str(terms)
    rows = decode(TranscriptReply, await load(thinking, session, reasoning=True)).rows
    assert "pondering" not in prompt_of(rows)
    assert "pondering" not in repr(rows)
    for stream in ("OUTBOUND", "EVENTS", "ROUTED", "TURNS"):
        assert "pondering" not in json.dumps(await thinking.published(stream))


async def test_appended_rows_keep_reasoning_and_branches_copy_it(thinking: Kernel) -> None:
    session = await talked(thinking)
    caller = Caller(thinking)
    await caller.done("append", session, rows=ROWS[:2])
    assert thoughts(await load(thinking, session, reasoning=True))[4:] == [KEPT, None]
    await caller.done("rewind", session)
    archived = await TranscriptReads(thinking.store).removed(
        session, None, below=(2**62, 2**62), limit=9
    )
    assert [row.reasoning for row in archived] == [None] * 6
    await caller.done("restore", session, removal=1, expected_version="1.7")
    assert thoughts(await load(thinking, session, reasoning=True))[1] == KEPT


@pytest.mark.parametrize(
    "fields",
    [
        {"role": "user", "content": "x", "reasoning": {"text": "t"}},
        {"role": "assistant", "reasoning": {"text": "x" * (MAX_REASONING_BYTES + 1)}},
        {"role": "assistant", "reasoning": {"data": [{"x": "y" * MAX_REASONING_BYTES}]}},
        {"role": "assistant", "reasoning": {"data": ["x"]}},
        {"role": "assistant", "reasoning": "text"},
    ],
)
def test_other_reasoning_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TranscriptRow.model_validate_json(json.dumps(fields))
