"""The transcript API on a real Postgres, from the body of a request to the body of its reply."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from pydantic_core import to_json

from chatlane.api.endpoint import MAX_REPLY_BYTES, ApiRequest, RequestHandler
from chatlane.api.transcripts import TranscriptQueries
from chatlane.observability.metrics import Metrics
from chatlane.postgres.pool import Store, open_store
from chatlane.store.history.messages import find_questions
from chatlane.store.history.transcripts import TranscriptReads
from chatlane_schemas.codec import decode, encode
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.fields import MAX_TOOL_CALLS
from chatlane_schemas.inbound import Attachment
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.sessions import ApiErrorCode
from chatlane_schemas.session_api.transcripts import (
    AppendedRow,
    PlacedRow,
    TranscriptAppend,
    TranscriptChanged,
    TranscriptCompact,
    TranscriptEntry,
    TranscriptLoad,
    TranscriptReplace,
    TranscriptReply,
    TranscriptRewind,
)
from tests.support.eventually import eventually
from tests.support.worlds.kernel import change_service

pytestmark = pytest.mark.integration

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
CALLS = {"tool_calls": [{"id": "c1"}, {"id": "c2"}]}


def session_id(number: int) -> UUID:
    return UUID(int=(0x018F << 112) + number)


class Api:
    """Handlers on a database of the test's own, and what to fill it with."""

    def __init__(self, store: Store, connection: asyncpg.Connection) -> None:
        request_handler = RequestHandler(Metrics())
        queries = TranscriptQueries(TranscriptReads(store))
        self._handlers = request_handler.reads_of_callers(queries.table())
        self.changes = request_handler.changes(change_service(store).change)
        self.store = store
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
        body = await self._handlers["transcript.load"](ApiRequest("someone", encode(request)))
        assert len(body) <= MAX_REPLY_BYTES
        return decode(TranscriptReply, body)

    async def append(
        self,
        number: int,
        *rows: AppendedRow,
        request_id: str | None = None,
        principal: str = "someone",
    ) -> TranscriptChanged:
        request = TranscriptAppend(
            id=request_id or new_envelope_id(), at=AT, session_id=session_id(number), rows=rows
        )
        body = await self.changes["transcript.append"](ApiRequest(principal, encode(request)))
        return decode(TranscriptChanged, body)

    async def replace(
        self,
        number: int,
        *rows: AppendedRow,
        request_id: str | None = None,
        **fields: Any,  # noqa: ANN401
    ) -> TranscriptChanged:
        request = TranscriptReplace(
            id=request_id or new_envelope_id(),
            at=AT,
            session_id=session_id(number),
            rows=rows,
            **fields,
        )
        body = await self.changes["transcript.replace"](ApiRequest("someone", encode(request)))
        return decode(TranscriptChanged, body)

    async def compact(
        self,
        number: int,
        *rows: AppendedRow,
        **fields: Any,  # noqa: ANN401
    ) -> TranscriptChanged:
        request = TranscriptCompact(
            id=new_envelope_id(), at=AT, session_id=session_id(number), rows=rows, **fields
        )
        body = await self.changes["transcript.compact"](ApiRequest("someone", encode(request)))
        return decode(TranscriptChanged, body)

    async def rewind(
        self,
        number: int,
        *,
        request_id: str | None = None,
        **fields: Any,  # noqa: ANN401
    ) -> TranscriptChanged:
        request = TranscriptRewind(
            id=request_id or new_envelope_id(), at=AT, session_id=session_id(number), **fields
        )
        body = await self.changes["transcript.rewind"](ApiRequest("someone", encode(request)))
        return decode(TranscriptChanged, body)

    async def seqs(self, number: int) -> list[int]:
        return [row.seq for row in (await self.load(number, limit=500)).rows]

    async def contents(self, number: int) -> list[str | None]:
        return [row.content for row in (await self.load(number, limit=500)).rows]

    async def version(self, number: int) -> str:
        version = (await self.load(number, limit=1)).version
        assert version is not None
        return version

    async def archived(self, number: int) -> list[str | None]:
        rows = await self.connection.fetch(
            "SELECT content FROM removed_messages WHERE session_id = $1 ORDER BY removal, seq",
            session_id(number),
        )
        return [row["content"] for row in rows]

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
        yield Api(store, connection)
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
    """F6, F7, R19.4."""
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
    """R13.4."""
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


