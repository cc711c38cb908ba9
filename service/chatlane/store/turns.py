"""Turns: their workers, leases and attempts."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple
from uuid import UUID

from chatlane.domain.states import AskedQuestion, Turn
from chatlane.domain.turns.turn_events import TurnPointer
from chatlane.postgres.pool import columns
from chatlane.postgres.stored_values import known_value, read_source
from chatlane.store import turn_steps
from chatlane_schemas.turns import CancelReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta

    from asyncpg import Record

    from chatlane.domain.effects import DebounceRow
    from chatlane.postgres.pool import Connection

FIND_TURNS_SQL: Final[LiteralString] = """
-- turns: the sessions to lock before the turns themselves
SELECT id, session_id FROM turns WHERE id = ANY($1::uuid[])
"""


async def find_sessions(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, UUID]:
    """Return the session of each known turn; a turn never changes its session."""
    rows = await connection.fetch(FIND_TURNS_SQL, list(ids))
    return {row[0]: row[1] for row in rows}


FIND_CLAIMED_SQL: Final[LiteralString] = """
-- turns: the sessions to lock, and whether messages of theirs were given up since
SELECT id, session_id, EXISTS (
    SELECT FROM deliveries WHERE deliveries.session_id = turns.session_id AND is_untold)
FROM turns WHERE id = ANY($1::uuid[])
"""


class ClaimedSessions(NamedTuple):
    """The session of each known turn, and the sessions in which deliveries failed since."""

    session_ids: dict[UUID, UUID]
    untold: set[UUID]


async def find_claimed_sessions(connection: Connection, ids: Iterable[UUID]) -> ClaimedSessions:
    """Return the sessions of claimed turns, as of an unlocked read."""
    rows = await connection.fetch(FIND_CLAIMED_SQL, list(ids))
    return ClaimedSessions({row[0]: row[1] for row in rows}, {row[1] for row in rows if row[2]})


LOCK_TURNS_SQL: Final[LiteralString] = """
-- turns: lock after their sessions
SELECT id, session_id, agent, state, source, attempt, dispatch,
       greatest(due_at - clock_timestamp(), interval '0') AS due_in,
       claim_id, worker, token, result_id, outcome, error, cancel, rest, interruptions,
       interrupted_at, is_begun, unbegun, is_asked, waits_since, wait_told, draft, has_spoken, has_steps,
       -- Of an erased question only the ids are left.
       CASE WHEN question ->> 'state' IN ('open', 'erased')
                 AND (question ->> 'attempt')::int = attempt
            THEN ARRAY[question ->> 'id', question ->> 'message_id'] END AS asked,
       (SELECT trial IS NOT DISTINCT FROM turns.id FROM agent_pauses
        WHERE agent_pauses.agent = turns.agent) AS is_trial
FROM turns WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE
"""


async def lock(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, Turn]:
    """Lock and return turns by id; `due_in` is the rest of the lease or pause, never negative."""
    rows = await connection.fetch(LOCK_TURNS_SQL, sorted(ids))
    return {row["id"]: _from_row(row) for row in rows}


def _from_row(row: Record) -> Turn:
    values = dict(row.items())
    text, cancel, question = values.pop("source"), values.pop("cancel"), values.pop("asked")
    source = None if text is None else read_source(text, "turns")
    return Turn(
        **values,
        open_question=_asked(question),
        source=source,
        known_text=None if source is None else (source, text),
        cancel=None if cancel is None else _cancel_reason(cancel),
    )


def _asked(ids: Sequence[str] | None) -> AskedQuestion | None:
    return None if ids is None else AskedQuestion(UUID(ids[0]), UUID(ids[1]))


def _cancel_reason(stored: str) -> CancelReason:
    """Return the cancel reason of a turn; an unknown reason also ends the turn."""
    return known_value(CancelReason, stored, "turns.cancel") or CancelReason.STOPPED


RENAME_SQL: Final[LiteralString] = """
-- turns: one that nobody has claimed gets the id that it had before the database was restored
UPDATE turns SET id = $2 WHERE id = $1 AND attempt = 0
"""


async def rename(connection: Connection, turn: Turn, id_: UUID) -> None:
    """Change the id of a locked turn that no worker has claimed."""
    await connection.execute(RENAME_SQL, turn.id, id_)
    turn.id = id_


FIND_DUE_SQL: Final[LiteralString] = """
-- turns: leases that ran out and notifications to repeat, longest overdue first
SELECT turns.id, turns.agent, turns.state, turns.attempt, sessions.agent AS session_agent,
       turns.rest IS NOT DISTINCT FROM 'resting' AS is_resting
