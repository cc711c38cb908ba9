"""Who reads the shared sessions of a room: its members, as long as the platform says so.

Every reader is asked each time, and all have to agree.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

import pytest

from chatlane.api.endpoint import ApiRequest, Handle, RequestHandler
from chatlane.api.handlers import every_handler
from chatlane.domain.catalog import Account, Catalog, Platform
from chatlane.domain.policy import KeyRules
from chatlane.maintenance import TableMaintenance
from chatlane.observability.metrics import Metrics
from chatlane.search.indexer import SearchFilling
from chatlane.store.addressing import identities, rooms
from chatlane.store.conversations.session_reads import SessionReads
from chatlane_schemas.codec import decode, encode
from chatlane_schemas.envelope import Envelope, new_envelope_id
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.rooms import RoomMembers
from chatlane_schemas.session_api.session_changes import SessionFork, SessionSwitch, SessionTitle
from chatlane_schemas.session_api.sessions import (
    Access,
    ApiError,
    ApiErrorCode,
    ApiReply,
    SessionCount,
    SessionCountReply,
    SessionGet,
    SessionList,
    SessionListReply,
    SessionOrder,
    SessionReply,
    SessionView,
)
from chatlane_schemas.session_api.transcripts import (
    AppendedRow,
    TranscriptAppend,
    TranscriptEntry,
    TranscriptHits,
    TranscriptLoad,
    TranscriptReply,
    TranscriptSearch,
)
from tests.integration.turns.test_resets import KernelWith
from tests.support.worlds.kernel import DAY, SLOTS, Fields, Kernel, catalog, event

pytestmark = pytest.mark.integration

ANN, BEN, EVE = "@ann:example.org", "@ben:example.org", "@eve:example.org"
ROOM: Final = "!room:example.org"
IN_ROOM: Final[Fields] = {"kind_of_chat": "group", "chat": ROOM}
BOT: Final = ("matrix", "bot")
TWO: Final = ("matrix", "two")
HOUR: Final = timedelta(hours=1)


def declared(*, shows: Iterable[str] = ("bot",)) -> Catalog:
    """Return a catalog in which rooms have one conversation, shown to members on some accounts."""
    usual = catalog(accounts=("bot", "two"), keys=KeyRules(group_sessions_per_user=False))
    matrix = usual.platforms["matrix"]
    accounts: dict[str, Account] = {
        name: replace(account, shows_rooms=name in shows)
        for name, account in matrix.accounts.items()
    }
    shown: Platform = replace(matrix, accounts=accounts, chats_migrate=False)
    return replace(usual, platforms=MappingProxyType({**usual.platforms, "matrix": shown}))


class Service:
    """A router's handlers, and every reader of sessions."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._request_handler = RequestHandler(
            Metrics(), agent_of=SessionReads(kernel.store).agent_of
        )
        self._handlers = self._made()
        self._filling = SearchFilling(kernel.store.transaction, Metrics())
        self._said = 0

    def _made(self) -> dict[str, Handle]:
        async def find_newest(*_: str) -> Any:  # noqa: ANN401 - not asked here
            raise AssertionError

        return every_handler(
            self.kernel.store,
            self.kernel.writer,
            self.kernel.catalog,
            SLOTS,
            self._request_handler,
            find_newest=find_newest,
            streams=None,  # type: ignore[arg-type]
            import_limits=None,  # type: ignore[arg-type]
        )

    async def ask(
        self,
        method: str,
        request: Envelope,
        reply: type[Any] = ApiReply,
        account: tuple[str, str] | None = BOT,
    ) -> Any:  # noqa: ANN401 - the reply
        asked = ApiRequest("someone", encode(request), account=account)
        return decode(reply, await self._handlers[method](asked))

    async def say(self, text: str, user: str = ANN, **fields: Any) -> UUID:  # noqa: ANN401 - of an event
        """Let somebody write in the room; an agent answers."""
        self._said += 1
        said = IN_ROOM | {"user": user, "mid": str(self._said), "text": text} | fields
        placed = await self.kernel.say(event("matrix", **said), DAY + timedelta(minutes=self._said))
        await self.kernel.run_all(DAY + timedelta(minutes=self._said))
        return placed.session

    async def command(self, text: str) -> None:
        """Let somebody give a command in the room."""
        self._said += 1
        said = IN_ROOM | {"user": ANN, "mid": str(self._said), "text": text}
        await self.kernel.say(event("matrix", **said), DAY + timedelta(minutes=self._said))

    async def switch(self, key: str, before: UUID, session_id: UUID) -> None:
        """Point the lane of a key from one session to another."""
        request = SessionSwitch(
            id=new_envelope_id(),
            at=DAY,
            session_id=session_id,
            session_key=key,
            expected_session_id=before,
        )
        reply: SessionReply = await self.ask("session.switch", request, SessionReply, account=None)
        assert reply.error is None

    async def report(
        self,
        *members: str,
        chat: str = ROOM,
        until: timedelta = HOUR,
        made: timedelta = timedelta(),
        account: tuple[str, str] = BOT,
        asked: tuple[str, str] | None = None,
    ) -> ApiError | None:
        """Let the adapter of an account report who is in a room."""
        now = datetime.now(UTC)
        request = RoomMembers(
            id=new_envelope_id(),
            at=now + made,
            platform=account[0],
            account=account[1],
            chat_id=chat,
            members=members,
            until=now + until,
        )
        reply: ApiReply = await self.ask("room.members", request, account=asked or account)
        return reply.error

    async def seen(self, who: str, *, word: str = "hello", with_rooms: bool = True) -> set[UUID]:
        """Return the sessions that a person sees as a member; all readers have to agree."""
        await self._filling.walk()
        while await self._filling.fill():
            pass
        asks: Fields = {
            "at": DAY,
            "acting_for": Person(platform="matrix", account="bot", id=who),
            "with_rooms": with_rooms,
        }
        found: list[set[UUID]] = []
        for order in SessionOrder:
            views: dict[UUID, SessionView] = {}
            cursor = None
            while True:
                page: SessionListReply = await self.ask(
                    "session.list",
                    SessionList(id=new_envelope_id(), order=order, limit=1, cursor=cursor, **asks),
                    SessionListReply,
                )
                assert page.error is None
                views |= {view.id: view for view in page.sessions}
                if (cursor := page.next_cursor) is None:
                    break
            counted: SessionCountReply = await self.ask(
                "session.count", SessionCount(id=new_envelope_id(), **asks), SessionCountReply
            )
            assert counted.counts is not None
            assert counted.counts.total == len(views)
            found.append({view.id for view in views.values() if view.access is Access.MEMBER})
        got, loaded = set(), set()
        for (session_id,) in await self.kernel.fetch("SELECT id FROM sessions"):
            reply: SessionReply = await self.ask(
                "session.get",
                SessionGet(id=new_envelope_id(), session_id=session_id, **asks),
                SessionReply,
            )
            if reply.session is not None and reply.session.access is Access.MEMBER:
                assert reply.session.read_only
                got.add(session_id)
            page_of = await self.load(who, session_id, with_rooms=with_rooms)
            if page_of and (reply.session is None or reply.session.access is Access.MEMBER):
                loaded.add(session_id)
        hits: TranscriptHits = await self.ask(
            "transcript.search",
            TranscriptSearch(id=new_envelope_id(), query=word, **asks),
            TranscriptHits,
        )
        owned = {
            row[0]
            for row in await self.kernel.fetch("SELECT id FROM sessions WHERE owner IS NOT NULL")
        }
        found += [got, loaded, {hit.session_id for hit in hits.hits} - owned]
        assert all(one == found[0] for one in found), found
        return found[0]

    async def view(self, who: str, session_id: UUID) -> SessionView:
        """Return a session as a person sees it."""
        reply: SessionReply = await self.ask(
            "session.get",
            SessionGet(
                id=new_envelope_id(),
                at=DAY,
                session_id=session_id,
                acting_for=Person(platform="matrix", account="bot", id=who),
                with_rooms=True,
                whole_chain=True,
            ),
            SessionReply,
        )
        assert reply.session is not None
        return reply.session

    async def load(
        self, who: str, session_id: UUID, *, with_rooms: bool = True
    ) -> tuple[TranscriptEntry, ...]:
        """Return the rows that a person reads."""
        reply: TranscriptReply = await self.ask(
            "transcript.load",
            TranscriptLoad(
                id=new_envelope_id(),
                at=DAY,
                session_id=session_id,
                acting_for=Person(platform="matrix", account="bot", id=who),
                with_rooms=with_rooms,
                whole_chain=True,
            ),
            TranscriptReply,
        )
        assert (reply.error is None) or not reply.rows
        return reply.rows


