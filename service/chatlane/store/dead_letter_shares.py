"""Count dead letters by owner and hour, both kept and dropped ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from chatlane.postgres.pool import columns

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime, timedelta

    from chatlane.postgres.pool import Connection


class Share(NamedTuple):
    """The key of a share: an owner in a log, and an hour of the log's time."""

    log: str
    owner: str
    hour: datetime


class Used(NamedTuple):
    """The number of kept dead letters, and the size of their bodies."""

    letters: int
    body_bytes: int


class ShareRow(NamedTuple):
    """Dead letters of one share and reason: an increment, or the sum so far."""

    log: str
    owner: str
    hour: datetime
    reason: str
    kept: int
    kept_bytes: int
    dropped: int
    dropped_bytes: int
    first_dropped: int | None
    last_dropped: int | None


USED_SQL: Final[LiteralString] = """
-- dead_letter_shares: how much of some shares is used
SELECT wanted.log, wanted.owner, wanted.hour, shares.reason, shares.kept, shares.kept_bytes
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) AS wanted (log, owner, hour)
JOIN dead_letter_shares AS shares USING (log, owner, hour)
"""


async def read(connection: Connection, shares: Collection[Share]) -> dict[Share, dict[str, Used]]:
    """Return the kept dead letters of each share, by reason; locks nothing."""
    found: dict[Share, dict[str, Used]] = {share: {} for share in shares}
    for row in await connection.fetch(USED_SQL, *columns(shares, 3)):
        log, owner, hour, reason, letters, body_bytes = row.values()
        found[Share(log, owner, hour)][reason] = Used(letters, body_bytes)
    return found


ADD_SHARES_SQL: Final[LiteralString] = """
-- dead_letter_shares: add what a batch kept and did not keep
INSERT INTO dead_letter_shares AS shares
SELECT * FROM unnest(
    $1::text[], $2::text[], $3::timestamptz[], $4::text[], $5::bigint[], $6::bigint[],
    $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[])
ON CONFLICT (log, owner, hour, reason) DO UPDATE
SET kept = shares.kept + excluded.kept, kept_bytes = shares.kept_bytes + excluded.kept_bytes,
    dropped = shares.dropped + excluded.dropped,
    dropped_bytes = shares.dropped_bytes + excluded.dropped_bytes,
    first_dropped = least(shares.first_dropped, excluded.first_dropped),
    last_dropped = greatest(shares.last_dropped, excluded.last_dropped)
RETURNING log, owner, hour, reason, kept, kept_bytes, dropped, dropped_bytes, first_dropped,
    last_dropped
"""


async def add(connection: Connection, rows: Sequence[ShareRow]) -> list[ShareRow]:
    """Add to shares; returns their new sums."""
    found = await connection.fetch(ADD_SHARES_SQL, *columns(sorted(rows), 10))
    return [ShareRow(*row.values()) for row in found]


class Dropped(NamedTuple):
    """The number of an owner's dead letters that were dropped."""

    log: str
    owner: str
    letters: int


RECENT_DROPPED_SQL: Final[LiteralString] = """
-- dead_letter_shares: whose dead letters were not kept lately
SELECT log, owner, sum(dropped)::bigint FROM dead_letter_shares
WHERE hour > (SELECT clock_timestamp() - $1::interval) AND dropped > 0
GROUP BY log, owner ORDER BY log, owner
"""


async def list_recent(connection: Connection, within: timedelta) -> list[Dropped]:
    """Return the owners with dropped dead letters, in hours that began within a time."""
    return [Dropped(*row.values()) for row in await connection.fetch(RECENT_DROPPED_SQL, within)]


EXPIRE_SHARES_SQL: Final[LiteralString] = """
-- dead_letter_shares: away with those of letters that are gone
DELETE FROM dead_letter_shares WHERE hour < (SELECT clock_timestamp() - $1::interval)
"""


async def expire(connection: Connection, kept: timedelta) -> None:
    """Delete the shares of hours more than `kept` ago."""
    await connection.execute(EXPIRE_SHARES_SQL, kept)
