"""An adapter shows typing states and drafts, and the stored answer takes the place of its draft."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from nats.aio.client import Client

from chatlane.app import App
from chatlane_client import AdapterClient, NoReply, Turn, TurnFailedError, open_connection
from chatlane_schemas import InboundEvent, OutboundMessage, Source, decode
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import ACCOUNT, PLATFORM, running, said, working
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

INTERVAL = timedelta(milliseconds=20)


@pytest.fixture
async def app(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[App]:
    """A running router."""
    async with real_router(tmp_path, nats_url, database_url) as opened:
        yield opened


@pytest.fixture
async def client(app: App, nats_url: str) -> AsyncIterator[Client]:
    """A connection to its server."""
    assert app.intake is not None
    async with open_connection(nats_url, name="test") as connection:
        yield connection


class Platform:
    """A platform on which messages are sent, edited and deleted.

    Attributes:
        messages: What the chat shows, by id.
        sent: How many messages were sent.
        typing: The chats in which typing was shown.
    """

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}
        self.sent = 0
        self.typing: list[str | None] = []

    async def send(self, target: Source, text: str) -> str:
        del target
        self.sent += 1
        self.messages[str(self.sent)] = text
        return str(self.sent)

    async def edit(self, target: Source, message_id: str, text: str) -> None:
        del target
        assert message_id in self.messages
        self.messages[message_id] = text

    async def delete(self, target: Source, message_id: str) -> None:
        del target
        del self.messages[message_id]

    async def deliver(self, message: OutboundMessage) -> None:
        text = message.text or ""
        if message.draft is None:
            await self.send(message.target, text)
        else:
            await self.edit(message.target, message.draft, text)

    async def show_typing(self, target: Source) -> None:
        self.typing.append(target.chat.id if target.chat else None)


@asynccontextmanager
async def adapting(client: Client, platform: Platform) -> AsyncIterator[AdapterClient]:
    """Run everything that an adapter does until the end of the block, and cut it off there."""
    adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)
    async with (
        running(adapter.show_typing(platform.show_typing, interval=INTERVAL)),
        running(adapter.show_drafts(platform, interval=INTERVAL)),
        running(adapter.deliver(platform.deliver)),
    ):
        # Events of turns for both, and pieces and recaps for the drafts.
        await eventually(lambda: follows(client) == 4)
        yield adapter


def follows(client: Client) -> int:
    """Return how many subscriptions of live turns a connection has."""
    heads = ("chat.v1.event.turn.", "chat.v1.piece.", "chat.v1.recap.")
    return sum(it.subject.startswith(heads) for it in client._subs.values())


class Script:
    """A worker that says what a test lets it say."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()
        self.text: str | NoReply | Exception = "the whole answer"

    async def answer(self, turn: Turn) -> str | NoReply:
        await turn.delta("the whole")
        await self.may_go_on.wait()
        if isinstance(self.text, Exception):
            raise self.text
        return self.text


async def test_a_draft_becomes_the_answer(client: Client) -> None:
    platform, script = Platform(), Script()
    async with adapting(client, platform) as adapter, working(client, script.answer):
        await adapter.publish(said("hello"))
        await eventually(lambda: platform.messages == {"1": "the whole"})
        script.may_go_on.set()
        await eventually(lambda: platform.messages == {"1": "the whole answer"})
    assert platform.sent == 1


async def test_the_report_of_a_draft_has_the_address_of_its_chat(client: Client) -> None:
    platform, script = Platform(), Script()
    question = said("hello").model_copy(update={"profile": "default"})
    async with adapting(client, platform) as adapter, working(client, script.answer):
        await adapter.publish(question)
        await eventually(lambda: platform.messages == {"1": "the whole"})

        async def reports() -> list[InboundEvent]:
            state = (await client.jetstream().stream_info("INBOUND")).state
            stored = [
                await client.jetstream().get_msg("INBOUND", number)
                for number in range(1, state.last_seq + 1)
            ]
            events = [decode(InboundEvent, message.data or b"") for message in stored]
            return [event for event in events if event.draft_of is not None]

        [report] = await eventually(reports)
        script.may_go_on.set()
        await eventually(lambda: platform.messages == {"1": "the whole answer"})
    assert (report.profile, report.chat) == ("default", question.chat)
    assert report.sender == question.sender


