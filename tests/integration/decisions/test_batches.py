"""A batch decides what its messages would have decided alone, however the log is cut."""

from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta
from random import Random
from typing import Any, Literal

import pytest

from chatlane.domain.catalog import Agent, Catalog
from chatlane.domain.log import LogMessage
from chatlane.domain.policy import ResetPolicy
from tests.integration.decisions.random_events import random_event
from tests.support.worlds.kernel import DAY, Kernel, catalog

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]

TABLES = (
    "lanes",
    "sessions",
    "waiting",
    "turns",
    "messages",
    "seen",
    "aliases",
    "former_ids",
    "dead_letters",
)
# Times of the database's own clock, and how often a row was written; of all others the log has
# the word.
NOT_COMPARED = {
    "day",
    "at",
    "turns.created_at",
    "turns.due_at",
    "turns.ended_at",
    "aliases.revision",
}


def random_log(kernel: Kernel, seed: int) -> list[LogMessage]:
    chance = Random(seed)  # noqa: S311 - the same log again
    now = DAY
    messages = []
    for number in range(120):
        now += timedelta(seconds=chance.choice([0.001, 1, 60, 1200, 5000]))
        messages.append(kernel.logged(random_event(chance, number), now))
    return messages


def cuts(messages: list[LogMessage], chance: Random) -> Iterator[list[LogMessage]]:
    rest = messages
    while rest:
        size = chance.choice([1, 2, 5, 20, 60])
        yield rest[:size]
        rest = rest[size:]


async def everything(kernel: Kernel) -> dict[str, list[Any]]:
    """Return all rows, and by session what was published."""
    found: dict[str, list[Any]] = {}
    for table in TABLES:
        rows = await kernel.fetch(f"SELECT * FROM {table}")  # noqa: S608 - names from above
        found[table] = sorted(
            (
                [(k, v) for k, v in row.items() if not {k, f"{table}.{k}"} & NOT_COMPARED]
                for row in rows
            ),
            key=str,
        )
    rows = await kernel.fetch("SELECT session_id, stream, subject, message_id, payload FROM outbox")
    found["outbox"] = sorted((tuple(row.values()) for row in rows), key=str)
    rows = await kernel.fetch(
        "SELECT session_id, stream, array_agg(message_id ORDER BY id) FROM outbox"
        " WHERE stream IN ('ROUTED', 'OUTBOUND') GROUP BY session_id, stream"
    )
    found["order"] = sorted((tuple(row.values()) for row in rows), key=str)
    return found


async def wipe(kernel: Kernel) -> None:
    await kernel.fetch(f"TRUNCATE {', '.join(TABLES)}, outbox, audit")


@pytest.mark.parametrize("delivery", ["turns", "stream"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.slow
async def test_the_cuts_between_batches_decide_nothing(
    kernel_with: KernelWith, delivery: Literal["turns", "stream"], seed: int
) -> None:
    policy = ResetPolicy("both", idle=timedelta(hours=1), quiet=timedelta(0))
    kernel = await kernel_with(catalog(reset=policy, agents=[Agent("main", delivery=delivery)]))
    messages = random_log(kernel, seed)
    for message in messages:
        await kernel.decide([message])
    alone = await everything(kernel)
    assert alone["sessions"]

    chance = Random(seed)  # noqa: S311 - the same cuts again
    for _ in range(3):
        await wipe(kernel)
        for batch in cuts(messages, chance):
            await kernel.decide(batch)
        together = await everything(kernel)
        for table, rows in alone.items():
            assert together[table] == rows, table


async def test_the_whole_log_again_changes_nothing(kernel: Kernel) -> None:
    """Whatever makes a router read the log again, with whatever times: marks tell it."""
    messages = random_log(kernel, 5)
    await kernel.decide(messages)
    before = await everything(kernel)
    again = [one._replace(stored_at=later(one.stored_at)) for one in messages]
    await kernel.decide([one for one in again if not await is_refused(kernel, one)])
    after = await everything(kernel)
    assert {table: len(rows) for table, rows in after.items()} == {
        table: len(rows) for table, rows in before.items()
    }
    assert after["waiting"] == before["waiting"]


def later(stored_at: datetime) -> datetime:
    return stored_at + timedelta(days=1)


async def is_refused(kernel: Kernel, message: LogMessage) -> bool:
    """What was set aside has no mark: it is set aside again."""
    rows = await kernel.fetch("SELECT 1 FROM dead_letters WHERE sequence = $1", message.sequence)
    return bool(rows)
