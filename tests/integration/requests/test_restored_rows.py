"""Rows that were taken out of a transcript: listed, put back, and the same rows all the time."""

from collections.abc import Iterable
from itertools import count
from typing import Any, Final
from uuid import UUID, uuid4

import pytest

from chatlane.api.endpoint import ApiRequest, RequestHandler
from chatlane.api.transcripts import TranscriptQueries
from chatlane.domain.ids import row_id_of
from chatlane.domain.policy import KeyRules
from chatlane.observability.metrics import Metrics
from chatlane.search.indexer import SearchFilling
from chatlane.search.search_sql import Place, SearchReads
from chatlane.search.tokens import search_of
from chatlane.store.addressing import identities
from chatlane.store.conversations.session_reads import SessionReads
from chatlane.store.history.transcripts import TranscriptReads
from chatlane_schemas.codec import decode, encode
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.sessions import ApiErrorCode
from chatlane_schemas.session_api.transcripts import (
    RemovedEntry,
    TranscriptEntry,
    TranscriptLoad,
    TranscriptRemoved,
    TranscriptRemovedReply,
    TranscriptReply,
    TranscriptSearch,
)
from tests.integration.requests.test_transcript_changes import (
    ANN,
    ANN_HERSELF,
    BEN_HIMSELF,
    SUMMARY,
    Caller,
    talk,
)
from tests.integration.turns.test_resets import KernelWith
from tests.support.worlds.kernel import DAY, Fields, Kernel, catalog, event, texts

pytestmark = pytest.mark.integration

GROUP: Final[Fields] = {"chat": "-100", "kind_of_chat": "group"}
NUMBERS: Final = count(100)


