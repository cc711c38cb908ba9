"""Drafts and read marks: a person has them for each session, and no window loses words of another."""

import asyncio
import json
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from chatlane.api.endpoint import ApiRequest, RequestHandler
from chatlane.observability.metrics import Metrics
from chatlane.requests.change_service import ChangeService
from chatlane.store.conversations.session_lists import SessionLists
from chatlane.store.conversations.session_reads import SessionReads
from chatlane_schemas.codec import decode
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.person_state import SessionDraftReply, SessionReadReply
from chatlane_schemas.session_api.sessions import ApiErrorCode, ApiReply, SessionList, SessionView
from tests.integration.requests.test_session_changes import ANN
from tests.support.worlds.kernel import DAY, SLOTS, Kernel, event

pytestmark = pytest.mark.integration

ANN_ID = {"platform": "telegram", "account": "bot", "id": "701"}
BEN_ID = {"platform": "telegram", "account": "bot", "id": "702"}


class Windows:
    """Asks on behalf of a person, as each window of a front end does."""

    def __init__(self, kernel: Kernel) -> None:
        service = ChangeService(kernel.store, kernel.writer, kernel.catalog, SLOTS)
        self._handlers = RequestHandler(Metrics()).changes(service.change)
        self._reads = SessionReads(kernel.store)
        self._lists = SessionLists(kernel.store)

    async def ask(self, verb: str, session: UUID, **fields: Any) -> bytes:  # noqa: ANN401 - any field of a request
        body = {"v": 1, "id": uuid4().hex, "at": DAY.isoformat(), "acting_for": ANN_ID}
        request = json.dumps(body | {"session_id": session} | fields, default=str).encode()
        return await self._handlers[f"session.{verb}"](ApiRequest("web", request))

    async def type(
        self, session: UUID, text: str, replaces: datetime | None = None
    ) -> datetime | None:
        """Keep a draft, and return its time."""
        given = None if replaces is None else replaces.isoformat()
        reply = await self.ask("draft", session, text=text, replaces=given)
        kept = decode(SessionDraftReply, reply)
        assert kept.error is None
        return kept.changed_at

    async def read(self, session: UUID, through_seq: int) -> int:
        reply = decode(SessionReadReply, await self.ask("read", session, through_seq=through_seq))
        assert reply.error is None
        return reply.through_seq

    async def refused(self, verb: str, session: UUID, **fields: Any) -> ApiErrorCode:  # noqa: ANN401 - any field of a request
        error = decode(ApiReply, await self.ask(verb, session, **fields)).error
        assert error is not None
        return error.code

    async def view(self, session: UUID, person: dict[str, str] | None = ANN_ID) -> SessionView:
        found = await self._reads.find(
            session, None if person is None else Person.model_validate(person)
        )
        assert found is not None
        return found

    async def draft(self, session: UUID) -> str | None:
        draft = (await self.view(session)).draft
        return None if draft is None else draft.text

    async def listed(self) -> SessionView:
        wanted = SessionList(id=uuid4().hex, at=DAY, acting_for=Person.model_validate(ANN_ID))
        by_start = await self._lists.page(wanted, below=None, limit=9)
        by_activity = await self._lists.active_page(wanted, before=None, limit=9)
        [view] = by_start.sessions
        assert [session for session, _ in by_activity.sessions] == [view]
        return view


@pytest.fixture
def ann(kernel: Kernel) -> Windows:
    return Windows(kernel)


async def opened(kernel: Kernel) -> UUID:
    return (await kernel.say(event(**ANN, mid="1", text="a"))).session


async def test_r7_4_a_draft_is_kept_changed_and_removed_and_moves_nothing_else(
    ann: Windows, kernel: Kernel
) -> None:
    """F17, R4.8."""
    session = await opened(kernel)
    before = await ann.view(session)
    outbox = await kernel.value("SELECT count(*) FROM outbox")

    first = await ann.type(session, "the ro")
    assert first is not None
    second = await ann.type(session, "the roof", first)
    assert second is not None
    assert second > first
    view = await ann.view(session)
    assert view.draft is not None
    assert (view.draft.text, view.draft.changed_at) == ("the roof", second)
    assert view.model_copy(update={"draft": None}) == before
    assert await ann.type(session, "", second) is None
    assert await ann.view(session) == before
    assert await kernel.value("SELECT count(*) FROM outbox") == outbox


