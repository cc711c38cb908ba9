"""Delete or blank the rows of a person, under the lock of their session."""

from datetime import datetime
from typing import TYPE_CHECKING, Final, LiteralString
from uuid import UUID

from chatlane.postgres.pool import columns
from chatlane.search import index_sql

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncpg.pool import PoolConnectionProxy


_TRIMMED_AT_ONCE: Final = 20_000
_CHANGED_AT_ONCE: Final = 5_000
_QUOTES: Final[LiteralString] = """
session_id = $1 AND details ? 'quote' AND (
    details #>> '{replied_row,id}' = ANY($4::text[])
    OR EXISTS (
        SELECT FROM unnest($2::text[], $3::timestamptz[]) AS own (sender_id, since)
        WHERE own.sender_id = details #>> '{quote,sender_id}'
          AND {stored_at} >= coalesce(own.since, '-infinity')))
"""
FORGET_QUOTES_SQL: Final[LiteralString] = f"""
-- messages → waiting → removed_messages: remove quotes from the rows of a session, and count them
WITH live AS (
    UPDATE messages SET details = details - 'quote'
    WHERE created_at <= $5 AND {_QUOTES.replace("{stored_at}", "created_at")} RETURNING 1
), line AS (
    UPDATE waiting SET details = details - 'quote'
    WHERE stored_at <= $5 AND {_QUOTES.replace("{stored_at}", "stored_at")} RETURNING 1
), archived AS (
    UPDATE removed_messages SET details = details - 'quote'
    WHERE created_at <= $5 AND {_QUOTES.replace("{stored_at}", "created_at")} RETURNING 1
), changed AS (
    UPDATE sessions SET revision = revision + 1 WHERE id = $1 AND EXISTS (SELECT FROM live)
)
SELECT (SELECT count(*) FROM live) + (SELECT count(*) FROM line) + (SELECT count(*) FROM archived)
"""  # noqa: S608 - constants


async def forget_quotes(
    connection: "PoolConnectionProxy",
    session_id: UUID,
    authors: "Iterable[tuple[str, datetime | None]]",
    message_ids: "Iterable[UUID]",
    until: datetime,
) -> int:
    """Remove quotes of a person from the rows of others in a locked session; return their number.

    Args:
        connection: Connection of the transaction that has locked the session.
        session_id: Session to write to.
        authors: Ids of the person as quotes name them, each with the time since which it belongs to the person.
        message_ids: Our ids of messages of the person.
        until: Only rows stored up to this time.
    """
    names = columns(authors, 2)
    quoted = [str(message_id) for message_id in message_ids]
    count: int = await connection.fetchval(FORGET_QUOTES_SQL, session_id, *names, quoted, until)
    return count


TRIM_SQL: Final[LiteralString] = """
-- messages: delete the first rows of a session that is being removed, with their turns
WITH gone AS (
    DELETE FROM messages WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM messages WHERE session_id = $1 ORDER BY seq LIMIT $2))
    RETURNING turn_id
), of_turns AS (
    DELETE FROM turns USING (SELECT DISTINCT turn_id FROM gone) AS had
    WHERE turns.id = had.turn_id AND turns.session_id = $1
    RETURNING turns.id
), steps AS (
    DELETE FROM turn_steps USING of_turns WHERE turn_steps.turn_id = of_turns.id
)
SELECT count(*) FROM gone
"""


async def trim(connection: "PoolConnectionProxy", session_id: UUID) -> int:
    """Delete a batch of rows of a session before its removal; return their number.

    The remaining rows then fit into one transaction that is short enough for other writers.
    """
    count: int = await connection.fetchval(TRIM_SQL, session_id, _TRIMMED_AT_ONCE)
    return count


SIZES_SQL: Final[LiteralString] = """
-- sessions: the number of rows of these sessions in each table
SELECT
    (SELECT count(*) FROM messages WHERE session_id = ANY($1::uuid[])),
    (SELECT count(*) FROM removed_messages WHERE session_id = ANY($1::uuid[])),
    (SELECT count(*) FROM message_revisions WHERE session_id = ANY($1::uuid[])),
    (SELECT count(*) FROM waiting WHERE session_id = ANY($1::uuid[])),
    (SELECT count(*) FROM late_results WHERE session_id = ANY($1::uuid[])),
    (SELECT count(*) FROM lanes WHERE session_id = ANY($1::uuid[])),
    (SELECT count(*) FROM searchable WHERE session_id = ANY($1::uuid[]))
"""
_SIZES: Final = (
    "messages",
    "removed_messages",
    "message_revisions",
    "waiting",
    "late_results",
    "lanes",
    "searchable",
)


