"""What a worker does when answers get lost, routers are away and the server dies."""

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta

import pytest
from nats.aio.client import Client

from chatlane_client import ConnectionClosedError, Turn, TurnWorker, open_connection
from chatlane_schemas import Outcome
from tests.integration.client.fake_router import FakeRouter
from tests.integration.client.routing import (
    AGENTS,
    MAIN,
    PRINCIPAL,
    SLOTS,
    Chats,
    delivering,
    running,
    said,
    working,
)
from tests.support.eventually import eventually
from tests.support.servers.backends import RunningServer

pytestmark = pytest.mark.integration


class Agent:
    """A handler that notes its attempts, and waits when told to."""

    def __init__(self) -> None:
        self.attempts: list[int] = []
        self.cancelled: list[int] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def answer(self, turn: Turn) -> str:
        self.attempts.append(turn.attempt)
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.cancelled.append(turn.attempt)
            raise
        return turn.text


async def test_a_lost_claim_reply_costs_no_attempt(client: Client, router: FakeRouter) -> None:
    chats, agent = Chats(), Agent()
    router.faults.lost_claim_replies = 1
    async with working(client, agent.answer), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello"))

        # The lease is over by our count when the reply comes, so it was renewed before the start.
        await chats.until_said("hello")
    assert agent.attempts == [1]
    assert len({claim.id for claim in router.claims}) == 1
    # Who asks for time before it begins says so, and says when it does.
    assert router.told_begun[:2] == [(1, False), (1, True)]


async def test_a_claim_whose_answer_is_of_no_use_is_sent_again_without_a_promise(
    client: Client, router: FakeRouter
) -> None:
    chats, agent = Chats(), Agent()
    router.faults.incomplete_claim_replies = 1
    async with working(client, agent.answer), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello"))

        await chats.until_said("hello")
    unusable, told, *_ = router.claims
    assert (told.id, told.tells_begin) == (unusable.id, False)
    assert agent.attempts == [2]


async def test_a_first_attempt_begins_without_a_word(client: Client, router: FakeRouter) -> None:
    chats, agent = Chats(), Agent()
    async with working(client, agent.answer), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello"))

        await chats.until_said("hello")
    assert [claim.tells_begin for claim in router.claims] == [True]
    assert router.told_begun == []


async def test_a_later_attempt_is_told_before_it_begins(client: Client, router: FakeRouter) -> None:
    """What its handler does to the process comes after that."""
    chats = Chats()
    told: list[list[tuple[int, bool | None]]] = []

    async def answer(turn: Turn) -> str:
        if turn.attempt == 1:
            raise ValueError
        # Sent before this began; it arrives while nothing else of ours runs.
        await eventually(lambda: router.told_begun)
        told.append(list(router.told_begun))
        return turn.text

    async with working(client, answer), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello"))

        await chats.until_said("hello")
    assert [one[:1] for one in told] == [[(2, True)]]


@pytest.mark.slow
async def test_what_was_claimed_too_late_is_never_told_to_have_begun(
    client: Client, bus_url: str
) -> None:
    chats, agent = Chats(), Agent()
    # The third answer to the claim comes within it, and after a third of it.
    fake = FakeRouter(bus_url, [replace(MAIN, lease=timedelta(seconds=4))], SLOTS)
    async with (
        fake.running(),
        working(client, agent.answer),
        delivering(client, chats.deliver) as adapter,
    ):
        fake.faults.lost_claim_replies = 2
        # More than are asked for while a lease lasts.
        fake.faults.lost_renew_replies = 20
        await adapter.publish(said("hello"))
        await eventually(lambda: agent.attempts, timedelta(seconds=30))
        await chats.until_said("hello")
    assert agent.attempts == [2]
    assert fake.told_begun[0] == (1, False)
    assert {attempt for attempt, has_begun in fake.told_begun if has_begun} == {2}


async def test_a_service_that_cannot_answer_now_is_asked_again(
    client: Client, router: FakeRouter
) -> None:
    chats, agent = Chats(), Agent()
    router.faults.unavailable_answers = 3
    async with working(client, agent.answer), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello"))

        await chats.until_said("hello")
    assert agent.attempts == [1]


