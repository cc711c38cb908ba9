"""Whose words readers show when ids change hands: chat, API, search, export and erasure.

Fault F01: an id that changed hands showed one person's conversations to another.
"""

import json
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

import pytest

from chatlane.domain.catalog import Agent
from chatlane.domain.effects import Publication
from chatlane.domain.erasure_key import ErasureKey
from chatlane.domain.log import LogMessage
from chatlane.domain.notices import ENGLISH, NoticeId
from chatlane.observability.metrics import Metrics
from chatlane.outbox.redrive import NotRetriedError, Retrying
from chatlane.privacy import erasure as routing_erasing
from chatlane.privacy.erasure import Erased, Erasing
from chatlane.privacy.erasure_replay import Replay
from chatlane.privacy.export import Export
from chatlane.privacy.person_data import Finder
from chatlane.requests import rooms as room_requests
from chatlane.search.indexer import SearchFilling
from chatlane.search.search_sql import Place, SearchReads
from chatlane.search.tokens import search_of
from chatlane.store.addressing import identities
from chatlane.store.addressing.rooms import RoomReads
from chatlane.store.conversations.session_lists import SessionLists
from chatlane.store.conversations.session_reads import SessionReads
from chatlane.store.history.transcripts import TranscriptReads
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.fields import MAX_INT64
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.rooms import RoomMembers
from chatlane_schemas.session_api.sessions import Access, SessionFilter
from chatlane_schemas.session_api.transcripts import TranscriptSearch
from chatlane_schemas.topology.streams import StreamName
from chatlane_schemas.turns import ClaimReply, ClaimStatus
from tests.integration.decisions.inbound.test_moves import KernelWith
from tests.integration.privacy.memory_streams import MemoryStreams
from tests.integration.requests.test_session_changes import Caller
from tests.integration.requests.test_session_creation import create
from tests.integration.requests.test_transcript_changes import Caller as TranscriptCaller
from tests.support.people_world import (
    Arrive,
    Ask,
    Change,
    HandOver,
    Say,
    Somebody,
    Split,
    Step,
    World,
)
from tests.support.worlds.kernel import DAY, SESSION_EVENTS, Fields, Kernel, Placed, catalog, event

pytestmark = pytest.mark.integration

# 50 runs of 30 steps take minutes: CHATLANE_TEST_PEOPLE=25 does so many on each platform.
RUNS: Final = int(os.environ.get("CHATLANE_TEST_PEOPLE", "4"))
STEPS: Final = 30
REPORTS: Final = 0.3
ACCOUNTS: Final = ("bot", "bot2")
PEOPLE_OF: Final = ("signal", "whatsapp")
KEY: Final = ErasureKey(b"k" * 32)
WORD: Final = re.compile(r"word\d+of[a-z]+")
TABLES: Final = ("messages", "waiting", "removed_messages", "message_revisions", "outbox")
NUMBER: Final = "+155509"
KIM, LEE = "3fa85f64-5717-4562-b3fc-2c963f66afa6", "7d444840-9dc0-11d1-b245-5ffdce74fad2"