async def sizes(connection: "PoolConnectionProxy", ids: "Sequence[UUID]") -> dict[str, int]:
    """Return the number of rows of some sessions in each table."""
    row = await connection.fetchrow(SIZES_SQL, ids)
    return dict(zip(_SIZES, row.values() if row else (), strict=True))


BLANK_SQL: Final[LiteralString] = """
-- messages: remove content and author; places and ids stay
UPDATE messages SET
    content = NULL, state = 'deleted', author = NULL, platform_message_id = NULL, source = NULL,
    details = jsonb_strip_nulls(jsonb_build_object(
        'kind', details -> 'kind', 'result_id', details -> 'result_id'))
WHERE session_id = $1 AND seq = ANY($2::bigint[])
"""
COUNT_REVISION_SQL: Final[LiteralString] = """
-- sessions: count a revision, and delete title, labels and notes, which may quote blanked rows
UPDATE sessions SET
    revision = revision + 1, title = NULL, title_scope = NULL, labels = NULL, carry_over = NULL,
    opening_note = NULL
WHERE id = $1
"""


async def blank(
    connection: "PoolConnectionProxy", session_id: UUID, places: "Sequence[int]"
) -> None:
    """Blank rows of a locked session; their places and ids stay."""
    for begin in range(0, len(places), _CHANGED_AT_ONCE):
        some = places[begin : begin + _CHANGED_AT_ONCE]
        await connection.execute(BLANK_SQL, session_id, some)
        await index_sql.rewrite(connection, [(session_id, seq, None) for seq in some])
    await connection.execute(COUNT_REVISION_SQL, session_id)


DELETE_ARCHIVED_SQL: Final[LiteralString] = """
-- removed_messages: delete rows of the archive and their search entries
WITH found AS (
    DELETE FROM searchable USING unnest($2::bigint[], $3::bigint[]) AS gone (removal, seq)
    WHERE searchable.session_id = $1 AND searchable.removal = gone.removal
      AND searchable.seq = gone.seq
)
DELETE FROM removed_messages USING unnest($2::bigint[], $3::bigint[]) AS gone (removal, seq)
WHERE removed_messages.session_id = $1 AND removed_messages.removal = gone.removal
  AND removed_messages.seq = gone.seq
"""
DELETE_REVISIONS_SQL: Final[LiteralString] = """
-- message_revisions: delete earlier versions of messages
DELETE FROM message_revisions WHERE message_id = ANY($1::uuid[])
"""
DELETE_LATE_SQL: Final[LiteralString] = """
-- late_results: delete late results to turns and messages of a session
DELETE FROM late_results
WHERE session_id = $1 AND (turn_id = ANY($2::uuid[]) OR reply_to = ANY($3::text[]))
"""
DELETE_WAITING_SQL: Final[LiteralString] = """
-- waiting: delete messages of a session
DELETE FROM waiting WHERE session_id = $1 AND arrival = ANY($2::bigint[])
"""
CLEAR_TURNS_SQL: Final[LiteralString] = """
-- turns: remove personal data; cancel claimed and parked turns, and make other attempts void
WITH steps AS (DELETE FROM turn_steps WHERE turn_id = ANY($1::uuid[]))
UPDATE turns SET
    source = CASE WHEN state IN ('ready', 'claimed') THEN source - 'sender' - 'message_id' END,
    error = NULL,
    draft = NULL,
    -- The ids are left, so that the end of the turn takes the buttons away.
    question = CASE WHEN (state = 'claimed' OR (state = 'ready' AND rest = 'parked'))
            AND question IS NOT NULL THEN jsonb_build_object(
        'state', 'erased', 'id', question -> 'id', 'message_id', question -> 'message_id',
        'attempt', question -> 'attempt') END,
    token = CASE WHEN state = 'claimed' THEN token END,
    cancel = CASE WHEN state = 'claimed' OR (state = 'ready' AND rest = 'parked')
                  THEN coalesce(cancel, 'stopped') ELSE cancel END,
    due_at = CASE WHEN state = 'ready' AND rest = 'parked' THEN clock_timestamp() ELSE due_at END
WHERE id = ANY($1::uuid[])
"""
COUNT_RUNNING_SQL: Final[LiteralString] = """
-- turns: the number of these turns that a worker has claimed
SELECT count(*) FROM turns WHERE id = ANY($1::uuid[]) AND state = 'claimed'
"""