@pytest.mark.slow
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


async def test_f03_a_call_without_result_has_a_placeholder_unless_rows_are_wanted_as_stored(
    api: Api,
) -> None:
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

    assert seqs([shown]) == [[2, 3, 3, 4]]
    assert [row.tool_call_id for row in shown if row.is_placeholder] == ["c2"]
    assert seqs(stored) == [[3, 4], [1, 2]]


async def test_placeholders_that_fit_no_reply_are_left_out_with_their_calls(api: Api) -> None:
    await api.add_session(1)
    calls = {"tool_calls": [{"id": f"c{n}"} for n in range(MAX_TOOL_CALLS)]}
    await api.add_rows(1, [(Role.ASSISTANT, "I look.", calls)] * (5000 // MAX_TOOL_CALLS))

    (shown,) = await api.pages(1)

    assert {(row.content, row.tool_calls is None) for row in shown} == {("I look.", True)}


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
    """R19.1, R19.3, V24."""
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


async def test_a_person_reads_only_what_is_theirs(api: Api) -> None:
    ann = Person(platform="telegram", account="bot", id="1")
    await api.add_session(1)
    await api.said(1, "of somebody else")
    await api.add_session(2, parent=1, link_kind="compression")
    await api.said(2, "hers")
    await api.connection.execute(
        "UPDATE sessions SET owner = 'telegram:bot:1' WHERE id = $1", session_id(2)
    )

    assert contents(await api.pages(2, acting_for=ann, whole_chain=True)) == ["hers"]
    refused = await api.load(1, acting_for=ann)
    assert refused.error is not None
    assert refused.error.code is ApiErrorCode.NOT_FOUND
    assert (await api.load(2, acting_for=Person(**ann.model_dump() | {"id": "2"}))).rows == ()


async def test_a_chain_that_bites_its_tail_ends(api: Api) -> None:
    """R19.1."""
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


def user(text: str, message: str | None = None, **fields: Any) -> AppendedRow:  # noqa: ANN401
    return AppendedRow(role=Role.USER, content=text, platform_message_id=message, **fields)


def code(reply: TranscriptChanged) -> ApiErrorCode | None:
    return reply.error.code if reply.error else None


async def test_rows_are_in_the_order_they_were_appended_in_whatever_their_times(api: Api) -> None:
    """R19.3."""
    await api.add_session(1)
    words = [f"r{n}" for n in range(1, 51)]

    reply = await api.append(1, *(user(word, said_at=AT) for word in words))
    await api.append(1, user("earlier", said_at=AT - timedelta(days=1)))

    assert [place.seq for place in reply.placed] == list(range(1, 51))
    assert await api.contents(1) == [*words, "earlier"]


async def test_two_writers_keep_their_own_order_and_leave_no_gap(api: Api) -> None:
    await api.add_session(1)

    async def write(name: str) -> None:
        for n in range(25):
            await api.append(1, user(f"{name}{n}"))

    await asyncio.gather(write("a"), write("b"))

    said = await api.contents(1)
    assert await api.seqs(1) == list(range(1, 51))
    for name in ("a", "b"):
        assert [word for word in said if word and word[0] == name] == [
            f"{name}{n}" for n in range(25)
        ]


async def test_a_message_is_one_row_whoever_brings_it(api: Api) -> None:
    await api.add_session(1)
    routed = UUID(int=7)
    await api.connection.execute(
        """
        INSERT INTO messages (session_id, seq, id, role, content, platform_message_id, created_at)
        VALUES ($1, 1, $2, 'user', 'hello', '1', $3)
        """,
        session_id(1),
        routed,
        AT,
    )
    await api.connection.execute("UPDATE sessions SET next_seq = 2")

    by_platform = await api.append(1, user("hello", "1"))
    by_delivery = await api.append(1, user("hello", message_id=routed))

    assert by_platform.placed == by_delivery.placed == (PlacedRow(seq=1, is_repeat=True),)
    assert await api.contents(1) == ["hello"]


async def test_a_message_that_waits_is_not_written_before_its_turn(api: Api) -> None:
    await api.add_session(1)
    await api.connection.execute(
        """
        INSERT INTO waiting (session_id, arrival, session_key, message_id, platform_message_id,
                             size_bytes, content, details, source, stored_at)
        VALUES ($1, 1, 'key', $2, '1', 5, 'hello', '{}', '{}', $3)
        """,
        session_id(1),
        UUID(int=7),
        AT,
    )

    reply = await api.append(1, user("hello", "1"), user("hello", message_id=UUID(int=7)))

    assert reply.placed == (PlacedRow(is_repeat=True),) * 2
    assert await api.seqs(1) == []


async def test_people_may_repeat_themselves(api: Api) -> None:
    await api.add_session(1)

    reply = await api.append(1, user("ok", "1"), user("ok", "2"), user("ok"), user("ok", "1"))

    assert [place.seq for place in reply.placed] == [1, 2, 3, 1]
    assert await api.contents(1) == ["ok"] * 3


async def test_a_message_of_another_session_is_refused(api: Api) -> None:
    await api.add_session(1)
    await api.add_session(2)
    await api.append(1, user("mine", message_id=UUID(int=7)))

    reply = await api.append(2, user("yours"), user("mine", message_id=UUID(int=7)))

    assert code(reply) is ApiErrorCode.INVALID
    assert await api.seqs(2) == []


async def test_the_same_request_again_changes_nothing_and_is_answered_the_same(api: Api) -> None:
    await api.add_session(1)

    first = await api.append(1, user("a"), request_id="r1")
    repeats = await asyncio.gather(*(api.append(1, user("a"), request_id="r1") for _ in range(5)))
    other = await api.append(1, user("b"), request_id="r1")
    of_another = await api.append(1, user("c"), request_id="r1", principal="somebody-else")

    assert list(repeats) == [first] * 5
    assert code(other) is ApiErrorCode.CONFLICT
    assert code(of_another) is None
    assert await api.contents(1) == ["a", "c"]


async def test_requests_that_come_together_under_one_id_are_one(api: Api) -> None:
    await api.add_session(1)

    replies = await asyncio.gather(*(api.append(1, user("a"), request_id="r1") for _ in range(8)))

    assert {reply.id for reply in replies} == {replies[0].id}
    assert await api.contents(1) == ["a"]


async def test_an_ended_session_takes_no_more_rows(api: Api) -> None:
    await api.add_session(1)
    await api.connection.execute("UPDATE sessions SET ended_at = now(), end_reason = 'idle'")

    assert code(await api.append(1, user("a"))) is ApiErrorCode.CONFLICT
    assert code(await api.rewind(1)) is ApiErrorCode.CONFLICT


async def test_a_transcript_is_written_anew_and_kept_as_it_was(api: Api) -> None:
    await api.add_session(1)
    await api.said(1, *(f"r{n}" for n in range(1, 201)))
    rows = [user("s1"), *(user(f"r{n}") for n in range(190, 201))]

    reply = await api.replace(1, *rows, expected_version=await api.version(1))

    assert reply.removed_rows == 200
    assert await api.contents(1) == [row.content for row in rows]
    assert await api.archived(1) == [f"r{n}" for n in range(1, 201)]
    counted = await api.connection.fetchval("SELECT next_seq - 1 - seq_gaps FROM sessions")
    assert counted == len(rows)


async def test_a_rewrite_of_what_has_changed_is_refused(api: Api) -> None:
    await api.add_session(1)
    await api.said(1, "a", "b")
    version = await api.version(1)
    await api.append(1, user("r201"))

    assert code(await api.replace(1, user("s"), expected_version=version)) is ApiErrorCode.STALE
    assert await api.contents(1) == ["a", "b", "r201"]
    await api.rewind(1)
    assert code(await api.replace(1, user("s"), expected_version=version)) is ApiErrorCode.STALE


async def test_an_empty_rewrite_has_to_be_meant(api: Api) -> None:
    """R11.1."""
    await api.add_session(1)
    await api.said(1, "a", "b")
    version = await api.version(1)

    assert code(await api.replace(1, expected_version=version)) is ApiErrorCode.INVALID
    assert await api.contents(1) == ["a", "b"]
    assert code(await api.replace(1, expected_version=version, allow_empty=True)) is None
    assert await api.contents(1) == []


async def test_a_rewrite_that_comes_twice_is_one(api: Api) -> None:
    await api.add_session(1)
    await api.said(1, "a", "b")
    version = await api.version(1)

    first = await api.replace(1, user("s"), expected_version=version, request_id="r1")
    again = await api.replace(1, user("s"), expected_version=version, request_id="r1")

    assert again == first
    assert await api.contents(1) == ["s"]
    assert await api.archived(1) == ["a", "b"]


@pytest.mark.slow
async def test_a_rewrite_that_dies_leaves_the_old_or_the_new(api: Api) -> None:
    """R11.2: the server ends the connection of a rewrite at a moment of its own choice."""
    await api.add_session(1)
    old = [f"r{n}" for n in range(1, 201)]
    await api.said(1, *old)
    current = old

    for attempt in range(100):
        new = [f"s{attempt}", *old[-11:]]
        version = await api.version(1)
        request_id = new_envelope_id()

        async def rewrite(
            new: list[str] = new, version: str = version, request_id: str = request_id
        ) -> TranscriptChanged:
            return await api.replace(
                1, *map(user, new), expected_version=version, request_id=request_id
            )

        async def kill() -> None:
            await api.connection.execute(
                """
                SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE pid <> pg_backend_pid() AND datname = current_database()
                """
            )

        reply, _ = await asyncio.gather(rewrite(), kill())
        shown = await eventually(partial(shown_of, api))
        assert shown in (current, new)
        if code(reply) is None:
            assert shown == new
        repeated = await eventually(partial(succeeded, rewrite))
        assert repeated
        assert await api.contents(1) == new
        current = new


async def shown_of(api: Api) -> list[str | None] | None:
    reply = await api.load(1, limit=500)
    return None if reply.error else [row.content for row in reply.rows]


async def succeeded(request: Callable[[], Awaitable[TranscriptChanged]]) -> bool:
    return code(await request()) is None


TOOLS = [
    (Role.USER, "u1", None),
    (Role.ASSISTANT, None, {"tool_calls": [{"id": "t1"}]}),
    (Role.TOOL, "t1", {"tool_call_id": "t1"}),
    (Role.ASSISTANT, "a1", None),
    (Role.USER, "u2", None),
    (Role.ASSISTANT, None, {"tool_calls": [{"id": "t2"}, {"id": "t3"}]}),
    (Role.TOOL, "t2", {"tool_call_id": "t2"}),
    (Role.TOOL, "t3", {"tool_call_id": "t3"}),
    (Role.ASSISTANT, "a2", None),
    (Role.USER, "u3", None),
]


async def test_whole_turns_are_taken_back(api: Api) -> None:
    await api.add_session(1)
    await api.add_rows(1, TOOLS)

    first = await api.rewind(1, request_id="undo1")
    assert (first.removed_rows, first.undone_text) == (1, "u3")
    assert await api.seqs(1) == list(range(1, 10))

    second = await api.rewind(1, request_id="undo2")
    assert (second.removed_rows, second.undone_text) == (5, "u2")
    assert await api.rewind(1, request_id="undo2") == second
    assert await api.seqs(1) == [1, 2, 3, 4]

    rest = await api.rewind(1, turns=5)
    assert (rest.removed_rows, code(rest)) == (4, None)
    assert (await api.rewind(1)).removed_rows == 0
    assert await api.seqs(1) == []
    assert sorted(filter(None, await api.archived(1))) == sorted(
        text for _, text, _ in TOOLS if text
    )


async def test_what_was_collected_for_one_turn_is_taken_back_together(api: Api) -> None:
    await api.add_session(1)
    words = ["old", "answer", "u1", "u2", "u3"]
    await api.add_rows(
        1, [(Role.ASSISTANT if w == "answer" else Role.USER, w, None) for w in words]
    )
    await api.connection.execute("UPDATE messages SET turn_id = $1 WHERE seq > 2", UUID(int=5))

    assert (await api.rewind(1)).undone_text == "u1\nu2\nu3"
    assert await api.contents(1) == ["old", "answer"]


async def test_what_was_taken_back_does_not_come_again(api: Api) -> None:
    """R19.5."""
    await api.add_session(1)
    await api.append(1, user("a", "1"), user("b", "2"))
    await api.rewind(1)

    reply = await api.append(1, user("b", "2"), user("c", "3"))

    assert reply.placed == (PlacedRow(is_repeat=True), PlacedRow(seq=3))
    assert await api.contents(1) == ["a", "c"]


async def test_nothing_is_taken_from_a_running_turn(api: Api) -> None:
    await api.add_session(1)
    await api.said(1, "u1")
    await api.connection.execute("UPDATE sessions SET active_turn = $1", UUID(int=5))

    assert code(await api.rewind(1)) is ApiErrorCode.CONFLICT
    reply = await api.replace(1, user("s"), expected_version=await api.version(1))
    assert code(reply) is ApiErrorCode.CONFLICT
    assert await api.contents(1) == ["u1"]


async def test_a_thousand_turns_of_a_long_transcript_are_taken_back(api: Api) -> None:
    await api.add_session(1)
    await api.said(1, *(f"row {seq}" for seq in range(1, 20_001)))

    reply = await api.rewind(1, turns=1000)

    assert (reply.removed_rows, reply.undone_text) == (2000, "row 18001")
    assert (await api.load(1, limit=1)).rows[0].content == "row 18000"


async def test_an_answer_to_what_was_taken_back_is_late(api: Api) -> None:
    await api.add_session(1)
    routed = UUID(int=7)
    await api.connection.execute(
        """
        INSERT INTO messages (session_id, seq, id, role, content, source, created_at)
        VALUES ($1, 1, $2, 'user', 'hello', $3, $4)
        """,
        session_id(1),
        routed,
        '{"platform": "telegram", "account": "bot"}',
        AT,
    )
    await api.connection.execute("UPDATE sessions SET next_seq = 2")
    await api.rewind(1)

    async with api.store.transaction() as connection:
        found = await find_questions(connection, [(routed, 0)])

    home, _, result_id = found[(routed, 0)]
    assert (home, result_id) == (session_id(1), "undone")


async def test_a_summary_takes_the_place_of_the_oldest_rows(api: Api) -> None:
    await api.add_session(1)
    await api.said(1, *(f"r{n}" for n in range(1, 11)))
    version = await api.version(1)
    await api.append(1, user("r11"))

    summary = (AppendedRow(role=Role.SYSTEM, content="s1"), AppendedRow(role=Role.SYSTEM))
    reply = await api.compact(1, *summary, through_seq=8, expected_version=version)

    assert reply.removed_rows == 8
    assert await api.contents(1) == ["s1", None, "r9", "r10", "r11"]
    assert await api.seqs(1) == [7, 8, 9, 10, 11]
    assert await api.archived(1) == [f"r{n}" for n in range(1, 9)]
    counted = await api.connection.fetchval("SELECT next_seq - 1 - seq_gaps FROM sessions")
    assert counted == 5


async def test_a_summary_is_summed_up_again(api: Api) -> None:
    await api.add_session(1)
    await api.said(1, *(f"r{n}" for n in range(1, 11)))

    for through_seq, text in ((8, "s1"), (9, "s2"), (10, "s3")):
        version = await api.version(1)
        reply = await api.compact(1, user(text), through_seq=through_seq, expected_version=version)
        assert code(reply) is None

    assert await api.contents(1) == ["s3"]
    assert (await api.append(1, user("r11"))).placed == (PlacedRow(seq=11),)


async def test_a_summary_of_what_was_taken_back_meanwhile_is_refused(api: Api) -> None:
    await api.add_session(1)
    await api.said(1, "u1", "a1", "u2", "a2")
    version = await api.version(1)
    await api.rewind(1)

    reply = await api.compact(1, user("s"), through_seq=4, expected_version=version)

    assert code(reply) is ApiErrorCode.STALE
    assert await api.contents(1) == ["u1", "a1"]


async def test_a_summary_parts_no_call_and_stands_for_more_rows_than_it_has(api: Api) -> None:
    await api.add_session(1)
    await api.add_rows(1, TOOLS)
    version = await api.version(1)

    async def refused(through_seq: int, count: int = 1) -> ApiErrorCode | None:
        rows = [user("s")] * count
        reply = await api.compact(1, *rows, through_seq=through_seq, expected_version=version)
        return code(reply)

    assert await refused(2) is ApiErrorCode.INVALID
    assert await refused(7) is ApiErrorCode.INVALID
    assert await refused(1) is ApiErrorCode.INVALID
    assert await refused(4, count=4) is ApiErrorCode.INVALID
    assert await refused(11) is ApiErrorCode.INVALID
    assert await api.seqs(1) == list(range(1, 11))


async def test_a_running_turn_keeps_its_own_rows_but_not_its_history(api: Api) -> None:
    await api.add_session(1)
    await api.said(1, "u1", "a1", "u2", "a2", "u3")
    turn = UUID(int=5)
    await api.connection.execute("UPDATE messages SET turn_id = $1 WHERE seq = 5", turn)
    await api.connection.execute("UPDATE sessions SET active_turn = $1", turn)
    version = await api.version(1)

    refused = await api.compact(1, user("s"), through_seq=5, expected_version=version)
    made = await api.compact(1, user("s"), through_seq=4, expected_version=version)

    assert code(refused) is ApiErrorCode.CONFLICT
    assert code(made) is None
    assert await api.contents(1) == ["s", "u3"]


async def read_all(api: Api, number: int) -> list[TranscriptEntry]:
    """Read a transcript page by page, oldest row first."""
    rows: list[TranscriptEntry] = []
    before = None
    while True:
        reply = await api.load(number, **({} if before is None else {"before_seq": before}))
        if reply.error is not None and reply.error.code is ApiErrorCode.UNAVAILABLE:
            # On a busy machine a large page takes longer than a request may; clients repeat it.
            continue
        assert reply.error is None, reply.error
        rows = [*reply.rows, *rows]
        before = reply.next_before_seq
        if before is None:
            return rows


LARGE_ROWS: dict[str, tuple[str, str | None, dict[str, Any] | None]] = {
    "text": (Role.USER, "x" * 1_500_000, None),
    "astral": (Role.USER, "\N{SLICE OF PIZZA}" * 400_000, None),
    "control": (Role.USER, "\x01" * 250_000, None),
    "long answer": (Role.ASSISTANT, "word " * 300_000, None),
    "result": (Role.TOOL, "y" * 3_000_000, {"tool_call_id": "c1", "tool_name": "read"}),
    "details": (Role.USER, "files", {"attachments": [{"url": "https://a/" + "b" * 900_000}]}),
}


@pytest.mark.parametrize("large", LARGE_ROWS.values(), ids=LARGE_ROWS)
async def test_c72_a_row_of_any_size_leaves_its_conversation_readable(
    api: Api, large: tuple[str, str | None, dict[str, Any] | None]
) -> None:
    await api.add_session(1)
    call = (Role.ASSISTANT, None, {"tool_calls": [{"id": "c1", "function": {"name": "read"}}]})
    before = call if large[0] == Role.TOOL else (Role.ASSISTANT, "before", None)
    await api.add_rows(1, [(Role.USER, "first", None), before, large, (Role.USER, "last", None)])

    rows = await read_all(api, 1)
    assert [row.seq for row in rows] == [1, 2, 3, 4]
    shown = rows[2]
    # Control characters take six bytes each in JSON.
    assert shown.content_bytes == len((large[1] or "").encode())
    assert shown.tool_call_id == (large[2] or {}).get("tool_call_id")
    assert rows[3].content_bytes is None


@pytest.mark.parametrize("name", ["text", "astral", "control", "result"])
async def test_c72_a_large_row_is_read_in_ranges(api: Api, name: str) -> None:
    await api.add_session(1)
    await api.add_rows(1, [(Role.USER, "first", None), LARGE_ROWS[name]])
    text, start = "", 0
    while True:
        reply = await api.load(1, limit=1, before_seq=3, as_stored=True, content_from=start)
        [row] = reply.rows
        text += row.content or ""
        if row.content_next is None:
            break
        assert row.content_next > start
        start = row.content_next
    assert text == LARGE_ROWS[name][1]


@pytest.mark.parametrize("size", [100_000, 600_000, 3_000_000])
async def test_c72_calls_with_large_arguments_keep_their_results(api: Api, size: int) -> None:
    await api.add_session(1)
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "write", "arguments": "z" * size}}
        for n in range(3)
    ]
    results = [(Role.TOOL, "r" * size, {"tool_call_id": f"c{n}"}) for n in range(3)]
    await api.add_rows(1, [(Role.ASSISTANT, None, {"tool_calls": calls}), *results])

    rows = [row for row in (await api.load(1)).rows if not row.is_placeholder]
    assert [row.seq for row in rows] == [1, 2, 3, 4]
    assert [call["id"] for call in rows[0].tool_calls or ()] == ["c0", "c1", "c2"]
    assert [row.tool_call_id for row in rows[1:]] == ["c0", "c1", "c2"]
    assert all((row.content or "").startswith("r") for row in rows[1:])


