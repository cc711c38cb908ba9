"""An adapter shows typing states and drafts, and the stored answer takes the place of its draft."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from nats.aio.client import Client

from chatlane.app.state import App
from chatlane_client import (
    AdapterClient,
    NoReply,
    Piece,
    Reply,
    Turn,
    TurnFailedError,
    Undeliverable,
    open_connection,
)
from chatlane_schemas import InboundEvent, OutboundMessage, Part, Source, decode
from tests.integration.client.real_router import SHORT_LEASE, real_router
from tests.integration.client.routing import ACCOUNT, PLATFORM, running, said, working
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

INTERVAL = timedelta(milliseconds=20)


@pytest.fixture
async def app(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[App]:
    """A running router."""
    async with real_router(tmp_path, nats_url, database_url, lease=SHORT_LEASE) as opened:
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
        keys: The message of each key of a draft.
        lost_answers: How many calls take effect and get no answer.
    """

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}
        self.sent = 0
        self.typing: list[str | None] = []
        self.keys: dict[str, str] = {}
        self.lost_answers = 0

    async def send(self, target: Source, text: str, *, key: str, may_be_sent: bool) -> str:
        assert may_be_sent is (key in self.keys)
        if key not in self.keys:
            self.keys[key] = await self.post(target, text)
            if self.lost_answers > 0:
                self.lost_answers -= 1
                raise TimeoutError
        return self.keys[key]

    async def post(self, target: Source, text: str) -> str:
        del target
        self.sent += 1
        self.messages[str(self.sent)] = text
        return str(self.sent)

    async def edit(self, target: Source, message_id: str, text: str) -> None:
        del target
        if message_id not in self.messages:
            raise Undeliverable("there is no such message")
        self.messages[message_id] = text

    async def delete(self, target: Source, message_id: str) -> None:
        del target
        del self.messages[message_id]

    async def deliver(self, message: OutboundMessage) -> None:
        text = message.text or ""
        if message.draft is None:
            await self.post(message.target, text)
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


@pytest.mark.parametrize("lost_answers", [0, 1])
async def test_a_draft_becomes_the_answer(client: Client, lost_answers: int) -> None:
    platform, script = Platform(), Script()
    platform.lost_answers = lost_answers
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


async def test_a_said_message_keeps_its_place_before_the_answer(client: Client) -> None:
    platform, may_go_on, may_end = Platform(), asyncio.Event(), asyncio.Event()

    async def answer(turn: Turn) -> str:
        await turn.delta("the ")
        await eventually(lambda: "the " in platform.messages.values())
        await turn.say("a moment")
        await may_go_on.wait()
        await turn.delta("whole")
        await may_end.wait()
        return "the whole answer"

    async with adapting(client, platform) as adapter, working(client, answer):
        await adapter.publish(said("hello"))
        await eventually(lambda: list(platform.messages.values()) == ["the ", "a moment"])
        assert shown(adapter), "the turn goes on"
        may_go_on.set()
        await eventually(lambda: list(platform.messages.values()) == ["a moment", "the whole"])
        may_end.set()
        await eventually(lambda: platform.messages == {"2": "a moment", "3": "the whole answer"})


async def test_an_answer_without_further_text_comes_behind_the_said_message(client: Client) -> None:
    platform = Platform()

    async def answer(turn: Turn) -> str:
        await turn.delta("the ")
        await eventually(lambda: "the " in platform.messages.values())
        await turn.say("a moment")
        await eventually(lambda: platform.sent == 2)
        return "the whole answer"

    async with adapting(client, platform) as adapter, working(client, answer):
        await adapter.publish(said("hello"))
        await eventually(lambda: platform.messages == {"2": "a moment", "3": "the whole answer"})


async def test_a_question_keeps_its_place_before_the_answer(client: Client) -> None:
    platform = Platform()

    async def answer(turn: Turn) -> str:
        await turn.delta("three files")
        await eventually(lambda: "three files" in platform.messages.values())
        choice = await turn.ask("Delete them?", ["Yes", "No"], within=timedelta(minutes=1))
        await turn.delta(", deleted")
        await eventually(lambda: "three files, deleted" in platform.messages.values())
        return f"deleted: {choice.value}"

    async with adapting(client, platform) as adapter, working(client, answer):
        await adapter.publish(said("hello"))
        await eventually(lambda: len(platform.messages) == 2)
        await adapter.publish(said("Yes"))
        await eventually(lambda: platform.messages == {"2": "Delete them?", "3": "deleted: Yes"})


