"""Deliveries of outbound messages, and the platform's ids of what was delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from pydantic_core import from_json, to_json

from chatlane.domain.deliveries import Delivery, DeliveryKey
from chatlane.postgres.pool import columns
from chatlane.postgres.stored_values import known_value
from chatlane_schemas.deliveries import DeliveryFailure, DeliveryState, Undelivered
from chatlane_schemas.session_api.deliveries import DeliveryView
from chatlane_schemas.topology.streams import OUTBOUND_MAX_AGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta
    from uuid import UUID

    from asyncpg import Record

    from chatlane.domain.deliveries import DeliveredPiece, NewDelivery
    from chatlane.postgres.pool import Connection

MAX_REPORTED: Final = 50

INSERT_SQL: Final[LiteralString] = """
-- deliveries: outbound messages of a batch; after a restore, receipts may have been read before
INSERT INTO deliveries (
    session_id, message_id, platform, account, agent, turn_id, out_seq, part, created_at)
SELECT * FROM unnest(
    $1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::bigint[],
    $8::int[], $9::timestamptz[])
ON CONFLICT (session_id, message_id) DO UPDATE SET
    agent = excluded.agent, turn_id = excluded.turn_id, out_seq = excluded.out_seq,
    part = excluded.part, created_at = excluded.created_at
"""


async def insert(connection: Connection, rows: Sequence[NewDelivery]) -> None:
    """Record that these messages wait for an adapter."""
    if rows:
        await connection.execute(INSERT_SQL, *columns(rows, 9))


LOCK_SQL: Final[LiteralString] = """
-- deliveries: those that receipts are about
SELECT session_id, message_id, platform, account, created_at, agent, turn_id, state, failure,
       retry_at, sent, pieces, platform_message_ids, is_untold, changed_at
FROM deliveries
JOIN unnest($1::uuid[], $2::uuid[]) AS want (session_id, message_id)
  USING (session_id, message_id)
ORDER BY session_id, message_id FOR NO KEY UPDATE OF deliveries
"""


async def lock(connection: Connection, keys: Iterable[DeliveryKey]) -> dict[DeliveryKey, Delivery]:
    """Lock and return deliveries by session and message."""
    rows = await connection.fetch(LOCK_SQL, *columns(sorted(keys), 2))
    return {DeliveryKey(row[0], row[1]): _from_row(row) for row in rows}


def _from_row(row: Record) -> Delivery:
    values = dict(row.items())
    values["platform_message_ids"] = tuple(from_json(values["platform_message_ids"]))
    return Delivery(**values)


WRITE_SQL: Final[LiteralString] = """
-- deliveries: what receipts say, also about messages that are still to be decided after a restore
INSERT INTO deliveries AS known (
    session_id, message_id, platform, account, created_at, state, failure, retry_at, sent, pieces,
    platform_message_ids, is_untold, changed_at)
SELECT * FROM unnest(
    $1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::timestamptz[], $6::text[], $7::text[],
    $8::timestamptz[], $9::int[], $10::int[], $11::jsonb[], $12::boolean[], $13::timestamptz[])
ON CONFLICT (session_id, message_id) DO UPDATE SET
    state = excluded.state, failure = excluded.failure, retry_at = excluded.retry_at,
    sent = excluded.sent, pieces = excluded.pieces,
    platform_message_ids = excluded.platform_message_ids, is_untold = excluded.is_untold,
    changed_at = excluded.changed_at
WHERE (known.platform, known.account) = (excluded.platform, excluded.account)
"""


async def write(connection: Connection, deliveries: Iterable[Delivery]) -> None:
    """Write deliveries that receipts have changed."""
    rows = [
        (
            delivery.session_id,
            delivery.message_id,
            delivery.platform,
            delivery.account,
            delivery.created_at,
            delivery.state,
            delivery.failure,
            delivery.retry_at,
            delivery.sent,
            delivery.pieces,
            to_json(delivery.platform_message_ids).decode(),
            delivery.is_untold,
            delivery.changed_at,
        )
        for delivery in sorted(deliveries, key=lambda row: (row.session_id, row.message_id))
    ]
    if rows:
        await connection.execute(WRITE_SQL, *columns(rows, 13))


FIND_SQL: Final[LiteralString] = """
-- deliveries: one message of a session, or the newest ones
SELECT message_id, platform, account, turn_id, out_seq, part,
       -- An adapter that never reports is done with it, or will never get it.
       CASE WHEN state IN ('waiting', 'handed') AND created_at < clock_timestamp() - $6::interval
            THEN 'unknown' ELSE state END AS state,
       failure, retry_at, sent, pieces, platform_message_ids, created_at, changed_at
FROM deliveries
WHERE session_id = $1 AND ($2::uuid IS NULL OR message_id = $2)
  AND ($3::text IS NULL OR platform = $3) AND ($4::text IS NULL OR account = $4)