@pytest.fixture
async def service(kernel_with: KernelWith) -> Service:
    return Service(await kernel_with(declared()))


async def test_nothing_is_shown_by_default(kernel_with: KernelWith) -> None:
    service = Service(await kernel_with(declared(shows=())))
    await service.say("hello")

    error = await service.report(ANN, BEN)

    assert error is not None
    assert error.code is ApiErrorCode.CONFLICT
    assert await service.seen(BEN) == set()


async def test_what_was_shown_is_not_after_the_setting_was_taken_back(
    service: Service, kernel_with: KernelWith
) -> None:
    session = await service.say("hello")
    await service.report(ANN, BEN)
    assert await service.seen(BEN) == {session}

    assert await Service(await kernel_with(declared(shows=("two",)))).seen(BEN) == set()


async def test_members_see_the_sessions_of_their_room_and_nobody_else_does(
    service: Service,
) -> None:
    first = await service.say("hello")
    await service.command("/new")
    second = await service.say("hello again")
    await service.report(ANN, BEN)

    assert first != second
    for member in (ANN, BEN):
        assert await service.seen(member) == {first, second}
        assert await service.seen(member, with_rooms=False) == set()
    assert await service.seen(EVE) == set()


async def test_who_leaves_loses_sight_at_once(service: Service) -> None:
    session = await service.say("hello")
    await service.report(ANN, BEN)
    assert await service.seen(BEN) == {session}

    await service.report(ANN)

    assert await service.seen(BEN) == set()
    assert await service.seen(ANN) == {session}
    await service.report()
    assert await service.seen(ANN) == set()