FROM turns JOIN sessions ON sessions.id = turns.session_id
WHERE turns.state IN ('ready', 'claimed') AND turns.due_at <= (SELECT clock_timestamp())
ORDER BY turns.due_at LIMIT $1
"""


class DueTurn(NamedTuple):
    """A due turn, as of an unlocked read."""

    id: UUID
    agent: str
    state: str
    attempt: int
    session_agent: str
    is_resting: bool

    @property
    def may_be_unread(self) -> bool:
        """Return whether its notification may still be on its way to the workers of its agent."""
        if self.is_resting:
            return False
        return self.state == "ready" and self.attempt == 0 and self.agent == self.session_agent


async def find_due(connection: Connection, limit: int) -> list[DueTurn]:
    """Return due turns, unlocked."""
    return [DueTurn(**row) for row in await connection.fetch(FIND_DUE_SQL, limit)]


POSTPONE_SQL: Final[LiteralString] = """
-- turns: notifications that are still unread need no repetition yet
UPDATE turns SET due_at = clock_timestamp() + $2
WHERE id = ANY($1::uuid[]) AND state = 'ready' AND attempt = 0
"""


async def postpone(connection: Connection, ids: Iterable[UUID], pause: timedelta) -> None:
    """Postpone the next check of unclaimed turns."""
    await connection.execute(POSTPONE_SQL, sorted(ids), pause)


PROLONG_SQL: Final[LiteralString] = """
-- turns: those that rest do so for newer messages, too, up to their cap
UPDATE turns SET due_at = greatest(
    due_at, least(clock_timestamp() + want.span, created_at + want.cap))
FROM (
    SELECT turns.id, max(new.span) AS span, max(new.cap) AS cap
    FROM unnest($1::uuid[], $2::interval[], $3::interval[]) AS new (id, span, cap)
    JOIN (SELECT id FROM turns WHERE id = ANY($1::uuid[]) AND state = 'ready' AND rest = 'resting'
          ORDER BY id FOR NO KEY UPDATE) AS turns ON turns.id = new.id
    GROUP BY turns.id) AS want
WHERE turns.id = want.id
RETURNING due_at - clock_timestamp()
"""


async def extend(connection: Connection, rests: Sequence[DebounceRow]) -> timedelta | None:
    """Extend the debounce of turns of locked sessions; returns the time until the first one is due."""
    rows = await connection.fetch(PROLONG_SQL, *columns(rests, 3))
    return min((row[0] for row in rows), default=None)


INTERRUPT_SQL: Final[LiteralString] = """
-- turns: newer messages take the place of those that run, or would run again
UPDATE turns SET cancel = 'interrupted',
    question = CASE WHEN found.asked IS NOT NULL THEN question || '{"state": "withdrawn"}'
                    ELSE question END,
    -- The lease of one that ran has ended: the sweep ends it now.
    due_at = CASE WHEN turns.state = 'ready' THEN clock_timestamp() ELSE due_at END
FROM (
    SELECT id, CASE WHEN question ->> 'state' = 'open'
                    THEN ARRAY[question ->> 'id', question ->> 'message_id'] END AS asked
    FROM turns
    WHERE id = ANY($1::uuid[]) AND cancel IS NULL
      AND (state = 'claimed' OR (state = 'ready' AND attempt > 0))
    ORDER BY id FOR NO KEY UPDATE) AS found
WHERE turns.id = found.id
RETURNING turns.id, attempt, agent, CASE WHEN asked IS NOT NULL THEN source END AS source, asked
"""


async def interrupt(
    connection: Connection, ids: Iterable[UUID]
) -> list[tuple[TurnPointer, AskedQuestion | None]]:
    """Cancel turns of locked sessions for newer messages; returns them with their questions."""
    rows = await connection.fetch(INTERRUPT_SQL, sorted(ids))
    found = (
        (
            TurnPointer(
                row["id"],
                row["attempt"],
                row["agent"],
                None if row["source"] is None else read_source(row["source"], "turns"),
            ),
            _asked(row["asked"]),
        )
        for row in rows
    )
    return sorted(found, key=lambda pair: pair[0].id)


_INSERTED: Final = attrgetter("id", "session_id", "agent", "state", "dispatch", "due_in", "rest")

INSERT_TURNS_SQL: Final[LiteralString] = """
-- turns: new ones; the partial unique index refuses a second live turn of a session
INSERT INTO turns (id, session_id, agent, state, dispatch, due_at, rest)
SELECT id, session_id, agent, state, dispatch, clock_timestamp() + due_in, rest
FROM unnest(
    $1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::int[], $6::interval[], $7::text[])
    AS new (id, session_id, agent, state, dispatch, due_in, rest)
