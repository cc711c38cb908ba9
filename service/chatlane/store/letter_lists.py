"""List and count dead letters for operators; writes nothing and locks nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple
from uuid import UUID

from chatlane_schemas.dead import Cause, DeadReason, Stage, cause_of
from chatlane_schemas.session_api.operators.dead_letters import LetterGroup, LetterView

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import asyncpg

    from chatlane.postgres.pool import Connection
    from chatlane_schemas.session_api.operators.dead_letters import LetterFilter

# Filters have no index of their own: a page or a count reads so many letters at most.
_LOOKED_AT: Final = 10_000
_MOST_GROUPS: Final = 200
MAX_RETRIED_BYTES: Final = 360 * 1024
"""Larger bodies do not fit into a reply."""

_NEVER_RETRIED: Final = (DeadReason.DELIVERY_FAILED, DeadReason.MESSAGE_ID_REUSED)
_FIRST: Final = datetime(1, 1, 2, tzinfo=UTC)
_LAST: Final = datetime(9999, 12, 30, tzinfo=UTC)
_LOWEST: Final = UUID(int=0)
_HIGHEST: Final = UUID(int=2**128 - 1)


class LetterPlace(NamedTuple):
    """A place in the order in which dead letters were set aside."""

    at: datetime
    id: UUID


class LetterPage(NamedTuple):
    """Dead letters in order, and the place where the next page begins; None on the last page."""

    letters: tuple[LetterView, ...]
    end: LetterPlace | None


class LetterTotals(NamedTuple):
    """Numbers of dead letters that match a filter.

    Attributes:
        is_complete: Whether all letters were looked at.
    """

    letters: int
    conversations: int
    is_complete: bool
    groups: tuple[LetterGroup, ...]


# Subjects name the account of messages from and to chats; sessions that of everything else.
_PLACED: Final[LiteralString] = """
    letter.*,
    CASE WHEN letter.subject LIKE 'chat.v1.log.%' THEN split_part(letter.subject, '.', 5)
         WHEN letter.subject LIKE 'chat.v1.outbound.%' THEN split_part(letter.subject, '.', 4)
         ELSE session.platform END AS platform,
    CASE WHEN letter.subject LIKE 'chat.v1.log.%' THEN split_part(letter.subject, '.', 6)
         WHEN letter.subject LIKE 'chat.v1.outbound.%' THEN split_part(letter.subject, '.', 5)
         ELSE split_part(session.session_key, ':', 4) END AS account
"""
_LOOKED: Final[LiteralString] = """
    id, at, stored_at, stage, reason, log, partition, sequence, subject, session_id, size_bytes,
    detail, body IS NOT NULL AND size_bytes > 0 AS has_body
"""
_VIEWED: Final[LiteralString] = """
    id, at, stored_at, stage, reason, log, partition, sequence, platform, account, session_id,
    size_bytes, detail, has_body
"""
_MATCHING: Final[LiteralString] = """
    ($1::text[] IS NULL OR (reason = ANY($1)) <> $2::boolean)
    AND ($3::text IS NULL OR stage = $3)
    AND ($4::text IS NULL OR platform = $4)
    AND ($5::text IS NULL OR account = $5)
    AND ($6::uuid IS NULL OR session_id = $6)
    AND ($7::timestamptz IS NULL OR at < $7)
"""

NEWEST_LETTERS_SQL: Final[LiteralString] = f"""
-- dead_letters: a page of those that match, newest first, and where the rows end that were read
WITH looked AS MATERIALIZED (
    SELECT {_LOOKED} FROM dead_letters WHERE at <= $8 AND (at, id) < ($8, $9::uuid)
    ORDER BY at DESC, id DESC LIMIT $11
), placed AS (
    SELECT {_PLACED} FROM looked AS letter LEFT JOIN sessions AS session
        ON session.id = letter.session_id
)
SELECT {_VIEWED}, (SELECT count(*) FROM looked) AS looked_at,
    (SELECT row(at, id) FROM looked ORDER BY at, id LIMIT 1) AS end
FROM (SELECT) AS always LEFT JOIN (
    SELECT * FROM placed WHERE {_MATCHING} ORDER BY at DESC, id DESC LIMIT $10) AS page ON true
ORDER BY at DESC, id DESC
"""  # noqa: S608 - constants

OLDEST_LETTERS_SQL: Final[LiteralString] = f"""
-- dead_letters: a page of those that match, oldest first, and where the rows end that were read
WITH looked AS MATERIALIZED (
    SELECT {_LOOKED} FROM dead_letters WHERE at >= $8 AND (at, id) > ($8, $9::uuid)
    ORDER BY at, id LIMIT $11
), placed AS (
    SELECT {_PLACED} FROM looked AS letter LEFT JOIN sessions AS session
        ON session.id = letter.session_id
)
SELECT {_VIEWED}, (SELECT count(*) FROM looked) AS looked_at,
    (SELECT row(at, id) FROM looked ORDER BY at DESC, id DESC LIMIT 1) AS end
FROM (SELECT) AS always LEFT JOIN (
    SELECT * FROM placed WHERE {_MATCHING} ORDER BY at, id LIMIT $10) AS page ON true
