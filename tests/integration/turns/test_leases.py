"""Claims and turns whose time has come, when one of them cannot be dealt with."""

import asyncio
import contextlib
from collections.abc import Iterator
from uuid import UUID

import pytest

from chatlane.errors import StoreUnavailableError
from chatlane.observability.logs import configure_logging
from chatlane_schemas.turns import ClaimReply, ClaimStatus
from tests.support.logs import restored_logging
from tests.support.worlds.kernel import Kernel, event

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def logs_as_in_production() -> Iterator[None]:
    """What structlog does by default with an exception takes seconds."""
    with restored_logging():
        configure_logging(json=True)
        yield


async def claimed_turns(kernel: Kernel, *chats: str) -> list[UUID]:
    """Return the turns of new conversations; somebody has claimed each, and its lease is over."""
    turns = []
    for chat in chats:
        placed = await kernel.say(event(chat=chat, user=chat, mid="1", text=chat))
        claimed = await kernel.claim_live(placed.session)
        await kernel.let_expire(claimed.turn_id)
        turns.append(claimed.turn_id)
    return turns


async def states(kernel: Kernel, turns: list[UUID]) -> list[str]:
    rows = await kernel.fetch("SELECT id, state FROM turns")
    by_id = {row[0]: row[1] for row in rows}
    return [by_id[turn] for turn in turns]


async def test_a_locked_conversation_keeps_no_other_lease_alive(kernel: Kernel) -> None:
    turns = await claimed_turns(kernel, "1", "2", "3")
    async with kernel.store.transaction() as connection:
        await connection.execute(
            "SELECT FROM sessions WHERE id = (SELECT session_id FROM turns WHERE id = $1)"
            " FOR UPDATE",
            turns[1],
        )
        await kernel.deadlines.sweep()
        assert await states(kernel, turns) == ["ready", "claimed", "ready"]
    await kernel.deadlines.sweep()
    assert await states(kernel, turns) == ["ready", "ready", "ready"]


async def test_a_locked_conversation_keeps_nobody_else_from_claiming(kernel: Kernel) -> None:
    placed = [await kernel.say(event(chat=chat, user=chat, mid="1")) for chat in ("1", "2")]
    async with kernel.store.transaction() as connection:
        await connection.execute("SELECT FROM sessions WHERE id = $1 FOR UPDATE", placed[0].session)
        held_up, claimed = await asyncio.gather(
            *(kernel.claim_live(one.session) for one in placed), return_exceptions=True
        )
    assert isinstance(held_up, StoreUnavailableError)
    assert isinstance(claimed, ClaimReply)
    assert claimed.status is ClaimStatus.CLAIMED


async def test_f12_a_locked_row_delays_no_other_claim(kernel: Kernel) -> None:
    """Whoever asks for the locked one again is served after others."""
    placed = [await kernel.say(event(chat=chat, user=chat, mid="1")) for chat in "1234"]
    found = [await kernel.live_turn(one.session) for one in placed]
    locked, *others = [turn for turn in found if turn is not None]
    answered: list[UUID] = []

    async def claim(turn: UUID) -> None:
        with contextlib.suppress(StoreUnavailableError):
            await kernel.claim(turn)
        answered.append(turn)

    async with kernel.store.transaction() as connection:
        await connection.execute("SELECT FROM sessions WHERE id = $1 FOR UPDATE", placed[0].session)
        await asyncio.gather(claim(locked), claim(others[0]))
        answered.clear()
        await asyncio.gather(*map(claim, (locked, *others[1:])))
    assert answered == [*others[1:], locked]
    assert (await kernel.claim(locked)).status is ClaimStatus.CLAIMED


async def test_a_turn_that_cannot_be_written_keeps_no_other_lease_alive(
    own_kernel: Kernel,
) -> None:
    kernel = own_kernel
    turns = await claimed_turns(kernel, "1", "2", "3")
    await kernel.fetch(
        f"ALTER TABLE turns ADD CHECK (id <> '{turns[1]}' OR state <> 'ready') NOT VALID"
    )
    await kernel.deadlines.sweep()
    assert await states(kernel, turns) == ["ready", "claimed", "ready"]