async def test_a_window_does_not_overwrite_words_that_it_has_not_seen(
    ann: Windows, kernel: Kernel
) -> None:
    session = await opened(kernel)
    first = await ann.type(session, "from one window")
    assert first is not None
    for text in ("from the other", ""):
        assert await ann.refused("draft", session, text=text) is ApiErrorCode.STALE
    second = await ann.type(session, "from one window, longer", first)
    old = {"replaces": first.isoformat()}
    for text in ("from the other", ""):
        assert await ann.refused("draft", session, text=text, **old) is ApiErrorCode.STALE
    assert await ann.draft(session) == "from one window, longer"
    # The same words, whoever typed them, and a lost answer, overwrite nothing.
    assert await ann.type(session, "from one window, longer", first) is not None
    # A draft that another window has sent is gone: what is typed on is kept.
    kept = (await ann.view(session)).draft
    assert kept is not None
    await ann.type(session, "", kept.changed_at)
    assert await ann.type(session, "typed on", second) is not None


async def test_of_two_windows_at_once_one_is_refused(ann: Windows, kernel: Kernel) -> None:
    session = await opened(kernel)
    replies = await asyncio.gather(
        *(ann.ask("draft", session, text=f"window {number}") for number in range(4))
    )
    errors = [decode(ApiReply, reply).error for reply in replies]
    assert errors.count(None) == 1
    assert {error.code for error in errors if error} == {ApiErrorCode.STALE}


async def test_drafts_are_bounded(ann: Windows, kernel: Kernel) -> None:
    session = await opened(kernel)
    assert await ann.type(session, "x" * 16 * 1024) is not None
    too_large = "\N{GREEK SMALL LETTER ALPHA}" * (8 * 1024 + 1)
    assert await ann.refused("draft", session, text=too_large) is ApiErrorCode.INVALID


async def test_nobody_else_sees_or_changes_a_draft_or_a_mark(ann: Windows, kernel: Kernel) -> None:
    session = await opened(kernel)
    await ann.type(session, "the roof")
    await ann.read(session, 1)
    # Workers and operators, who act for nobody, see sessions without it.
    everybody = await ann.view(session, None)
    assert (everybody.draft, everybody.unread) == (None, None)
    for verb, fields in (("draft", {"text": "mine"}), ("read", {"through_seq": 1})):
        other = {"acting_for": BEN_ID} | fields
        assert await ann.refused(verb, session, **other) is ApiErrorCode.NOT_FOUND
        nobody = {"acting_for": None} | fields
        assert await ann.refused(verb, session, **nobody) is ApiErrorCode.INVALID
    assert await ann.draft(session) == "the roof"
    # Once it is another person's, the draft stays with who typed it.
    await kernel.fetch("UPDATE sessions SET owner = 'telegram:bot:702'")
    theirs = await ann.view(session, BEN_ID)
    assert (theirs.draft, theirs.unread) == (None, None)


async def test_answers_after_the_mark_are_unread(ann: Windows, kernel: Kernel) -> None:
    session = await opened(kernel)
    assert (await ann.listed()).unread is None
    assert await ann.read(session, 0) == 0
    assert (await ann.listed()).unread == 0
    await kernel.run_turn(session)
    marks = "SELECT through_seq, read_at FROM read_marks"
    before = await kernel.fetch(marks)
    assert (await ann.listed()).unread == 1
    assert (await ann.view(session)).unread == 1
    assert await kernel.fetch(marks) == before

    last = await kernel.value("SELECT next_seq - 1 FROM sessions")
    assert await ann.read(session, 2**63 - 1) == last
    assert (await ann.listed()).unread == 0
    # The mark never goes back.
    assert await ann.read(session, 0) == last
    assert (await ann.listed()).unread == 0


async def test_drafts_and_marks_go_with_their_session(ann: Windows, kernel: Kernel) -> None:
    session = await opened(kernel)
    await kernel.run_turn(session)
    await ann.type(session, "the roof")
    await ann.read(session, 1)
    error = decode(ApiReply, await ann.ask("remove", session)).error
    assert error is None
    assert await kernel.value("SELECT count(*) FROM drafts") == 0
    assert await kernel.value("SELECT count(*) FROM read_marks") == 0
