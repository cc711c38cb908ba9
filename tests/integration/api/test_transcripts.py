"""The transcript API on a real Postgres, from the body of a request to the body of its reply."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from pydantic_core import to_json

from chatlane.api.answering import MAX_REPLY_BYTES, Answering
from chatlane.api.transcripts import TranscriptHandlers
from chatlane.metrics import Metrics
from chatlane.store.pool import open_store
from chatlane.store.transcripts import TranscriptReads
from chatlane_schemas.codec import decode, encode
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.inbound import Attachment
from chatlane_schemas.results import Role
from chatlane_schemas.sessions import ApiErrorCode
from chatlane_schemas.transcripts import TranscriptEntry, TranscriptLoad, TranscriptReply

pytestmark = pytest.mark.integration

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
CALLS = {"tool_calls": [{"id": "c1"}, {"id": "c2"}]}


def session_id(number: int) -> UUID:
    return UUID(int=(0x018F << 112) + number)


class Api:
    """Handlers on a database of the test's own, and what to fill it with."""

    def __init__(self, handlers: TranscriptHandlers, connection: asyncpg.Connection) -> None:
        self._handlers = handlers
        self.connection = connection

    async def add_session(
        self, number: int, *, parent: int | None = None, link_kind: str | None = None
    ) -> UUID:
        identity = session_id(number)
        await self.connection.execute(
            """
            INSERT INTO sessions (
                id, session_key, agent, platform, started_at, parent_id, link_kind)
            VALUES ($1, $2, 'main', 'telegram', $3, $4, $5)
            """,
            identity,
            f"agent:main:telegram:bot:dm:{number}",
            AT,
            None if parent is None else session_id(parent),
            link_kind,
        )
        return identity

    async def add_rows(
        self, number: int, rows: Sequence[tuple[str, str | None, dict[str, Any] | None]]
    ) -> None:
        """Write rows of (role, content, details), from the first place on."""
        identity = session_id(number)
        await self.connection.executemany(
            """
            INSERT INTO messages (session_id, seq, role, content, details, created_at)
            VALUES ($1, $2, $3, $4, $5, $6)
            """,
            [
                (identity, seq, role, content, to_json(details).decode() if details else None, AT)
                for seq, (role, content, details) in enumerate(rows, start=1)
            ],
        )
        await self.connection.execute(
            "UPDATE sessions SET next_seq = $2 WHERE id = $1", identity, len(rows) + 1
        )

    async def said(self, number: int, *words: str) -> None:
        """Write a session's words, people and the agent by turns."""
        roles = (Role.USER, Role.ASSISTANT)
        await self.add_rows(number, [(roles[n % 2], word, None) for n, word in enumerate(words)])

    async def load(self, number: int, **fields: Any) -> TranscriptReply:  # noqa: ANN401
        request = TranscriptLoad(
            id=new_envelope_id(), at=AT, session_id=session_id(number), **fields
        )
        body = await self._handlers.load(encode(request))
        assert len(body) <= MAX_REPLY_BYTES
        return decode(TranscriptReply, body)

    async def pages(self, number: int, **fields: Any) -> list[tuple[TranscriptEntry, ...]]:  # noqa: ANN401
        """Return all pages, the newest first."""
        found = []
        while True:
            reply = await self.load(number, **fields)
            assert reply.error is None
            found.append(reply.rows)
            fields["before_seq"], fields["cursor"] = reply.next_before_seq, reply.next_cursor
            if reply.next_before_seq is None and reply.next_cursor is None:
                return found


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[Api]:
    connection = await asyncpg.connect(database_url)
    async with open_store(database_url) as store:
        yield Api(TranscriptHandlers(TranscriptReads(store), Answering(Metrics())), connection)
    await connection.close()


def seqs(pages: Sequence[Sequence[TranscriptEntry]]) -> list[list[int]]:
    return [[row.seq for row in page] for page in pages]


def contents(pages: Sequence[Sequence[TranscriptEntry]]) -> list[str | None]:
    return [row.content for page in reversed(pages) for row in page]


async def test_rows_are_read_from_the_end(api: Api) -> None:
    await api.add_session(1)
    await api.said(1, "a", "b", "c", "d")

    assert seqs(await api.pages(1, limit=3)) == [[2, 3, 4], [1]]
    assert seqs(await api.pages(1, limit=2, before_seq=4)) == [[2, 3], [1]]
    assert seqs(await api.pages(1, limit=4)) == [[1, 2, 3, 4]]


async def test_a_row_shows_its_details(api: Api) -> None:
    await api.add_session(1)
    attachment = {"url": "https://files.test/a.png", "media_type": "image/png"}
    await api.add_rows(
        1,
        [
            (Role.ASSISTANT, "a", {"tool_calls": [{"id": "t"}], "kind": "message"}),
            (Role.TOOL, "b", {"tool_call_id": "t", "tool_name": "n"}),
            (Role.ASSISTANT, None, {"attachments": [attachment]}),
        ],
    )

    call, result, answer = (await api.load(1)).rows

    assert call.tool_calls == [{"id": "t"}]
    assert (result.tool_call_id, result.tool_name) == ("t", "n")
    assert answer.attachments == (Attachment.model_validate(attachment),)


