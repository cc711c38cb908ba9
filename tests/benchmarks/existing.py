"""Conversations that are there before the first message of a measurement, any number of them.

Every one has a lane, a session and the message that opened it: waiting for a live turn where the
agent has turns, else in the transcript. The next message to each is the same work then,
however many there are. Chat `n` is called `old-<n>`.
"""

from typing import Final, LiteralString

import asyncpg

CHAT_PREFIX: Final = "old"

# Ids begin with a time, as those that messages get do, and are the same each time.
NUMBERS_SQL: Final[LiteralString] = """
-- bench: which sessions and turns there will be
CREATE TEMPORARY TABLE numbers ON COMMIT DROP AS
SELECT n, session_key, (stamp || '8' || substr(digest, 1, 3) || '8' || rest)::uuid AS id,
    (stamp || '8' || substr(digest, 1, 3) || '9' || rest)::uuid AS turn_id
FROM (
    SELECT n, $2::text || n AS session_key, lpad(to_hex(1700000000000 + n), 12, '0') AS stamp,
        md5($2::text || n) AS digest, substr(md5($2::text || n), 4, 15) AS rest
    FROM generate_series(0, $1::int - 1) AS n
) AS made
"""
LANES_SQL: Final[LiteralString] = """
-- bench: lanes that lead to them
INSERT INTO lanes (session_key, session_id) SELECT session_key, id FROM numbers ORDER BY n
"""
SESSIONS_SQL: Final[LiteralString] = """
-- bench: the sessions
INSERT INTO sessions (
    id, session_key, agent, platform, started_at, last_activity_at, active_turn, next_seq,
    next_arrival, user_messages, owner)
SELECT id, session_key, $1, 'telegram', now(), now(), CASE WHEN $2 THEN turn_id END,
    CASE WHEN $2 THEN 1 ELSE 2 END, CASE WHEN $2 THEN 2 ELSE 1 END, 1, 'telegram:bot:old-' || n
FROM numbers ORDER BY n
"""
SEEN_SQL: Final[LiteralString] = """
-- bench: the marks of the messages that opened them
INSERT INTO seen (digest, day, session_id, arrival)
SELECT sha256(convert_to(session_key, 'UTF8')), (now() AT TIME ZONE 'UTC')::date, id, 1 FROM numbers
"""
TURNS_SQL: Final[LiteralString] = """
-- bench: a live turn of each, not due while anything is measured
INSERT INTO turns (id, session_id, agent, state, due_at)
SELECT turn_id, id, $1, 'ready', now() + interval '1 day' FROM numbers ORDER BY n
"""
WAITING_SQL: Final[LiteralString] = """
-- bench: the message that the turn is about
INSERT INTO waiting (
    session_id, arrival, session_key, message_id, author, platform_message_id, size_bytes, content,
    details, source, stored_at)
SELECT id, 1, session_key, id, 'old-' || n, 'first', 300, repeat('word ', 40), '{}',
    jsonb_build_object('platform', 'telegram', 'account', 'bot', 'chat',
        jsonb_build_object('id', 'old-' || n, 'kind', 'dm')), now()
FROM numbers ORDER BY n
"""
MESSAGES_SQL: Final[LiteralString] = """
-- bench: the message, where it is routed at once
INSERT INTO messages (session_id, seq, id, role, content, created_at)
SELECT id, 1, id, 'user', repeat('word ', 40), now() FROM numbers ORDER BY n
"""
PROGRESS_SQL: Final[LiteralString] = """
-- bench: and nothing is left to be made searchable
INSERT INTO search_progress (session_id, seq) SELECT id, 1 FROM numbers
"""
TIDY_SQL: Final = "VACUUM (ANALYZE)"


async def fill(database: asyncpg.Connection, sessions: int, agent: str) -> None:
    """Make so many conversations with an agent of the benchmarks, `main` or `notes`."""
    has_turns = agent == "main"
    async with database.transaction():
        await database.execute("SELECT create_seen_days(current_date - 1, current_date + 1)")
        await database.execute(NUMBERS_SQL, sessions, f"agent:{agent}:telegram:bot:dm:old-")
        await database.execute(LANES_SQL)
        await database.execute(SESSIONS_SQL, agent, has_turns)
        await database.execute(SEEN_SQL)
        if has_turns:
            await database.execute(TURNS_SQL, agent)
            await database.execute(WAITING_SQL)
        else:
            await database.execute(MESSAGES_SQL)
            await database.execute(PROGRESS_SQL)
    await database.execute(TIDY_SQL)