ORDER BY message_id DESC LIMIT $5
"""
_MOST_FOUND: Final = 200


async def find(
    connection: Connection,
    session_id: UUID,
    message_id: UUID | None = None,
    account: tuple[str, str] | None = None,
) -> tuple[DeliveryView, ...]:
    """Return one message of a session, or the newest ones, oldest first.

    What no adapter has reported is `unknown` once OUTBOUND does not keep the message any more.

    Args:
        connection: A connection.
        session_id: The session.
        message_id: The message; without it, the newest ones.
        account: Platform and account; without it, those of all accounts.
    """
    platform, name = account or (None, None)
    rows = await connection.fetch(
        FIND_SQL, session_id, message_id, platform, name, _MOST_FOUND, OUTBOUND_MAX_AGE
    )
    return tuple(_view(row) for row in reversed(rows))


def _view(row: Record) -> DeliveryView:
    values = dict(row.items())
    values["message_ids"] = from_json(values.pop("platform_message_ids"))
    state = known_value(DeliveryState, values.pop("state"), "deliveries.state")
    failure = known_value(DeliveryFailure, values.pop("failure"), "deliveries.failure")
    return DeliveryView(**values, state=state or DeliveryState.UNKNOWN, failure=failure)


UNTOLD_SQL: Final[LiteralString] = """
-- deliveries: failures that the agent of a turn has to be told; another turn was told the others
UPDATE deliveries SET told_in = want.turn_id,
    is_untold = (deliveries.told_in IS NULL OR deliveries.told_in = want.turn_id)
FROM unnest($1::uuid[], $2::uuid[]) AS want (session_id, turn_id)
WHERE deliveries.session_id = want.session_id AND is_untold
RETURNING deliveries.session_id, message_id, deliveries.turn_id, part, failure, sent, changed_at,
          is_untold
"""


async def report_failed(
    connection: Connection, turns: Iterable[tuple[UUID, UUID]]
) -> dict[UUID, tuple[Undelivered, ...]]:
    """Return the failed deliveries that each session's next turn reports, oldest first.

    Each attempt of a turn gets the same report. The next turn gets only new failures.

    Args:
        connection: A transaction that has locked the sessions.
        turns: Session and turn.
    """
    found: dict[UUID, list[Undelivered]] = {}
    rows = await connection.fetch(UNTOLD_SQL, *columns(list(turns), 2))
    for row in sorted(rows, key=lambda row: (row["changed_at"], row["message_id"])):
        if row["is_untold"]:
            found.setdefault(row["session_id"], []).append(_undelivered(row))
    return {session_id: tuple(failed[-MAX_REPORTED:]) for session_id, failed in found.items()}


def _undelivered(row: Record) -> Undelivered:
    failure = known_value(DeliveryFailure, row["failure"], "deliveries.failure")
    return Undelivered(
        message_id=row["message_id"],
        turn_id=row["turn_id"],
        part=row["part"],
        failure=failure or DeliveryFailure.UNKNOWN,
        sent=row["sent"],
        failed_at=row["changed_at"],
    )


EXPIRE_SQL: Final[LiteralString] = """
-- deliveries: receipts about messages that never were decided
DELETE FROM deliveries WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM deliveries
    WHERE agent IS NULL AND created_at < (SELECT clock_timestamp() - $1::interval)
    ORDER BY created_at LIMIT $2))
"""


async def expire_unexpected(connection: Connection, kept: timedelta, limit: int) -> int:
    """Delete receipts whose messages are unknown for longer than `kept`; return how many."""
    status = await connection.execute(EXPIRE_SQL, kept, limit)
    return int(status.rpartition(" ")[2])


INSERT_PIECES_SQL: Final[LiteralString] = """
-- delivered_messages: what the platforms call our messages
INSERT INTO delivered_messages (digest, session_id, message_id, piece)
SELECT * FROM unnest($1::bytea[], $2::uuid[], $3::uuid[], $4::int[])
    AS new (digest, session_id, message_id, piece)
ORDER BY digest
ON CONFLICT DO NOTHING
"""


async def insert_pieces(connection: Connection, pieces: Sequence[DeliveredPiece]) -> None:
    """Record what a platform calls our messages; the first record of an id stays."""
    if pieces:
        await connection.execute(INSERT_PIECES_SQL, *columns(pieces, 4))


FIND_PIECES_SQL: Final[LiteralString] = """
-- delivered_messages: the outbound messages behind what people reply to
SELECT digest, found.session_id, found.message_id, found.piece, agent, turn_id, part, out_seq
FROM delivered_messages AS found JOIN deliveries USING (session_id, message_id)
WHERE digest = ANY($1::bytea[])
"""


class OwnMessage(NamedTuple):
    """One of our messages that a platform shows.

    Attributes:
        message_id: Id of the `OutboundMessage`.
        piece: Which piece of it, from 0.
        agent: Agent that spoke; None if the message itself is not known any more.
        part: Which part of the answer of that turn.
    """

    session_id: UUID
    message_id: UUID
    piece: int
    agent: str | None
    turn_id: UUID | None
    part: int
    out_seq: int | None


async def find_own_messages(
    connection: Connection, digests: Iterable[bytes]
) -> dict[bytes, OwnMessage]:
    """Return our messages by the digest of their platform's id and chat.

    The digests are those of `domain.addressing.dedupe.digests_of_message`.
    """
    wanted = list(digests)
    rows = await connection.fetch(FIND_PIECES_SQL, wanted) if wanted else []
    return {row[0]: OwnMessage(*tuple(row)[1:]) for row in rows}