async def test_lost_renewals_are_repeated_within_the_lease(client: Client, bus_url: str) -> None:
    chats, agent = Chats(), Agent()
    agent.may_answer.clear()
    # Long enough for a slow machine to ask twice.
    fake = FakeRouter(bus_url, [replace(MAIN, lease=timedelta(seconds=4))], SLOTS)
    async with (
        fake.running(),
        working(client, agent.answer),
        delivering(client, chats.deliver) as adapter,
    ):
        fake.faults.lost_renew_replies = 1
        await adapter.publish(said("hello"))
        await eventually(lambda: fake.renewals >= 2)

        agent.may_answer.set()
        await chats.until_said("hello")
    assert agent.attempts == [1]
    assert agent.cancelled == []


async def test_a_worker_that_cannot_renew_stops_itself(client: Client, bus_url: str) -> None:
    """Without routers the lease ends on the worker's own clock; the next attempt is another's."""
    chats, agent = Chats(), Agent()
    agent.may_answer.clear()
    fake = FakeRouter(bus_url, AGENTS, SLOTS)
    async with working(client, agent.answer), delivering(client, chats.deliver) as adapter:
        async with fake.running():
            await adapter.publish(said("hello"))
            await eventually(lambda: agent.attempts == [1])
        await eventually(lambda: agent.cancelled == [1])
        agent.may_answer.set()
        async with fake.running():
            await chats.until_said("hello")
    assert agent.attempts == [1, 2]
    assert [result.attempt for result in fake.results] == [2]


async def test_a_turn_that_comes_back_to_its_process_ends_no_worker(
    client: Client, router: FakeRouter
) -> None:
    chats, agent = Chats(), Agent()
    agent.may_answer.clear()
    async with working(client, agent.answer), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello"))
        await eventually(lambda: agent.attempts == [1])
        # The renewals of the first attempt are not answered, so it goes on beside the second one.
        router.faults.lost_renew_replies = 2
        router.take_away_turns()
        await eventually(lambda: agent.attempts == [1, 2])
        assert agent.cancelled == []
        await eventually(lambda: agent.cancelled == [1])

        agent.may_answer.set()
        await chats.until_said("hello")
        await adapter.publish(said("again"))
        await chats.until_said("again")
    assert agent.attempts == [1, 2, 1]


async def test_a_turn_taken_away_cancels_its_handler(client: Client, router: FakeRouter) -> None:
    chats, agent = Chats(), Agent()
    agent.may_answer.clear()
    async with working(client, agent.answer), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello"))
        await eventually(lambda: agent.attempts == [1])
        router.take_away_turns()

        await eventually(lambda: agent.cancelled == [1])
        agent.may_answer.set()
        await chats.until_said("hello")
    assert agent.attempts == [1, 2]


async def test_workers_wait_for_the_first_router(client: Client, bus_url: str) -> None:
    chats, agent = Chats(), Agent()
    fake = FakeRouter(bus_url, AGENTS, SLOTS)
    async with delivering(client, chats.deliver) as adapter:
        # Claims of a turn that every router forgot to be there for: nobody answers.
        async with fake.running():
            await adapter.publish(said("hello"))
            await eventually(lambda: fake.has_open_turn)
        async with working(client, agent.answer):
            await eventually(lambda: not fake.claims and client.stats["out_msgs"] > 5)
            async with fake.running():
                await chats.until_said("hello")
    assert agent.attempts == [1]


async def test_a_stopping_worker_gives_an_unanswered_claim_up(client: Client, bus_url: str) -> None:
    agent = Agent()
    fake = FakeRouter(bus_url, AGENTS, SLOTS)
    async with delivering(client, Chats().deliver) as adapter, fake.running():
        await adapter.publish(said("hello"))
        await eventually(lambda: fake.has_open_turn)

    worker = TurnWorker(client, MAIN.name, agent.answer, principal=PRINCIPAL)
    async with running(worker.run()) as run:
        await eventually(lambda: worker.is_busy)
        worker.stop()
        async with asyncio.timeout(5):
            await run
    assert agent.attempts == []