@pytest.fixture(autouse=True)
def without_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here tells anything from memory after a transaction."""
    monkeypatch.setattr(routing_erasing, "_TOLD_WITHIN", timedelta())


class Service:
    """One router, and every reader there is."""

    def __init__(self, kernel: Kernel, platform: str = "signal") -> None:
        self.kernel = kernel
        self.platform = platform
        #: Of ours: where people write, and where readers ask.
        self.account = "bot"
        self.now = DAY
        self.streams = MemoryStreams(DAY)
        self.caller = Caller(kernel)
        self.lists = SessionLists(kernel.store)
        self._rooms = RoomReads([(on, name) for on in PEOPLE_OF for name in ACCOUNTS])
        self.sessions = SessionReads(kernel.store, self._rooms)
        self.transcripts = TranscriptReads(kernel.store, rooms=self._rooms)
        self._filling = SearchFilling(kernel.store.transaction, Metrics())
        self._search = SearchReads(kernel.store, identities.find_owners)
        self._finder = Finder(kernel.owner.transaction, self.streams)  # type: ignore[arg-type]

    def person(self, raw: str) -> Person:
        return Person(platform=self.platform, account=self.account, id=raw)

    def acting(self, raw: str) -> Fields:
        return {"acting_for": {"platform": self.platform, "account": self.account, "id": raw}}

    async def say(self, text: str, **fields: Any) -> Placed:  # noqa: ANN401 - any field of an event
        """Let somebody write; the log keeps it."""
        self.now += timedelta(minutes=1)
        said = {"mid": uuid4().hex, "text": text, "account": self.account} | fields
        placed = await self.kernel.say(event(self.platform, **said), self.now)
        self._keep(placed.message)
        return placed

    async def store(self, text: str, **fields: Any) -> LogMessage:  # noqa: ANN401 - any field of an event
        """Let somebody write; the log keeps it, and it is not decided yet."""
        self.now += timedelta(minutes=1)
        said = {"text": text, "account": self.account} | fields
        message = self.kernel.logged(event(self.platform, **said), self.now)
        self._keep(message)
        return message

    def _keep(self, message: LogMessage) -> None:
        self.streams.store(StreamName.INBOUND, message.stored_at, message.subject, message.body)

    async def tell(self, text: str, **fields: Any) -> str:  # noqa: ANN401 - any field of an event
        """Give a command; returns what it is answered."""
        await self.say(text, **fields)
        return (await self.kernel.told())[-1]

    async def answer_all(self) -> None:
        """Let workers answer everything; nobody is given what several people wrote alone."""
        for claimed in await self.kernel.run_all(self.now):
            owners = {word.rpartition("of")[2] for word in WORD.findall(claimed.model_dump_json())}
            shared = await self.kernel.value(
                "SELECT owner IS NULL FROM sessions WHERE id = $1", claimed.session_id
            )
            assert shared or len(owners) <= 1

    async def listed(self, raw: str) -> list[UUID]:
        wanted = SessionFilter.model_validate(
            {"id": new_envelope_id(), "at": self.now, **self.acting(raw)}
        )
        page = await self.lists.page(wanted, below=None, limit=100)
        assert (await self.lists.count(wanted)).total == len(page.sessions)
        return [one.id for one in page.sessions]

    async def loaded(self, raw: str) -> list[str]:
        """Return what the API shows of transcripts; what it does not list, it does not show."""
        person, listed = self.person(raw), await self.listed(raw)
        found = []
        for (session_id,) in await self.kernel.fetch("SELECT id FROM sessions ORDER BY id"):
            found_chain = await self.transcripts.version_and_links(session_id, person)
            view = await self.caller.reads.find(session_id, person)
            assert (found_chain is not None) == (view is not None) == (session_id in listed)
            if found_chain is None:
                continue
            _, chain = found_chain
            assert {link.session_id for link in chain} <= set(listed)
            for link in chain:
                page = await self.transcripts.rows(
                    link.session_id, below_seq=MAX_INT64, limit=100, max_bytes=1_000_000
                )
                found += [row.content or "" for row in page.rows if row.role == "user"]
        return found

    async def searched(self, raw: str, words: str) -> list[str]:
        await self._filling.walk()
        while await self._filling.fill():
            pass
        search = search_of(words)
        assert search is not None
        hits = await self._search.search(
            search,
            TranscriptSearch(
                id=new_envelope_id(), at=DAY, query=words, acting_for=self.person(raw)
            ),
            behind=Place(float("inf"), MAX_INT64),
            limit=100,
        )
        return [hit.content for hit in hits]

    async def report(self, room: str, members: Iterable[str]) -> None:
        """Let the adapter of the account report who is in a room."""
        platforms = self.kernel.catalog.platforms
        shown = replace(
            platforms[self.platform],
            accounts={
                name: replace(account, shows_rooms=True)
                for name, account in platforms[self.platform].accounts.items()
            },
        )
        self.now += timedelta(microseconds=1)
        request = RoomMembers(
            id=new_envelope_id(),
            at=self.now,
            platform=self.platform,
            account=self.account,
            chat_id=room,
            members=tuple(members),
            until=datetime.now(UTC) + timedelta(hours=1),
        )
        declared = replace(self.kernel.catalog, platforms={**platforms, self.platform: shown})
        async with self.kernel.owner.transaction() as connection:
            reply = await room_requests.write(connection, request, declared, self.now)
        assert reply.error is None

    async def seen_in_rooms(self, raw: str) -> str | None:
        """Return what a person sees as a member of rooms; None if they see no session."""
        person, seen = self.person(raw), []
        for (session_id,) in await self.kernel.fetch("SELECT id FROM sessions ORDER BY id"):
            version = await self.transcripts.version_for_member(session_id, person)
            view = await self.sessions.find(session_id, person, with_rooms=True)
            is_member = view is not None and view.access is Access.MEMBER
            assert is_member == (version is not None)
            if view is None or not is_member:
                continue
            page = await self.transcripts.rows(
                session_id, below_seq=MAX_INT64, limit=100, max_bytes=1_000_000, for_member=True
            )
            shown = view.model_copy(update={"session_key": ""})
            seen += [shown.model_dump_json(), *(row.model_dump_json() for row in page.rows)]
        return "\n".join(seen) if seen else None

    async def exported(self, raw: str, at: datetime | None = None) -> str:
        records = Export(self.kernel.owner, self._finder).run(self.person(raw), at)
        return "\n".join([one.model_dump_json() async for one in records])

    async def erase(self, raw: str, at: datetime | None = None) -> Erased:
        """Erase a person, once everything is published."""
        rows = await self.kernel.fetch("DELETE FROM outbox RETURNING stream, subject, payload")
        for row in rows:
            self.streams.store(StreamName(row[0]), self.now, row[1], row[2])
        self.streams.now = self.now = self.now + timedelta(minutes=1)
        erased = await Erasing(self.kernel.owner, self.streams, KEY).erase(self.person(raw), at=at)  # type: ignore[arg-type]
        self.now = self.streams.now
        assert erased.left == {}
        return erased

    async def hand_over(self, raw: str) -> None:
        self.now += timedelta(minutes=1)
        async with self.kernel.owner.transaction() as connection:
            accounts = self.kernel.catalog.platforms[self.platform].accounts
            assert await identities.hand_over(connection, self.person(raw), self.now, accounts)

    async def split(self, raw: str) -> None:
        self.now += timedelta(minutes=1)
        async with self.kernel.owner.transaction() as connection:
            await identities.split(connection, self.person(raw), self.now, ())

    async def stored(self) -> set[str]:
        """Return every word that any table or stream holds."""
        found: set[str] = set()
        for table in TABLES:
            for row in await self.kernel.fetch(f"SELECT * FROM {table}"):  # noqa: S608 - names from above
                found |= words(
                    value.decode() if isinstance(value, bytes) else str(value)
                    for value in row.values()
                )
        return found | words(
            one.body.decode() for its in self.streams.messages.values() for one in its
        )


def words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in WORD.findall(text)}


def sender(number: str | None, lasting: str | None) -> Fields:
    named: Fields = {"user": number or lasting}
    return named | {"alt_user": lasting} if number and lasting else named


def dm(number: str | None, lasting: str | None) -> Fields:
    return {"chat": number or lasting, **sender(number, lasting)}


@pytest.fixture
def service(kernel: Kernel) -> Service:
    return Service(kernel)


@pytest.fixture
async def two_accounts(kernel_with: KernelWith) -> Service:
    """One router with two accounts on each platform."""
    return Service(await kernel_with(catalog(accounts=("bot", "bot2"))))


async def passed_on(service: Service) -> tuple[UUID, UUID]:
    """A number passes from Kim to Lee; returns their sessions."""
    kim = await service.say("word1ofkim my diagnosis", chat=NUMBER, user=NUMBER)
    await service.answer_all()
    again = await service.say("word2ofkim", **dm(NUMBER, KIM))
    await service.answer_all()
    lee = await service.say("word3oflee I was given this number", **dm(NUMBER, LEE))
    await service.answer_all()
    assert again.session == kim.session != lee.session
    return kim.session, lee.session


async def test_f01_a_number_shows_its_new_owner_nothing_in_the_chat(service: Service) -> None:
    kims, lees = await passed_on(service)
    for raw in (dm(NUMBER, LEE), dm(NUMBER, None), dm(None, LEE)):
        for command in ("/sessions", "/resume", "/status", "/title"):
            assert "ofkim" not in await service.tell(command, **raw)
        for wanted in ("2", str(kims)):
            told = await service.tell(f"/resume {wanted}", **raw)
            assert told == ENGLISH.text(NoticeId.NOT_FOUND)
            placed = await service.say("word9oflee", **raw)
            assert placed.session == lees
    assert "oflee" not in await service.tell("/sessions", **dm(None, KIM))
    assert (await service.say("word10ofkim", **dm(None, KIM))).session == kims


async def test_f01_the_api_shows_each_their_own(service: Service) -> None:
    kims, lees = await passed_on(service)
    assert await service.listed(NUMBER) == await service.listed(LEE) == [lees]
    assert await service.listed(KIM) == [kims]
    assert words(await service.loaded(NUMBER)) == {"word3oflee"}
    assert words(await service.loaded(KIM)) == {"word1ofkim", "word2ofkim"}
    assert await service.searched(NUMBER, "diagnosis") == []
    assert len(await service.searched(KIM, "diagnosis")) == 1


async def test_f01_an_export_holds_what_was_written_while_the_id_was_theirs(
    service: Service,
) -> None:
    room: Fields = {"kind_of_chat": "group", "chat": "room", "thr": "7"}
    await service.say("word20ofkim", **room, **sender(NUMBER, KIM))
    before = service.now
    await passed_on(service)
    await service.say("word21oflee", **room, **sender(NUMBER, None))
    await service.answer_all()
    assert words([await service.exported(NUMBER)]) == {"word3oflee", "word21oflee"}
    kims = {"word20ofkim", "word1ofkim", "word2ofkim"}
    assert words([await service.exported(KIM)]) == kims
    assert words([await service.exported(NUMBER, before)]) == kims
    assert LEE not in await service.exported(KIM)
    assert KIM not in await service.exported(NUMBER)


@pytest.mark.parametrize("of_kim", [True, False])
async def test_f01_an_erasure_takes_exactly_their_own(service: Service, *, of_kim: bool) -> None:
    room: Fields = {"kind_of_chat": "group", "chat": "room", "thr": "7"}
    await service.say("word20ofkim", **room, **sender(NUMBER, KIM))
    before = service.now
    await passed_on(service)
    await service.say("word21oflee", **room, **sender(NUMBER, None))
    await service.answer_all()
    erased = await service.erase(NUMBER, before if of_kim else None)
    kims, lees = {"word20ofkim", "word1ofkim", "word2ofkim"}, {"word3oflee", "word21oflee"}
    assert await service.stored() == (lees if of_kim else kims)
    deleted = {store: its.deleted for store, its in erased.receipt.items()}
    assert deleted["sessions"] == 1
    assert deleted["INBOUND"] == (3 if of_kim else 2)
    left = await service.kernel.value("SELECT count(*) FROM sessions WHERE owner IS NOT NULL")
    assert left == 1


ROOM: Final[Fields] = {"kind_of_chat": "group", "chat": "room"}
THREAD: Final[Fields] = ROOM | {"thr": "9"}


async def open_thread(service: Service) -> UUID:
    """Open a thread on a question of Kim's in a room of sessions per person."""
    asked = await service.say("word1ofkim", **ROOM | {"mid": "q1"}, **sender(None, KIM))
    await service.answer_all()
    await service.say("", kind="service", reply_to="q1", **THREAD, **sender(None, KIM))
    return asked.session