async def delete_archived(
    connection: "PoolConnectionProxy", session_id: UUID, places: "Sequence[tuple[int, int]]"
) -> None:
    """Delete rows of the archive, named by (removal, seq)."""
    for begin in range(0, len(places), _CHANGED_AT_ONCE):
        some = places[begin : begin + _CHANGED_AT_ONCE]
        await connection.execute(DELETE_ARCHIVED_SQL, session_id, *columns(some, 2))


async def delete_revisions(connection: "PoolConnectionProxy", messages: "Iterable[UUID]") -> int:
    """Delete the earlier revisions of messages; return their number."""
    status = await connection.execute(DELETE_REVISIONS_SQL, list(messages))
    return int(status.rpartition(" ")[2])


async def delete_late(
    connection: "PoolConnectionProxy",
    session_id: UUID,
    turns: "Iterable[UUID]",
    messages: "Iterable[UUID]",
) -> int:
    """Delete late results of a session to turns and messages; return their number."""
    replies = [str(message_id) for message_id in messages]
    status = await connection.execute(DELETE_LATE_SQL, session_id, list(turns), replies)
    return int(status.rpartition(" ")[2])


async def delete_waiting(
    connection: "PoolConnectionProxy", session_id: UUID, arrivals: "Sequence[int]"
) -> None:
    """Delete waiting messages of a locked session."""
    if arrivals:
        await connection.execute(DELETE_WAITING_SQL, session_id, arrivals)


async def clear_turns(connection: "PoolConnectionProxy", turns: "Iterable[UUID]") -> None:
    """Remove personal data from locked turns, and cancel those that a worker still runs."""
    await connection.execute(CLEAR_TURNS_SQL, sorted(turns))


async def count_running(connection: "PoolConnectionProxy", turns: "Iterable[UUID]") -> int:
    """Return how many of these turns a worker has claimed."""
    count: int = await connection.fetchval(COUNT_RUNNING_SQL, list(turns))
    return count


LINKED_SQL: Final[LiteralString] = """
-- messages: the sessions that hold answers to turns and messages
SELECT session_id FROM messages
WHERE turn_id = ANY($1::uuid[]) AND role <> 'user' AND state IS DISTINCT FROM 'deleted'
UNION
SELECT session_id FROM messages
WHERE reply_to = ANY($2::uuid[]) AND reply_to IS NOT NULL AND state IS DISTINCT FROM 'deleted'
"""


async def with_answers(
    connection: "PoolConnectionProxy", turns: "Iterable[UUID]", messages: "Iterable[UUID]"
) -> set[UUID]:
    """Return the sessions that hold answers to turns and messages."""
    rows = await connection.fetch(LINKED_SQL, list(turns), list(messages))
    return {row[0] for row in rows}


HEIRS_SQL: Final[LiteralString] = """
-- sessions: the sessions that continue these with a summary, and branches of either
WITH RECURSIVE heir (id, hops) AS (
    SELECT id, 0 FROM unnest($1::uuid[]) AS start (id)
    UNION
    SELECT next.id, heir.hops + 1 FROM heir CROSS JOIN LATERAL (
        SELECT id FROM sessions WHERE parent_id = heir.id AND link_kind = 'compression'
        UNION ALL
        SELECT id FROM sessions WHERE parent_id = heir.id AND link_kind = 'branch'
    ) AS next WHERE heir.hops < 64
)
SELECT DISTINCT id FROM heir WHERE hops > 0
"""
SAME_KEY_SQL: Final[LiteralString] = """
-- sessions: the sessions with the same keys as these
SELECT others.id FROM sessions AS these JOIN sessions AS others USING (session_key)
WHERE these.id = ANY($1::uuid[])
"""
CLEAR_NOTES_SQL: Final[LiteralString] = """
-- sessions: delete the notes to and from other sessions of the lane
UPDATE sessions SET carry_over = NULL, opening_note = NULL
WHERE id = ANY($1::uuid[]) AND (carry_over IS NOT NULL OR opening_note IS NOT NULL)
"""


