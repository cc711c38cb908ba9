"""Turns that a real worker gives back: because it stops, or because its agent is unavailable."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from nats.aio.client import Client

from chatlane.app.state import App
from chatlane_client import AgentUnavailableError, Reply, Turn, TurnFailedError, open_connection
from chatlane_client.claims import ClaimClient, Grant
from chatlane_schemas import Role, TranscriptRow
from chatlane_schemas.questions import LARGEST_STEP
from chatlane_schemas.turns import ClaimStatus
from tests.integration.client.real_router import SHORT_LEASE, real_router
from tests.integration.client.routing import Chats, delivering, said, working
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

BOOKED = TranscriptRow(role=Role.TOOL, tool_call_id="c1", content="table 4")


@pytest.fixture
async def app(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[App]:
    async with real_router(tmp_path, nats_url, database_url, lease=SHORT_LEASE) as running:
        yield running


@pytest.fixture
async def client(app: App, nats_url: str) -> AsyncIterator[Client]:
    assert app.intake is not None
    async with open_connection(nats_url, name="test") as connection:
        yield connection


@pytest.mark.parametrize("is_caught", [True, False])
async def test_c93_a_worker_that_stops_hands_its_turn_back(
    app: App, client: Client, *, is_caught: bool
) -> None:
    begun: list[Turn] = []

    async def work(turn: Turn) -> str | Reply:
        begun.append(turn)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert turn.is_stopping
            assert turn.cancel_reason is None
            if not is_caught:
                raise
        return Reply(parts=["half"], transcript=[BOOKED])

    async def finish(turn: Turn) -> str:
        begun.append(turn)
        return "done"

    chats = Chats()
    async with delivering(client, chats.deliver) as adapter:
        for times in range(1, 5):
            async with working(client, work, hand_back_after=timedelta(0)) as worker:
                if times == 1:
                    await adapter.publish(said("book a table"))
                await eventually(lambda: len(begun) == times)  # noqa: B023 - awaited here
                worker.stop()
                await eventually(lambda: not worker.is_busy)
        async with working(client, finish):
            await chats.until_said("done")
    assert chats.texts() == ["done"]
    assert [turn.attempt for turn in begun] == [1, 2, 3, 4, 5]
    assert list(begun[-1].earlier_rows) == ([BOOKED] * 4 if is_caught else [])
    async with app.store.transaction() as connection:
        assert await connection.fetchval("SELECT count(*) FROM dead_letters") == 0
        assert await connection.fetchval("SELECT sum(interruptions) FROM turns") == 0


async def test_c93_a_claim_that_is_answered_after_the_others_were_handed_back_is_handed_back(
    app: App, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_granted, may_answer = asyncio.Event(), asyncio.Event()
    claim = ClaimClient.claim

    async def claim_slowly(
        claims: ClaimClient, turn_id: UUID, *, stopping: asyncio.Event
    ) -> Grant | ClaimStatus | None:
        grant = await claim(claims, turn_id, stopping=stopping)
        is_granted.set()
        await may_answer.wait()
        return grant

    async def work(turn: Turn) -> str:
        await asyncio.Event().wait()
        return turn.text

    async def finish(turn: Turn) -> str:
        return f"done in attempt {turn.attempt}"

    chats = Chats()
    async with delivering(client, chats.deliver) as adapter:
        with monkeypatch.context() as patched:
            patched.setattr(ClaimClient, "claim", claim_slowly)
            async with working(client, work, hand_back_after=timedelta(0)) as worker:
                await adapter.publish(said("hello"))
                await is_granted.wait()
                worker.stop()
                await eventually(lambda: worker._hands_back)
                may_answer.set()
                await eventually(lambda: not worker.is_busy)
        async with working(client, finish):
            await chats.until_said("done in attempt 2")
    async with app.store.transaction() as connection:
        assert await connection.fetchval("SELECT count(*) FROM dead_letters") == 0
        assert await connection.fetchval("SELECT sum(interruptions) FROM turns") == 0


async def test_c93_a_turn_that_ends_in_time_is_answered(client: Client) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def work(_: Turn) -> str:
        begun.set()
        await may_end.wait()
        return "done"

    chats = Chats()
    async with working(client, work) as worker, delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello"))
        await begun.wait()
        worker.stop()
        may_end.set()
        await chats.until_said("done")
    assert chats.texts() == ["done"]


@pytest.mark.parametrize(
    "times", [1, *(pytest.param(number, marks=pytest.mark.slow) for number in (4, 5))]
)
async def test_c92_a_turn_waits_for_an_agent_that_is_unavailable(
    client: Client, times: int
) -> None:
    attempts: list[int] = []

    async def work(turn: Turn) -> str:
        attempts.append(turn.attempt)
        if len(attempts) <= times:
            raise AgentUnavailableError(again_in=timedelta(seconds=1))
        return turn.text

    chats = Chats()
    async with working(client, work), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("first", chat="1"))
        await eventually(lambda: attempts)
        await adapter.publish(said("second", chat="2"))
        await chats.until_said("first", "1")
        await chats.until_said("second", "2")
    assert len(attempts) == times + 2
    assert chats.texts("1") == ["first"]
    assert chats.texts("2") == ["second"]


async def test_a_step_of_the_largest_result_is_run_once(client: Client) -> None:
    # JSON in JSON has a backslash before each of these.
    largest = '"' * ((LARGEST_STEP - 2) // 2)
    calls: list[int] = []

    async def search(attempt: int) -> str:
        calls.append(attempt)
        return largest

    async def answer(turn: Turn) -> str:
        found = await turn.step("search", search, turn.attempt)
        assert found == largest
        if turn.attempt == 1:
            raise TurnFailedError("again", retry=True)
        return "done"

    chats = Chats()
    async with delivering(client, chats.deliver) as adapter, working(client, answer):
        await adapter.publish(said("look it up"))
        await chats.until_said("done")
    assert calls == [1]


async def test_a_step_that_cannot_be_kept_fails_the_turn_at_once(client: Client) -> None:
    attempts: list[int] = []

    async def answer(turn: Turn) -> str:
        attempts.append(turn.attempt)
        return await turn.step("search", too_much)

    async def too_much() -> str:
        return "x" * LARGEST_STEP

    chats = Chats()
    async with delivering(client, chats.deliver) as adapter, working(client, answer):
        await adapter.publish(said("look it up"))
        await eventually(lambda: chats.texts() != [])
    assert attempts == [1]