async def keys_and_titles(service: Service) -> str:
    """Return what sessions and lanes say besides words of a transcript."""
    rows = await service.kernel.fetch(
        "SELECT sessions::text FROM sessions UNION ALL SELECT lanes::text FROM lanes"
    )
    return "\n".join(row[0] for row in rows)


async def test_f01_a_thread_that_others_write_in_is_shared(service: Service) -> None:
    session = await open_thread(service)
    assert await service.listed(KIM) == [session]
    await service.tell("/title word2ofkim", **ROOM, **sender(None, KIM))
    lees = await service.say("word3oflee", **THREAD, **sender(None, LEE))
    await service.answer_all()
    again = await service.say("word4ofkim", **ROOM, **sender(None, KIM))
    await service.answer_all()
    assert lees.session == again.session == session
    assert await service.listed(KIM) == await service.listed(LEE) == []
    assert "word2ofkim" in await service.tell("/sessions", **THREAD, **sender(None, LEE))
    assert await service.searched(KIM, "word3oflee") == []
    said = {*await service.kernel.said(session)} - {"ok"}
    assert said == {"word1ofkim", "word3oflee", "word4ofkim"}


async def test_f01_an_export_of_a_shared_thread_is_what_its_person_wrote(service: Service) -> None:
    await open_thread(service)
    await service.say("word2oflee", **THREAD, **sender(None, LEE))
    await service.answer_all()
    await service.say("word3oflee waits", **THREAD, **sender(None, LEE))
    assert words([await service.exported(KIM)]) == {"word1ofkim"}
    assert words([await service.exported(LEE)]) == {"word2oflee", "word3oflee"}


async def test_f01_an_erasure_leaves_a_shared_thread_to_the_others(service: Service) -> None:
    session = await open_thread(service)
    await service.tell("/title word2ofkim", **ROOM, **sender(None, KIM))
    await service.say("word3oflee", **THREAD, **sender(None, LEE))
    await service.answer_all()
    await service.erase(KIM)
    assert await service.stored() == {"word3oflee"}
    left = await keys_and_titles(service)
    assert KIM not in left
    assert "ofkim" not in left
    later = await service.say("word4ofkim", **ROOM, **sender(None, KIM))
    lees = await service.say("word5oflee", **THREAD, **sender(None, LEE))
    assert later.session != lees.session == session
    assert await service.listed(KIM) == [later.session]


async def test_f01_an_erasure_of_others_leaves_a_thread_to_who_opened_it(service: Service) -> None:
    await open_thread(service)
    await service.say("word3oflee", **THREAD, **sender(None, LEE))
    await service.answer_all()
    await service.erase(LEE)
    assert await service.stored() == {"word1ofkim"}


def quoting(words: str, number: str | None, **more: Any) -> Fields:  # noqa: ANN401 - any field of a quote
    return {"reply_to": uuid4().hex, "quote": {"text": words, "sender_id": number, **more}}


async def rows_of(service: Service) -> str:
    """Return all rows that hold messages, as text."""
    return str(
        [
            await service.kernel.fetch("SELECT details, content FROM messages"),
            await service.kernel.fetch("SELECT details, content FROM waiting"),
            await service.kernel.fetch("SELECT details, content FROM removed_messages"),
        ]
    )


