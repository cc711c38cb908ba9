"""Keep the results of steps of running turns, and return them to later attempts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chatlane.domain.sessions.refusals import conflict, invalid
from chatlane.store import turn_steps
from chatlane.store.conversations import sessions
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.questions import LARGEST_STEPS, MOST_STEPS, StepReply, TurnKeep, TurnStep
from chatlane_schemas.session_api.sessions import ApiError

if TYPE_CHECKING:
    from chatlane.api.endpoint import Reads
    from chatlane.postgres.pool import Connection, Store


class StepQueries:
    """Answers `turn.step` and `turn.keep` of workers.

    A request that is repeated finds what the first one has kept, so no request is noted.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def table(self) -> Reads:
        """Return model and function of each request, by method."""
        return {"turn.step": (TurnStep, self._find), "turn.keep": (TurnKeep, self._keep)}

    async def _find(self, request: TurnStep) -> StepReply:
        async with self._store.transaction() as connection:
            found = await turn_steps.find(connection, request, request.name)
        return _reply(_is_late() if found is None else found.result)

    async def _keep(self, request: TurnKeep) -> StepReply:
        async with self._store.transaction() as connection:
            return _reply(await _kept(connection, request))


async def _kept(connection: Connection, request: TurnKeep) -> str | ApiError | None:
    """Keep a result and return the one that counts, or why it is refused."""
    # Every transaction that gives the turn another attempt or removes it has this lock, too.
    await sessions.lock(connection, [request.session_id])
    is_ending = await turn_steps.is_ending(connection, request)
    if is_ending is None:
        return _is_late()
    # It gets no other attempt, and after an erasure nothing of a person is written again.
    if is_ending:
        return None
    kept = await turn_steps.count(connection, request.turn_id, request.name)
    if kept.result is not None:
        return kept.result
    if kept.number >= MOST_STEPS:
        return invalid("name: the turn has too many steps")
    if kept.size_bytes + len(request.result.encode()) > LARGEST_STEPS:
        return invalid("result: the results of the turn are too large")
    await turn_steps.keep(connection, request, request.name, request.result)
    return request.result


def _is_late() -> ApiError:
    return conflict("this attempt does not run any more")


def _reply(result: str | ApiError | None) -> StepReply:
    reply_id, now = new_envelope_id(), datetime.now(UTC)
    if isinstance(result, ApiError):
        return StepReply(id=reply_id, at=now, error=result)
    return StepReply(id=reply_id, at=now, result=result)
