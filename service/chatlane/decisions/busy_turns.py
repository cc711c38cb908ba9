"""Apply the busy policy to running turns: interrupt, steer, or send a busy note."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatlane.domain.ids import derived_id
from chatlane.domain.outbound_builder import Speaking
from chatlane.domain.turns.cancellation import interrupting, steering
from chatlane.store import turns
from chatlane.store.addressing import lanes
from chatlane_schemas.outbound import OutboundKind
from chatlane_schemas.results import Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.effects import Effects, Meeting


async def meet(connection: PoolConnectionProxy, effects: Effects) -> None:
    """Apply the busy policies of placed messages to the turns of their sessions.

    This runs before results are applied and anything is written: a turn that ends in the same
    batch ends after the messages were placed. A turn that exists only in memory is not running.
    """
    rests, effects.rests = effects.rests, []
    if rests and (due_in := await turns.prolong(connection, rests)) is not None:
        effects.due_within(due_in)
    meetings, effects.meetings = effects.meetings, []
    if not meetings:
        return
    await _interrupt(connection, meetings, effects)
    for one in meetings:
        if one.busy == "steer":
            effects.controls.append(steering(one.turn_id, one.agent, one.stored_at))
    await _say_busy(connection, meetings, effects)


async def _interrupt(
    connection: PoolConnectionProxy, meetings: Sequence[Meeting], effects: Effects
) -> None:
    said_at = {one.turn_id: one.stored_at for one in meetings if one.busy == "interrupt"}
    if not said_at:
        return
    for turn_id, agent in await turns.interrupt(connection, said_at):
        interrupting(turn_id, agent, said_at[turn_id], effects)


async def _say_busy(
    connection: PoolConnectionProxy, meetings: Sequence[Meeting], effects: Effects
) -> None:
    """Send a busy note to chats in which a turn is running, at most once per interval and lane."""
    noting = {one.session_key: one for one in meetings if one.note}
    if not noting:
        return
    wanted = [(key, one.turn_id) for key, one in sorted(noting.items())]
    for key in sorted(await lanes.note_busy(connection, wanted)):
        one = noting[key]
        note_id = derived_id(one.stored_at, one.digest, "busy note")
        speaking = Speaking(
            one.session, one.agent, one.source, one.stored_at, kind=OutboundKind.NOTICE
        )
        speaking.say(Part(text=one.note), note_id, effects)