"""


async def insert(connection: Connection, turns: Sequence[Turn]) -> None:
    """Write new, unclaimed turns."""
    rows = [_INSERTED(turn) for turn in turns]
    if rows:
        await connection.execute(INSERT_TURNS_SQL, *columns(rows, 7))


# The fields of `Turn` that a transaction writes back; `source` follows as JSON text.
_UPDATED: Final = attrgetter(
    *(
        field.name
        for field in fields(Turn)
        if field.name
        not in {
            "session_id",
            "source",
            "interrupted_at",
            "is_trial",
            "draft",
            "has_spoken",
            "has_steps",
            "open_question",
            "known_text",
        }
    )
)

UPDATE_TURNS_SQL: Final[LiteralString] = """
-- turns: state of those locked before
UPDATE turns SET
    agent = new.agent, state = new.state, source = new.source, attempt = new.attempt,
    dispatch = new.dispatch,
    due_at = clock_timestamp() + new.due_in, claim_id = new.claim_id, worker = new.worker,
    token = new.token, result_id = new.result_id, outcome = new.outcome, error = new.error,
    cancel = new.cancel, rest = new.rest, interruptions = new.interruptions,
    is_begun = new.is_begun, unbegun = new.unbegun, is_asked = new.is_asked,
    waits_since = new.waits_since, wait_told = new.wait_told,
    -- A question belongs to one attempt, and stays while its turn is parked.
    question = CASE WHEN (new.state = 'claimed' OR (new.state = 'ready' AND new.rest = 'parked'))
                         AND new.attempt = turns.attempt
                    THEN CASE WHEN new.cancel IS NOT NULL AND turns.question ->> 'state' = 'open'
                              THEN turns.question || '{"state": "withdrawn"}'
                              ELSE turns.question END END,
    interrupted_at = CASE WHEN new.interruptions > turns.interruptions THEN clock_timestamp()
                          ELSE turns.interrupted_at END,
    claimed_at = CASE WHEN new.attempt > turns.attempt THEN clock_timestamp()
                      ELSE turns.claimed_at END,
    ended_at = CASE WHEN new.state IN ('done', 'failed', 'void') THEN clock_timestamp() END
FROM unnest(
    $1::uuid[], $2::text[], $3::text[], $4::int[], $5::int[], $6::interval[], $7::text[],
    $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[],
    $15::int[], $16::bool[], $17::int[], $18::bool[], $19::timestamptz[], $20::bool[], $21::jsonb[])
    AS new (id, agent, state, attempt, dispatch, due_in, claim_id, worker, token, result_id,
            outcome, error, cancel, rest, interruptions, is_begun, unbegun, is_asked, waits_since,
            wait_told, source)
WHERE turns.id = new.id
"""


NOTE_DRAFTS_SQL: Final[LiteralString] = """
-- turns: which message of the chat shows the answer so far; the last report counts
UPDATE turns SET draft = reported.message_id
FROM (
    SELECT DISTINCT ON (turn_id) *
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY
        AS reports (turn_id, platform, account, message_id, place)
    ORDER BY turn_id, place DESC) AS reported
WHERE turns.id = reported.turn_id AND turns.state IN ('ready', 'claimed')
  AND turns.source ->> 'platform' = reported.platform
  AND turns.source ->> 'account' = reported.account
"""


class DraftRow(NamedTuple):
    """A draft of an answer, as the adapter of an account reports it."""

    turn_id: UUID
    platform: str
    account: str
    message_id: str


async def note_drafts(connection: Connection, drafts: Sequence[DraftRow]) -> None:
    """Note the drafts of live turns of locked sessions, if their answer goes to that account."""
    if drafts:
        await connection.execute(NOTE_DRAFTS_SQL, *columns(drafts, 4))


async def update(connection: Connection, turns: Iterable[Turn]) -> None:
    """Write turns that this transaction has locked, each once; the steps of ended ones are deleted."""
    changed = {turn.id: turn for turn in turns}
    if changed:
        rows = [(*_UPDATED(turn), turn.source_text) for turn in changed.values()]
        await connection.execute(UPDATE_TURNS_SQL, *columns(rows, 21))
    if over := [turn.id for turn in changed.values() if turn.has_steps and not turn.is_live]:
        await turn_steps.delete(connection, over)