async def test_two_workers_share_and_never_overlap(client: Client, router: FakeRouter) -> None:
    del router
    chats = Chats()
    running_now: set[str] = set()

    async def answer(turn: Turn) -> str:
        assert turn.session_key not in running_now
        running_now.add(turn.session_key)
        await asyncio.sleep(0.01)
        running_now.discard(turn.session_key)
        return turn.text

    async with (
        working(client, answer),
        working(client, answer),
        delivering(client, chats.deliver) as adapter,
    ):
        for number in range(40):
            await adapter.publish(said(str(number), chat=str(number % 5)))
        texts = [str(number) for number in range(40)]
        await eventually(
            lambda: (
                sorted("\n".join(it.text or "" for it in chats.messages).split(), key=int) == texts
            )
        )


async def test_a_handler_that_cancels_itself_has_failed(client: Client, router: FakeRouter) -> None:
    chats = Chats()

    async def cancel_once(turn: Turn) -> str:
        if turn.attempt == 1:
            raise asyncio.CancelledError
        return turn.text

    async with working(client, cancel_once), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello"))
        await chats.until_said("hello")
    assert [result.outcome for result in router.results] == [Outcome.FAILED, Outcome.OK]


async def test_a_failure_tells_no_more_than_its_kind(
    client: Client, router: FakeRouter, caplog: pytest.LogCaptureFixture
) -> None:
    chats = Chats()

    async def fail_once(turn: Turn) -> str:
        if turn.attempt == 1:
            raise ValueError(f"cannot digest {turn.text}")
        return turn.text

    with caplog.at_level(logging.CRITICAL, logger="chatlane_client"):
        async with working(client, fail_once), delivering(client, chats.deliver) as adapter:
            await adapter.publish(said("a secret"))
            await chats.until_said("a secret")
    assert router.results[0].error == "ValueError"


async def test_an_answer_that_is_none_fails_its_turn_for_good(
    client: Client, router: FakeRouter
) -> None:
    chats = Chats()

    async def forget_to_answer(_: Turn) -> str:
        return None  # type: ignore[return-value]

    async with working(client, forget_to_answer), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello"))
        await eventually(lambda: len(chats.messages) == 1)
    assert [(result.outcome, result.retry) for result in router.results] == [("failed", False)]


async def test_a_notice_that_is_not_understood_is_left_for_others(
    client: Client, router: FakeRouter
) -> None:
    chats, agent = Chats(), Agent()
    await client.jetstream().publish(f"chat.v1.turn.{MAIN.name}", b'{"v": 2}')
    async with working(client, agent.answer, slots=1), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello"))
        await chats.until_said("hello")
        state = await client.jetstream().consumer_info("TURNS", MAIN.name)
    assert state.num_ack_pending == 1
    assert len(router.claims) == 1


async def test_a_killed_server_loses_nothing(mortal_bus: RunningServer) -> None:
    chats, agent = Chats(), Agent()
    fake = FakeRouter(mortal_bus.url, AGENTS, SLOTS)
    async with (
        fake.running(),
        open_connection(mortal_bus.url, name="test") as client,
        working(client, agent.answer, slots=4),
        delivering(client, chats.deliver) as adapter,
    ):
        wanted = [str(number) for number in range(60)]
        publishing = asyncio.gather(
            *(adapter.publish(said(text, chat=str(int(text) % 6))) for text in wanted)
        )
        await eventually(lambda: len(chats.messages) >= 3)
        await mortal_bus.kill()
        await mortal_bus.start()
        await publishing
        await eventually(
            lambda: sum(len((it.text or "").split()) for it in chats.messages) == len(wanted),
            timeout=timedelta(seconds=40),
        )
    for chat in range(6):
        heard = "\n".join(text or "" for text in chats.texts(str(chat))).split()
        assert heard == wanted[chat::6]


async def test_a_closed_connection_ends_the_worker(bus_url: str) -> None:
    async with open_connection(bus_url, name="test") as client:
        worker = TurnWorker(client, MAIN.name, Agent().answer, principal=PRINCIPAL)
        run = asyncio.create_task(worker.run())
        await client.flush()
        await client.close()
        with pytest.raises(ConnectionClosedError):
            await run
