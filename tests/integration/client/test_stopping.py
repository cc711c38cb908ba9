"""Turns that are stopped while a real worker has them."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from nats.aio.client import Client

from chatlane.app.state import App
from chatlane.store import pending_messages
from chatlane_client import NoReply, Reply, SessionApi, Turn, open_connection
from chatlane_schemas.topology import subjects
from tests.integration.client.real_router import SHORT_LEASE, real_router
from tests.integration.client.routing import (
    MAIN,
    PRINCIPAL,
    Chats,
    delivering,
    said,
    working,
)
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
async def app(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[App]:
    async with real_router(tmp_path, nats_url, database_url, lease=SHORT_LEASE) as running:
        yield running


@pytest.fixture
async def client(app: App, nats_url: str) -> AsyncIterator[Client]:
    assert app.intake is not None
    async with open_connection(nats_url, name="test") as connection:
        yield connection


class Agent:
    """Works until it is told to end, and answers at once whatever does not ask for work."""

    def __init__(self, so_far: str | None = None) -> None:
        self.turns: list[Turn] = []
        self.reasons: list[str | None] = []
        self.running = 0
        self.most_running = 0
        self._so_far = so_far

    async def answer(self, turn: Turn) -> str | Reply | NoReply:
        self.turns.append(turn)
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            if "work" not in turn.text:
                return turn.text
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.reasons.append(turn.cancel_reason)
            if self._so_far is None:
                raise
            return self._so_far
        finally:
            self.running -= 1
        raise AssertionError("nobody sets it")


async def test_a_worker_ends_what_is_stopped_and_the_session_goes_on(
    client: Client, app: App
) -> None:
    """C30, with a real worker: long before its lease, or a renewal, could have told it."""
    chats, agent, sessions = Chats(), Agent(), SessionApi(client, principal=PRINCIPAL)
    async with working(client, agent.answer), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("work"))
        await eventually(lambda: agent.turns)
        await adapter.publish(said("more work"))
        session = agent.turns[0].session_id
        await eventually(lambda: _waits_in(app, session))

        stopped = await sessions.stop(session)
        await eventually(lambda: agent.reasons == ["stopped"])
        await adapter.publish(said("hello"))
        await chats.until_said("hello")

    assert stopped.was_running
    assert stopped.turn_id == agent.turns[0].id
    assert [turn.text for turn in agent.turns] == ["work", "hello"]
    assert chats.texts() == ["hello"]
    assert agent.turns[1].session_id == session


async def _waits_in(app: App, session_id: UUID) -> bool:
    async with app.store.transaction() as connection:
        return bool(await pending_messages.sessions_with_waiting(connection, [session_id]))


async def test_what_a_handler_has_so_far_is_its_answer(client: Client) -> None:
    chats, agent = Chats(), Agent(so_far="half of it")
    sessions = SessionApi(client, principal=PRINCIPAL)
    async with working(client, agent.answer), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("work"))
        await eventually(lambda: agent.turns)
        await sessions.cancel_turn(agent.turns[0].id)
        await chats.until_said("half of it")
        assert not (await sessions.cancel_turn(agent.turns[0].id)).was_running
    assert agent.reasons == ["stopped"]


async def test_a_word_that_got_lost_comes_with_the_renewal(client: Client, app: App) -> None:
    """The flag is in the database; the message that says so at once may get lost."""
    chats, agent = Chats(), Agent()
    async with working(client, agent.answer), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("work"))
        await eventually(lambda: agent.turns)
        async with app.store.transaction() as connection:
            await connection.execute("UPDATE turns SET cancel = 'stopped'")
        await eventually(lambda: agent.reasons == ["stopped"])
        await adapter.publish(said("hello"))
        await chats.until_said("hello")
    assert [turn.attempt for turn in agent.turns] == [1, 1]


async def test_a_new_conversation_does_not_wait_for_the_old_one(client: Client) -> None:
    """C31, with a real worker."""
    chats, agent = Chats(), Agent(so_far="of the old one")
    sessions = SessionApi(client, principal=PRINCIPAL)
    async with working(client, agent.answer), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("work"))
        await eventually(lambda: agent.turns)
        new = await sessions.reset(agent.turns[0].session_id)
        await adapter.publish(said("fresh question"))
        await chats.until_said("fresh question")
        await eventually(lambda: agent.reasons == ["session_ended"])
        await adapter.publish(said("more"))
        await chats.until_said("more")
    assert [turn.session_id for turn in agent.turns[1:]] == [new.id, new.id]
    assert chats.texts() == ["fresh question", "more"]


async def test_a_handler_that_will_not_end_loses_its_turn_with_its_lease(client: Client) -> None:
    chats, sessions = Chats(), SessionApi(client, principal=PRINCIPAL)
    told, turns = asyncio.Event(), []

    async def stubborn(turn: Turn) -> str:
        turns.append(turn)
        if turn.text != "work":
            return turn.text
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.set()
        await asyncio.Event().wait()
        return "never"

    async with working(client, stubborn), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("work"))
        await eventually(lambda: turns)
        await sessions.stop(turns[0].session_id)
        await told.wait()
        await adapter.publish(said("hello"))
        await chats.until_said("hello")
    assert [turn.attempt for turn in turns] == [1, 1]


async def test_a_stop_is_answered_at_once_whatever_has_died(client: Client) -> None:
    """C20: the worker is gone, its turn is not; the next message waits for the lease at most."""
    chats, dead, agent = Chats(), Agent(), Agent()
    sessions = SessionApi(client, principal=PRINCIPAL)
    async with delivering(client, chats.deliver) as adapter:
        async with working(client, dead.answer):
            await adapter.publish(said("work"))
            await eventually(lambda: dead.turns)
        running = dead.turns[0]
        stopped = await sessions.stop(running.session_id)
        assert (stopped.was_running, stopped.turn_id) == (True, running.id)
        async with working(client, agent.answer):
            await adapter.publish(said("and now?"))
            await chats.until_said("and now?")
    assert [turn.session_id for turn in agent.turns] == [running.session_id]
    assert chats.texts() == ["and now?"]


async def test_words_for_others_and_bad_ones_end_nothing(client: Client) -> None:
    chats, agent = Chats(), Agent()
    sessions = SessionApi(client, principal=PRINCIPAL)
    async with working(client, agent.answer), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("work"))
        await eventually(lambda: agent.turns)
        running = agent.turns[0]
        await client.publish(subjects.control(MAIN.name, running.id), b"not JSON")
        await client.publish(subjects.control(MAIN.name, running.session_id), b"{}")
        await adapter.publish(said("hello", chat="2"))
        await chats.until_said("hello", chat="2")
        assert agent.reasons == []
        await sessions.stop(running.session_id)
        await eventually(lambda: agent.reasons == ["stopped"])


async def test_f14_a_handler_is_cancelled_again_after_the_time_of_its_worker(
    client: Client,
) -> None:
    """What it returns then is the result, for the lease still lasts."""
    chats, sessions = Chats(), SessionApi(client, principal=PRINCIPAL)
    turns: list[Turn] = []

    async def slow(turn: Turn) -> str:
        turns.append(turn)
        cancellations = 0
        while cancellations < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancellations += 1
        return f"ended after {cancellations}"

    short = timedelta(milliseconds=50)
    async with working(client, slow, wind_down=short), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("work"))
        await eventually(lambda: turns)
        await sessions.stop(turns[0].session_id)
        await chats.until_said("ended after 2")
