"""Apply the busy policy to running turns: interrupt, steer, or send a busy note."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatlane.domain.ids import derived_id
from chatlane.domain.outbound_builder import Speaking
from chatlane.domain.turns.lifecycle import interrupting, steering
from chatlane.store import turns
from chatlane.store.addressing import lanes
from chatlane_schemas.outbound import OutboundKind
from chatlane_schemas.results import Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.effects import BusyArrival, Effects


async def apply_busy_policy(connection: PoolConnectionProxy, effects: Effects) -> None:
    """Apply the busy policies of placed messages to the turns of their sessions.

    This runs before results are applied and anything is written: a turn that ends in the same
    batch ends after the messages were placed. A turn that exists only in memory is not running.
    """
    rests, effects.rests = effects.rests, []
    if rests and (due_in := await turns.extend(connection, rests)) is not None:
        effects.due_within(due_in)
    busy_arrivals, effects.busy_arrivals = effects.busy_arrivals, []
    if not busy_arrivals:
        return
    await _interrupt(connection, busy_arrivals, effects)
    for busy_arrival in busy_arrivals:
        if busy_arrival.busy == "steer":
            effects.controls.append(
                steering(busy_arrival.turn_id, busy_arrival.agent, busy_arrival.stored_at)
            )
    await _say_busy(connection, busy_arrivals, effects)


async def _interrupt(
    connection: PoolConnectionProxy, busy_arrivals: Sequence[BusyArrival], effects: Effects
) -> None:
    said_at = {
        busy_arrival.turn_id: busy_arrival.stored_at
        for busy_arrival in busy_arrivals
        if busy_arrival.busy == "interrupt"
    }
    if not said_at:
        return
    for turn_id, agent in await turns.interrupt(connection, said_at):
        interrupting(turn_id, agent, said_at[turn_id], effects)


async def _say_busy(
    connection: PoolConnectionProxy, busy_arrivals: Sequence[BusyArrival], effects: Effects
) -> None:
    """Send a busy note to chats in which a turn is running, at most once per interval and lane."""
    noting = {
        busy_arrival.session_key: busy_arrival
        for busy_arrival in busy_arrivals
        if busy_arrival.note
    }
    if not noting:
        return
    wanted = [(key, busy_arrival.turn_id) for key, busy_arrival in sorted(noting.items())]
    for key in sorted(await lanes.note_busy(connection, wanted)):
        busy_arrival = noting[key]
        note_id = derived_id(busy_arrival.stored_at, busy_arrival.digest, "busy note")
        speaking = Speaking(
            busy_arrival.session,
            busy_arrival.agent,
            busy_arrival.source,
            busy_arrival.stored_at,
            kind=OutboundKind.NOTICE,
        )
        speaking.say(Part(text=busy_arrival.note), note_id, effects)