async def test_quotes_of_an_erased_person_leave_the_rows_of_others(service: Service) -> None:
    lee = await service.say("word1oflee", **dm(None, LEE), **quoting("word2ofkim", KIM))
    await service.say("word3oflee", **dm(None, LEE), **quoting("word4ofpat", "other"))
    await service.kernel.run_all(service.now)
    undone = await service.say("word5oflee", **dm(None, LEE), **quoting("word6ofkim", KIM))
    await service.kernel.run_all(service.now)
    await service.tell("/undo", **dm(None, LEE))
    await service.say("word7oflee", **dm(None, LEE), **quoting("word8ofkim", NUMBER))
    await service.say("word9ofkim", **dm(NUMBER, KIM))
    before = await service.transcripts.version(lee.session)

    erased = await service.erase(KIM)

    assert words([await rows_of(service)]) == {
        *("word1oflee", "word3oflee", "word4ofpat", "word5oflee", "word7oflee"),
    }
    assert undone.session == lee.session
    assert erased.receipt["quotes"][:2] == ("quotes", 3)
    assert await service.transcripts.version(lee.session) != before


async def test_an_erased_person_takes_their_quotes_of_others_along(service: Service) -> None:
    session = await open_thread(service)
    await service.say("word3oflee", **THREAD, **sender(None, LEE))
    await service.say("word4oflee", **THREAD, **sender(None, LEE), **quoting("word5ofkim", KIM))
    await service.say("word6ofkim", **THREAD, **sender(None, KIM), **quoting("word7oflee", LEE))
    await service.kernel.run_all(service.now)

    await service.erase(LEE)

    assert words([await rows_of(service)]) == {"word1ofkim", "word6ofkim"}
    assert session == (await service.say("word8ofkim", **THREAD, **sender(None, KIM))).session


async def test_a_quote_of_who_has_a_number_now_stays_when_its_earlier_holder_is_erased(
    service: Service,
) -> None:
    await passed_on(service)
    pat = {"chat": "pat", "user": "pat"}
    await service.say("word4ofpat", **pat, **quoting("word5oflee", LEE))
    await service.say("word6ofpat", **pat, **quoting("word7ofkim", KIM))

    await service.erase(KIM)

    assert words([await rows_of(service)]) >= {"word5oflee", "word6ofpat"}
    assert "word7ofkim" not in await rows_of(service)


@pytest.mark.parametrize("gives_command", ["in the room", "in the thread"])
async def test_f01_a_branch_of_a_shared_thread_is_shared(
    service: Service, gives_command: str
) -> None:
    session = await open_thread(service)
    await service.say("word2oflee", **THREAD, **sender(None, LEE))
    await service.answer_all()
    place = ROOM if gives_command == "in the room" else THREAD
    await service.tell("/branch", **place, **sender(None, KIM))
    branched = await service.say("word3ofkim", **place, **sender(None, KIM))
    await service.answer_all()
    assert branched.session != session
    assert await service.listed(KIM) == []
    assert words([await service.exported(KIM)]) == {"word1ofkim", "word3ofkim"}
    await service.erase(KIM)
    assert await service.stored() == {"word2oflee"}


async def test_f01_a_branch_into_a_thread_is_shared_once_others_write(service: Service) -> None:
    session = await open_thread(service)
    await service.tell("/branch", **THREAD, **sender(None, KIM))
    lees = await service.say("word2oflee", **THREAD, **sender(None, LEE))
    await service.answer_all()
    assert lees.session != session
    assert await service.listed(KIM) == [session]
    assert words([await service.exported(KIM)]) == {"word1ofkim"}
    await service.erase(KIM)
    assert await service.stored() == {"word2oflee"}


async def test_f01_what_was_summed_up_before_a_thread_was_shared_goes_with_its_person(
    service: Service,
) -> None:
    parent = await open_thread(service)
    summary = [{"role": "user", "text": "word2ofkim in short"}]
    reply = await TranscriptCaller(service.kernel).done(
        "compact", parent, rows=summary, through_seq=2, expected_version="0.3", in_child=True
    )
    lees = await service.say("word3oflee", **THREAD, **sender(None, LEE))
    await service.answer_all()
    assert lees.session == reply.session_id != parent
    assert words([await service.exported(KIM)]) == {"word1ofkim"}
    await service.erase(KIM)
    assert await service.stored() == {"word3oflee"}


async def as_an_older_release_left_it(service: Service) -> UUID:
    """Make a thread that others wrote in and that still is its first person's session."""
    session = await open_thread(service)
    owned = "SELECT owner, session_key FROM sessions WHERE id = $1"
    [(owner, key)] = await service.kernel.fetch(owned, session)
    await service.say("word2oflee", **THREAD, **sender(None, LEE))
    await service.answer_all()
    await service.kernel.fetch(
        "UPDATE sessions SET owner = $2, session_key = $3 WHERE id = $1", session, owner, key
    )
    return session


async def test_f01_an_export_of_an_older_shared_thread_is_what_its_person_wrote(
    service: Service,
) -> None:
    await as_an_older_release_left_it(service)
    assert words([await service.exported(KIM)]) == {"word1ofkim"}
    assert words([await service.exported(LEE)]) == {"word2oflee"}


@pytest.mark.parametrize("has_lane", [True, False])
async def test_f01_an_erasure_leaves_an_older_shared_thread_to_the_others(
    service: Service, *, has_lane: bool
) -> None:
    session = await as_an_older_release_left_it(service)
    if not has_lane:
        # The thread went on in another session.
        await service.tell("/new", **THREAD, **sender(None, LEE))
    erased = await service.erase(KIM)
    deleted = {store: its.deleted for store, its in erased.receipt.items()}
    assert "sessions" not in deleted
    assert await service.stored() == {"word2oflee"}
    left = await keys_and_titles(service)
    assert KIM not in left
    rows = await service.kernel.fetch("SELECT owner FROM sessions WHERE id = $1", session)
    assert [row[0] for row in rows] == [None]


async def test_f01_who_has_an_id_after_an_erasure_takes_nobodys_place(service: Service) -> None:
    kims, _ = await passed_on(service)
    await service.erase(LEE)
    placed = await service.say("word30ofada", chat=NUMBER, user=NUMBER)
    assert placed.session != kims
    assert await service.listed(NUMBER) == [placed.session]
    assert await service.listed(KIM) == [kims]
    # Once nobody needs it any more, nothing of the number is kept.
    await service.erase(NUMBER)
    await service.erase(KIM)
    known = "SELECT (SELECT count(*) FROM aliases) + (SELECT count(*) FROM former_ids)"
    assert await service.kernel.value(known) == 0