async def test_sight_ends_with_the_report(service: Service) -> None:
    await service.say("hello")
    await service.report(ANN, BEN, until=timedelta(seconds=-1))

    assert await service.seen(BEN) == set()


async def test_a_report_lasts_for_two_hours_at_most(service: Service) -> None:
    await service.report(ANN, until=timedelta(days=30))

    left = await service.kernel.value("SELECT until - clock_timestamp() FROM room_reports")

    assert left <= timedelta(hours=2)


async def test_an_older_report_changes_nothing(service: Service) -> None:
    await service.say("hello")
    await service.report(ANN)

    error = await service.report(ANN, BEN, made=timedelta(seconds=-30))

    assert error is not None
    assert error.code is ApiErrorCode.STALE
    assert await service.seen(BEN) == set()


async def test_a_report_from_the_future_is_refused(service: Service) -> None:
    error = await service.report(ANN, made=timedelta(minutes=5))

    assert error is not None
    assert error.code is ApiErrorCode.INVALID


async def test_an_adapter_reports_for_its_own_account_only(kernel_with: KernelWith) -> None:
    service = Service(await kernel_with(declared(shows=("bot", "two"))))
    await service.say("hello")

    error = await service.report(EVE, account=BOT, asked=TWO)
    assert error is not None
    assert error.code is ApiErrorCode.FORBIDDEN
    # The same room, as another account sees it.
    assert await service.report(EVE, account=TWO) is None

    assert await service.seen(EVE) == set()


