"""Apply the busy policy to running turns: interrupt, steer, or send a busy note."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatlane.domain.ids import derived_id
from chatlane.domain.turns.worker_controls import interrupting, steering
from chatlane.store import turns
from chatlane.store.addressing import lanes
from chatlane_schemas.results import Part

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    interrupted = {
        turn_id: (session, message.stored_at)
        for turn_id, session, message in busy_arrivals
        if message.busy_mode == "interrupt"
    }
    if interrupted:
        for turn, question in await turns.interrupt(connection, interrupted):
            session, at = interrupted[turn.id]
            interrupting(turn, question, session, at, effects)
    effects.controls += [
        steering(turn_id, message.agent.name, message.stored_at)
        for turn_id, _, message in busy_arrivals
        if message.busy_mode == "steer"
    ]
    noting = {
        arrival.message.session_key: arrival
        for arrival in busy_arrivals
        if arrival.message.delivery_policy.note
    }
    if noting:
        await _say_busy(connection, noting, effects)


async def _say_busy(
    connection: PoolConnectionProxy, noting: Mapping[str, BusyArrival], effects: Effects
) -> None:
    """Send a busy note to chats in which a turn is running, at most once per interval and lane."""
    wanted = [(key, arrival.turn_id) for key, arrival in sorted(noting.items())]
    for key in sorted(await lanes.note_busy(connection, wanted)):
        _, session, message = noting[key]
        note_id = derived_id(message.stored_at, message.digests[0], "busy note")
        note = Part(text=message.delivery_policy.note)
        message.notice_in(session).say(note, note_id, effects)
