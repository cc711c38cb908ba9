"""What a real worker makes of messages that come while it has a turn, by policy."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from nats.aio.client import Client

from chatlane.domain.catalog import BusyMode
from chatlane_client import Turn, open_connection
from chatlane_schemas import Attachment, Kind
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import Chats, delivering, said, working
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

Meeting = Callable[[BusyMode], AbstractAsyncContextManager[Client]]


@pytest.fixture
def busy_arrival(tmp_path: Path, nats_url: str, database_url: str) -> Meeting:
    """Opens a connection to a server whose router has a busy mode."""

    @asynccontextmanager
    async def open_meeting(busy: BusyMode) -> AsyncIterator[Client]:
        async with (
            real_router(tmp_path, nats_url, database_url, busy=busy),
            open_connection(nats_url, name="test") as connection,
        ):
            yield connection

    return open_meeting


class Agent:
    """Is busy with what asks for work until it may end, and answers all else at once."""

    def __init__(self) -> None:
        self.turns: list[list[str | None]] = []
        self.reasons: list[str | None] = []
        self.may_end = asyncio.Event()
        self.running = 0
        self.most_running = 0

    async def answer(self, turn: Turn) -> str:
        self.turns.append([message.text for message in turn.messages])
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            if turn.text == "work":
                await self.may_end.wait()
        except asyncio.CancelledError:
            self.reasons.append(turn.cancel_reason)
            return "as far as I got"
        finally:
            self.running -= 1
        return f"re: {turn.text}"


@pytest.mark.parametrize(
    ("busy", "turns"),
    [
        ("collect", [["work"], ["A", "B", "C", "D"]]),
        ("queue", [["work"], ["A"], ["B"], ["C"], ["D"]]),
    ],
)
async def test_all_that_is_said_meanwhile_is_answered_in_order(
    busy_arrival: Meeting, busy: BusyMode, turns: list[list[str]]
) -> None:
    """C27, with a real worker."""
    chats, agent = Chats(), Agent()
    async with (
        busy_arrival(busy) as client,
        working(client, agent.answer),
        delivering(client, chats.deliver) as adapter,
    ):
        await adapter.publish(said("work"))
        await eventually(lambda: agent.turns)
        for letter in "ABCD":
            await adapter.publish(said(letter))
        # Another chat is answered only once all of this one has been read: order of the log.
        await adapter.publish(said("other", chat="2"))
        await chats.until_said("re: other", chat="2")
        agent.may_end.set()
        await eventually(lambda: len(agent.turns) == len(turns) + 1)
        await eventually(lambda: agent.running == 0)
    assert [turn for turn in agent.turns if turn != ["other"]] == turns


async def test_a_message_interrupts_a_real_worker_and_is_next(busy_arrival: Meeting) -> None:
    chats, agent = Chats(), Agent()
    async with (
        busy_arrival("interrupt") as client,
        working(client, agent.answer),
        delivering(client, chats.deliver) as adapter,
    ):
        await adapter.publish(said("work"))
        await eventually(lambda: agent.turns)
        await adapter.publish(said("never mind"))
        await chats.until_said("re: never mind")
    assert agent.reasons == ["interrupted"]
    assert agent.turns == [["work"], ["never mind"]]
    assert agent.most_running == 1
    assert chats.texts() == ["as far as I got", "re: never mind"]


async def test_a_message_steers_a_real_worker(busy_arrival: Meeting) -> None:
    chats, heard = Chats(), list[str]()
    started = asyncio.Event()

    async def listen(turn: Turn) -> str:
        heard.append(turn.text)
        started.set()
        async for message in turn.steered():
            heard.append(message.text or "")
            if message.text == "enough":
                break
        return " ".join(heard)

    async with (
        busy_arrival("steer") as client,
        working(client, listen),
        delivering(client, chats.deliver) as adapter,
    ):
        await adapter.publish(said("tell"))
        await started.wait()
        for text in ("shorter", "kinder", "enough"):
            await adapter.publish(said(text))
        await chats.until_said("tell shorter kinder enough")


async def test_what_a_worker_does_not_take_in_is_the_next_turn(busy_arrival: Meeting) -> None:
    """Also when it looks only now and then, as between two calls of tools."""
    chats, agent = Chats(), Agent()
    looked: list[str | None] = []

    async def look_once(turn: Turn) -> str:
        answer = await agent.answer(turn)
        looked.extend(message.text for message in await turn.take_steered())
        return answer

    async with (
        busy_arrival("steer") as client,
        working(client, agent.answer),
        delivering(client, chats.deliver) as adapter,
    ):
        await adapter.publish(said("work"))
        await eventually(lambda: agent.turns)
        await adapter.publish(said("A"))
        await adapter.publish(said("other", chat="2"))
        await chats.until_said("re: other", chat="2")
        agent.may_end.set()
        await chats.until_said("re: A")
    assert ["A"] in agent.turns

    async with (
        busy_arrival("steer") as client,
        working(client, look_once),
        delivering(client, chats.deliver) as adapter,
    ):
        agent.may_end.clear()
        agent.turns.clear()
        await adapter.publish(said("work"))
        await eventually(lambda: agent.turns)
        await adapter.publish(said("B"))
        await adapter.publish(said("third", chat="3"))
        await chats.until_said("re: third", chat="3")
        agent.may_end.set()
        await eventually(lambda: looked == ["B"])
        await adapter.publish(said("done?"))
        await chats.until_said("re: done?")
    assert ["B"] not in agent.turns


async def test_a_slow_file_is_not_overtaken_and_slows_no_other_chat(busy_arrival: Meeting) -> None:
    """C26, with a real worker."""
    chats = Chats()
    turns: list[list[tuple[str | None, int]]] = []

    async def note(turn: Turn) -> str:
        turns.append([(its.text, len(its.attachments)) for its in turn.messages])
        return f"{len(turn.messages)} messages"

    photo = said("").model_copy(update={"awaits_files": True})
    brought = said("").model_copy(
        update={
            "message_id": photo.message_id,
            "kind": Kind.ATTACHMENTS,
            "attachments": (Attachment(url="https://files/1", media_type="image/png"),),
        }
    )
    async with (
        busy_arrival("collect") as client,
        working(client, note),
        delivering(client, chats.deliver) as adapter,
    ):
        await adapter.publish(photo)
        for text in ("what is this?", *"abcdefgh"):
            await adapter.publish(said(text))
        await adapter.publish(said("hello", chat="2"))
        await chats.until_said("1 messages", chat="2")
        assert chats.texts() == []
        await adapter.publish(brought)
        await chats.until_said("10 messages")
    texts = ["what is this?", *"abcdefgh"]
    assert turns[1:] == [[("", 1), *((text, 0) for text in texts)]]


async def test_an_album_is_one_turn_of_a_real_worker(busy_arrival: Meeting) -> None:
    chats, agent = Chats(), Agent()
    async with (
        busy_arrival("queue") as client,
        working(client, agent.answer),
        delivering(client, chats.deliver) as adapter,
    ):
        for text in ("our holidays", "at sea", "ashore"):
            await adapter.publish(said(text).model_copy(update={"album_id": "A"}))
        await adapter.publish(said("nice?"))
        await chats.until_said("re: nice?")
    assert agent.turns == [["our holidays", "at sea", "ashore"], ["nice?"]]