class Reader:
    """Reads transcripts and the archive over the handlers of the API."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        queries = TranscriptQueries(TranscriptReads(kernel.store), kernel.catalog)
        self._handlers = RequestHandler(Metrics()).reads_of_callers(queries.table())

    async def rows(self, session_id: UUID, **fields: Any) -> tuple[TranscriptEntry, ...]:  # noqa: ANN401 - any field of a request
        request = TranscriptLoad(id=new_envelope_id(), at=DAY, session_id=session_id, **fields)
        answer = await self._handlers["transcript.load"](ApiRequest("web", encode(request)))
        return decode(TranscriptReply, answer).rows

    async def ask(self, session_id: UUID, **fields: Any) -> TranscriptRemovedReply:  # noqa: ANN401 - any field of a request
        request = TranscriptRemoved(id=new_envelope_id(), at=DAY, session_id=session_id, **fields)
        answer = await self._handlers["transcript.removed"](ApiRequest("web", encode(request)))
        return decode(TranscriptRemovedReply, answer)

    async def removed(self, session_id: UUID, **fields: Any) -> tuple[RemovedEntry, ...]:  # noqa: ANN401 - any field of a request
        return (await self.ask(session_id, **fields)).rows

    async def state(self, session_id: UUID) -> list[tuple[Any, ...]]:
        """Return everything of the rows of a transcript that a restore has to bring back."""
        return [tuple(row.model_dump().items()) for row in await self.rows(session_id)]


@pytest.fixture
def caller(kernel: Kernel) -> Caller:
    return Caller(kernel)


@pytest.fixture
def reader(kernel: Kernel) -> Reader:
    return Reader(kernel)


async def version_of(reader: Reader, session: UUID) -> str:
    version = (await reader.ask(session)).version
    assert version is not None
    return version


async def restored(caller: Caller, reader: Reader, session: UUID, removal: int) -> int:
    version = await version_of(reader, session)
    reply = await caller.done("restore", session, removal=removal, expected_version=version)
    return reply.restored_rows


def ids(rows: Iterable[TranscriptEntry]) -> list[UUID | None]:
    return [row.row_id for row in rows]


async def with_tools(kernel: Kernel, session_words: str, mid: str) -> UUID:
    """Let Ann say something, and be answered after a tool call."""
    session = (await kernel.say(event(**ANN, mid=mid, text=session_words))).session
    rows = [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "name": "look"}]},
        {"role": "tool", "content": "seen", "tool_call_id": "c", "tool_name": "look"},
        {"role": "assistant", "content": f"re {session_words}"},
    ]
    await kernel.answer(await kernel.claim_live(session), f"re {session_words}", transcript=rows)
    return session


async def test_an_undone_turn_comes_back_as_it_was(
    kernel: Kernel, caller: Caller, reader: Reader
) -> None:
    await with_tools(kernel, "a", "1")
    session = await with_tools(kernel, "b", "2")
    await kernel.say(event(**ANN, kind="edit", mid="2", text="b2"))
    before, view = await reader.state(session), await SessionReads(kernel.store).find(session)
    said = "SELECT user_messages FROM sessions"
    people = await kernel.value(said)

    await caller.done("rewind", session)
    removed = await reader.removed(session)
    version = await version_of(reader, session)
    restore = {"id": "r", "removal": removed[0].removal, "expected_version": version}
    reply = await caller.done("restore", session, **restore)
    again = await caller.done("restore", session, **restore)

    assert [row.content for row in removed] == ["re b", "seen", None, "b2"]
    assert {(row.reason, row.state) for row in removed} == {
        ("undone", None),
        ("undone", "edited"),
    }
    assert again == reply
    assert (reply.restored_rows, reply.removed_rows) == (4, 0)
    assert await reader.state(session) == before
    assert await reader.removed(session) == ()
    assert await kernel.value(said) == people
    after = await SessionReads(kernel.store).find(session)
    assert view is not None
    assert after is not None
    assert after.message_count == view.message_count
    assert reply.version == await version_of(reader, session)


async def test_what_was_said_since_follows_what_comes_back(
    kernel: Kernel, caller: Caller, reader: Reader
) -> None:
    session = await talk(kernel, "a", "b")
    await caller.done("rewind", session)
    [undone, *_] = await reader.removed(session)
    await kernel.say(event(**ANN, mid="7", text="c"))
    assert (
        await caller.refused("restore", session, removal=undone.removal, expected_version="1.5")
        is ApiErrorCode.CONFLICT
    )  # A turn is waiting.
    await kernel.run_turn(session, "re c")

    assert await restored(caller, reader, session, undone.removal) == 2
    assert await kernel.said(session) == ["a", "re a", "b", "re b", "c", "re c"]


async def test_a_summary_gives_way_to_what_it_replaced_and_comes_back(
    kernel: Kernel, caller: Caller, reader: Reader
) -> None:
    """F8, F20, R14.1."""
    session = await talk(kernel, "a", "b", "c")
    before = await reader.state(session)
    ids_before = ids(await reader.rows(session))
    version = await version_of(reader, session)
    await caller.done("compact", session, rows=SUMMARY, through_seq=4, expected_version=version)
    summed_up = await reader.rows(session)
    [replaced, *_] = await reader.removed(session)

    assert await restored(caller, reader, session, replaced.removal) == 4
    assert await reader.state(session) == before
    [summary] = await reader.removed(session)
    assert (summary.content, summary.reason) == ("in short", "undone")
    assert await restored(caller, reader, session, summary.removal) == 1

    assert await reader.rows(session) == summed_up
    rows = await reader.removed(session)
    assert ids(reversed(rows)) == ids_before[:4]
    # The summary has the place of a row, and another id.
    assert len({*ids(rows), *ids(summed_up)}) == 7


async def test_two_summaries_are_undone_in_order(
    kernel: Kernel, caller: Caller, reader: Reader
) -> None:
    session = await talk(kernel, "a", "b", "c")
    before = await reader.state(session)
    for through in (2, 5):
        version = await version_of(reader, session)
        await caller.done(
            "compact", session, rows=SUMMARY, through_seq=through, expected_version=version
        )
    removals = sorted({row.removal for row in await reader.removed(session)})
    version = await version_of(reader, session)

    refused = await caller.refused(
        "restore", session, removal=removals[0], expected_version=version
    )
    assert refused is ApiErrorCode.CONFLICT
    await restored(caller, reader, session, removals[1])
    await restored(caller, reader, session, removals[0])

    assert await reader.state(session) == before


async def test_a_replaced_transcript_comes_back_without_its_replacement(
    kernel: Kernel, caller: Caller, reader: Reader
) -> None:
    """V19, V20, R11.3, R11.7."""
    session = await talk(kernel, "a", "b")
    before = await reader.state(session)
    await caller.done("rewind", session)
    [undone, *_] = await reader.removed(session)
    version = await version_of(reader, session)
    rows = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    await caller.done("replace", session, rows=rows, expected_version=version)
    await caller.done("append", session, rows=[{"role": "system", "content": "later"}])
    version = await version_of(reader, session)
    restore = {"removal": undone.removal, "expected_version": version}
    assert await caller.refused("restore", session, **restore) is ApiErrorCode.CONFLICT

    await restored(caller, reader, session, undone.removal + 1)
    assert await kernel.said(session) == ["a", "re a", "later"]
    await restored(caller, reader, session, undone.removal)

    assert (await reader.state(session))[:4] == before
    assert await kernel.said(session) == ["a", "re a", "b", "re b", "later"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"expected_version": "0.5"}, ApiErrorCode.STALE),
        ({"removal": 7}, ApiErrorCode.CONFLICT),
        ({"removal": 0}, ApiErrorCode.CONFLICT),
        ({"acting_for": BEN_HIMSELF}, ApiErrorCode.NOT_FOUND),
        ({"expected_version": None}, ApiErrorCode.INVALID),
    ],
)
async def test_a_refused_restore_changes_nothing(
    kernel: Kernel, caller: Caller, reader: Reader, fields: Fields, code: ApiErrorCode
) -> None:
    session = await talk(kernel, "a", "b")
    await caller.done("rewind", session)
    version = await version_of(reader, session)
    before = await kernel.fetch("SELECT * FROM sessions")

    wanted = {"removal": 1, "expected_version": version} | fields
    assert await caller.refused("restore", session, **wanted) is code

    assert await kernel.fetch("SELECT * FROM sessions") == before
    assert await kernel.said(session) == ["a", "re a"]


async def test_a_person_sees_and_restores_only_what_is_theirs(
    kernel: Kernel, caller: Caller, reader: Reader
) -> None:
    session = await talk(kernel, "a")
    await caller.done("rewind", session)

    stranger = await reader.ask(session, acting_for=Person(**BEN_HIMSELF))
    own = await reader.ask(session, acting_for=Person(**ANN_HERSELF))

    assert stranger.error is not None
    assert (stranger.error.code, stranger.rows) == (ApiErrorCode.NOT_FOUND, ())
    assert [row.content for row in own.rows] == ["re a", "a"]
    restore = {"removal": 1, "expected_version": own.version}
    await caller.done("restore", session, acting_for=ANN_HERSELF, **restore)
    assert await kernel.said(session) == ["a", "re a"]


async def test_the_archive_is_read_in_pages(kernel: Kernel, caller: Caller, reader: Reader) -> None:
    session = await talk(kernel, "a", "b", "c")
    for _ in range(3):
        await caller.done("rewind", session)

    seen: list[RemovedEntry] = []
    cursor = None
    while True:
        page = await reader.ask(session, limit=4, cursor=cursor)
        seen += page.rows
        cursor = page.next_cursor
        if cursor is None:
            break

    assert [(row.removal, row.content) for row in seen] == [
        (3, "re a"),
        (3, "a"),
        (2, "re b"),
        (2, "b"),
        (1, "re c"),
        (1, "c"),
    ]
    only = await reader.removed(session, removal=2)
    assert [row.content for row in only] == ["re b", "b"]


async def overheard(kernel: Kernel, words: str) -> None:
    mid = str(next(NUMBERS))
    await kernel.say(event(**GROUP, user="703", mid=mid, text=words, observed=True))


@pytest.mark.parametrize("verb", ["retry", "rewind"])
async def test_what_others_said_beside_a_turn_stays_when_it_is_taken_back(
    kernel_with: KernelWith, verb: str
) -> None:
    kernel = await kernel_with(catalog(keys=KeyRules(group_sessions_per_user=False)))
    caller, reader = Caller(kernel), Reader(kernel)
    session = (await kernel.say(event(**GROUP, user="701", mid="1", text="a"))).session
    claimed = await kernel.claim_live(session)
    await overheard(kernel, "meanwhile")
    await kernel.answer(claimed, "re a")
    await overheard(kernel, "afterwards")
    before = ids(await reader.rows(session))

    await caller.done(verb, session)

    assert await kernel.said(session) == ["meanwhile", "afterwards"]
    assert [row.content for row in await reader.removed(session)] == ["re a", "a"]
    if verb == "retry":
        assert texts(await kernel.run_turn(session, "re a")) == ["a"]
        return
    await restored(caller, reader, session, 1)
    assert await kernel.said(session) == ["a", "meanwhile", "re a", "afterwards"]
    assert ids(await reader.rows(session)) == before


async def test_a_message_that_is_deleted_in_the_archive_does_not_come_back(
    kernel: Kernel, caller: Caller, reader: Reader
) -> None:
    session = await talk(kernel, "a", "secret")
    await caller.done("rewind", session)

    await kernel.say(event(**ANN, kind="delete", mid="1"))
    [_, row] = await reader.removed(session)
    await restored(caller, reader, session, 1)

    assert (row.content, row.state) == (None, "deleted")
    assert await kernel.said(session) == ["a", "re a", None, "re secret"]


async def test_an_edit_reaches_a_message_in_both_places(
    kernel: Kernel, caller: Caller, reader: Reader
) -> None:
    session = await talk(kernel, "a", "b")
    await caller.done("retry", session)
    await kernel.run_turn(session, "better")

    await kernel.say(event(**ANN, kind="edit", mid="1", text="b2"))

    assert await kernel.said(session) == ["a", "re a", "b2", "better"]
    assert [row.content for row in await reader.removed(session)] == ["re b", "b2"]


async def test_rows_that_come_back_are_found_again(
    kernel: Kernel, caller: Caller, reader: Reader
) -> None:
    session = await talk(kernel, "apples", "pears")
    search = search_of("pears")
    assert search is not None
    reads = SearchReads(kernel.store, identities.find_owners)
    wanted = TranscriptSearch(id=new_envelope_id(), at=DAY, query="pears")
    place = Place(float("inf"), 2**63 - 1)
    filling = SearchFilling(kernel.store.transaction, Metrics())

    async def hits() -> list[tuple[int, UUID | None]]:
        filling.written({session})
        await filling.fill()
        found = await reads.search(search, wanted, behind=place, limit=9)
        return sorted((hit.seq, hit.row_id) for hit in found)

    before = await hits()
    await caller.done("rewind", session)
    undone = await hits()
    await restored(caller, reader, session, 1)

    assert [seq for seq, _ in before] == [3, 4]
    assert undone == []
    assert await hits() == before
    assert [row_id for _, row_id in before] == ids(await reader.rows(session))[2:]


async def test_an_id_stays_with_its_row(kernel: Kernel, caller: Caller, reader: Reader) -> None:
    parent = await with_tools(kernel, "a", "1")
    await with_tools(kernel, "b", "2")
    before = ids(await reader.rows(parent))
    version = await version_of(reader, parent)

    reply = await caller.done(
        "compact", parent, rows=SUMMARY, through_seq=4, expected_version=version, in_child=True
    )
    assert reply.session_id is not None
    child = ids(await reader.rows(reply.session_id))

    assert before == [row_id_of(parent, seq) for seq in range(1, 9)]
    assert ids(await reader.rows(parent)) == before[:4]
    assert child == [row_id_of(reply.session_id, 1), *before[4:]]
    assert len({*before, *child}) == 9


def test_ids_of_rows_differ_by_session_place_and_revision() -> None:
    session = UUID(int=uuid4().int)
    found = {
        row_id_of(one, seq, revision)
        for one in (session, uuid4())
        for seq in (1, 2, 2**62)
        for revision in (0, 1, 2)
    }
    assert len(found) == 18
    assert {one.version for one in found} == {8}