async def test_c72_pieces_that_are_large_together_are_read_page_by_page(api: Api) -> None:
    await api.add_session(1)
    await api.add_rows(1, [(Role.USER, f"{n}" + "p" * 200_000, None) for n in range(6)])
    rows = await read_all(api, 1)
    assert [row.seq for row in rows] == [1, 2, 3, 4, 5, 6]
    assert all(row.content_bytes is None for row in rows)


async def test_c71_a_result_under_another_id_of_its_call_is_read(api: Api) -> None:
    await api.add_session(1)
    calls = [{"id": "fc_1", "call_id": "call_1"}, {"id": 2}]
    await api.add_rows(
        1,
        [
            (Role.ASSISTANT, None, {"tool_calls": calls}),
            (Role.USER, "quick!", None),
            (Role.TOOL, "one", {"tool_call_id": "call_1"}),
            (Role.TOOL, "two", {"tool_call_id": 2}),
        ],
    )
    assert await api.contents(1) == [None, "one", "two", "quick!"]
    stored = (await api.load(1, as_stored=True)).rows
    assert [row.content for row in stored] == [None, "quick!", "one", "two"]


@pytest.mark.parametrize("limit", [2, 3, 4, 100])
async def test_c71_calls_in_rows_of_their_own_keep_their_results(api: Api, limit: int) -> None:
    """As a model reports them: first both calls, then both results."""
    await api.add_session(1)
    await api.add_rows(
        1,
        [
            (Role.USER, "u", None),
            (Role.ASSISTANT, None, {"tool_calls": [{"id": "a"}]}),
            (Role.ASSISTANT, None, {"tool_calls": [{"id": "b"}]}),
            (Role.TOOL, "one", {"tool_call_id": "a"}),
            (Role.TOOL, "two", {"tool_call_id": "b"}),
            (Role.USER, "v", None),
        ],
    )
    rows: list[TranscriptEntry] = []
    before: dict[str, int] = {}
    while True:
        reply = await api.load(1, limit=limit, **before)
        rows = [*reply.rows, *rows]
        if reply.next_before_seq is None:
            break
        before = {"before_seq": reply.next_before_seq}
    assert [row.content for row in rows] == ["u", None, "one", None, "two", "v"]
    assert not any(row.is_placeholder for row in rows)


