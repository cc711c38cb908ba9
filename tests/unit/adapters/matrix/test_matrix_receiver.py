"""What is published of the news of a homeserver, and where the cursor stands."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, cast

import pytest

from chatlane_adapters.matrix.client import Invitation, MatrixClient, News, RawEvent, RoomNews
from chatlane_adapters.matrix.cursor import Cursor, Unread
from chatlane_adapters.matrix.decode import Decoder, Room
from chatlane_adapters.matrix.receiver import Receiver
from chatlane_adapters.matrix.refusals import RevokedTokenError
from chatlane_client import ChatGone, RetryAfter
from chatlane_schemas import InboundEvent, new_envelope_id
from tests.support.eventually import eventually

BOT: Final = "@bot:example.org"
ANN: Final = "@ann:example.org"
ROOM: Final = "!room:example.org"


def new_event(**fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
    return InboundEvent(
        id=new_envelope_id(), at=datetime.now(UTC), platform="matrix", account="bot", **fields
    )


def said(text: str, **more: object) -> dict[str, Any]:
    return {
        "event_id": f"${text}",
        "sender": ANN,
        "type": "m.room.message",
        "content": {"msgtype": "m.text", "body": text},
        **more,
    }


def own_membership(membership: str) -> dict[str, Any]:
    return {
        "event_id": f"${membership}",
        "sender": ANN,
        "type": "m.room.member",
        "state_key": BOT,
        "content": {"membership": membership},
    }


def sealed(event_id: str) -> dict[str, Any]:
    return {"event_id": event_id, "sender": ANN, "type": "m.room.encrypted", "content": {}}


BEGUN: Final = Cursor("n0")
NOTHING: Final = News("n1", has_keys=False, rooms=(), invitations=())


@dataclass
class FakeClient:
    """A homeserver that tells what a test wants, and then nothing.

    Attributes:
        news: Answers of the next syncs, or errors to raise.
        asked_since: With which positions it was asked.
        pages: Events that a sync left out, in pages.
        known: Events by id.
        joined: Rooms that were joined.
        join_errors: To raise for the next joins.
    """

    news: list[News | Exception]
    asked_since: list[str | None] = field(default_factory=list)
    pages: list[Sequence[RawEvent]] = field(default_factory=list)
    earlier: list[RawEvent] = field(default_factory=list)
    known: dict[str, RawEvent] = field(default_factory=dict)
    joined: list[str] = field(default_factory=list)
    join_errors: list[Exception] = field(default_factory=list)
    user_id: str = BOT

    async def sync(self, since: str | None, **_: object) -> News:
        self.asked_since.append(since)
        if not self.news:
            await asyncio.Event().wait()
        news = self.news.pop(0)
        if isinstance(news, Exception):
            raise news
        return news

    async def exchange_keys(self) -> None:
        pass

    def room(self, room_id: str, _: Sequence[str] = ()) -> Room:
        return Room(room_id, is_direct=True)

    async def history(self, _: str, start: str, end: str) -> tuple[Sequence[RawEvent], str | None]:
        assert end == "gap"
        page = self.pages.pop(0)
        return page, f"{start}+" if self.pages else None

    async def before(self, *_: object) -> list[RawEvent]:
        return self.earlier

    async def event(self, _: str, event_id: str) -> RawEvent:
        if event_id not in self.known:
            raise ChatGone("M_NOT_FOUND")
        return self.known[event_id]

    async def join(self, room_id: str) -> None:
        if self.join_errors:
            raise self.join_errors.pop(0)
        self.joined.append(room_id)


@dataclass
class Run:
    """A receiver at work.

    Attributes:
        published: What it published, in order.
        saved: The cursors that it kept.
    """

    client: FakeClient
    published: list[InboundEvent] = field(default_factory=list)
    saved: list[Cursor] = field(default_factory=list)
    is_ready: bool = False

    @property
    def texts(self) -> list[str | None]:
        return [event.text for event in self.published]

    def become_ready(self) -> None:
        self.is_ready = True

    async def until_read(self) -> None:
        """Wait until everything that the homeserver had to tell was taken."""
        await eventually(lambda: not self.client.news and self.saved)


@asynccontextmanager
async def running(
    client: FakeClient,
    kept: Cursor | None = BEGUN,
    **more: Any,  # noqa: ANN401
) -> AsyncIterator[Run]:
    run = Run(client)

    async def publish(event: InboundEvent) -> None:
        run.published.append(event)

    async def save(text: str) -> None:
        run.saved.append(Cursor.load(text))

    receiver = Receiver(
        client=cast("MatrixClient", client),
        decoder=Decoder(new_event=new_event, user_id=BOT),
        publish=more.get("publish", publish),
        save=save,
        invitations_from=["*:example.org"],
        on_ready=run.become_ready,
    )
    task = asyncio.create_task(receiver.run(None if kept is None else kept.dump()))
    try:
        yield run
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()


def news_of(*events: RawEvent, gap: str | None = None, room: str = ROOM) -> News:
    return replace(NOTHING, rooms=(RoomNews(room, events, gap),))


async def test_the_cursor_is_kept_behind_what_is_stored() -> None:
    async with running(FakeClient([news_of(said("one"), said("two"))])) as run:
        await run.until_read()
        assert run.texts == ["one", "two"]
        assert run.saved == [Cursor("n1")]
        await eventually(lambda: run.client.asked_since == ["n0", "n1"])
        assert run.is_ready


async def test_the_cursor_stays_before_what_is_not_stored() -> None:
    async def never(_: InboundEvent) -> None:
        await asyncio.Event().wait()

    client = FakeClient([news_of(said("one"))])
    async with running(client, publish=never) as run:
        await eventually(lambda: client.asked_since == ["n0"])
        assert run.saved == []
        assert not run.is_ready


async def test_a_new_account_does_not_read_what_was_said_before() -> None:
    async with running(FakeClient([news_of(said("old"))]), None) as run:
        await run.until_read()
        assert run.texts == []
        assert run.saved == [Cursor("n1")]


async def test_what_a_sync_left_out_comes_before_the_rest() -> None:
    client = FakeClient([news_of(said("three"), gap="gap")])
    client.pages = [[said("one")], [said("two")]]
    async with running(client) as run:
        await run.until_read()
        assert run.texts == ["one", "two", "three"]


async def test_a_joined_room_is_read_from_its_invitation_on() -> None:
    events = (own_membership("invite"), said("hello"), own_membership("join"), said("you"))
    async with running(FakeClient([news_of(said("before"), *events)])) as run:
        await run.until_read()
        assert run.texts == ["hello", "you"]


async def test_an_invitation_that_a_sync_left_out_is_looked_for() -> None:
    client = FakeClient([news_of(own_membership("join"), said("you"), gap="gap")])
    client.earlier = [said("before"), own_membership("invite"), said("hello")]
    async with running(client) as run:
        await run.until_read()
        assert run.texts == ["hello", "you"]


async def test_invitations_are_accepted_by_their_author() -> None:
    invitations = (Invitation("!a", ANN), Invitation("!b", "@eve:elsewhere.org"))
    client = FakeClient(
        [replace(NOTHING, invitations=invitations), replace(NOTHING, next_batch="n2")]
    )
    async with running(client):
        await eventually(lambda: client.joined == ["!a"])


async def test_an_invitation_of_an_earlier_process_is_accepted() -> None:
    client = FakeClient([NOTHING])
    client.join_errors = [RetryAfter(0.01)]
    async with running(client, Cursor("n0", ("!a",))):
        await eventually(lambda: client.joined == ["!a"])


async def test_a_refused_invitation_is_given_up() -> None:
    client = FakeClient([])
    client.join_errors = [ChatGone("M_FORBIDDEN")]
    async with running(client, Cursor("n0", ("!a",))):
        await eventually(lambda: not client.join_errors)
        await asyncio.sleep(0)
        assert client.joined == []


async def test_an_encrypted_event_is_read_when_its_key_comes() -> None:
    client = FakeClient([news_of(sealed("$1"), said("two"))])
    async with running(client) as run:
        await run.until_read()
        assert run.texts == ["two"]
        assert [it.event_id for it in run.saved[-1].unread] == ["$1"]
    client = FakeClient([replace(NOTHING, next_batch="n2", has_keys=True)])
    client.known["$1"] = said("one")
    async with running(client, run.saved[-1]) as run:
        await run.until_read()
        assert run.texts == ["one"]
        assert run.saved[-1] == Cursor("n2")


async def test_an_encrypted_event_without_a_key_is_given_up_after_an_hour() -> None:
    client = FakeClient([replace(NOTHING, next_batch="n2")])
    async with running(client, Cursor("n0", (), (Unread(ROOM, "$1", 0.0),))) as run:
        await run.until_read()
        assert run.saved == [Cursor("n2")]


@pytest.mark.parametrize("author", [ANN, "@eve:example.org", None])
async def test_the_author_of_an_edited_message_is_looked_up(author: str | None) -> None:
    relation = {"rel_type": "m.replace", "event_id": "$first"}
    content = {"msgtype": "m.text", "body": "* new", "m.relates_to": relation}
    edit = said("edit", content={**content, "m.new_content": {"msgtype": "m.text", "body": "new"}})
    client = FakeClient([news_of(edit)])
    if author is not None:
        client.known["$first"] = said("first", sender=author)
    async with running(client) as run:
        await run.until_read()
        assert run.texts == (["new"] if author == ANN else [])


async def test_a_limited_sync_is_asked_for_again() -> None:
    client = FakeClient([RetryAfter(0.01), news_of(said("one"))])
    async with running(client) as run:
        await run.until_read()
        assert run.texts == ["one"]
        assert client.asked_since[:2] == ["n0", "n0"]


async def test_a_revoked_token_ends_the_receiver() -> None:
    receiving = running(FakeClient([RevokedTokenError("M_UNKNOWN_TOKEN")]))
    run = await receiving.__aenter__()
    await eventually(lambda: not run.client.news)
    with pytest.raises(ExceptionGroup) as ended:
        await receiving.__aexit__(None, None, None)
    assert ended.group_contains(RevokedTokenError)


def test_a_cursor_is_text_and_back() -> None:
    cursor = Cursor("s1_2", ("!a", "!b"), (Unread("!a", "$1", 1.5),))
    assert Cursor.load(cursor.dump()) == cursor
    assert Cursor.load(None) == Cursor()