async def test_a_said_message_alone_takes_the_draft_away(client: Client) -> None:
    platform = Platform()

    async def answer(turn: Turn) -> NoReply:
        await turn.delta("the ")
        await eventually(lambda: "the " in platform.messages.values())
        await turn.say("all there is")
        return NoReply()

    async with adapting(client, platform) as adapter, working(client, answer):
        await adapter.publish(said("hello"))
        await eventually(lambda: platform.messages == {"2": "all there is"})


async def test_an_answer_that_edits_an_earlier_message_takes_the_draft_away(client: Client) -> None:
    """The handler of `deliver` sends an edit as a message, as on a platform without edits."""
    platform, first = Platform(), list[UUID]()

    async def answer(turn: Turn) -> Reply:
        if not first:
            first.append(await turn.say("draft 1"))
        await turn.delta("half")
        await eventually(lambda: "half" in platform.messages.values())
        return Reply(parts=[Part(text="draft 2", edits=first[0])])

    async with adapting(client, platform) as adapter, working(client, answer):
        await adapter.publish(said("hello"))
        await eventually(lambda: "half" not in platform.messages.values())
        await eventually(lambda: sorted(platform.messages.values()) == ["draft 1", "draft 2"])


async def test_a_failure_behind_a_said_message_is_a_message_of_its_own(client: Client) -> None:
    platform = Platform()

    async def answer(turn: Turn) -> str:
        await turn.delta("half")
        await eventually(lambda: "half" in platform.messages.values())
        await turn.say("a moment")
        await eventually(lambda: platform.sent == 2)
        raise TurnFailedError("no")

    async with adapting(client, platform) as adapter, working(client, answer):
        await adapter.publish(said("hello"))
        await eventually(lambda: platform.messages.get("3", "").startswith("Sorry"))
        await eventually(lambda: "1" not in platform.messages)
        assert platform.messages["2"] == "a moment"


async def test_a_stopped_turn_leaves_what_it_said_and_no_draft(client: Client) -> None:
    platform = Platform()

    async def answer(turn: Turn) -> str:
        await turn.delta("half")
        await eventually(lambda: "half" in platform.messages.values())
        await turn.say("a moment")
        await asyncio.Event().wait()
        return "never"

    async with adapting(client, platform) as adapter, working(client, answer):
        await adapter.publish(said("hello"))
        await eventually(lambda: platform.sent == 2)
        await adapter.publish(said("/stop"))
        await eventually(lambda: "1" not in platform.messages)
        assert platform.messages["2"] == "a moment"


async def test_an_answer_whose_draft_is_gone_is_sent_as_a_message(client: Client) -> None:
    platform, script = Platform(), Script()
    async with adapting(client, platform) as adapter, working(client, script.answer):
        await adapter.publish(said("hello"))
        await eventually(lambda: platform.messages == {"1": "the whole"})
        # For example by a moderator.
        del platform.messages["1"]
        script.may_go_on.set()
        await eventually(lambda: platform.messages == {"2": "the whole answer"})


@pytest.mark.parametrize("in_pieces", [False, True])
async def test_the_buttons_of_a_question_go_once_it_is_answered(
    client: Client,
    in_pieces: bool,  # noqa: FBT001
) -> None:
    closed: list[tuple[str, str]] = []

    async def close(target: Source, message_id: str, text: str) -> None:
        assert target.chat is not None
        closed.append((message_id, text))

    async def answer(turn: Turn) -> str:
        choice = await turn.ask("Red or blue?", ["Red", "Blue"], within=timedelta(minutes=1))
        return f"took {choice.value}"

    sent: list[str | None] = []

    async def deliver(message: OutboundMessage) -> str:
        sent.append(message.text)
        return f"m{len(sent)}"

    async def deliver_piece(piece: Piece) -> str:
        return await deliver(piece.message)

    adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)
    delivery = adapter.deliver_pieces(deliver_piece) if in_pieces else adapter.deliver(deliver)
    async with (
        running(delivery),
        running(adapter.close_questions(close)),
        working(client, answer),
    ):
        await eventually(lambda: follows(client) == 1)
        await adapter.publish(said("hello"))
        await eventually(lambda: sent == ["Red or blue?"])
        assert closed == []
        await adapter.publish(said("Blue"))
        await eventually(lambda: closed == [("m1", "Red or blue?")])
        await eventually(lambda: sent[1:] == ["took Blue"])


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