@pytest.mark.parametrize("is_older", [False, True])
async def test_f01_a_restored_log_brings_back_nobody_and_costs_nobody_else(
    service: Service, *, is_older: bool
) -> None:
    """Also where the database is one of before the number changed hands."""
    await passed_on(service)
    restored = [*service.streams.messages[StreamName.INBOUND]]
    await service.erase(NUMBER)
    kims = await service.stored()
    service.streams.messages[StreamName.INBOUND] = restored
    if is_older:
        await service.kernel.fetch("TRUNCATE aliases, former_ids")
    assert "word3oflee" in await service.stored()
    found = await Replay(service.kernel.owner, service.streams, KEY).find()  # type: ignore[arg-type]
    for one in found:
        at = one.until if one.since is not None or one.is_past else None
        erasing = Erasing(service.kernel.owner, service.streams, KEY)  # type: ignore[arg-type]
        erased = await erasing.erase(one.person, one.until, at=at, since=one.since)
        assert erased.left == {}
    assert {one.person.id for one in found} == {NUMBER, LEE}
    assert await service.stored() == kims == {"word1ofkim", "word2ofkim"}
    assert await service.kernel.value("SELECT count(*) FROM sessions") == 1


async def test_f01_a_number_that_comes_back_brings_back_what_was_theirs(service: Service) -> None:
    kims, lees = await passed_on(service)
    back = await service.say("word40ofkim", **dm(NUMBER, KIM))
    assert back.session == kims
    assert await service.listed(NUMBER) == [kims]
    assert await service.listed(LEE) == [lees]
    assert words([await service.exported(NUMBER)]) == {"word1ofkim", "word2ofkim", "word40ofkim"}


async def test_f01_an_operator_says_what_no_platform_tells(service: Service) -> None:
    service.platform = "telegram"
    group: Fields = {"kind_of_chat": "group", "chat": "-9", "user": "701"}
    mine: Fields = {"chat": "701", "user": "701"}
    kim = await service.say("word1ofkim", **mine)
    in_group = await service.say("word2ofkim", **group)
    await service.answer_all()
    at = service.now
    await service.hand_over("701")
    lee = await service.say("word3oflee", **mine)
    lees_in_group = await service.say("word4oflee", **group)
    await service.answer_all()
    assert len({kim.session, in_group.session, lee.session, lees_in_group.session}) == 4
    assert "ofkim" not in await service.tell("/sessions", **mine)
    assert set(await service.listed("701")) == {lee.session, lees_in_group.session}
    assert words([await service.exported("701")]) == {"word3oflee", "word4oflee"}
    assert words([await service.exported("701", at)]) == {"word1ofkim", "word2ofkim"}


async def test_f11_a_session_that_was_merged_is_offered_and_resumed(service: Service) -> None:
    number = await service.say("word1ofkim alpha", chat=NUMBER, user=NUMBER)
    lasting = await service.say("word2ofkim beta", chat=KIM, user=KIM)
    await service.answer_all()
    both = await service.say("word3ofkim", **dm(NUMBER, KIM))
    await service.answer_all()
    assert both.session == number.session
    assert set(await service.listed(KIM)) == {number.session, lasting.session}
    told = await service.tell("/sessions", **dm(NUMBER, KIM))
    assert "alpha" in told
    assert "beta" in told
    assert words(await service.loaded(NUMBER)) == {"word1ofkim", "word2ofkim", "word3ofkim"}
    await service.tell(f"/resume {lasting.session}", **dm(NUMBER, KIM))
    again = await service.say("word4ofkim", **dm(NUMBER, KIM))
    assert again.session == lasting.session
    # Also after the id under which it began is somebody else's.
    await service.say("word5oflee", **dm(NUMBER, LEE))
    assert set(await service.listed(KIM)) == {number.session, lasting.session}


async def test_f10_a_lane_that_leads_to_another_persons_session_is_led_away(
    service: Service,
) -> None:
    kims, lees = await passed_on(service)
    await service.kernel.fetch("UPDATE lanes SET session_id = $1 WHERE session_id = $2", kims, lees)
    for command in ("/status", "/sessions", "/title", "/undo"):
        assert "ofkim" not in await service.tell(command, **dm(NUMBER, LEE))
    placed = await service.say("word50oflee", **dm(NUMBER, LEE))
    assert placed.session not in {kims, lees}
    following = await service.say("word51oflee", **dm(NUMBER, LEE))
    assert following.session == placed.session
    assert await service.kernel.said(kims) == ["word1ofkim my diagnosis", "ok", "word2ofkim", "ok"]
    parent = "SELECT parent_id, opening_note, start_reason FROM sessions WHERE id = $1"
    assert tuple((await service.kernel.fetch(parent, placed.session))[0]) == (None, None, None)


async def late(service: Service, fields: Fields) -> LogMessage:
    """Return a message of Kim's that was stored before Lee had the number, and is not decided."""
    await service.say("word1ofkim", **dm(NUMBER, KIM))
    await service.answer_all()
    service.now += timedelta(minutes=1)
    one = event(service.platform, mid="late", text="word2ofkim", **fields)
    return service.kernel.logged(one, service.now)


@pytest.mark.parametrize("lasting", [KIM, None])
async def test_f01_what_was_stored_before_a_number_changed_hands_is_of_who_had_it_then(
    service: Service, lasting: str | None
) -> None:
    """The partition of a room tells of the change before that of the chat is read."""
    message = await late(service, dm(NUMBER, lasting))
    room: Fields = {"kind_of_chat": "group", "chat": "room"}
    await service.say("word3oflee", **room, **sender(NUMBER, LEE))
    await service.kernel.decide([message])
    lee = await service.say("word4oflee", chat=NUMBER, user=NUMBER)
    await service.answer_all()
    assert words(await service.loaded(KIM)) == {"word1ofkim", "word2ofkim"}
    assert words(await service.loaded(LEE)) == {"word3oflee", "word4oflee"}
    assert lee.session in await service.listed(NUMBER)
    assert words([await service.exported(KIM)]) == {"word1ofkim", "word2ofkim"}


async def test_f01_what_an_operator_hands_over_is_not_what_was_stored_before(
    service: Service,
) -> None:
    service.platform = "telegram"
    mine: Fields = {"chat": "701", "user": "701"}
    kim = await service.say("word1ofkim", **mine)
    old = event("telegram", mid="late", text="word2ofkim", **mine)
    message = service.kernel.logged(old, service.now + timedelta(seconds=1))
    await service.hand_over("701")
    await service.kernel.decide([message])
    assert await service.kernel.waiting(kim.session) == ["word1ofkim", "word2ofkim"]
    lee = await service.say("word3oflee", **mine)
    assert await service.kernel.waiting(lee.session) == ["word3oflee"]


