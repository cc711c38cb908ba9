"""Results whose claims a restored database has forgotten."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from uuid import UUID

import asyncpg
import pytest

from chatlane.decisions.batch_decision import BatchDecision, decoded
from chatlane.decisions.claim_recovery import InboundProgress
from chatlane.domain.log import LogMessage, LogPosition, PartitionId
from chatlane.domain.turns.turn_results import ArrivedResult
from chatlane.errors import ResultAheadError
from chatlane.postgres.pool import Store
from chatlane.store.logs import partitions
from chatlane_schemas.turns import ClaimReply
from tests.support.servers.databases import empty
from tests.support.worlds.kernel import SLOTS, Kernel, at, event, texts

if TYPE_CHECKING:
    from chatlane.nats.log_access import LogAccess

pytestmark = pytest.mark.integration

Forget: TypeAlias = Callable[[], Awaitable[None]]

_FACTS: Final = """
SELECT session_id::text, seq, role, content, turn_id::text FROM messages ORDER BY session_id, seq
"""
_TURNS: Final = "SELECT id::text, state, attempt, token, result_id FROM turns ORDER BY id"


@dataclass
class Log:
    """What was said and answered, as the two logs keep it."""

    inbound: list[LogMessage]
    results: list[LogMessage]
    session: UUID

    async def read_again(self, kernel: Kernel) -> None:
        """Decide everything anew, each result alone, as a router does with what it cannot place."""
        await kernel.decide(self.inbound)
        for one in self.results:
            await kernel.decide([one], is_old=True)


def result(kernel: Kernel, claimed: ClaimReply, text: str, clock: str, **more: Any) -> LogMessage:  # noqa: ANN401
    """Return what a worker of this release answers: it names what it was given."""
    ids = [str(one.id) for one in claimed.messages]
    return kernel.turn_result(claimed, text, at(clock), message_ids=ids, **more)


async def talk(kernel: Kernel) -> Log:
    """Two turns of one chat, the second with two messages, and one message that waits."""
    log = Log([], [], UUID(int=0))

    async def say(text: str, clock: str) -> None:
        message = kernel.logged(event(chat="7", user="7", text=text, mid=text), at(clock))
        log.inbound.append(message)
        await kernel.decide([message])
        log.session = (await kernel.placed(message)).session

    async def answer(text: str, clock: str) -> None:
        claimed = await kernel.claim_live(log.session)
        log.results.append(result(kernel, claimed, text, clock))
        await kernel.decide(log.results[-1:])

    await say("one", "09:00")
    await answer("to one", "09:01")
    await say("two", "09:02")
    await say("three", "09:03")
    await answer("to two and three", "09:04")
    await say("four", "09:05")
    return log


@pytest.fixture
def forget(database_url: str) -> Forget:
    """Restores the database to the beginning, as its owner."""

    async def cleaner() -> None:
        connection = await asyncpg.connect(database_url)
        try:
            await empty(connection)
        finally:
            await connection.close()

    return cleaner


async def test_answers_in_the_log_count_though_their_claims_are_forgotten(
    kernel: Kernel, forget: Forget
) -> None:
    log = await talk(kernel)
    facts, turns = await kernel.fetch(_FACTS), await kernel.fetch(_TURNS)
    told = [one["id"] for one in await kernel.published("OUTBOUND")]
    await forget()
    await log.read_again(kernel)
    assert await kernel.fetch(_FACTS) == facts
    # The last one has nobody answered: it is named by what it follows now.
    assert [row[1:] for row in await kernel.fetch(_TURNS)] == [row[1:] for row in turns]
    assert (await kernel.fetch(_TURNS))[:2] == turns[:2]
    assert [one["id"] for one in await kernel.published("OUTBOUND")] == told
    assert await kernel.dead() == []
    claimed = await kernel.claim_live(log.session)
    assert texts(claimed) == ["four"]


async def test_a_result_that_was_read_twice_counts_once(kernel: Kernel, forget: Forget) -> None:
    log = await talk(kernel)
    await forget()
    await log.read_again(kernel)
    facts = await kernel.fetch(_FACTS)
    await log.read_again(kernel)
    assert await kernel.fetch(_FACTS) == facts
    assert await kernel.value("SELECT count(*) FROM late_results") == 0
    assert await kernel.dead() == []


async def test_a_later_attempt_than_is_known_counts(kernel: Kernel) -> None:
    placed = await kernel.say(event(chat="7", user="7", text="one", mid="1"), at("09:00"))
    first = await kernel.claim_live(placed.session)
    await kernel.expire(first.turn_id)
    later = first.model_copy(update={"attempt": 2, "token": "forgotten"})
    await kernel.decide([result(kernel, later, "to one", "09:01")], is_old=True)
    assert await kernel.said(placed.session) == ["one", "to one"]
    assert await kernel.live_turn(placed.session) is None


async def test_a_later_attempt_is_late_where_no_database_was_restored(kernel: Kernel) -> None:
    """What is stored while a router runs can only belong to claims that it knows."""
    placed = await kernel.say(event(chat="7", user="7", text="one", mid="1"), at("09:00"))
    claimed = await kernel.claim_live(placed.session)
    made_up = claimed.model_copy(update={"attempt": 2, "token": "invented"})
    await kernel.decide([result(kernel, made_up, "to one", "09:01")])
    assert await kernel.said(placed.session) == ["one"]
    assert await kernel.value("SELECT count(*) FROM late_results") == 1


async def test_a_turn_of_another_session_is_left_alone(kernel: Kernel) -> None:
    one = await kernel.say(event(chat="7", user="7", text="one", mid="1"), at("09:00"))
    other = await kernel.say(event(chat="8", user="8", text="two", mid="2"), at("09:00"))
    claimed = await kernel.claim_live(one.session)
    crossed = claimed.model_copy(update={"session_id": other.session, "attempt": 2})
    await kernel.decide([result(kernel, crossed, "to one", "09:01")], is_old=True)
    assert await kernel.dead() == [("results", "unknown_turn")]
    assert await kernel.live_turn(one.session) == claimed.turn_id
    assert await kernel.waiting(other.session) == ["two"]


async def test_a_worker_that_names_nothing_is_asked_again(kernel: Kernel, forget: Forget) -> None:
    log = await talk(kernel)
    await forget()
    await kernel.decide(log.inbound)
    body = json.loads(log.results[0].body)
    del body["message_ids"]
    await kernel.decide([kernel.result(log.session, body, at("09:01"))], is_old=True)
    assert await kernel.value("SELECT count(*) FROM late_results") == 1
    assert await kernel.waiting(log.session) == ["one", "two", "three", "four"]


@pytest.mark.parametrize("read", [0, 1])
async def test_a_result_waits_for_what_it_answers(
    kernel: Kernel, forget: Forget, read: int
) -> None:
    log = await talk(kernel)
    await forget()
    await kernel.decide(log.inbound[: 2 * read])
    with pytest.raises(ResultAheadError):
        await kernel.decide([log.results[read]], is_old=True)
    assert await kernel.value("SELECT count(*) FROM dead_letters") == 0
    await log.read_again(kernel)
    said = await kernel.said(log.session)
    assert said == ["one", "to one", "two", "three", "to two and three"]


async def test_what_is_not_known_is_tried_alone(kernel: Kernel, forget: Forget) -> None:
    log = await talk(kernel)
    await forget()
    await kernel.decide(log.inbound)
    with pytest.raises(ResultAheadError):
        await kernel.decide(log.results, is_old=True)


async def test_what_never_comes_is_set_aside(kernel: Kernel, forget: Forget) -> None:
    log = await talk(kernel)
    await forget()
    await _decide_finally(kernel, log.results[1])
    assert await kernel.dead() == [("results", "unknown_session")]
    await log.read_again(kernel)
    body = json.loads(log.results[0].body) | {"id": "another", "turn_id": str(log.session)}
    await _decide_finally(kernel, kernel.result(log.session, body, at("09:06")))
    assert await kernel.dead() == [("results", "unknown_session"), ("results", "unknown_turn")]
    assert await kernel.waiting(log.session) == ["four"]


async def _decide_finally(kernel: Kernel, message: LogMessage) -> None:
    one = decoded(message, kernel.catalog, is_old=True)
    assert isinstance(one.content, ArrivedResult)
    final = one._replace(content=replace(one.content, may_wait=False))
    async with kernel.writer.begin() as unit_of_work:
        await BatchDecision(kernel.catalog, SLOTS).run(unit_of_work, [final])


class FakeAccess:
    """An inbound log with a message at nine in its second partition."""

    def __init__(self) -> None:
        self.asked = 0

    async def get_state(self, _log: str) -> Any:  # noqa: ANN401 # what is asked of it
        self.asked += 1
        return type("State", (), {"generation": "g", "answered_at": at("10:05")})

    async def find_stored_after(self, partition: PartitionId, sequence: int) -> datetime | None:
        return at("09:00") if partition.number == 1 and sequence < 5 else None


async def test_the_inbound_log_is_read_when_no_partition_holds_anything_older(
    store: Store,
) -> None:
    access = FakeAccess()
    progress = InboundProgress(cast("LogAccess", access), store.transaction)
    async with store.transaction() as connection:
        await partitions.ensure(connection, "inbound", 2)
    assert not await progress.is_read(at("08:00")), "nobody has looked at the log"
    await _stand_at(store, LogPosition(4, at("08:30"), "g"))
    assert await progress.is_read(at("08:59"))
    assert not await progress.is_read(at("09:00"))
    await _stand_at(store, LogPosition(5, at("09:00"), "g"))
    assert await progress.is_read(at("09:00"))
    assert await progress.is_read(at("10:00"))
    assert access.asked == 4, "what is known is not asked again"
    # What the log stores from here on may be anything, whatever our own clock says.
    assert not await progress.is_read(at("10:06"))
    await _stand_at(store, LogPosition(5, at("09:00"), "another log"))
    assert not await progress.is_read(datetime.now(UTC))


async def _stand_at(store: Store, position: LogPosition) -> None:
    async with store.transaction() as connection:
        await connection.execute(
            "UPDATE partitions SET cursor = $1, cursor_at = $2, generation = $3", *position
        )
