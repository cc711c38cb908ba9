"""What an application service publishes of the transactions of a homeserver, and whom it believes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import pytest
from aiohttp import ClientConnectionError, ClientSession
from pydantic import ValidationError
from typer.testing import CliRunner

from chatlane_adapters.commands import app
from chatlane_adapters.matrix.appservice.registration import Registration, load_registration
from chatlane_adapters.matrix.appservice.settings import AppserviceSettings
from chatlane_adapters.matrix.appservice.transactions import Member, TransactionServer
from chatlane_adapters.matrix.client import ActingClient, RawEvent
from chatlane_adapters.matrix.decode import Decoder
from chatlane_adapters.matrix.invitations import Invitations
from chatlane_adapters.matrix.members import MemberReports
from chatlane_adapters.matrix.room_events import RoomEvents
from chatlane_client import UnconfirmedPublishError
from chatlane_schemas import InboundEvent, new_envelope_id
from chatlane_servers.embedded import free_port
from tests.support.eventually import eventually

BOT: Final = "@chatlane_bot:example.org"
HELP: Final = "@chatlane_help:example.org"
ANN: Final = "@ann:example.org"
ROOM: Final = "!room:example.org"
TOKEN: Final = "a-token-of-the-homeserver"  # noqa: S105 - of this test


def said(text: str, **more: object) -> dict[str, Any]:
    return {
        "event_id": f"${text}",
        "room_id": ROOM,
        "sender": ANN,
        "type": "m.room.message",
        "content": {"msgtype": "m.text", "body": text},
        **more,
    }


def membership(user_id: str, what: str, sender: str | None = None) -> dict[str, Any]:
    return {
        "event_id": f"${what}-{user_id}",
        "room_id": ROOM,
        "sender": sender or user_id,
        "type": "m.room.member",
        "state_key": user_id,
        "content": {"membership": what},
    }


@dataclass
class FakeUser:
    """A user of an account on a homeserver with one room.

    Attributes:
        rooms: Rooms of which it is a member at the start.
        latest: The latest events of the room.
        joined: Rooms that it joined.
    """

    user_id: str
    rooms: Sequence[str] = ()
    latest: Sequence[RawEvent] = ()
    joined: list[str] = field(default_factory=list)

    async def joined_rooms(self) -> Sequence[str]:
        return self.rooms

    async def state(self, _: str) -> Sequence[RawEvent]:
        name = {"type": "m.room.name", "state_key": "", "content": {"name": "kitchen"}}
        return [membership(ANN, "join"), membership(self.user_id, "join"), name]

    async def before(self, *_: object) -> Sequence[RawEvent]:
        return self.latest

    async def join(self, room_id: str) -> None:
        self.joined.append(room_id)

    async def members(self, _: str) -> Sequence[str]:
        return (ANN, self.user_id)


@dataclass
class Stage:
    """A running server, its users and what it published.

    Attributes:
        published: By user, the events in order.
        saved: By user, the rooms that were kept as those to join.
        failures: Raised by the next publishes.
        reported: Rooms and members that were reported, in order.
    """

    users: Sequence[FakeUser]
    url: str
    published: dict[str, list[InboundEvent]] = field(default_factory=dict)
    saved: dict[str, tuple[str, ...]] = field(default_factory=dict)
    failures: list[Exception] = field(default_factory=list)
    reported: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    async def report(self, room_id: str, members: Sequence[str], *_: datetime) -> None:
        self.reported.append((room_id, tuple(members)))

    def texts(self, user_id: str) -> list[str | None]:
        return [event.text for event in self.published[user_id] if event.text is not None]

    def member(self, user: FakeUser) -> Member:
        published = self.published.setdefault(user.user_id, [])
        client = cast("ActingClient", user)

        async def publish(event: InboundEvent) -> None:
            if self.failures:
                raise self.failures.pop(0)
            published.append(event)

        async def load() -> Invitations:
            return Invitations(client, ["*:example.org"])

        async def save(pending: tuple[str, ...]) -> None:
            assert user.joined == [], "kept before the room is joined"
            self.saved[user.user_id] = pending

        def new_event(**fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
            name = user.user_id.partition(":")[0].rpartition("_")[2]
            return InboundEvent(
                id=new_envelope_id(),
                at=datetime.now(UTC),
                platform="matrix",
                account=name,
                **fields,
            )

        decoder = Decoder(new_event=new_event, user_id=user.user_id)
        return Member(
            client=client,
            events=RoomEvents(client=client, decoder=decoder, publish=publish),
            load_invitations=load,
            save_invitations=save,
            reports=MemberReports(user.members, self.report),
        )

    async def send(
        self, *events: object, transaction: str = "1", token: str | None = TOKEN
    ) -> tuple[int, Any]:
        """Send a transaction as the homeserver does; return status and content of the answer."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        url = f"{self.url}/_matrix/app/v1/transactions/{transaction}"
        async with (
            ClientSession(headers=headers) as session,
            session.put(url, json={"events": events}) as answer,
        ):
            has_content = answer.content_type == "application/json"
            return answer.status, await answer.json() if has_content else None


@asynccontextmanager
async def serving(*users: FakeUser) -> AsyncIterator[Stage]:
    port = free_port()
    stage = Stage(users, f"http://127.0.0.1:{port}")
    server = TransactionServer(TOKEN, [stage.member(user) for user in users])
    task = asyncio.create_task(server.run("127.0.0.1", port))

    async def answers() -> bool:
        try:
            return await stage.send(transaction="0") == (200, {})
        except ClientConnectionError:
            return False

    try:
        await eventually(answers)
        yield stage
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_only_the_homeserver_is_believed() -> None:
    async with serving(FakeUser(BOT, [ROOM])) as stage:
        assert await stage.send(said("one"), token=TOKEN[1:]) == (403, {"errcode": "M_FORBIDDEN"})
        assert await stage.send(said("one"), token=None) == (401, {"errcode": "M_UNAUTHORIZED"})
        assert stage.texts(BOT) == []
        assert await stage.send(said("one")) == (200, {})
        assert stage.texts(BOT) == ["one"]


