"""Decide requests of operators that retry or drop a dead letter."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chatlane.domain.sessions.refusals import conflict, not_found
from chatlane.outbox import redrive
from chatlane.outbox.redrive import NotRetriedError
from chatlane.store import dead_letters
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.sessions import ApiReply

if TYPE_CHECKING:
    from chatlane.domain.effects import DeadRow, Publication
    from chatlane.requests.context import Call
    from chatlane_schemas.session_api.operators.dead_letters import LetterDrop, LetterRetry
    from chatlane_schemas.session_api.sessions import ApiError


async def retry(request: LetterRetry, call: Call) -> ApiReply:
    """Retry a dead letter, or return why it stays and write nothing."""
    letter = await dead_letters.lock(call.connection, request.letter_id)
    if letter is None:
        return _reply(_no_letter())
    if redrive.is_logged(letter):
        if not request.is_published:
            return _reply(conflict("publish its message on its log first: letter.get says where"))
        await _settle(letter, call, "dead_letter_retried")
        return _reply()
    try:
        await redrive.hand_over(call.connection, letter, _refuse, call.slots)
    except NotRetriedError as why:
        return _reply(conflict(str(why)))
    await _settle(letter, call, "dead_letter_retried")
    return _reply()


async def drop(request: LetterDrop, call: Call) -> ApiReply:
    """Delete a dead letter with its body."""
    letter = await dead_letters.lock(call.connection, request.letter_id)
    if letter is None:
        return _reply(_no_letter())
    await _settle(letter, call, "dead_letter_dropped")
    return _reply()


async def _settle(letter: DeadRow, call: Call, action: str) -> None:
    await redrive.settle(call.connection, letter, action, actor=f"nats:{call.principal}")


async def _refuse(_: Publication) -> None:
    raise AssertionError("only messages of logs are published here")


def _no_letter() -> ApiError:
    return not_found("there is no such dead letter")


def _reply(error: ApiError | None = None) -> ApiReply:
    return ApiReply(id=new_envelope_id(), at=datetime.now(UTC), error=error)
