"""10,000 conversations of 500 people with 200,000 rows, and what somebody may look for in them."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Final, LiteralString

import asyncpg

from chatlane.domain.ids import derived_id
from chatlane.search.tokens import document, marks_of

if TYPE_CHECKING:
    from uuid import UUID

SESSIONS: Final = 10_000
ROWS_OF_A_SESSION: Final = 20
PEOPLE: Final = 500
_WORDS: Final = 20_000
_CHINESE_SHARE: Final = 0.15
_AT_ONCE: Final = 250
_BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)

SESSIONS_SQL: Final[LiteralString] = """
-- bench: conversations that were answered
INSERT INTO sessions (
    id, session_key, agent, platform, started_at, last_activity_at, next_seq, owner)
SELECT id, 'agent:main:telegram:bot:dm:lib' || owner || id, 'main', 'telegram', at, at, $4, owner
FROM unnest($1::uuid[], $2::timestamptz[], $3::text[]) AS new (id, at, owner)
"""
ROWS_SQL: Final[LiteralString] = """
-- bench: what was said in them
INSERT INTO messages (session_id, seq, role, content, created_at)
SELECT session_id, seq, CASE WHEN seq % 2 = 1 THEN 'user' ELSE 'assistant' END, content, at
FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::timestamptz[])
    AS new (session_id, seq, content, at)
"""
SEARCHABLE_SQL: Final[LiteralString] = """
-- bench: what it is found by
INSERT INTO searchable (session_id, removal, seq, id, terms)
SELECT session_id, 0, seq, id, (terms || ' ''=b:' || (id >> 13) || '''')::tsvector
FROM (
    SELECT new.*, nextval('searchable_id_seq') AS id
    FROM unnest($1::uuid[], $2::bigint[], $3::text[]) AS new (session_id, seq, terms)
) AS numbered
"""
PROGRESS_SQL: Final[LiteralString] = """
-- bench: nothing is left to be made searchable
INSERT INTO search_progress (session_id, seq, marks)
SELECT id, $3, string_to_array(marks, ' ')
FROM unnest($1::uuid[], $2::text[]) AS new (id, marks)
"""
# An index of this size is made faster than it grows; what it costs to grow is not the question.
WITHOUT_INDEX_SQL: Final = "DROP INDEX IF EXISTS searchable_terms_idx"
INDEX_SQL: Final = (
    "CREATE INDEX searchable_terms_idx ON searchable USING gin (terms) "
    "WITH (gin_pending_list_limit = 256)"
)


class Language:
    """Words as frequent as words are: the second half as often as the first, and so on."""

    def __init__(self, seed: int = 1) -> None:
        self._random = Random(seed)  # noqa: S311 - the same words each time
        letters = "abcdefghijklmnopqrstuvwxyz"
        self._words = [
            "".join(self._random.choices(letters, k=self._random.randint(2, 9)))
            for _ in range(_WORDS)
        ]

    def text(self) -> str:
        """Return what somebody may say, 30 words or 60 characters long."""
        if self._random.random() < _CHINESE_SHARE:
            return self._characters(60)
        return " ".join(self._word() for _ in range(30))

    def queries(self) -> Iterator[str]:
        """Yield what somebody may look for: frequent, seldom and several words, pieces, parts."""
        while True:
            yield self._words[self._random.randrange(10)]
            yield self._words[self._random.randrange(200, 1000)]
            yield self._words[self._random.randrange(5000, _WORDS)]
            yield f"{self._word()} {self._word()}"
            yield self._characters(2)
            yield f'"{self._word()} {self._word()}"'
            yield f"{self._words[self._random.randrange(1000, 5000)][:3]}*"

    def _word(self) -> str:
        return self._words[min(int(self._random.paretovariate(0.7)), _WORDS) - 1]

    def _characters(self, count: int) -> str:
        return "".join(
            chr(0x4E00 + min(int(self._random.paretovariate(0.7)), 5000)) for _ in range(count)
        )


def owner_of(number: int) -> str:
    """Return whose a conversation is."""
    return f"telegram:bot:reader-{number % PEOPLE}"


async def fill(database: asyncpg.Connection) -> None:
    """Write all conversations, searchable."""
    language = Language()
    await database.execute(WITHOUT_INDEX_SQL)
    for first in range(0, SESSIONS, _AT_ONCE):
        await _write(database, language, range(first, first + _AT_ONCE))
    await database.execute(INDEX_SQL)
    await database.execute("ANALYZE")


async def _write(database: asyncpg.Connection, language: Language, numbers: Sequence[int]) -> None:
    begun = [_BEGIN + timedelta(minutes=number) for number in numbers]
    ids = [derived_id(at, b"library", "session", n) for at, n in zip(begun, numbers, strict=True)]
    owners = list(map(owner_of, numbers))
    marks = [marks_of(one, "main", owner) for one, owner in zip(ids, owners, strict=True)]
    rows: list[tuple[UUID, int, str, datetime, str]] = []
    for session_id, at, its in zip(ids, begun, marks, strict=True):
        for seq in range(1, ROWS_OF_A_SESSION + 1):
            text = language.text()
            rows.append((session_id, seq, text, at, document(text, its) or ""))
    homes, seqs, texts, times, terms = map(list, zip(*rows, strict=True))
    async with database.transaction():
        await database.execute(SESSIONS_SQL, ids, begun, owners, ROWS_OF_A_SESSION + 1)
        await database.execute(ROWS_SQL, homes, seqs, texts, times)
        await database.execute(SEARCHABLE_SQL, homes, seqs, terms)
        await database.execute(PROGRESS_SQL, ids, list(map(" ".join, marks)), ROWS_OF_A_SESSION)