NUMBERED: Final = ("edit", "delete", "attachments", "message")


@pytest.mark.parametrize("is_answered", [True, False])
@pytest.mark.parametrize("kind", NUMBERED)
async def test_f01_who_has_a_number_changes_no_message_of_who_had_it(
    service: Service, kind: str, *, is_answered: bool
) -> None:
    """Platforms that count the messages of a chat give the same numbers to another person."""
    say = service.kernel.say
    kim = await say(event("signal", mid="1", text="word1ofkim", **dm(NUMBER, KIM)), service.now)
    if is_answered:
        await service.answer_all()
    service.now += timedelta(minutes=1)
    await service.say("word2oflee", **dm(NUMBER, LEE))
    more: Fields = {"event_id": "7"} if kind in {"edit", "delete"} else {}
    more |= {} if kind == "delete" else {"text": "word3oflee"}
    service.now += timedelta(minutes=1)
    await say(event("signal", kind=kind, mid="1", **more, **dm(NUMBER, LEE)), service.now)
    await service.answer_all()
    assert await service.kernel.said(kim.session) == ["word1ofkim", "ok"]
    said = words(await service.loaded(LEE))
    assert said == ({"word2oflee", "word3oflee"} if kind == "message" else {"word2oflee"})


async def test_f01_an_edit_that_came_early_is_of_who_wrote_it(service: Service) -> None:
    say = service.kernel.say
    early: Fields = {"kind": "edit", "mid": "1", "event_id": "7", "text": "word1ofkim"}
    await service.say("word0ofkim", **dm(NUMBER, KIM))
    await say(event("signal", **early, **dm(NUMBER, KIM)), service.now)
    service.now += timedelta(minutes=1)
    one = event("signal", mid="1", text="word2oflee", **dm(NUMBER, LEE))
    lee = await say(one, service.now)
    assert await service.kernel.waiting(lee.session) == ["word2oflee"]


async def test_f01_who_has_a_handed_on_number_edits_their_own(service: Service) -> None:
    await passed_on(service)
    say = service.kernel.say
    one = event("signal", mid="1", text="word4oflee", **dm(NUMBER, LEE))
    lee = await say(one, service.now)
    service.now += timedelta(minutes=1)
    again = await say(event("signal", mid="1", text="word4oflee", **dm(None, LEE)), service.now)
    assert again.session_id is None
    service.now += timedelta(minutes=1)
    edit: Fields = {"kind": "edit", "mid": "1", "event_id": "7", "text": "word5oflee"}
    await say(event("signal", **edit, chat=NUMBER, user=NUMBER), service.now)
    assert await service.kernel.waiting(lee.session) == ["word5oflee"]
    await service.answer_all()
    # Days later nothing but the address tells where the message is.
    await service.kernel.fetch("DELETE FROM seen")
    later = edit | {"event_id": "8", "text": "word6oflee"}
    await say(event("signal", **later, chat=NUMBER, user=NUMBER), service.now)
    assert "word6oflee" in words(await service.loaded(LEE))


async def test_f01_a_dead_letter_does_not_come_again_as_one_of_who_has_the_number(
    service: Service,
) -> None:
    """Its log would name the time of now, at which the number is another person's."""
    published: list[Publication] = []

    async def publish(row: Publication) -> None:
        published.append(row)

    await service.say("word0ofkim", **dm(NUMBER, KIM))
    await service.say("word1ofkim", profile="unknown", **dm(NUMBER, KIM))
    await service.say("word2ofkim", profile="unknown", **dm(None, KIM))
    await service.say("word3oflee", **dm(NUMBER, LEE))
    await service.say("word4oflee", profile="unknown", **dm(NUMBER, LEE))
    letters = await service.kernel.fetch("SELECT id FROM dead_letters ORDER BY stored_at")
    kims, kims_own, lees = (row[0] for row in letters)
    retrying = Retrying(service.kernel.store, publish)
    with pytest.raises(NotRetriedError, match="another person"):
        await retrying.retry(kims, out_of_order=True)
    for letter in (kims_own, lees):
        await retrying.retry(letter, out_of_order=True)
    assert words(row.payload.decode() for row in published) == {"word2ofkim", "word4oflee"}


async def answered_in(service: Service, word: str) -> list[str]:
    """Return the chats that were told an answer with a word."""
    told = await service.kernel.published("OUTBOUND")
    return [one["target"]["chat"]["id"] for one in told if word in one["text"]]


@pytest.mark.parametrize("is_claimed", [True, False])
async def test_f01_an_answer_does_not_go_to_who_has_the_number_by_now(
    service: Service, *, is_claimed: bool
) -> None:
    kernel = service.kernel
    kim = await service.say("word1ofkim my diagnosis", **dm(NUMBER, KIM))
    claimed = await kernel.claim_live(kim.session) if is_claimed else None
    lee = await service.say("word2oflee", **dm(NUMBER, LEE))
    await kernel.answer(
        claimed or await kernel.claim_live(kim.session), "answer of kim", service.now
    )
    await kernel.answer(await kernel.claim_live(lee.session), "answer of lee", service.now)
    assert await answered_in(service, "answer of kim") == [KIM]
    assert await answered_in(service, "answer of lee") == [NUMBER]


async def test_f01_an_answer_of_a_stream_agent_does_not_go_there_either(
    kernel_with: KernelWith,
) -> None:
    service = Service(await kernel_with(catalog(agents=[Agent("main", "stream")])))
    await service.say("word1ofkim my diagnosis", **dm(NUMBER, KIM))
    await service.say("word2oflee", **dm(NUMBER, LEE))
    for routed in await service.kernel.published("ROUTED"):
        text = f"answer of {routed['text'].rpartition('of')[2]}"
        answer = service.kernel.stream_answer(routed, text, service.now)
        await service.kernel.decide([answer])
    assert await answered_in(service, "answer of lee") == [NUMBER]
    assert await answered_in(service, "answer of kim my diagnosis") == [KIM]


