"""API requests and their replies, so that a repeated request gets the first reply.

A transaction locks the row of its request before any other row: a repeated request waits until
the first one is done.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, LiteralString, TypeVar

from chatlane.postgres.pool import count_of
from chatlane.store import audit
from chatlane.store.audit import Operator
from chatlane_schemas.codec import decode, encode
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.sessions import ApiError, ApiErrorCode, ApiReply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import timedelta

    from chatlane.postgres.pool import Connection
    from chatlane_schemas.envelope import Envelope

ReplyT = TypeVar("ReplyT", bound=ApiReply)


BEGIN_SQL: Final[LiteralString] = """
-- api_requests: insert a new request; no row for a known one
INSERT INTO api_requests (principal, id, digest) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING RETURNING at
"""


async def begin(
    connection: Connection, principal: str, request_id: str, digest: bytes
) -> datetime | None:
    """Return the time of a new request; None if it was answered before."""
    at: datetime | None = await connection.fetchval(BEGIN_SQL, principal, request_id, digest)
    return at


FIND_SQL: Final[LiteralString] = """
-- api_requests: the stored reply to the same request
SELECT reply FROM api_requests WHERE principal = $1 AND id = $2 AND digest = $3
"""


async def answer_once(  # noqa: PLR0917 # the request comes in three parts
    connection: Connection,
    principal: str,
    request: Envelope,
    digest: bytes,
    reply_type: type[ReplyT],
    decide: Callable[[datetime], Awaitable[ReplyT]],
) -> ReplyT:
    """Execute a request and store its reply, or return the stored reply to the same request id.

    Args:
        principal: Sender of the request; request ids are unique for each principal.
        digest: Digest of the request, to detect a different request with the same id.
        reply_type: The model of the reply.
        decide: Makes the change, given the time of the request. A reply with an error means
            that nothing was changed.
    """
    at = await begin(connection, principal, request.id, digest)
    if at is not None:
        reply = await decide(at)
        await finish(connection, principal, request, reply)
        return reply
    first: bytes | None = await connection.fetchval(FIND_SQL, principal, request.id, digest)
    if first is not None:
        return decode(reply_type, first)
    error = ApiError(code=ApiErrorCode.CONFLICT, message="another request was made with this id")
    return reply_type(id=new_envelope_id(), at=datetime.now(UTC), error=error)


FINISH_SQL: Final[LiteralString] = """
-- api_requests: write the reply in the transaction of the change
UPDATE api_requests SET reply = $3 WHERE principal = $1 AND id = $2
"""


async def finish(
    connection: Connection, principal: str, request: Envelope, reply: ApiReply
) -> None:
    """Store the reply to a request that this transaction began; audits requests of operators."""
    await connection.execute(FINISH_SQL, principal, request.id, encode(reply))
    if isinstance(principal, Operator):
        detail = {
            "request": request.id,
            "turn": getattr(request, "turn_id", None),
            "letter": getattr(request, "letter_id", None),
        }
        await audit.write(
            connection,
            principal.method,
            getattr(request, "session_id", None),
            {name: value for name, value in detail.items() if value is not None},
            actor=f"nats:{principal}",
            outcome="done" if reply.error is None else reply.error.code,
        )


PRUNE_SQL: Final[LiteralString] = """
-- api_requests: delete old requests, oldest first
DELETE FROM api_requests WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM api_requests
    WHERE at < (SELECT clock_timestamp() - $1::interval) ORDER BY at LIMIT $2))
"""


async def prune(connection: Connection, kept: timedelta, limit: int) -> int:
    """Delete up to `limit` requests older than `kept`; returns how many."""
    status = await connection.execute(PRUNE_SQL, kept, limit)
    return count_of(status)
