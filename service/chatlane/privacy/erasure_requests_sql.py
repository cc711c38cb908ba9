"""Erasures that people or operators request: stored by routers, done by an erasure job.

Routers may not change the audit, nor delete from all streams, so they only store the request.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from pydantic_core import from_json, to_json

from chatlane.domain.ids import derived_id
from chatlane.domain.sessions.refusals import invalid, not_found
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.person_state import (
    Erasure,
    PersonErase,
    PersonErasure,
    PersonErasureReply,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta
    from uuid import UUID

    from chatlane.postgres.pool import Connection, Store
    from chatlane_schemas.session_api.sessions import ApiError


class RequestedErasure(NamedTuple):
    """A request that an erasure job has taken."""

    id: UUID
    person: Person


FIND_OPEN_SQL: Final[LiteralString] = """
-- erasure_requests: the open request for a person; there are few open ones
SELECT id, requested_at, problem FROM erasure_requests
WHERE finished_at IS NULL AND person = $1::text::jsonb
ORDER BY requested_at LIMIT 1
"""
INSERT_SQL: Final[LiteralString] = """
-- erasure_requests: note the request
INSERT INTO erasure_requests (id, person, requested_by, requested_at)
VALUES ($1, $2::text::jsonb, $3, $4)
"""


async def request_erasure(
    connection: Connection, request: PersonErase, requested_by: str, at: datetime, trigger: bytes
) -> PersonErasureReply:
    """Store a request, unless one for the same person is open.

    Args:
        requested_by: Principal of the caller.
        at: Time of the request.
        trigger: Seed of its id.
    """
    if request.acting_for is None:
        return _reply(error=invalid("acting_for: has to name the person"))
    person = to_json(request.acting_for.model_dump(exclude_none=True)).decode()
    known = await connection.fetchrow(FIND_OPEN_SQL, person)
    if known is not None:
        return _reply(Erasure(**known))
    erasure = Erasure(id=derived_id(at, trigger, "erasure"), requested_at=at)
    await connection.execute(INSERT_SQL, erasure.id, person, requested_by, at)
    return _reply(erasure)


FIND_SQL: Final[LiteralString] = """
-- erasure_requests: a request by id
SELECT id, requested_at, finished_at, coalesce(deleted, '{}') AS deleted, problem
FROM erasure_requests WHERE id = $1
"""


class ErasureQueries:
    """Answers read-only requests about requested erasures."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, request: PersonErasure) -> PersonErasureReply:
        """Return a requested erasure."""
        async with self._store.transaction() as connection:
            row = await connection.fetchrow(FIND_SQL, request.erasure_id)
        if row is None:
            return _reply(error=not_found("there is no such erasure"))
        return _reply(Erasure(**{**row, "deleted": from_json(row["deleted"])}))


TAKE_SQL: Final[LiteralString] = """
-- erasure_requests: take the oldest open request that no other job works on
UPDATE erasure_requests SET tried_at = clock_timestamp() WHERE id = (
    SELECT id FROM erasure_requests
    WHERE finished_at IS NULL AND (tried_at IS NULL OR tried_at < clock_timestamp() - $1::interval)
    ORDER BY requested_at LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, person
"""


async def take(connection: Connection, pause: timedelta) -> RequestedErasure | None:
    """Take the oldest open request; None if there is none that was not tried within a pause."""
    row = await connection.fetchrow(TAKE_SQL, pause)
    if row is None:
        return None
    return RequestedErasure(row["id"], Person.model_validate_json(row["person"]))


FAIL_SQL: Final[LiteralString] = """
-- erasure_requests: say why it did not end
UPDATE erasure_requests SET problem = $2 WHERE id = $1
"""


async def fail(connection: Connection, request_id: UUID, problem: str) -> None:
    """Note why an attempt did not end; the request stays open."""
    await connection.execute(FAIL_SQL, request_id, problem)


FINISH_SQL: Final[LiteralString] = """
-- erasure_requests: keep the receipt, and forget the person
UPDATE erasure_requests SET
    person = NULL, problem = NULL, erasure = $2, finished_at = clock_timestamp(),
    deleted = $3::text::jsonb
WHERE id = $1
"""


async def finish(
    connection: Connection, request_id: UUID, erasure: UUID, deleted: Mapping[str, int]
) -> None:
    """Keep the receipt of an erasure that has ended, without the person."""
    await connection.execute(FINISH_SQL, request_id, erasure, to_json(deleted).decode())


def _reply(erasure: Erasure | None = None, error: ApiError | None = None) -> PersonErasureReply:
    return PersonErasureReply(
        id=new_envelope_id(), at=datetime.now(UTC), erasure=erasure, error=error
    )