async def test_f01_where_nothing_else_is_known_of_a_person_an_answer_is_only_kept(
    service: Service,
) -> None:
    service.platform = "telegram"
    mine: Fields = {"chat": "701", "user": "701"}
    kim = await service.say("word1ofkim", **mine)
    await service.hand_over("701")
    await service.kernel.run_turn(kim.session, "answer of kim", service.now)
    assert await answered_in(service, "answer of kim") == []
    assert await service.kernel.said(kim.session) == ["word1ofkim", "answer of kim"]


async def pass_on_twice(service: Service) -> None:
    """A number passes from Kim to Lee; only the first account is told the change."""
    room: Fields = {"kind_of_chat": "group", "chat": "room", "thr": "7"}
    for account, word in (("bot", "word1"), ("bot2", "word2")):
        service.account = account
        await service.say(f"{word}ofkim", **dm(NUMBER, KIM if account == "bot" else None))
        await service.say(f"{word}1ofkim", **room, **sender(NUMBER, None))
    await service.answer_all()
    for account, word in (("bot", "word3"), ("bot2", "word4")):
        service.account = account
        await service.say(f"{word}oflee", **dm(NUMBER, LEE if account == "bot" else None))
        await service.say(f"{word}1oflee", **room, **sender(NUMBER, None))
    await service.answer_all()


async def test_f01_a_change_that_one_account_is_told_of_counts_on_all(
    two_accounts: Service,
) -> None:
    service = two_accounts
    await pass_on_twice(service)
    assert service.account == "bot2"
    assert words(await service.loaded(NUMBER)) == {"word4oflee"}
    assert "ofkim" not in await service.tell("/sessions", **dm(NUMBER, None))
    assert words([await service.exported(NUMBER)]) == {"word4oflee", "word41oflee"}
    service.account = "bot"
    assert words([await service.exported(NUMBER)]) == {"word3oflee", "word31oflee"}
    assert words([await service.exported(KIM)]) == {"word1ofkim", "word11ofkim"}


async def test_f01_two_accounts_that_one_batch_tells_of_a_change(two_accounts: Service) -> None:
    service = two_accounts
    say = service.kernel.say
    kim = await say(
        event("signal", account="bot2", mid="1", text="word1ofkim", **dm(NUMBER, None)), DAY
    )
    await say(event("signal", mid="2", text="word2ofkim", **dm(NUMBER, KIM)), DAY)
    told, alone = await service.kernel.say_together(
        [
            event("signal", mid="3", text="word3oflee", **dm(NUMBER, LEE)),
            event("signal", account="bot2", mid="4", text="word4oflee", **dm(NUMBER, None)),
        ],
        DAY + timedelta(minutes=1),
    )
    assert len({kim.session, told.session, alone.session}) == 3


@pytest.mark.parametrize("of_kim", [True, False])
async def test_f01_an_erasure_takes_their_own_on_one_of_two_accounts(
    two_accounts: Service, *, of_kim: bool
) -> None:
    service = two_accounts
    before = service.now + timedelta(minutes=4)
    await pass_on_twice(service)
    every = await service.stored()
    kims, lees = {"word2ofkim", "word21ofkim"}, {"word4oflee", "word41oflee"}
    assert kims | lees < every
    erased = await service.erase(NUMBER, before if of_kim else None)
    assert await service.stored() == every - (kims if of_kim else lees)
    deleted = {store: its.deleted for store, its in erased.receipt.items()}
    assert deleted["sessions"] == 1
    assert deleted["INBOUND"] == 2
    service.account = "bot"
    assert words([await service.exported(NUMBER)]) == {"word3oflee", "word31oflee"}
    assert words([await service.exported(KIM)]) == {"word1ofkim", "word11ofkim"}


async def test_f01_an_operator_hands_an_id_over_on_all_accounts(two_accounts: Service) -> None:
    service = two_accounts
    service.platform = "telegram"
    mine: Fields = {"chat": "701", "user": "701"}
    kims = []
    for service.account in ("bot", "bot2"):
        kims.append(await service.say("word1ofkim", **mine))
    await service.hand_over("701")
    for service.account in ("bot", "bot2"):
        assert await service.listed("701") == []
        lee = await service.say("word2oflee", **mine)
        assert lee.session not in {kim.session for kim in kims}
        assert await service.listed("701") == [lee.session]


async def test_f01_an_id_of_one_account_is_handed_over_there_alone(two_accounts: Service) -> None:
    service = two_accounts
    service.platform = "webchat"
    mine: Fields = {"chat": "1", "user": "1"}
    kims = {}
    for service.account in ("bot", "bot2"):
        kims[service.account] = await service.say("word1ofkim", **mine)
    async with service.kernel.owner.transaction() as connection:
        assert await identities.hand_over(connection, service.person("1"), service.now)
    assert await service.listed("1") == []
    service.account = "bot"
    assert await service.listed("1") == [kims["bot"].session]


# Whatever happens.


class Running(NamedTuple):
    """A turn that a worker has, and whose words it answers."""

    claimed: ClaimReply
    asked_by: frozenset[str]


