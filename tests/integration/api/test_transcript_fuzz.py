"""Whatever is asked of transcripts, in whatever order: typed answers, and nothing half done."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Final, TypeAlias
from uuid import UUID

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatlane.api.endpoint import ApiRequest, RequestHandler
from chatlane.api.transcripts import TranscriptQueries
from chatlane.observability.metrics import Metrics
from chatlane.postgres.pool import open_store
from chatlane.store.history.transcripts import TranscriptReads
from chatlane_schemas.codec import decode, encode
from chatlane_schemas.envelope import Envelope, new_envelope_id
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.sessions import ApiErrorCode
from chatlane_schemas.session_api.transcripts import (
    AppendedRow,
    TranscriptAppend,
    TranscriptChanged,
    TranscriptLoad,
    TranscriptReplace,
    TranscriptReply,
    TranscriptRewind,
)
from tests.support.worlds.kernel import change_service

pytestmark = pytest.mark.integration

AT: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
NUMBERS: Final = itertools.count(1)
Handle: TypeAlias = Callable[[ApiRequest], Awaitable[bytes]]

# Each example has a session of its own, so they can share the database of the test.
shared_database = settings(
    max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


class Api:
    """The handlers of all requests about transcripts, and a connection to look behind them."""

    def __init__(self, handlers: dict[str, Handle], connection: asyncpg.Connection) -> None:
        self.handlers = handlers
        self.connection = connection

    async def new_session(self) -> UUID:
        identity = UUID(int=(0x018F << 112) + next(NUMBERS))
        await self.connection.execute(
            """
            INSERT INTO sessions (id, session_key, agent, platform, started_at)
            VALUES ($1, $2, 'main', 'telegram', $3)
            """,
            identity,
            str(identity),
            AT,
        )
        return identity

    async def ask(self, request: Envelope) -> bytes:
        verb = type(request).__name__.removeprefix("Transcript").lower()
        handle = self.handlers[f"transcript.{verb}"]
        return await handle(ApiRequest("someone", encode(request)))

    async def change(self, request: Envelope) -> TranscriptChanged:
        return decode(TranscriptChanged, await self.ask(request))

    async def load(self, session_id: UUID) -> TranscriptReply:
        request = TranscriptLoad(
            id=new_envelope_id(), at=AT, session_id=session_id, limit=500, as_stored=True
        )
        return decode(TranscriptReply, await self.ask(request))

    async def everything(self) -> object:
        return [
            await self.connection.fetch(f"SELECT * FROM {table} ORDER BY 1, 2, 3")  # noqa: S608
            for table in ("messages", "removed_messages", "sessions")
        ]


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[Api]:
    connection = await asyncpg.connect(database_url)
    request_handler = RequestHandler(Metrics())
    async with open_store(database_url) as store:
        queries = TranscriptQueries(TranscriptReads(store))
        changes = request_handler.changes(change_service(store).change)
        yield Api(changes | request_handler.reads_of_callers(queries.table()), connection)
    await connection.close()


ROWS = st.lists(
    st.builds(
        AppendedRow,
        role=st.sampled_from(Role),
        content=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5),
        platform_message_id=st.none() | st.sampled_from(["", "1", "2", "3", "4"]),
    ),
    max_size=5,
).map(tuple)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), ROWS.filter(bool)),
        st.tuples(st.just("replace"), ROWS),
        st.tuples(st.just("rewind"), st.integers(1, 4)),
        st.tuples(st.just("stale"), ROWS),
    ),
    max_size=6,
)


@given(STEPS)
@shared_database
async def test_any_changes_leave_what_they_should(
    api: Api, steps: list[tuple[str, tuple[AppendedRow, ...] | int]]
) -> None:
    session_id = await api.new_session()
    rows: list[AppendedRow] = []
    known: set[str] = set()
    written = 0
    for step, what in steps:
        before = await api.load(session_id)
        request = _request(step, what, session_id, before.version or "")
        reply = await api.change(request)
        assert await api.change(request) == reply
        if step == "stale":
            assert reply.error is not None
            assert reply.error.code is ApiErrorCode.STALE
        elif isinstance(what, int):
            kept = _rewound(rows, what)
            assert reply.removed_rows == len(rows) - len(kept)
            rows = kept
        else:
            if step == "replace":
                rows, known_before = [], known
                new = _new_rows(what, set())
                known = known_before | {row.platform_message_id or "" for row in what}
            else:
                new = _new_rows(what, known)
            rows = rows + new
            written += len(new)
            known |= {row.platform_message_id for row in new if row.platform_message_id}
            assert [not place.is_repeat for place in reply.placed].count(True) == len(new)
        after = await api.load(session_id)
        assert [row.content for row in after.rows] == [row.content for row in rows]
        seqs = [row.seq for row in after.rows]
        assert seqs == sorted(set(seqs))
        assert after.version == (before.version if step == "stale" else reply.version)
    [[live, gaps, archived]] = await api.connection.fetch(
        """
        SELECT next_seq - 1 - seq_gaps, seq_gaps,
               (SELECT count(*) FROM removed_messages WHERE session_id = sessions.id)
        FROM sessions WHERE id = $1
        """,
        session_id,
    )
    assert (live, gaps, live + archived) == (len(rows), archived, written)


def _request(
    step: str, what: tuple[AppendedRow, ...] | int, session_id: UUID, version: str
) -> Envelope:
    identity = new_envelope_id()
    if isinstance(what, int):
        return TranscriptRewind(id=identity, at=AT, session_id=session_id, turns=what)
    if step == "append":
        return TranscriptAppend(id=identity, at=AT, session_id=session_id, rows=what)
    return TranscriptReplace(
        id=identity,
        at=AT,
        session_id=session_id,
        rows=what,
        allow_empty=True,
        expected_version="9.9" if step == "stale" else version,
    )


def _new_rows(rows: tuple[AppendedRow, ...], known: set[str]) -> list[AppendedRow]:
    new = []
    brought = set(known)
    for row in rows:
        if not row.platform_message_id or row.platform_message_id not in brought:
            new.append(row)
            brought.add(row.platform_message_id or "")
    return new


def _rewound(rows: list[AppendedRow], turns: int) -> list[AppendedRow]:
    starts = [place for place, row in enumerate(rows) if row.role is Role.USER]
    return rows[: starts[-turns:][0]] if starts else rows
