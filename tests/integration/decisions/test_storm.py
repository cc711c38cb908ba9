"""Two routers, workers and a sweeper at once over the same few people: nothing gets lost."""

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING

import pytest

from chatlane.errors import TransientError
from chatlane_schemas.codec import decode
from chatlane_schemas.inbound import InboundEvent
from tests.integration.decisions.random_events import random_event
from tests.support.worlds.kernel import DAY, Kernel, message_id_of

if TYPE_CHECKING:
    from uuid import UUID

    from chatlane.domain.log import LogMessage

pytestmark = pytest.mark.integration

MESSAGES = 300


class Storm:
    """What goes on at once."""

    def __init__(self, kernel: Kernel, seed: int) -> None:
        self.chance = Random(seed)  # noqa: S311 - the same events again
        self.routers = (kernel, kernel.restarted())
        self.is_over = asyncio.Event()
        events = [random_event(self.chance, number) for number in range(MESSAGES)]
        self.messages = [kernel.logged(one, DAY) for one in events]

    async def rage(self) -> None:
        # If one of them fails, the others end as well.
        async with asyncio.timeout(50), asyncio.TaskGroup() as tasks:
            for part in (self._read_all(), *map(self._work, self.routers), self._sweep()):
                tasks.create_task(part)

    async def _read_all(self) -> None:
        # A chat is read by one router only, as its partition is; a person has several chats.
        shares = [
            [message for message in self.messages if message.partition % 2 == number]
            for number in range(2)
        ]
        await asyncio.gather(*map(self._read, self.routers, shares))
        self.is_over.set()

    async def _read(self, router: Kernel, log: "list[LogMessage]") -> None:
        while log:
            size = self.chance.choice([1, 3, 10])
            await router.decide_in_the_end(log[:size])
            del log[:size]

    async def _work(self, router: Kernel) -> None:
        while not self.is_over.is_set():
            with contextlib.suppress(TransientError):
                for (turn_id,) in await router.fetch("SELECT id FROM turns WHERE state = 'ready'"):
                    await self._try_turn(router, turn_id)
            await asyncio.sleep(0)

    async def _try_turn(self, router: Kernel, turn_id: "UUID") -> None:
        claimed = await router.claim(turn_id)
        if claimed.status != "claimed":
            return
        if self.chance.random() < 0.3:
            await router.let_expire(turn_id)
        if self.chance.random() < 0.9:
            await router.decide_in_the_end([router.turn_result(claimed)])

    async def _sweep(self) -> None:
        while not self.is_over.is_set():
            with contextlib.suppress(TransientError):
                await self.routers[1].deadlines.sweep()
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_happens_at_once_every_message_is_told_once(
    kernel: Kernel, seed: int
) -> None:
    """Links, moves and merges included; only what a router repeats may go wrong on the way."""
    storm = Storm(kernel, seed)
    await storm.rage()
    await finish(kernel)
    await check(kernel, storm.messages)


async def finish(kernel: Kernel) -> None:
    while True:
        live = await kernel.fetch("SELECT id FROM turns WHERE state IN ('ready', 'claimed')")
        if not live:
            return
        for (turn_id,) in live:
            await kernel.expire(turn_id)
        await kernel.run_all()


async def check(kernel: Kernel, messages: "list[LogMessage]") -> None:
    assert await kernel.value("SELECT count(*) FROM waiting") == 0
    assert await kernel.value("SELECT count(active_turn) FROM sessions") == 0
    lost_lanes = "SELECT count(*) FROM lanes LEFT JOIN sessions AS s ON s.id = session_id"
    assert await kernel.value(f"{lost_lanes} WHERE s.id IS NULL OR s.ended_at IS NOT NULL") == 0
    open_sessions = await kernel.value("SELECT count(*) FROM sessions WHERE ended_at IS NULL")
    assert await kernel.value("SELECT count(*) FROM lanes") == open_sessions
    # Every accepted message has exactly one place, and a place of its own.
    rows = await kernel.fetch(
        "SELECT id, content, turn_id FROM messages"
        " WHERE role = 'user' AND (details ? 'observed') IS NOT TRUE"
    )
    accepted = set()
    for message in messages:
        one = decode(InboundEvent, message.body)
        if one.kind in {"message", "system"} and one.text != "nobody":
            accepted.add(message_id_of(message, kernel.catalog))
    told = [row["id"] for row in rows]
    assert len(told) == len(set(told))
    assert set(told) <= accepted
    marks = (
        "SELECT count(DISTINCT (session_id, arrival)) FROM seen"
        " WHERE session_id IS NOT NULL AND arrival IS NOT NULL"
    )
    # What was kept without a place, or is known only by its edits, has a mark without a session.
    assert len(told) == await kernel.value(marks)
    assert all(row["turn_id"] is not None for row in rows)
    holes = "SELECT session_id FROM messages GROUP BY session_id HAVING max(seq) <> count(*)"
    assert await kernel.fetch(holes) == []