async def test_an_unknown_session_is_an_error_and_an_empty_one_is_not(api: Api) -> None:
    await api.add_session(1)

    assert (await api.load(1)).rows == ()
    missing = await api.load(2)
    assert missing.error is not None
    assert missing.error.code is ApiErrorCode.NOT_FOUND


async def test_no_reply_is_larger_than_a_message_may_be(api: Api) -> None:
    await api.add_session(1)
    await api.said(1, *["汉" * 60_000] * 7)

    pages = await api.pages(1)

    assert seqs(pages) == [[6, 7], [4, 5], [2, 3], [1]]


async def test_a_long_transcript_is_read_to_its_beginning(api: Api) -> None:
    await api.add_session(1)
    await api.said(1, *(f"row {seq}" for seq in range(1, 20_001)))

    pages = await api.pages(1, limit=500)

    assert len(pages) == 40
    assert contents(pages) == [f"row {seq}" for seq in range(1, 20_001)]


async def test_a_call_is_never_parted_from_its_results(api: Api) -> None:
    await api.add_session(1)
    turn = [
        (Role.USER, "u", None),
        (Role.ASSISTANT, None, CALLS),
        (Role.TOOL, "r1", {"tool_call_id": "c1"}),
        (Role.TOOL, "r2", {"tool_call_id": "c2"}),
        (Role.ASSISTANT, "a", None),
    ]
    await api.add_rows(1, turn * 4)
    everything = list(range(1, 21))

    for limit in range(1, 21):
        pages = await api.pages(1, limit=limit)
        assert [seq for page in reversed(seqs(pages)) for seq in page] == everything
        for page in pages:
            called = [call["id"] for row in page for call in row.tool_calls or ()]
            assert called == [row.tool_call_id for row in page if row.role is Role.TOOL]


async def test_a_call_without_result_is_shown_only_as_stored(api: Api) -> None:
    await api.add_session(1)
    await api.add_rows(
        1,
        [
            (Role.TOOL, "of nothing", {"tool_call_id": "c0"}),
            (Role.USER, "u", None),
            (Role.ASSISTANT, None, CALLS),
            (Role.TOOL, "r1", {"tool_call_id": "c1"}),
        ],
    )

    (shown,) = await api.pages(1)
    stored = await api.pages(1, as_stored=True, limit=2)

    assert seqs([shown]) == [[2, 3, 4]]
    assert shown[1].tool_calls == [{"id": "c1"}]
    assert seqs(stored) == [[3, 4], [1, 2]]


async def test_calls_that_fit_no_reply_together_do_not_stop_the_reader(api: Api) -> None:
    await api.add_session(1)
    calls = {"tool_calls": [{"id": f"c{n}"} for n in range(5)]}
    results = [(Role.TOOL, "x" * 200_000, {"tool_call_id": f"c{n}"}) for n in range(5)]
    await api.add_rows(1, [(Role.USER, "u", None), (Role.ASSISTANT, None, calls), *results])

    pages = await api.pages(1)

    shown = [row.seq for page in reversed(pages) for row in page]
    assert shown[0] == 1
    assert len(await api.pages(1, as_stored=True)) == 3


async def test_a_whole_chain_is_read_over_compressions_and_branches(api: Api) -> None:
    await api.add_session(1)
    await api.said(1, "a1", "a2", "a3")
    await api.add_session(2, parent=1, link_kind="compression")
    await api.said(2, "summary of a", "b1")
    await api.add_session(3, parent=2, link_kind="branch")
    await api.said(3, "summary of a", "b1", "c1")

    alone = await api.pages(3)
    pages = await api.pages(3, whole_chain=True, limit=2)

    assert contents(alone) == ["summary of a", "b1", "c1"]
    assert contents(pages) == ["a1", "a2", "a3", "summary of a", "b1", "c1"]
    homes = [row.session_id for page in reversed(pages) for row in page]
    assert homes == [session_id(n) for n in (1, 1, 1, 3, 3, 3)]


async def test_a_chain_that_bites_its_tail_ends(api: Api) -> None:
    for number in (1, 2, 3):
        await api.add_session(number, parent=number % 3 + 1, link_kind="compression")
        await api.said(number, f"of {number}")

    assert contents(await api.pages(1, whole_chain=True)) == ["of 3", "of 2", "of 1"]


async def test_a_chain_longer_than_any_real_one_is_read_in_part(api: Api) -> None:
    for number in range(1, 131):
        await api.add_session(number, parent=number - 1, link_kind="compression")
    await api.said(1, "the very first")

    pages = await api.pages(130, whole_chain=True)

    assert len(pages) == 101


async def test_a_cursor_of_another_conversation_is_refused(api: Api) -> None:
    await api.add_session(1)
    await api.add_session(2)

    for fields in (
        {"whole_chain": True, "cursor": f"{session_id(2).hex}.5"},
        {"whole_chain": False, "cursor": f"{session_id(1).hex}.5"},
    ):
        reply = await api.load(1, **fields)
        assert reply.error is not None
        assert reply.error.code is ApiErrorCode.INVALID