ORDER BY at, id
"""  # noqa: S608 - constants


async def page(
    connection: Connection,
    wanted: LetterFilter,
    *,
    limit: int,
    after: LetterPlace | None = None,
    oldest_first: bool = False,
) -> LetterPage:
    """Return a page of dead letters that match.

    Args:
        after: Where the previous page ended.
    """
    first = LetterPlace(_FIRST, _LOWEST) if oldest_first else LetterPlace(_LAST, _HIGHEST)
    given = (*_conditions(wanted), *(after or first), limit, _LOOKED_AT)
    if oldest_first:
        rows = await connection.fetch(OLDEST_LETTERS_SQL, *given)
    else:
        rows = await connection.fetch(NEWEST_LETTERS_SQL, *given)
    letters = tuple(_view(row) for row in rows if row["id"] is not None)
    if len(letters) == limit:
        return LetterPage(letters, LetterPlace(letters[-1].at, letters[-1].id))
    is_cut = rows[0]["looked_at"] == _LOOKED_AT
    return LetterPage(letters, LetterPlace(*rows[0]["end"]) if is_cut else None)


LETTERS_BY_ID_SQL: Final[LiteralString] = f"""
-- dead_letters: some of them, those first whose messages came first
WITH looked AS MATERIALIZED (
    SELECT {_LOOKED} FROM dead_letters WHERE id = ANY($1::uuid[])
), placed AS (
    SELECT {_PLACED} FROM looked AS letter LEFT JOIN sessions AS session
        ON session.id = letter.session_id
)
SELECT {_VIEWED} FROM placed ORDER BY stored_at NULLS FIRST, log, sequence, id
"""  # noqa: S608 - constants


async def of_ids(connection: Connection, letter_ids: Sequence[UUID]) -> tuple[LetterView, ...]:
    """Return those of these dead letters that exist, in the order in which their messages came."""
    rows = await connection.fetch(LETTERS_BY_ID_SQL, letter_ids)
    return tuple(map(_view, rows))


COUNT_LETTERS_SQL: Final[LiteralString] = f"""
-- dead_letters: how many match, by reason and account, of a bounded number of the newest
WITH looked AS MATERIALIZED (
    SELECT {_LOOKED} FROM dead_letters WHERE at < coalesce($7, 'infinity'::timestamptz)
    ORDER BY at DESC LIMIT $8
), placed AS (
    SELECT {_PLACED} FROM looked AS letter LEFT JOIN sessions AS session
        ON session.id = letter.session_id
)
SELECT reason, platform, account, count(*) AS letters, min(at) AS oldest_at, max(at) AS newest_at,
    count(DISTINCT coalesce(
        session_id::text, regexp_replace(subject, '^(chat\\.v1\\.r?log)\\.[0-9]+', '\\1'),
        id::text)) AS conversations,
    grouping(reason) AS is_total, (SELECT count(*) FROM looked) AS looked_at
FROM placed WHERE {_MATCHING}
GROUP BY GROUPING SETS ((reason, platform, account), ())
ORDER BY is_total DESC, letters DESC, oldest_at LIMIT $9
"""  # noqa: S608 - constants


async def count(connection: Connection, wanted: LetterFilter) -> LetterTotals:
    """Return the numbers of dead letters that match, among the newest ten thousand."""
    total, *groups = await connection.fetch(
        COUNT_LETTERS_SQL, *_conditions(wanted), _LOOKED_AT, _MOST_GROUPS + 1
    )
    return LetterTotals(
        letters=total["letters"],
        conversations=total["conversations"],
        is_complete=total["looked_at"] < _LOOKED_AT,
        groups=tuple(
            LetterGroup(
                reason=group["reason"],
                cause=cause_of(group["reason"]),
                platform=group["platform"],
                account=group["account"],
                letters=group["letters"],
                oldest_at=group["oldest_at"],
                newest_at=group["newest_at"],
            )
            for group in groups
        ),
    )


def _conditions(wanted: LetterFilter) -> tuple[object, ...]:
    reasons, is_excluded = _reasons(wanted)
    return (
        reasons,
        is_excluded,
        wanted.stage,
        wanted.platform,
        wanted.account,
        wanted.session_id,
        wanted.before,
    )


def _reasons(wanted: LetterFilter) -> tuple[list[str] | None, bool]:
    """Return the reasons that match, or all that do not match and True."""
    if wanted.reason is not None:
        is_of_cause = wanted.cause is None or cause_of(wanted.reason) == wanted.cause
        return ([wanted.reason] if is_of_cause else []), False
    if wanted.cause is None:
        return None, False
    if wanted.cause is Cause.BUG:
        # A reason that only a newer release knows counts as a bug.
        return _of_causes(set(Cause) - {Cause.BUG}), True
    return _of_causes({wanted.cause}), False


def _of_causes(causes: Iterable[Cause]) -> list[str]:
    return [reason for reason in DeadReason if cause_of(reason) in set(causes)]


def _view(row: asyncpg.Record) -> LetterView:
    is_known = row["stage"] in tuple(Stage) and row["reason"] not in _NEVER_RETRIED
    return LetterView(
        id=row["id"],
        at=row["at"],
        stored_at=row["stored_at"],
        stage=row["stage"],
        reason=row["reason"],
        cause=cause_of(row["reason"]),
        log=row["log"],
        partition=row["partition"],
        sequence=row["sequence"],
        platform=row["platform"] or None,
        account=row["account"] or None,
        session_id=row["session_id"],
        size_bytes=row["size_bytes"],
        detail=row["detail"],
        is_retriable=is_known and row["has_body"] and row["size_bytes"] <= MAX_RETRIED_BYTES,
    )