class Walk:
    """Steps of a world on a service, and what everybody is told on the way."""

    def __init__(self, world: World, service: Service) -> None:
        self.world = world
        self.service = service
        #: Stored and not decided, by word.
        self.late: dict[str, LogMessage] = {}
        self.running: list[Running] = []
        self.answers: dict[str, frozenset[str]] = {}
        self._events = self._outbound = 0
        #: By account, the people of the newest report of the room.
        self.members: dict[str, set[str]] = {}
        #: How often somebody saw a room.
        self.sights = 0
        # Apart from the world's, whose steps stay the same.
        self._chance = Random(world.platform)  # noqa: S311 - the same reports again

    async def report(self) -> None:
        """Let the platform say who is in the room, by ids that are theirs now."""
        for account in self.world.accounts:
            if self._chance.random() < REPORTS:
                there = self._chance.sample(self.world.people, 2)
                ids = {one.name: raw for one in there if (raw := self.world.id_of(one))}
                self.service.account = account
                await self.service.report("group-1", ids.values())
                self.members[account] = set(ids)

    async def step(self, *, is_finished: bool) -> None:
        """Let something happen, and workers answer all of it, or be about to."""
        for step in self.world.step():
            await self.take(step)
        await self.serve(is_finished=is_finished)
        self._check_outbound()
        self._check_events()

    async def settle(self) -> None:
        """Let everything be decided and answered."""
        for said in self.world.on_the_way:
            await self.take(Arrive(said))
        self.world.on_the_way.clear()
        await self.serve(is_finished=True)
        self._check_outbound()

    async def take(self, step: Step) -> None:
        service = self.service
        match step:
            case Say():
                service.account = step.account
                message = {"mid": step.message_id, "text": f"zebra {step.word}", **place(step)}
                if step.is_late:
                    self.late[step.word] = await service.store(**message)
                else:
                    await service.say(**message)
            case Arrive(message):
                await service.kernel.decide([self.late.pop(message.word)])
            case Change(message, word):
                service.account = message.account
                kind: Fields = {"kind": "delete"} if word is None else {"kind": "edit"}
                text = "" if word is None else f"zebra {message.word} {word}"
                change = kind | {"mid": message.message_id, "event_id": uuid4().hex}
                await service.say(text, **change, **place(message))
            case HandOver(number):
                await service.hand_over(number)
            case Split(lasting):
                await service.split(lasting)
            case Ask(person=person, account=account, raw=raw, what="open"):
                service.account = account
                reply = await create(service.caller, origin="web", **service.acting(raw))
                assert reply.error is None, person
            case Ask(person=person, account=account, raw=raw, what=what):
                service.account = account
                where = {"chat": raw, "user": raw}
                listing = await service.tell("/sessions", **where)
                answer = await service.tell({"resume": "/resume 2"}.get(what, f"/{what}"), **where)
                assert words([listing, answer]) & self.world.others(person) == set()

    async def serve(self, *, is_finished: bool) -> None:
        """Let workers claim every turn, and perhaps answer what they have."""
        kernel = self.service.kernel
        while True:
            ready = await kernel.fetch("SELECT id FROM turns WHERE state = 'ready' ORDER BY id")
            for (turn_id,) in ready:
                claimed = await kernel.claim(turn_id)
                if claimed.status is not ClaimStatus.VOID:
                    await self._begin(claimed)
            if not is_finished or not self.running:
                return
            running, self.running = self.running, []
            for turn in running:
                text = f"answer {len(self.answers)}"
                self.answers[text] = turn.asked_by
                await kernel.answer(turn.claimed, text, self.service.now)

    async def _begin(self, claimed: ClaimReply) -> None:
        """Check that a worker is given nothing of others, the context of its prompt included."""
        given = claimed.model_dump_json()
        asked_by = frozenset(word.rpartition("of")[2] for word in words([given]))
        is_shared = await self.service.kernel.value(
            "SELECT owner IS NULL FROM sessions WHERE id = $1", claimed.session_id
        )
        if not is_shared:
            assert len(asked_by) <= 1
            others = [one for one in self.world.people if one.name not in asked_by]
            assert not asked_by or not any(one.lasting in given for one in others)
        self.running.append(Running(claimed, asked_by))

    def _check_outbound(self) -> None:
        """Check that nobody is told in their DM what is another person's, answers and notices."""
        told = self.service.kernel.relay.bodies("OUTBOUND")
        for message in told[self._outbound :]:
            chat = message["target"]["chat"]
            if chat["kind"] != "dm":
                continue
            read_by = {one.name for one in self.world.people if chat["id"] == one.lasting}
            read_by |= {one.name for one in self.world.people if chat["id"] == one.number}
            about = {word.rpartition("of")[2] for word in words([message["text"]])}
            about |= self.answers.get(message["text"], frozenset())
            assert not read_by or about <= read_by
        self._outbound = len(told)

    def _check_events(self) -> None:
        """Check that events of sessions hold no words, and name nobody but who began the session."""
        events = self.service.kernel.relay.bodies("EVENTS", SESSION_EVENTS)
        for one in events[self._events :]:
            named = json.dumps(one)
            assert words([named]) == set()
            people = [person.name for person in self.world.people if person.lasting in named]
            assert len(people) <= 1
        self._events = len(events)

    async def check(self, person: Somebody) -> None:
        if (raw := self.world.id_of(person)) is None:
            return
        service, others = self.service, self.world.others(person)
        for service.account in self.world.accounts:
            loaded = words(await service.loaded(raw))
            assert loaded & others == set()
            assert words(await service.searched(raw, "zebra")) & others == set()
            seen = await service.seen_in_rooms(raw)
            if seen is not None:
                self.sights += 1
                assert person.name in self.members[service.account]
                people = self.world.people
                said_there = [one.said_in_rooms(service.account) for one in people]
                assert words([seen]) <= set().union(*said_there)
                assert not any(one.lasting in seen for one in people)
            exported = words([await service.exported(raw)]) - person.deleted
            said = person.said_to(service.account)
            in_rooms = person.said_in_rooms(service.account)
            assert exported <= said | in_rooms
            if person.is_continuous and service.account in person.told_to:
                assert exported == said | in_rooms
                if self.world.is_settled(person) and not self.running:
                    assert loaded == said


def place(said: Say) -> Fields:
    """Return where a message is written, and by whom."""
    if said.place == "dm":
        return dm(said.number, said.lasting)
    thread: Fields = {"thr": "7"} if said.place == "room" else {}
    return {
        "kind_of_chat": "group",
        "chat": said.chat,
        **thread,
        **sender(said.number, said.lasting),
    }


@pytest.mark.timeout(900)
@pytest.mark.parametrize("platform", ["signal", "whatsapp"])
@pytest.mark.parametrize("seed", range(RUNS))
@pytest.mark.slow
async def test_f01_whatever_happens_no_reader_shows_a_word_of_somebody_else(
    two_accounts: Service, platform: str, seed: int
) -> None:
    world, service = World(seed, platform), two_accounts
    service.platform = platform
    walk = Walk(world, service)
    for number in range(STEPS):
        await walk.step(is_finished=number % 4 > 0)
        await walk.report()
        for person in world.people:
            await walk.check(person)
    await walk.settle()
    assert await service.kernel.dead() == []
    assert walk.sights
    gone = world.people[seed % len(world.people)]
    service.account = world.accounts[seed % 2]
    if (raw := world.id_of(gone)) is not None:
        theirs = words([await service.exported(raw)])
        before = await service.stored()
        await service.erase(raw)
        assert await service.stored() == before - theirs
        assert await service.seen_in_rooms(raw) is None
        assert words([await service.exported(raw)]) == set()
        # An account that was told of no link keeps what came with their other id.
        for said in (gone.said, gone.in_rooms):
            kept = {*said.get(service.account, ())} - theirs
            said[service.account] = sorted(kept)
        # Links of their ids were erased with them.
        gone.told_to.discard(service.account)
    for person in world.people:
        await walk.check(person)
