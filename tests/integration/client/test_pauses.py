"""Pauses between messages, kept by the delivery of the adapter."""

from collections import deque
from collections.abc import AsyncIterator
from datetime import timedelta
from time import monotonic
from typing import Final

import pytest
from nats.aio.client import Client

from chatlane_client import AdapterClient, open_connection
from chatlane_schemas import OutboundMessage, Source, new_envelope_id
from tests.integration.client.routing import (
    ACCOUNT,
    PLATFORM,
    Speaker,
    apply_topology,
    no_deliveries,
    running,
)
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

LONG: Final = timedelta(seconds=30)
# Longer than a chat keeps its messages in memory.
PAUSE_MS: Final = 2500


@pytest.fixture
async def client(nats_url: str) -> AsyncIterator[Client]:
    await apply_topology(nats_url)
    async with no_deliveries(nats_url), open_connection(nats_url, name="test") as connection:
        yield connection


class Chats:
    """Remembers what was sent, and when, and where typing was shown before it."""

    def __init__(self) -> None:
        self.sent: list[tuple[str | None, float]] = []
        self.typing: deque[str | None] = deque()

    async def deliver(self, message: OutboundMessage) -> None:
        self.sent.append((message.text, monotonic()))

    async def show_typing(self, target: Source) -> None:
        self.typing.append(target.chat.id if target.chat else None)

    @property
    def texts(self) -> list[str | None]:
        return [text for text, _ in self.sent]


def adapter_of(client: Client) -> AdapterClient:
    return AdapterClient(client, platform=PLATFORM, account=ACCOUNT)


async def say_rest(speaker: Speaker, first: OutboundMessage, pause_ms: int) -> None:
    """Say two more messages to the chat of the first one, the next one after a pause."""
    follows = {"id": new_envelope_id(), "out_seq": 2, "text": "two", "pause_before_ms": pause_ms}
    await speaker.say_again(first.model_copy(update=follows))
    await speaker.say(3, text="three")


@pytest.mark.parametrize("pause_ms", [300, PAUSE_MS])
async def test_a_pause_holds_up_its_chat_and_no_other(client: Client, pause_ms: int) -> None:
    chats, speaker, adapter = Chats(), Speaker(client), adapter_of(client)
    async with (
        running(adapter.show_typing(chats.show_typing)),
        running(adapter.deliver(chats.deliver)),
    ):
        first = await speaker.say(1, text="one")
        await eventually(lambda: chats.texts == ["one"], LONG)
        await say_rest(speaker, first, pause_ms)
        await eventually(lambda: "1" in chats.typing, LONG)
        if pause_ms == PAUSE_MS:
            await speaker.say(1, chat="2", text="elsewhere")
            await eventually(lambda: "elsewhere" in chats.texts, LONG)
            assert "two" not in chats.texts
        await eventually(lambda: "three" in chats.texts, LONG)
    assert [text for text in chats.texts if text != "elsewhere"] == ["one", "two", "three"]
    times = dict(chats.sent)
    assert times["two"] - times["one"] >= pause_ms / 1000
    assert set(chats.typing) == {"1"}


async def test_a_restart_in_a_pause_sends_nothing_twice(client: Client) -> None:
    chats, speaker, adapter = Chats(), Speaker(client), adapter_of(client)
    async with (
        running(adapter.show_typing(chats.show_typing)),
        running(adapter.deliver(chats.deliver)) as delivering,
    ):
        first = await speaker.say(1, text="one")
        await say_rest(speaker, first, PAUSE_MS)
        await eventually(lambda: bool(chats.typing), LONG)
        adapter.stop()
        await delivering
    assert chats.texts == ["one"]
    async with running(adapter_of(client).deliver(chats.deliver)):
        await eventually(lambda: "three" in chats.texts, LONG)
    assert chats.texts == ["one", "two", "three"]