async def heirs_of(connection: "PoolConnectionProxy", ids: "Iterable[UUID]") -> set[UUID]:
    """Return the sessions that continue these with a summary, and all branches of either."""
    return {row[0] for row in await connection.fetch(HEIRS_SQL, list(ids))}


async def of_same_lanes(connection: "PoolConnectionProxy", ids: "Iterable[UUID]") -> set[UUID]:
    """Return all sessions with the same session keys as these."""
    return {row[0] for row in await connection.fetch(SAME_KEY_SQL, list(ids))}


async def clear_notes(connection: "PoolConnectionProxy", ids: "Iterable[UUID]") -> int:
    """Delete the notes of locked sessions; return the number of changed sessions."""
    status = await connection.execute(CLEAR_NOTES_SQL, sorted(ids))
    return int(status.rpartition(" ")[2])


DELETE_LANES_SQL: Final[LiteralString] = """
-- lanes: delete lanes that still point to these sessions
WITH led AS (
    DELETE FROM lanes USING unnest($1::text[], $2::uuid[]) AS gone (session_key, session_id)
    WHERE lanes.session_key = gone.session_key AND lanes.session_id = gone.session_id
    RETURNING lanes.session_key
)
SELECT count(*) FROM led
"""
DELETE_LANE_ALIASES_SQL: Final[LiteralString] = """
-- lane_aliases: delete the names of lanes in another system
DELETE FROM lane_aliases WHERE session_key = ANY($1::text[])
"""


async def delete_lanes(
    connection: "PoolConnectionProxy", lanes: "Iterable[tuple[str, UUID]]"
) -> int:
    """Delete lanes that still point to these sessions; return their number."""
    count: int = await connection.fetchval(DELETE_LANES_SQL, *columns(lanes, 2))
    return count


async def delete_lane_aliases(connection: "PoolConnectionProxy", keys: "Iterable[str]") -> int:
    """Delete the names of lanes in another system; return their number."""
    status = await connection.execute(DELETE_LANE_ALIASES_SQL, sorted(keys))
    return int(status.rpartition(" ")[2])


DELETE_CHAT_ALIASES_SQL: Final[LiteralString] = """
-- aliases: delete the ids of chats
DELETE FROM aliases
WHERE platform = $1 AND account = $2 AND kind = 'chat'
  AND (alias = ANY($3::text[]) OR canonical = ANY($3::text[])) AND first_seen_at <= $4
"""
VACATE_IDS_SQL: Final[LiteralString] = """
-- aliases: give ids with earlier holders to a new identity, which the next holder gets
UPDATE aliases SET
    canonical = alias || '~' || gen_random_uuid(), first_seen_at = clock_timestamp(),
    partner = NULL, was_canonical = false, taken_from = '',
    held_since = $4 + interval '1 microsecond',
    revision = revision + 1
WHERE platform = $1 AND account = $2 AND kind = 'person' AND canonical = $3
  AND first_seen_at <= $4 AND EXISTS (
      SELECT FROM former_ids
      WHERE former_ids.platform = $1 AND former_ids.account = $2
        AND former_ids.form = aliases.alias AND identity <> $3)
"""
DELETE_IDS_SQL: Final[LiteralString] = """
-- aliases → former_ids: delete the ids of a person with their time spans
WITH past AS (
    DELETE FROM former_ids WHERE platform = $1 AND account = $2 AND identity = $3
    RETURNING form
), vacant AS (
    -- Kept only so that the next person with this id is not taken for the earlier holder.
    DELETE FROM aliases
    WHERE platform = $1 AND account = $2 AND kind = 'person' AND taken_from = ''
      AND alias IN (SELECT form FROM past)
      AND NOT EXISTS (
          SELECT FROM former_ids
          WHERE former_ids.platform = $1 AND former_ids.account = $2
            AND former_ids.form = aliases.alias AND identity <> $3)
), present AS (
    DELETE FROM aliases
    WHERE platform = $1 AND account = $2 AND kind = 'person' AND canonical = $3
      AND first_seen_at <= $4
    RETURNING alias
)
SELECT (SELECT count(*) FROM past) + (SELECT count(*) FROM present)
"""
COUNT_IDS_SQL: Final[LiteralString] = """
-- aliases → former_ids: the number of rows about the ids of a person
SELECT (SELECT count(*) FROM aliases
        WHERE platform = $1 AND account = $2 AND kind = 'person' AND canonical = $3
          AND first_seen_at <= $4)
     + (SELECT count(*) FROM former_ids WHERE platform = $1 AND account = $2 AND identity = $3)
"""


