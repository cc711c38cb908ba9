"""Ten thousand parked turns for days: answered, edited, stopped, reset, erased and forgotten."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from chatlane.privacy import erase_sql
from tests.integration.turns.test_parked_turns import DAY_MS, NAME, ParkedDesk
from tests.integration.turns.test_questions import session_of
from tests.support.worlds.kernel import Kernel, event

if TYPE_CHECKING:
    from uuid import UUID

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

MANY: Final = 10_000
DAYS: Final = 4
# How many meet each fate before the deadline, on one of the days before it; the others are forgotten.
FATES: Final = {
    "answered": 1_000,
    "told something else": 500,
    "edited": 300,
    "deleted": 100,
    "stopped": 80,
    "reset": 80,
    "erased": 200,
}
ENDED: Final = {"deleted", "stopped", "reset", "erased"}
FIRST_USER: Final = 100_000
BATCH: Final = 500
_COLUMNS: Final = """
SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute
WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
"""
# Copies differ in the id of the person, and in the last digits of each id.
_COPY: Final = """
INSERT INTO {table} ({columns})
SELECT {copies} FROM {table} AS original, generate_series(1, $1) AS number,
    jsonb_populate_record(NULL::{table}, regexp_replace(
        regexp_replace(to_jsonb(original)::text, '\\m701\\M', ({first} + number)::text, 'g'),
        '([0-9a-f]{{8}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-)[0-9a-f]{{8}}([0-9a-f]{{4}})',
        '\\1ffff' || lpad(to_hex(number), 4, '0') || '\\2', 'g')::jsonb) AS copy
"""
_STATES: Final = """
SELECT turns.id, turns.state, turns.rest, turns.dispatch > 1 AS is_notified, turns.attempt,
       question ->> 'state' = 'open' AS asks, steps.result ->> 'value' AS answer,
       sessions.active_turn = turns.id AS is_live,
       EXISTS (SELECT FROM turn_steps WHERE turn_id = turns.id AND name = 'search') AS has_step
FROM turns JOIN sessions ON sessions.id = turns.session_id
LEFT JOIN (SELECT turn_id, result::jsonb AS result FROM turn_steps WHERE name = 'ask:book')
    AS steps ON steps.turn_id = turns.id