@pytest.mark.parametrize("drop", ["silence", "stop"])
async def test_a_turn_without_an_answer_takes_its_draft_away(client: Client, drop: str) -> None:
    platform, script = Platform(), Script()
    script.text = NoReply()
    async with adapting(client, platform) as adapter, working(client, script.answer):
        await adapter.publish(said("hello"))
        await eventually(lambda: platform.messages == {"1": "the whole"})
        if drop == "stop":
            await adapter.publish(said("/stop"))
            await eventually(lambda: platform.sent == 2)
        else:
            script.may_go_on.set()
        await eventually(lambda: "1" not in platform.messages)


async def test_the_notice_of_a_failure_takes_the_place_of_the_draft(client: Client) -> None:
    platform, script = Platform(), Script()
    script.text = TurnFailedError("no")
    async with adapting(client, platform) as adapter, working(client, script.answer):
        await adapter.publish(said("hello"))
        await eventually(lambda: platform.messages == {"1": "the whole"})
        script.may_go_on.set()
        await eventually(lambda: platform.messages.get("1", "").startswith("Sorry"))
    assert platform.sent == 1


async def test_an_adapter_that_dies_over_its_draft_does_not_double_the_answer(
    app: App, client: Client
) -> None:
    platform, script = Platform(), Script()
    async with working(client, script.answer):
        async with adapting(client, platform) as adapter:
            await adapter.publish(said("hello"))
            await eventually(lambda: platform.messages == {"1": "the whole"})
            await until_noted(app)
        script.may_go_on.set()
        async with adapting(client, platform):
            await eventually(lambda: platform.messages == {"1": "the whole answer"})
    assert platform.sent == 1


async def test_another_attempt_after_the_death_of_both_goes_on_in_the_same_message(
    app: App, client: Client
) -> None:
    platform, script = Platform(), Script()
    async with working(client, script.answer), adapting(client, platform) as adapter:
        await adapter.publish(said("hello"))
        await eventually(lambda: platform.messages == {"1": "the whole"})
        await until_noted(app)
    script.may_go_on.set()
    async with adapting(client, platform), working(client, script.answer):
        await eventually(lambda: platform.messages == {"1": "the whole answer"})
    assert platform.sent == 1


async def until_noted(app: App) -> None:
    """Wait until the service knows the draft."""

    async def is_noted() -> bool:
        async with app.store.transaction() as connection:
            return bool(await connection.fetchval("SELECT draft FROM turns WHERE draft = '1'"))

    await eventually(is_noted)


def shown(adapter: AdapterClient) -> frozenset[UUID]:
    """Return the turns for which an adapter shows typing."""
    assert adapter._typing is not None
    return adapter._typing.turns


async def test_typing_is_shown_while_the_turn_runs_and_no_longer(client: Client) -> None:
    platform, script = Platform(), Script()
    async with adapting(client, platform) as adapter, working(client, script.answer):
        await adapter.publish(said("hello"))
        await eventually(lambda: len(platform.typing) > 2)
        script.may_go_on.set()
        await eventually(lambda: platform.messages == {"1": "the whole answer"})
        await eventually(lambda: not shown(adapter))
    assert set(platform.typing) == {"1"}


async def test_typing_ends_with_the_lease_of_a_dead_worker(client: Client) -> None:
    platform, script = Platform(), Script()
    async with adapting(client, platform) as adapter:
        async with working(client, script.answer):
            await adapter.publish(said("hello"))
            await eventually(lambda: bool(shown(adapter)))
        await eventually(lambda: not shown(adapter))