async def test_a_transaction_that_was_not_stored_is_refused_and_stored_when_it_is_repeated() -> (
    None
):
    async with serving(FakeUser(BOT, [ROOM])) as stage:
        stage.failures = [UnconfirmedPublishError("chat.v1.in", "1")]
        assert (await stage.send(said("one"), said("two")))[0] == 503
        assert stage.texts(BOT) == []
        assert await stage.send(said("one"), said("two")) == (200, {})
        assert await stage.send(said("one"), said("two")) == (200, {})
        ids = [event.message_id for event in stage.published[BOT]]
        assert ids == ["$one", "$two", "$one", "$two"], "the same ids, so stored once"


async def test_an_event_is_published_for_each_account_in_its_room() -> None:
    async with serving(FakeUser(BOT, [ROOM]), FakeUser(HELP)) as stage:
        mention = {"msgtype": "m.text", "body": "both", "m.mentions": {"user_ids": [HELP]}}
        invited = membership(HELP, "invite", ANN)
        await stage.send(said("one"), invited, membership(HELP, "join"), said("2", content=mention))
        await stage.send(membership(HELP, "leave"), said("three"), transaction="2")
        assert stage.texts(BOT) == ["one", "both", "three"]
        assert stage.texts(HELP) == ["both"]
        direct, shared = (event for event in stage.published[BOT] if event.text in {"one", "both"})
        assert direct.chat is not None
        assert (direct.chat.kind, direct.chat.name) == ("dm", "kitchen")
        assert shared.chat is not None
        assert (shared.chat.kind, shared.observed) == ("room", True)
        assert [event.observed for event in stage.published[HELP]] == [None]


async def test_an_invitation_is_kept_and_then_accepted() -> None:
    user = FakeUser(BOT)
    async with serving(user) as stage:
        await stage.send(membership(BOT, "invite", "@eve:elsewhere.org"))
        assert stage.saved == {}
        await stage.send(membership(BOT, "invite", ANN), transaction="2")
        assert stage.saved == {BOT: (ROOM,)}
        await eventually(lambda: user.joined == [ROOM])


async def test_what_was_written_before_the_join_is_published_before_what_follows() -> None:
    joined = membership(BOT, "join")
    latest = [said("before"), membership(BOT, "invite", ANN), said("early"), joined, said("late")]
    async with serving(FakeUser(BOT, latest=latest)) as stage:
        await stage.send(said("unseen"), joined, said("late"))
        assert stage.texts(BOT) == ["early", "late"]


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"events": 1}'])
async def test_a_request_that_is_no_transaction_is_refused(body: bytes) -> None:
    async with (
        serving(FakeUser(BOT)) as stage,
        ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session,
        session.put(f"{stage.url}/_matrix/app/v1/transactions/1", data=body) as answer,
    ):
        assert answer.status == 400


async def test_events_of_unknown_shape_do_not_hold_up_others() -> None:
    async with serving(FakeUser(BOT, [ROOM])) as stage:
        events = [1, {}, {"room_id": ROOM}, {**said("x"), "content": 3}, said("good")]
        assert await stage.send(*events) == (200, {})
        assert stage.texts(BOT) == ["good"]


def settings_of(path: Path, **more: str) -> AppserviceSettings:
    fields = {"account": "bot, help", "homeserver": "http://localhost", **more}
    return AppserviceSettings(**fields, registration=path)  # type: ignore[arg-type]


def test_a_registration_is_written_once_and_read(tmp_path: Path) -> None:
    path = tmp_path / "registration.yaml"
    written = Registration.new("http://adapter:8009", "example.org")
    written.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_registration(path) == written
    assert written.owns(BOT)
    assert not written.owns(ANN)
    with pytest.raises(FileExistsError):
        written.save(path)


def test_the_command_overwrites_no_registration(tmp_path: Path) -> None:
    path = tmp_path / "registration.yaml"
    command = ["matrix-registration", str(path), "--server-name", "example.org"]
    assert CliRunner().invoke(app, command).exit_code == 0
    written = path.read_text()
    assert '"url": "http://127.0.0.1:8009"' in written
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    assert "File exists" in refused.output
    assert path.read_text() == written


def test_each_account_has_settings_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "registration.yaml"
    Registration.new("http://adapter:8009", "example.org").save(path)
    settings = settings_of(path, principal="matrix-{account}", nkey_seed_file="/keys/{account}.nk")
    assert settings.accounts == ("bot", "help")
    own = settings.of_account("help")
    assert (own.account, own.principal) == ("help", "matrix-help")
    assert own.nkey_seed_file == Path("/keys/help.nk")


def test_the_error_of_a_wrong_registration_shows_no_token(tmp_path: Path) -> None:
    path = tmp_path / "registration.yaml"
    path.write_text('{"as_token": "s3cret"}')
    with pytest.raises(ValidationError) as refused:
        settings_of(path)
    assert "matrix-registration" in str(refused.value)
    assert "s3cret" not in str(refused.value)


async def test_the_members_of_a_room_are_reported_after_a_change() -> None:
    async with serving(FakeUser(BOT, rooms=(ROOM,))) as stage:
        await eventually(lambda: stage.reported == [(ROOM, (ANN, BOT))])
        await stage.send(membership("@ben:example.org", "join"), transaction="1")
        await eventually(lambda: len(stage.reported) == 2)