WHERE turns.attempt > 0
"""
_DAY_LATER: Final = """
UPDATE turns SET due_at = due_at - interval '1 day' WHERE state = 'ready' AND rest = 'parked'
"""

_NOTIFIED: Final = """
UPDATE turns SET due_at = due_at + interval '1 year'
WHERE state = 'ready' AND dispatch > 1 AND due_at < clock_timestamp() + interval '1 day'
"""


class Crowd:
    """Many people with a parked turn each.

    Attributes:
        turns: The turn of each person.
        fates: What happened to each person so far.
    """

    def __init__(self, desk: ParkedDesk) -> None:
        self.desk = desk
        self.kernel = desk.kernel
        self.now = datetime.now(UTC)
        self.turns: dict[int, UUID] = {}
        self.fates: dict[int, str] = {}

    async def gather(self) -> None:
        """Park one turn as a worker does, and copy it with its session."""
        claimed = await self.desk.claimed()
        await self.desk.keep(claimed)
        await self.desk.park(claimed, within_ms=(DAYS - 1) * DAY_MS, default="n")
        for table in ("sessions", "lanes", "messages", "turns", "turn_steps"):
            columns = await self.kernel.value(_COLUMNS, table)
            copies = ", ".join(f"copy.{name.strip()}" for name in columns.split(","))
            query = _COPY.format(table=table, columns=columns, copies=copies, first=FIRST_USER)
            await self.fetch(query, MANY)
        rows = await self.fetch(
            "SELECT turns.id, right(session_key, 6)::int FROM turns"
            " JOIN sessions ON sessions.id = session_id WHERE turns.id <> $1",
            claimed.turn_id,
        )
        self.turns = {user: turn for turn, user in rows}
        assert len(self.turns) == MANY
        self.now = datetime.now(UTC)
        # The first one is over, and only the copies stay.
        await self.kernel.decide([self.logged(701, text="/stop", mid="2")])
        assert await self.kernel.live_turn(session_of(claimed)) is None

    async def fetch(self, query: str, *arguments: object) -> list[Any]:
        """Run a query that may take longer than those of a router."""
        async with self.kernel.owner.transaction() as connection:
            await connection.execute("SET LOCAL statement_timeout = 0")
            return list(await connection.fetch(query, *arguments, timeout=120))

    def logged(self, user: int, **fields: Any) -> Any:  # noqa: ANN401 - a message of the log
        said = event(chat=str(user), user=str(user), **fields)
        return self.kernel.logged(said, self.now)

    async def meet(self, fate: str, users: Iterable[int]) -> None:
        """Let the same happen to people, each in a chat, many in a batch."""
        users = list(users)
        self.fates |= dict.fromkeys(users, fate)
        if fate == "erased":
            async with self.kernel.owner.transaction() as connection:
                await erase_sql.clear_turns(connection, [self.turns[user] for user in users])
            return
        fields: dict[str, dict[str, str]] = {
            "answered": {"text": "1", "mid": "2"},
            "told something else": {"text": "what?", "mid": "2"},
            "edited": {"kind": "edit", "mid": "1", "text": "book two tables"},
            "deleted": {"kind": "delete", "mid": "1"},
            "stopped": {"text": "/stop", "mid": "2"},
            "reset": {"text": "/new", "mid": "2"},
        }
        for first in range(0, len(users), BATCH):
            batch = [self.logged(user, **fields[fate]) for user in users[first : first + BATCH]]
            await self.kernel.decide(batch)

    async def sweep(self) -> None:
        """Let routers act on all turns that are due."""
        while await self.kernel.deadlines.sweep():
            # No worker runs, so their notifications would be repeated for as long as the test takes.
            await self.fetch(_NOTIFIED)

    async def pass_day(self) -> None:
        """Let a day pass for the logs and for the database."""
        self.now += timedelta(days=1)
        await self.fetch(_DAY_LATER)

    async def check(self, *, is_over: bool) -> None:
        """Compare each turn with what happened to its person."""
        users = {turn: user for user, turn in self.turns.items()}
        found: Counter[tuple[object, ...]] = Counter()
        for turn, *state in await self.fetch(_STATES):
            if turn in users:
                found[self.fates.get(users[turn], "forgotten"), *state] += 1
        expected: Counter[tuple[object, ...]] = Counter()
        told = Counter(self.fates.get(user, "forgotten") for user in users.values())
        for fate, count in told.items():
            expected[fate, *_state_of(fate, is_over=is_over)] += count
        assert found == expected
        # Each question that is not open any more is over once.
        heard = await self.kernel.published("EVENTS", "chat.v1.event.turn.answered.%")
        assert len({one["question_id"] for one in heard}) == len(heard)
        ends = Counter(one["outcome"] for one in heard)
        withdrawn = sum(told[fate] for fate in (*ENDED, "edited"))
        late = told["forgotten"] + told["told something else"] if is_over else 0
        # One more is that of the first turn.
        assert ends == +Counter(answered=told["answered"], withdrawn=withdrawn + 1, expired=late)


def _state_of(fate: str, *, is_over: bool) -> tuple[object, ...]:
    """Return the columns of `_STATES` after the id."""
    if fate in ENDED:
        # A delete withdraws the question first, as an edit does.
        rest = None if fate == "deleted" else "parked"
        return "void", rest, False, 1, None, None, None, False
    if fate == "answered":
        return "ready", None, True, 1, None, "y", True, True
    if fate == "edited":
        return "ready", None, True, 1, None, None, True, True
    if is_over:
        return "ready", None, True, 1, None, "n", True, True
    return "ready", "parked", False, 1, True, None, True, True


async def test_thousands_of_parked_turns_wake_once_each_in_any_order(kernel: Kernel) -> None:
    crowd = Crowd(ParkedDesk(kernel))
    await crowd.gather()
    chance = Random(60)  # noqa: S311 - the same every time
    users = list(crowd.turns)
    chance.shuffle(users)
    plan: list[tuple[str, list[int]]] = []
    for fate, count in FATES.items():
        its, users = users[:count], users[count:]
        plan += [(fate, its[:: DAYS - 1]), (fate, its[1 :: DAYS - 1]), (fate, its[2 :: DAYS - 1])]
    chance.shuffle(plan)
    for day in range(DAYS - 1):
        for fate, its in plan[day :: DAYS - 1]:
            await crowd.meet(fate, its)
        await crowd.sweep()
        await crowd.check(is_over=False)
        if day < DAYS - 2:
            await crowd.pass_day()
    await crowd.pass_day()
    await crowd.sweep()
    await crowd.check(is_over=True)
    # They go on with what they were answered, and what waited comes next.
    for fate in ("answered", "told something else", "edited"):
        user = next(user for user, its in crowd.fates.items() if its == fate)
        claimed = await kernel.claim(crowd.turns[user])
        assert claimed.attempt == 2
        answer = await crowd.desk.kept(claimed, NAME)
        assert (answer or {}).get("value") == {"answered": "y", "edited": None}.get(fate, "n")
        await kernel.answer(claimed)
        waits = await kernel.live_turn(session_of(claimed)) is not None
        assert waits is (fate == "told something else")