async def delete_chat_aliases(
    connection: "PoolConnectionProxy",
    account: tuple[str, str],
    names: "Iterable[str]",
    until: datetime,
) -> int:
    """Delete the aliases of chats of an account that are older than a time; return their number."""
    status = await connection.execute(DELETE_CHAT_ALIASES_SQL, *account, sorted(names), until)
    return int(status.rpartition(" ")[2])


async def delete_ids(
    connection: "PoolConnectionProxy", account: tuple[str, str], identity: str, until: datetime
) -> int:
    """Delete the ids of a person that were known before a time; return the number of rows.

    Earlier holders of an id stay known. Otherwise the next person who writes with it would take
    the place of an earlier holder.
    """
    status = await connection.execute(VACATE_IDS_SQL, *account, identity, until)
    deleted: int = await connection.fetchval(DELETE_IDS_SQL, *account, identity, until)
    return int(status.rpartition(" ")[2]) + deleted


async def count_ids(
    connection: "PoolConnectionProxy", account: tuple[str, str], identity: str, until: datetime
) -> int:
    """Return the number of rows about the ids of a person that were known before a time."""
    count: int = await connection.fetchval(COUNT_IDS_SQL, *account, identity, until)
    return count


DELETE_LETTERS_SQL: Final[LiteralString] = """
-- dead_letters: delete letters
DELETE FROM dead_letters WHERE id = ANY($1::uuid[])
"""


async def delete_letters(connection: "PoolConnectionProxy", ids: "Iterable[UUID]") -> None:
    """Delete dead letters."""
    await connection.execute(DELETE_LETTERS_SQL, list(ids))


FORGET_REPLIES_SQL: Final[LiteralString] = """
-- api_requests: delete replies; the requests stay known, so that a repeat is refused
UPDATE api_requests SET reply = NULL
FROM unnest($1::text[], $2::text[]) AS these (principal, id)
WHERE api_requests.principal = these.principal AND api_requests.id = these.id
"""


async def forget_replies(
    connection: "PoolConnectionProxy", requests: "Iterable[tuple[str, str]]"
) -> None:
    """Delete the stored replies of requests, named by (principal, id)."""
    await connection.execute(FORGET_REPLIES_SQL, *columns(requests, 2))


CLEAR_AUDIT_SQL: Final[LiteralString] = """
-- audit: delete details; actor, action and time stay
UPDATE audit SET detail = '{"erased": true}' WHERE id = ANY($1::bigint[])
"""


async def clear_audit_lines(connection: "PoolConnectionProxy", ids: "Iterable[int]") -> None:
    """Remove the details from lines of the audit."""
    await connection.execute(CLEAR_AUDIT_SQL, list(ids))


OLD_EARLY_SQL: Final[LiteralString] = """
-- early_edits: delete the edits of these messages, and all from before a time
DELETE FROM early_edits WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM early_edits WHERE digest = ANY($1::bytea[])
    UNION
    (SELECT ctid FROM early_edits WHERE kept_at < $2 ORDER BY kept_at LIMIT $3)))
"""


async def delete_early_edits(
    connection: "PoolConnectionProxy", digests: "Iterable[bytes]", before: datetime
) -> int:
    """Delete edits that wait for their message; return their number.

    Args:
        digests: Digests of the messages.
        before: The log no longer holds edits from before this time, so their senders are unknown.
    """
    status = await connection.execute(OLD_EARLY_SQL, list(digests), before, _CHANGED_AT_ONCE)
    return int(status.rpartition(" ")[2])


NOW_SQL: Final[LiteralString] = """
-- erasures: the clock of the database
SELECT clock_timestamp()
"""


async def now(connection: "PoolConnectionProxy") -> datetime:
    """Return the database time, which also stamps requests and dead letters."""
    moment: datetime = await connection.fetchval(NOW_SQL)
    return moment
