"""Search in transcripts on a real Postgres: what is found, and what never is."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatlane.api.endpoint import MAX_REPLY_BYTES, ApiRequest, RequestHandler
from chatlane.api.search import SearchQueries
from chatlane.observability.metrics import Metrics
from chatlane.postgres.pool import Store, open_store
from chatlane.search import index_sql
from chatlane.search.indexer import SearchFilling
from chatlane.search.search_sql import SearchReads
from chatlane.search.tokens import document
from chatlane.store.addressing import identities
from chatlane_schemas.codec import decode, encode
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.sessions import ApiErrorCode
from chatlane_schemas.session_api.transcripts import (
    TranscriptAppend,
    TranscriptChange,
    TranscriptChanged,
    TranscriptCompact,
    TranscriptHit,
    TranscriptHits,
    TranscriptReplace,
    TranscriptRewind,
    TranscriptSearch,
)
from tests.support.worlds.kernel import change_service, event, open_kernel

pytestmark = pytest.mark.integration

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
MESSAGES = Path(__file__).parents[2] / "contract" / "messages"
ANN = Person(platform="telegram", account="bot", id="1")


def session_id(number: int) -> UUID:
    return UUID(int=(0x018F << 112) + number)


def rows(*words: str) -> list[dict[str, str]]:
    """Return rows of people and an agent by turns."""
    return [
        {"role": ("user", "assistant")[number % 2], "content": word}
        for number, word in enumerate(words)
    ]


class Library:
    """Transcripts, who makes them searchable, and who searches."""

    def __init__(self, store: Store, connection: asyncpg.Connection) -> None:
        self.store = store
        self.connection = connection
        self.filling = SearchFilling(store.transaction, Metrics())
        request_handler = RequestHandler(Metrics())
        search = SearchQueries(SearchReads(store, identities.find_owners))
        service = change_service(store, written=self.filling.written)
        self._handlers = request_handler.changes(service.change)
        self._handlers |= request_handler.reads(search.table())

    async def add_session(self, number: int, agent: str = "main", owner: str | None = None) -> None:
        await self.connection.execute(
            """
            INSERT INTO sessions (id, session_key, agent, platform, started_at, owner, title)
            VALUES ($1, $2, $3, 'telegram', $4, $5, $6)
            """,
            session_id(number),
            f"agent:main:telegram:bot:dm:{number}",
            agent,
            AT,
            owner,
            f"title {number}",
        )

    async def change(self, request: type[TranscriptChange], number: int, **fields: Any) -> UUID:  # noqa: ANN401 - any field of a request
        """Change a transcript and wait until it is searchable; returns the session it is in."""
        reply = await self.changed(request, number, **fields)
        await self.filling.fill()
        assert reply.session_id is not None, reply.error
        return reply.session_id

    async def changed(
        self,
        request: type[TranscriptChange],
        number: int,
        **fields: Any,  # noqa: ANN401 - any field of a request
    ) -> TranscriptChanged:
        head = {"id": new_envelope_id(), "at": AT, "session_id": session_id(number)}
        verb = request.__name__.removeprefix("Transcript").lower()
        body = encode(request.model_validate(head | fields, strict=False))
        handle = self._handlers[f"transcript.{verb}"]
        return decode(TranscriptChanged, await handle(ApiRequest("web", body)))

    async def said(self, number: int, *words: str) -> None:
        """Let rows be written and become searchable."""
        await self.change(TranscriptAppend, number, rows=rows(*words))

    async def ask(self, query: str, **fields: Any) -> TranscriptHits:  # noqa: ANN401 - any field of a request
        request = TranscriptSearch(id=new_envelope_id(), at=AT, query=query, **fields)
        return decode(TranscriptHits, await self.send(encode(request)))

    async def send(self, body: bytes) -> bytes:
        answer = await self._handlers["transcript.search"](ApiRequest("web", body))
        assert len(answer) <= MAX_REPLY_BYTES
        return answer

    async def hits(self, query: str, **fields: Any) -> tuple[TranscriptHit, ...]:  # noqa: ANN401 - any field of a request
        reply = await self.ask(query, **fields)
        assert reply.error is None
        return reply.hits

    async def found(self, query: str, **fields: Any) -> list[str]:  # noqa: ANN401 - any field of a request
        return [hit.snippet for hit in await self.hits(query, **fields)]

    async def version(self, number: int) -> str:
        version: str = await self.connection.fetchval(
            "SELECT revision || '.' || next_seq FROM sessions WHERE id = $1", session_id(number)
        )
        return version


@asynccontextmanager
async def open_library(database_url: str) -> AsyncIterator[Library]:
    connection = await asyncpg.connect(database_url)
    async with open_store(database_url) as store:
        yield Library(store, connection)
    await connection.close()


@pytest.fixture
async def library(database_url: str) -> AsyncIterator[Library]:
    async with open_library(database_url) as opened:
        yield opened


async def test_rows_are_found_by_their_words(library: Library) -> None:
    await library.add_session(1)
    await library.said(1, "Deploy the service", "Deployed it to Zürich", "我们今天部署新版本")

    assert await library.found("deploy") == ["Deploy the service"]
    assert await library.found("ZURICH") == ["Deployed it to Zürich"]
    assert sorted(await library.found("deploy*")) == ["Deploy the service", "Deployed it to Zürich"]
    assert await library.found("deploy* -zurich") == ["Deploy the service"]
    assert await library.found('"the service"') == ["Deploy the service"]
    assert await library.found('"service the"') == []
    assert await library.found("service zurich") == []


async def test_any_piece_of_a_sentence_without_spaces_is_found(library: Library) -> None:
    await library.add_session(1)
    sentence = "我们今天部署新版本"
    await library.said(1, sentence, "명령어를 실행했습니다", "サーバーを再起動")

    for start in range(len(sentence)):
        for end in range(start + 1, len(sentence) + 1):
            assert await library.found(sentence[start:end]) == [sentence]
    assert await library.found("今部") == []
    assert await library.found("명령어") == ["명령어를 실행했습니다"]
    assert await library.found("再起動") == ["サーバーを再起動"]


async def test_a_hit_says_where_it_is(library: Library) -> None:
    await library.add_session(1)
    await library.said(1, "a", "needle")

    [hit] = await library.hits("needle")

    assert (hit.session_id, hit.seq, hit.role) == (session_id(1), 2, "assistant")
    assert (hit.title, hit.is_summed_up) == ("title 1", False)


async def test_what_was_taken_back_is_not_found(library: Library) -> None:
    await library.add_session(1)
    await library.said(1, "needle one", "needle two", "needle three")

    await library.changed(TranscriptRewind, 1)
    assert sorted(await library.found("needle")) == ["needle one", "needle two"]
    await library.filling.fill()
    assert sorted(await library.found("needle")) == ["needle one", "needle two"]

    await library.change(TranscriptRewind, 1, turns=5)
    assert await library.found("needle") == []
    await library.said(1, "needle four")
    assert await library.found("needle") == ["needle four"]


async def test_what_was_taken_back_before_it_was_searchable_is_not_found(library: Library) -> None:
    await library.add_session(1)
    await library.changed(TranscriptAppend, 1, rows=rows("needle one", "x", "needle two"))
    await library.change(TranscriptRewind, 1)

    assert await library.found("needle") == ["needle one"]


async def test_what_a_summary_stands_for_is_found_in_the_archive(library: Library) -> None:
    await library.add_session(1)
    await library.said(1, "needle one", "hay", "needle two", "hay")
    version = await library.version(1)

    await library.change(
        TranscriptCompact, 1, rows=rows("summed up"), through_seq=2, expected_version=version
    )

    by_text = {hit.snippet: hit for hit in await library.hits("needle")}
    assert by_text.keys() == {"needle one", "needle two"}
    assert [by_text[text].is_summed_up for text in sorted(by_text)] == [True, False]
    assert [(hit.seq, hit.is_summed_up) for hit in await library.hits("summed")] == [(2, False)]


async def test_what_was_written_anew_is_found_as_it_is_and_as_it_was(library: Library) -> None:
    await library.add_session(1)
    await library.said(1, "needle old", "hay")
    await library.change(
        TranscriptReplace, 1, rows=rows("needle new"), expected_version=await library.version(1)
    )
    await library.change(TranscriptRewind, 1)

    assert await library.found("needle") == ["needle old"]


async def test_what_went_on_in_a_child_is_found_there_once(library: Library) -> None:
    await library.add_session(1)
    await library.said(1, "needle one", "hay", "needle two")

    child = await library.change(
        TranscriptCompact,
        1,
        rows=rows("in short"),
        through_seq=2,
        expected_version=await library.version(1),
        in_child=True,
    )

    homes = {hit.snippet: hit.session_id for hit in await library.hits("needle")}
    assert homes == {"needle one": session_id(1), "needle two": child}


async def test_a_search_is_of_one_persons_sessions(library: Library) -> None:
    await library.add_session(1, owner="telegram:bot:1")
    await library.add_session(2, owner="telegram:bot:2")
    await library.add_session(3)
    for number in (1, 2, 3):
        await library.said(number, f"needle {number}")

    assert await library.found("needle", acting_for=ANN) == ["needle 1"]
    assert await library.found("needle", acting_for=ANN, session_id=session_id(2)) == []
    stranger = Person(platform="telegram", account="other", id="1")
    assert await library.found("needle", acting_for=stranger) == []
    assert len(await library.found("needle")) == 3


async def test_a_session_that_gets_an_owner_is_searched_as_theirs(library: Library) -> None:
    await library.add_session(1)
    await library.said(1, "needle of a timer")
    await library.connection.execute("UPDATE sessions SET owner = 'telegram:bot:1'")
    await library.said(1, "needle of a person")

    assert len(await library.found("needle", acting_for=ANN)) == 2


async def test_a_session_that_lost_its_owner_is_not_searched_as_theirs(library: Library) -> None:
    await library.add_session(1, owner="telegram:bot:1")
    await library.said(1, "needle")
    await library.connection.execute("UPDATE sessions SET owner = NULL")

    assert await library.found("needle", acting_for=ANN) == []


async def test_a_session_that_another_agent_serves_is_searched_as_its(library: Library) -> None:
    await library.add_session(1)
    await library.said(1, "needle")
    await library.connection.execute("UPDATE sessions SET agent = 'sales'")

    assert await library.found("needle", agent="main") == []
    await library.filling.walk()
    await library.filling.fill()

    assert await library.found("needle", agent="sales") == ["needle"]


async def test_long_rows_become_searchable_a_few_at_a_time(library: Library) -> None:
    await library.add_session(1)
    for number in range(10):
        text = f"needle {number} " + "汉" * 40_000
        await library.changed(TranscriptAppend, 1, rows=rows(text))

    filled = [await library.filling.fill() for _ in range(3)]

    assert filled == [8, 2, 0]
    assert len(await library.hits("needle")) == 10


async def test_operators_search_a_session_or_an_agents(library: Library) -> None:
    await library.add_session(1)
    await library.add_session(2, agent="sales")
    await library.said(1, "needle 1")
    await library.said(2, "needle 2")

    assert await library.found("needle", session_id=session_id(1)) == ["needle 1"]
    assert await library.found("needle", agent="sales") == ["needle 2"]
    assert await library.found("needle", agent="sales", session_id=session_id(1)) == []


async def test_what_matches_best_comes_first_and_then_the_newest(library: Library) -> None:
    await library.add_session(1)
    hay = "hay " * 30
    await library.said(1, f"needle {hay} 1", "needle needle needle", f"needle {hay} 2")

    found = await library.found("needle")

    assert found[0] == "needle needle needle"
    assert [hit.seq for hit in await library.hits("needle")] == [2, 3, 1]


async def test_hits_come_in_pages_that_miss_and_repeat_none(library: Library) -> None:
    await library.add_session(1)
    await library.said(1, *(f"needle {'needle ' * (n % 4)} {n}" for n in range(25)))

    seqs: list[int] = []
    cursor = None
    while True:
        page = await library.ask("needle", limit=4, cursor=cursor)
        assert len(page.hits) <= 4
        seqs += [hit.seq for hit in page.hits]
        cursor = page.next_cursor
        if cursor is None:
            break

    assert len(seqs) == 25
    assert set(seqs) == set(range(1, 26))


async def test_large_rows_make_no_oversized_reply(library: Library) -> None:
    await library.add_session(1)
    for _ in range(12):
        await library.said(1, "needle " + "汉" * 60_000)

    assert len(await library.hits("needle", limit=50)) == 12


async def test_a_search_for_nothing_is_invalid(library: Library) -> None:
    for query in ("...", "-a", '""'):
        error = (await library.ask(query)).error
        assert error is not None
        assert error.code is ApiErrorCode.INVALID


async def test_what_nobody_told_of_is_found_by_the_walk(library: Library) -> None:
    for number in range(1, 8):
        await library.add_session(number)
        await library.changed(TranscriptAppend, number, rows=rows(f"needle {number}", "hay"))
    restarted = SearchFilling(library.store.transaction, Metrics())

    await restarted.walk()
    assert await restarted.fill() == 14
    await restarted.walk()

    assert await restarted.fill() == 0
    assert len(await library.found("needle")) == 7


async def test_the_walk_finds_what_a_summary_replaced(library: Library) -> None:
    await library.add_session(1)
    await library.said(1, "needle", "hay")
    await library.changed(
        TranscriptCompact,
        1,
        rows=rows("s"),
        through_seq=2,
        expected_version=await library.version(1),
    )
    restarted = SearchFilling(library.store.transaction, Metrics())

    await restarted.walk()
    await restarted.fill()

    assert await library.found("needle") == ["needle"]


async def test_a_long_transcript_becomes_searchable_in_rounds(library: Library) -> None:
    await library.add_session(1)
    await library.connection.execute(
        """
        INSERT INTO messages (session_id, seq, role, content, created_at)
        SELECT $1, n, 'user', 'needle ' || n, $2 FROM generate_series(1, 3000) AS n
        """,
        session_id(1),
        AT,
    )
    await library.connection.execute("UPDATE sessions SET next_seq = 3001")
    await library.filling.walk()

    filled = [await library.filling.fill()]
    while filled[-1]:
        filled.append(await library.filling.fill())

    assert sum(filled) == 3000
    assert max(filled) <= 1024
    assert await library.found("needle 1") == ["needle 1"]
    assert await library.found("needle 3000") == ["needle 3000"]


async def test_filling_and_taking_back_at_once_find_nothing_that_is_gone(library: Library) -> None:
    await library.add_session(1)
    for _ in range(20):
        await library.changed(TranscriptAppend, 1, rows=rows("keep", "x", "needle", "x"))
        await asyncio.gather(
            library.filling.fill(),
            library.changed(TranscriptRewind, 1),
            SearchFilling(library.store.transaction, Metrics()).walk(),
        )
        await library.filling.fill()
        assert await library.found("needle") == []
    stale = await library.connection.fetchval(
        """
        SELECT count(*) FROM searchable
        WHERE NOT EXISTS (SELECT FROM messages
                          WHERE (messages.session_id, messages.seq)
                              = (searchable.session_id, searchable.seq))
        """
    )
    assert stale == 0


async def test_two_routers_that_fill_the_same_do_it_once(library: Library) -> None:
    for number in range(1, 30):
        await library.add_session(number)
        await library.changed(TranscriptAppend, number, rows=rows("needle", "hay"))
    others = [SearchFilling(library.store.transaction, Metrics()) for _ in range(3)]
    for other in others:
        await other.walk()

    await asyncio.gather(library.filling.fill(), *(other.fill() for other in others))
    for other in others:
        await other.walk()
        await other.fill()

    assert len(await library.hits("needle", limit=50)) == 29


async def test_what_was_edited_is_found_as_it_is_now(database_url: str) -> None:
    async with open_library(database_url) as library, open_kernel(database_url) as kernel:
        kernel.writer.written = library.filling.written
        for number, text in (("1", "needle one"), ("2", "needle two"), ("3", "needle three")):
            said = event(chat="1", user="1", mid=number, text=text)
            session = (await kernel.say(said)).session
            await kernel.run_turn(session)
        await library.filling.fill()
        edited = {"kind": "edit", "mid": "1", "text": "nail one", "version": "1"}
        await kernel.say(event(chat="1", user="1", **edited))
        await kernel.say(event(chat="1", user="1", kind="delete", mid="2"))

        assert await library.found("needle") == ["needle three"]
        assert await library.found("nail") == ["nail one"]
        await library.filling.walk()
        await library.filling.fill()
        assert await library.found("needle") == ["needle three"]


async def test_of_sessions_that_go_nothing_is_found(library: Library) -> None:
    for number in (1, 2):
        await library.add_session(number)
        await library.said(number, f"needle {number}")

    async with library.store.transaction() as connection:
        await index_sql.forget_sessions(connection, [session_id(1)])

    assert await library.found("needle") == ["needle 2"]
    left = await library.connection.fetch("SELECT session_id FROM search_progress")
    assert [row[0] for row in left] == [session_id(2)]


async def test_what_is_said_in_a_chat_is_found(database_url: str) -> None:
    async with open_library(database_url) as library, open_kernel(database_url) as kernel:
        kernel.writer.written = library.filling.written
        session = (await kernel.say(event(chat="1", user="1", mid="1", text="needle?"))).session
        await kernel.run_turn(session, "No needle.")
        await library.filling.fill()

        assert sorted(await library.found("needle", acting_for=ANN)) == ["No needle.", "needle?"]


class Story:
    """A conversation that goes on, is taken back and summed up, and what may be found of it."""

    def __init__(self, library: Library, number: int) -> None:
        self._library = library
        self._number = number
        self._session = session_id(number)
        self._words = itertools.count()
        self.live: list[tuple[str, bool]] = []
        self.elsewhere: set[str] = set()
        self.undone: set[str] = set()

    @property
    def _mine(self) -> str:
        return f"story{self._number}"

    def _row(self, role: str) -> tuple[str, dict[str, str]]:
        word = f"w{next(self._words)}"
        return word, {"role": role, "content": f"{self._mine} {word}"}

    async def _ask(self, request: type[TranscriptChange], **fields: Any) -> TranscriptChanged:  # noqa: ANN401 - any field of a request
        reply = await self._library.changed(
            request, self._number, session_id=self._session, **fields
        )
        assert reply.error is None, reply.error
        return reply

    async def say(self, count: int) -> None:
        new = [self._row(("user", "assistant")[number % 2]) for number in range(count)]
        await self._ask(TranscriptAppend, rows=[row for _, row in new])
        self.live += [(word, row["role"] == "user") for word, row in new]

    async def undo(self, turns: int) -> None:
        await self._ask(TranscriptRewind, turns=turns)
        starts = [place for place, (_, is_user) in enumerate(self.live) if is_user]
        if starts:
            first = starts[-turns:][0]
            self.undone |= {word for word, _ in self.live[first:]}
            self.live = self.live[:first]

    async def sum_up(self, count: int, *, in_child: bool = False) -> None:
        if len(self.live) < max(count, 2):
            return
        word, summary = self._row("system")
        [[seq, version]] = await self._library.connection.fetch(
            """
            SELECT (SELECT seq FROM messages WHERE session_id = $1 ORDER BY seq OFFSET $2 LIMIT 1),
                   revision || '.' || next_seq
            FROM sessions WHERE id = $1
            """,
            self._session,
            max(count, 2) - 1,
        )
        reply = await self._ask(
            TranscriptCompact,
            rows=[summary],
            through_seq=seq,
            expected_version=version,
            in_child=in_child,
        )
        self.elsewhere |= {one for one, _ in self.live[: max(count, 2)]}
        self.live = [(word, False), *self.live[max(count, 2) :]]
        assert reply.session_id is not None
        self._session = reply.session_id

    async def sum_up_in_child(self, count: int) -> None:
        await self.sum_up(count, in_child=True)

    async def fill(self, rounds: int) -> None:
        for _ in range(rounds):
            await self._library.filling.fill()

    async def found(self) -> set[str]:
        return {text.split()[1] for text in await self._library.found(self._mine, limit=50)}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "undo", "sum_up", "sum_up_in_child", "fill"]),
        st.integers(1, 4),
    ),
    max_size=10,
)
STORIES = itertools.count(1000)


@given(STEPS)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_whatever_happens_what_was_undone_is_not_found_and_all_else_is(
    library: Library, steps: list[tuple[str, int]]
) -> None:
    number = next(STORIES)
    await library.add_session(number)
    story = Story(library, number)
    for step, count in steps:
        await getattr(story, step)(count)
        found = await story.found()
        assert not found & story.undone
        assert found <= {word for word, _ in story.live} | story.elsewhere
    await story.fill(3)

    assert await story.found() == {word for word, _ in story.live} | story.elsewhere


HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(),
    st.sampled_from(["", "\0", "9" * 30, "7f800000.1", "ffffffff.99999999999999999999", "x" * 600]),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@given(st.data())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_any_request_is_answered_or_refused_as_invalid(
    library: Library, data: st.DataObject
) -> None:
    message: dict[str, Any] = json.loads((MESSAGES / "TranscriptSearch.full.json").read_bytes())
    for _ in range(data.draw(st.integers(0, 3))):
        message[data.draw(st.sampled_from(sorted(message)))] = data.draw(HOSTILE)

    reply = decode(TranscriptHits, await library.send(json.dumps(message).encode()))

    assert reply.error is None or reply.error.code is ApiErrorCode.INVALID


@given(st.text(max_size=300))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_the_database_takes_whatever_is_found_of_a_text(library: Library, text: str) -> None:
    terms = document(text, ["=s:1"])
    if terms is not None:
        assert await library.connection.fetchval("SELECT length($1::text::tsvector)", terms)


@pytest.mark.parametrize("unit", ["ﷺ", "a", "汉", "𠀀", "'", "\\", "é "])
async def test_the_database_takes_the_longest_text(library: Library, unit: str) -> None:
    distinct = "".join(f"{unit}{n:x} " for n in range(20_000))
    for text in (unit * 200_000, distinct):
        terms = document(text, ["=s:1"])
        if terms is not None:
            assert await library.connection.fetchval("SELECT length($1::text::tsvector)", terms)
