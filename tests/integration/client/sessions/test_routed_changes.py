"""Fault F04: what a stream agent has not been given yet is given to it as it is now, or not at all."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from chatlane.app.state import App
from chatlane.errors import StoreUnavailableError
from chatlane.nats.jetstream import JetStream
from chatlane.privacy import erasure_list_sql
from chatlane.reconciliation.stream_contents import StreamContents
from chatlane.store import routed_changes
from chatlane_client import AdapterClient, open_connection
from chatlane_schemas import InboundEvent, RoutedMessage, answer_to, decode, encode
from chatlane_schemas.inbound import Kind
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import StreamName, routed_durable
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import ACCOUNT, DESK, PLATFORM, SLOTS, said
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

SOON = 5.0


@pytest.fixture
async def app(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[App]:
    async with real_router(tmp_path, nats_url, database_url) as running:
        yield running


@pytest.fixture
async def client(app: App, nats_url: str) -> AsyncIterator[Client]:
    assert app.intake is not None
    async with open_connection(nats_url, name="test") as connection:
        yield connection


class Desk:
    """A chat with the stream agent, and its worker: one that any language could have."""

    def __init__(self, app: App, client: Client) -> None:
        self._app = app
        self.client = client
        self._adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)
        self._texts: dict[str, InboundEvent] = {}

    async def say(self, *texts: str) -> None:
        """Say things, and wait until they are in the stream."""
        for text in texts:
            self._texts[text] = said(text, agent=DESK.name)
            await self._adapter.publish(self._texts[text])
        await eventually(self._is_routed)

    async def _is_routed(self) -> bool:
        async with self._app.store.transaction() as connection:
            written = await connection.fetchval("SELECT count(*) FROM messages WHERE role = 'user'")
            left = await connection.fetchval("SELECT count(*) FROM outbox WHERE stream = 'ROUTED'")
        return (written, left) == (len(self._texts), 0)

    async def change(self, text: str, to: str | None) -> None:
        """Edit what was said, or delete it, and wait until that is settled."""
        event = self._texts[text].model_copy(
            update={
                "id": uuid4().hex,
                "kind": Kind.DELETE if to is None else Kind.EDIT,
                "text": to,
                "event_id": uuid4().hex,
            }
        )
        await self._adapter.publish(event)
        await eventually(lambda: self._stands(to))

    async def _stands(self, text: str | None) -> bool:
        async with self._app.store.transaction() as connection:
            found = await connection.fetchval(
                "SELECT count(*) FROM messages WHERE content IS NOT DISTINCT FROM $1", text
            )
            left = await connection.fetchval("SELECT count(*) FROM routed_changes")
            in_line = await connection.fetchval(
                "SELECT count(*) FROM outbox WHERE stream = 'ROUTED'"
            )
        return found > 0 and not left and not in_line

    async def slot(self, message: Msg) -> dict[str, Any]:
        """Return the state of the durable that gave a message out."""
        durable = message.metadata.consumer
        info = await JetStream(self.client).request(f"CONSUMER.INFO.ROUTED.{durable}")
        return {"paused": False} | info

    @asynccontextmanager
    async def worker(self) -> AsyncIterator["Worker"]:
        """Open the slot of the one session there is."""
        async with self._app.store.transaction() as connection:
            session_id = await connection.fetchval("SELECT id FROM sessions")
        durable = routed_durable(DESK.name, subjects.slot_of(session_id, SLOTS))
        jetstream = self.client.jetstream()
        pull = await jetstream.pull_subscribe_bind(consumer=durable, stream="ROUTED")
        yield Worker(self.client, pull)


class Worker:
    """Takes one message after the other."""

    def __init__(self, client: Client, pull: object) -> None:
        self._client = client
        self._pull = pull

    async def take(self) -> tuple[Msg, RoutedMessage]:
        """Take the next message, which is not acknowledged yet."""
        [message] = await self._pull.fetch(1, timeout=SOON)  # type: ignore[attr-defined]
        return message, decode(RoutedMessage, message.data)

    async def answer(self, message: Msg, routed: RoutedMessage) -> None:
        """Answer and acknowledge."""
        reply = answer_to(routed, f"heard {routed.text}")
        await self._client.jetstream().publish(
            subjects.result(DESK.name, routed.session_id), encode(reply)
        )
        await message.ack_sync()

    async def take_all(self, count: int) -> list[RoutedMessage]:
        """Take so many messages, each answered."""
        seen = []
        for _ in range(count):
            message, routed = await self.take()
            await self.answer(message, routed)
            seen.append(routed)
        return seen


@pytest.fixture
def desk(app: App, client: Client) -> Desk:
    return Desk(app, client)


async def test_f04_a_message_that_was_deleted_before_its_slot_was_free_never_runs(
    desk: Desk,
) -> None:
    await desk.say("hello", "wipe the disk", "good night")
    async with desk.worker() as worker:
        busy = await worker.take()
        await desk.change("wipe the disk", None)
        assert not (await desk.slot(busy[0]))["paused"]
        await worker.answer(*busy)
        assert [one.text for one in await worker.take_all(1)] == ["good night"]
        await desk.say("the last one")
        assert [one.text for one in await worker.take_all(1)] == ["the last one"]


async def test_f04_a_message_that_was_edited_before_its_slot_was_free_runs_as_edited(
    desk: Desk,
) -> None:
    await desk.say("hello", "a room for two", "and breakfast")
    async with desk.worker() as worker:
        busy = await worker.take()
        await desk.change("a room for two", "a room for three")
        await desk.change("and breakfast", "and dinner")
        await worker.answer(*busy)
        rest = await worker.take_all(2)
        assert [(one.seq, one.text) for one in rest] == [(2, "a room for three"), (3, "and dinner")]
        await desk.say("the last one")
        assert [one.text for one in await worker.take_all(1)] == ["the last one"]


async def test_f04_an_edit_of_an_edit_is_what_runs(desk: Desk) -> None:
    await desk.say("hello", "turn left")
    async with desk.worker() as worker:
        busy = await worker.take()
        await desk.change("turn left", "turn right")
        await desk.change("turn left", "go straight on")
        await worker.answer(*busy)
        assert [one.text for one in await worker.take_all(1)] == ["go straight on"]


async def test_f04_a_message_that_a_worker_has_stays_as_it_has_it(desk: Desk) -> None:
    await desk.say("one", "two")
    async with desk.worker() as worker:
        message, routed = await worker.take()
        await desk.change("one", "ONE")
        assert routed.text == "one"
        # The next one of the session waits for its answer all the same.
        await worker.answer(message, routed)
        assert [one.text for one in await worker.take_all(1)] == ["two"]


async def test_f04_a_message_that_is_deleted_while_a_worker_has_it_frees_no_slot(
    desk: Desk,
) -> None:
    await desk.say("one", "two")
    async with desk.worker() as worker:
        busy = await worker.take()
        await desk.change("one", None)
        info = await desk.client.jetstream().consumer_info("ROUTED", busy[0].metadata.consumer)
        assert info.num_ack_pending == 1
        await worker.answer(*busy)
        assert [one.text for one in await worker.take_all(1)] == ["two"]


async def test_f04_a_router_that_dies_after_it_deleted_loses_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.say("hello", "pay ten", "and thank them")
    settle, deaths = routed_changes.settle, 0

    async def die_twice(connection: object, session_id: object) -> None:
        nonlocal deaths
        deaths += 1
        if deaths <= 2:
            raise StoreUnavailableError
        await settle(connection, session_id)  # type: ignore[arg-type]

    async with desk.worker() as worker:
        busy = await worker.take()
        monkeypatch.setattr(routed_changes, "settle", die_twice)
        await desk.change("pay ten", "pay eleven")
        await worker.answer(*busy)
        assert [one.text for one in await worker.take_all(2)] == ["pay eleven", "and thank them"]
        await desk.say("the last one")
        assert [one.text for one in await worker.take_all(1)] == ["the last one"]
    assert deaths > 2


async def test_f04_what_was_deleted_is_no_loss_of_the_stream(app: App, desk: Desk) -> None:
    await desk.say("hello", "wipe the disk", "good night")
    async with desk.worker() as worker:
        busy = await worker.take()
        await desk.change("wipe the disk", None)
        await worker.answer(*busy)
    look = await StreamContents(desk.client).look(StreamName.ROUTED)
    assert look is not None
    async with app.store.transaction() as connection:
        holes = await erasure_list_sql.count_holes(
            connection, StreamName.ROUTED, look.mark.generation, 1, look.mark.last_seq
        )
    assert (look.mark.holes, holes.deleted) == (1, 1)


async def test_f04_a_change_of_what_no_durable_gives_out_is_over(desk: Desk) -> None:
    await desk.say("hello")
    async with desk.worker() as worker:
        busy = await worker.take()
        await worker.answer(*busy)
    await desk.say("to nobody")
    await desk.client.jetstream().delete_consumer("ROUTED", busy[0].metadata.consumer)
    await desk.change("to nobody", "to nobody at all")
