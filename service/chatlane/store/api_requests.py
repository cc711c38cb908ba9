"""Requests for a change and their answers, so that a repetition gets the first one.

Its rows are locked before any other: who repeats a request waits for the first to be done.
"""

from typing import TYPE_CHECKING, Final, LiteralString

from chatlane.domain.callers import Operator
from chatlane.store import audit
from chatlane_schemas.codec import encode

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from asyncpg.pool import PoolConnectionProxy

    from chatlane_schemas.envelope import Envelope
    from chatlane_schemas.sessions import ApiReply


BEGIN_SQL: Final[LiteralString] = """
-- api_requests: the first of its id, or nothing
INSERT INTO api_requests (principal, id, digest) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING RETURNING at
"""


async def begin(
    connection: "PoolConnectionProxy", principal: str, request_id: str, digest: bytes
) -> "datetime | None":
    """Return the time of a new request; None if it was answered before."""
    at: datetime | None = await connection.fetchval(BEGIN_SQL, principal, request_id, digest)
    return at


FIND_SQL: Final[LiteralString] = """
-- api_requests: what one was answered, if it asked for the same
SELECT reply FROM api_requests WHERE principal = $1 AND id = $2 AND digest = $3
"""


async def find(
    connection: "PoolConnectionProxy", principal: str, request_id: str, digest: bytes
) -> bytes | None:
    """Return the body of what a request was answered; None where another one had its id."""
    reply: bytes | None = await connection.fetchval(FIND_SQL, principal, request_id, digest)
    return reply


FINISH_SQL: Final[LiteralString] = """
-- api_requests: the answer, in the transaction of what it answers
UPDATE api_requests SET reply = $3 WHERE principal = $1 AND id = $2
"""


async def finish(
    connection: "PoolConnectionProxy", principal: str, request: "Envelope", reply: "ApiReply"
) -> None:
    """Keep the answer to a request that this transaction began; an operator's is audited."""
    await connection.execute(FINISH_SQL, principal, request.id, encode(reply))
    if isinstance(principal, Operator):
        detail = {"request": request.id, "turn": getattr(request, "turn_id", None)}
        await audit.write(
            connection,
            principal.method,
            getattr(request, "session_id", None),
            {name: value for name, value in detail.items() if value is not None},
            actor=f"nats:{principal}",
            outcome="done" if reply.error is None else reply.error.code,
        )


PRUNE_SQL: Final[LiteralString] = """
-- api_requests: away with some of those that nobody repeats any more, the oldest first
DELETE FROM api_requests WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM api_requests
    WHERE at < (SELECT clock_timestamp() - $1::interval) ORDER BY at LIMIT $2))
"""


async def prune(connection: "PoolConnectionProxy", kept: "timedelta", limit: int) -> int:
    """Forget up to `limit` requests older than `kept`; returns how many it were."""
    status = await connection.execute(PRUNE_SQL, kept, limit)
    return int(status.rpartition(" ")[2])