NESTED: Any = 1
for _ in range(30):
    NESTED = {"a": [NESTED]}


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([(Role.USER, f"{n}" + "x" * 119_000, None) for n in range(9)], id="limit"),
        pytest.param([(Role.USER, f"{n}" + "\U00020000" * 29_000, None) for n in range(9)], id="4"),
        pytest.param(
            [
                (Role.ASSISTANT, f"{n}", {"tool_calls": [{"id": "c", "arguments": [NESTED] * 900}]})
                for n in range(9)
            ],
            id="nested",
        ),
        pytest.param(
            [(Role.USER, f"{n}" + "\x7f\u2028" * 40_000, None) for n in range(9)], id="sep"
        ),
        pytest.param([(Role.USER, f"{n}" + '"\\' * 90_000, None) for n in range(9)], id="escaped"),
    ],
)
async def test_c72_rows_near_the_limit_are_read_page_by_page(
    api: Api, rows: list[tuple[str, str | None, dict[str, Any] | None]]
) -> None:
    await api.add_session(1)
    await api.add_rows(1, rows)
    shown = [row for row in await read_all(api, 1) if row.role is not Role.TOOL]
    assert [row.seq for row in shown] == list(range(1, 10))
    assert [(row.content or "")[0] for row in shown] == [str(n) for n in range(9)]
    for row, (_, content, _) in zip(shown, rows, strict=True):
        assert row.content == content or row.content_bytes == len((content or "").encode())