async def test_the_next_holder_of_an_id_sees_nothing_before_a_report(service: Service) -> None:
    session = await service.say("hello", user=ANN)
    await service.report(ANN, BEN)
    kernel = service.kernel
    async with kernel.owner.transaction() as connection:
        await identities.hand_over(
            connection, Person(platform="matrix", account="bot", id=BEN), datetime.now(UTC)
        )

    assert await service.seen(BEN) == set()
    assert await service.seen(ANN) == {session}
    await service.report(ANN, BEN)
    assert await service.seen(BEN) == {session}


async def test_private_sessions_and_those_of_single_people_stay_theirs(
    kernel_with: KernelWith,
) -> None:
    service = Service(await kernel_with(declared()))
    await service.say("hello", chat=ANN, kind_of_chat="dm")
    # A room of two people is a private one on Matrix.
    await service.say("hello", chat=ROOM, kind_of_chat="dm")
    await service.report(ANN, BEN)
    assert await service.seen(BEN) == set()

    per_person = replace(
        service.kernel.catalog,
        platforms=MappingProxyType(
            {
                **service.kernel.catalog.platforms,
                "matrix": replace(service.kernel.catalog.platforms["matrix"], keys=KeyRules()),
            }
        ),
    )
    alone = Service(await kernel_with(per_person))
    alone._said = 10
    await alone.say("hello")
    assert await alone.seen(BEN) == set()


async def test_a_session_that_another_chat_leads_to_is_not_shown_any_more(
    service: Service,
) -> None:
    session = await service.say("hello")
    await service.say("hello", chat=EVE, user=EVE, kind_of_chat="dm")
    await service.report(ANN, BEN)
    assert await service.seen(BEN) == {session}
    rows = await service.kernel.fetch(
        "SELECT session_key, session_id FROM lanes WHERE session_id <> $1", session
    )
    [(key, before)] = rows

    await service.switch(key, before, session)

    assert await service.seen(BEN) == set()


async def test_a_session_from_elsewhere_is_not_shown_in_the_room(
    kernel_with: KernelWith,
) -> None:
    service = Service(await kernel_with(declared()))
    other = await service.say("hello", chat="!other:example.org")
    here = await service.say("hello")
    await service.report(ANN, BEN)
    key = await service.kernel.value("SELECT session_key FROM sessions WHERE id = $1", here)

    await service.switch(key, here, other)

    await service.say("hello")
    assert await service.seen(BEN) == {here}


async def test_a_copy_is_shown_where_its_original_is(service: Service) -> None:
    session = await service.say("hello")
    await service.report(ANN, BEN)

    reply: SessionReply = await service.ask(
        "session.fork",
        SessionFork(id=new_envelope_id(), at=DAY, session_id=session),
        SessionReply,
        account=None,
    )

    assert reply.session is not None
    assert await service.seen(BEN) == {session, reply.session.id}


async def test_a_room_whose_chat_got_another_id_is_not_shown(service: Service) -> None:
    await service.say("hello")
    await service.report(ANN, BEN)
    await service.kernel.fetch(
        "INSERT INTO aliases (platform, account, kind, alias, canonical, first_seen_at)"
        " SELECT 'matrix', 'bot', 'chat', '%21new%3Aexample.org', chat, now() FROM room_reports"
    )

    assert await service.seen(BEN) == set()


async def test_a_member_reads_what_was_said_and_nothing_else(service: Service) -> None:
    session = await service.say("hello", user=ANN)
    await service.report(ANN, BEN)
    await service.ask(
        "transcript.append",
        TranscriptAppend(
            id=new_envelope_id(),
            at=DAY,
            session_id=session,
            rows=(
                AppendedRow(role=Role.USER, content="secret of a program"),
                AppendedRow(
                    role=Role.ASSISTANT,
                    tool_calls=[{"id": "1", "function": {"name": "look", "arguments": "{}"}}],
                ),
                AppendedRow(role=Role.TOOL, content="secret of a tool", tool_call_id="1"),
                AppendedRow(role=Role.SYSTEM, content="secret of a system"),
                AppendedRow(role=Role.ASSISTANT, content="an answer"),
            ),
        ),
        account=None,
    )

    rows = await service.load(BEN, session)

    assert [row.content for row in rows if row.content != "done"][:1] == ["hello"]
    assert rows[-1].content == "an answer"
    assert {row.role for row in rows} == {Role.USER, Role.ASSISTANT}
    assert ANN not in "".join(row.model_dump_json() for row in rows)
    assert "secret" not in "".join(row.model_dump_json() for row in rows)
    assert await service.seen(BEN, word="hello") == {session}
    hits: TranscriptHits = await service.ask(
        "transcript.search",
        TranscriptSearch(
            id=new_envelope_id(),
            at=DAY,
            query="secret",
            acting_for=Person(platform="matrix", account="bot", id=BEN),
            with_rooms=True,
        ),
        TranscriptHits,
    )
    assert hits.hits == ()


async def test_a_member_sees_a_session_without_the_work_of_others(service: Service) -> None:
    session = await service.say("hello")
    await service.kernel.fetch(
        "UPDATE sessions SET labels = '{work}', cwd = '/srv', carry_over = 'secret note',"
        """ usage = '{"tokens": 7}', worktree = NULL WHERE id = $1""",
        session,
    )
    await service.report(ANN, BEN)

    shown = await service.view(BEN, session)
    assert shown.shown_title == "hello"
    # As if a program had written the first words.
    await service.kernel.fetch("UPDATE messages SET source = NULL WHERE content = 'hello'")
    of_program = await service.view(BEN, session)

    for view in (shown, of_program):
        text = view.model_dump_json()
        assert not any(hidden in text for hidden in ("/srv", "secret", "tokens"))
        assert (view.labels, view.cwd, view.note, view.usage) == ((), None, None, {})
        assert ANN not in text
    assert of_program.shown_title is None


async def test_a_member_changes_nothing(service: Service) -> None:
    session = await service.say("hello")
    await service.report(ANN, BEN)

    reply: SessionReply = await service.ask(
        "session.title",
        SessionTitle(
            id=new_envelope_id(),
            at=DAY,
            session_id=session,
            title="mine",
            acting_for=Person(platform="matrix", account="bot", id=BEN),
        ),
        SessionReply,
    )

    assert reply.error is not None
    assert reply.error.code is ApiErrorCode.NOT_FOUND


async def test_filters_tell_nothing_that_a_member_does_not_see(service: Service) -> None:
    session = await service.say("hello")
    await service.kernel.fetch(
        "UPDATE sessions SET labels = '{work}', cwd = '/srv' WHERE id = $1", session
    )
    await service.report(ANN, BEN)

    filters: tuple[Fields, ...] = ({"label": "work"}, {"cwd": "/srv"})
    for hidden in filters:
        counted: SessionCountReply = await service.ask(
            "session.count",
            SessionCount(
                id=new_envelope_id(),
                at=DAY,
                acting_for=Person(platform="matrix", account="bot", id=BEN),
                with_rooms=True,
                **hidden,
            ),
            SessionCountReply,
        )
        assert counted.counts is not None
        assert counted.counts.total == 0


async def test_reports_that_have_ended_are_deleted(service: Service) -> None:
    await service.report(ANN, BEN, until=timedelta(hours=-3))
    await service.report(ANN, chat="!other:example.org")

    assert await TableMaintenance(service.kernel.store.transaction).forget_room_reports() == 1

    left = await service.kernel.fetch("SELECT form FROM room_members")
    assert [row[0] for row in left] == [ANN]


async def test_a_person_sees_the_newest_sessions_of_many(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms, "MOST_SESSIONS", 2)
    sessions = []
    for number in range(3):
        if number:
            await service.command("/new")
        sessions.append(await service.say(f"hello {number}"))
    await service.report(BEN)

    seen = await service.seen(BEN)

    assert seen == set(sessions[1:])
