"""`make console-load`: how fast the console is with a long list and a long conversation.

Prints a table in Markdown. Servers, router and console run on this machine, the last two in this process.
"""

import asyncio
import logging
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import asyncpg
import structlog
from nats.aio.client import Client
from playwright.async_api import Browser

from chatlane_client import SessionApi, TranscriptApi, open_connection
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.transcripts import AppendedRow
from tests.acceptance.console.browser import Window, open_browser, open_context
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import ACCOUNT, PLATFORM
from tests.integration.console.console_world import API, PROXY, ConsoleWorld, open_console
from tests.support.servers.backends import Backend, open_test_nats, open_test_postgres
from tests.support.servers.databases import migrated, open_database

_SESSIONS: Final = 10_000
_ROWS: Final = 20_000
_ROWS_AT_ONCE: Final = 500
_WINDOWS: Final = 7
_PATIENCE: Final = timedelta(minutes=5)
_ANN: Final = Person(platform=PLATFORM, account=ACCOUNT, id="ann")
# As the page asks for them.
_LIST: Final = {
    "limit": 50,
    "pinned_first": True,
    "hide_empty": True,
    "tips_only": True,
    "archived": False,
    "without_origins": "cron",
}

COPY_SESSION_SQL: Final = """
WITH copied AS (
    INSERT INTO sessions (
        id, session_key, agent, platform, started_at, last_activity_at, last_message_at, next_seq,
        user_messages, title, origin, owner)
    SELECT gen_random_uuid(), session_key || '-' || n, agent, platform,
        started_at - n * interval '1 minute', now() - n * interval '1 minute',
        now() - n * interval '1 minute', 2, 1, 'Conversation ' || n, origin, owner
    FROM sessions, generate_series(1, $2::int) AS n WHERE id = $1
    RETURNING id, last_message_at)
INSERT INTO messages (session_id, seq, role, content, created_at)
SELECT id, 1, 'user', 'What was said here?', last_message_at FROM copied
"""


async def measure() -> list[tuple[str, list[float]]]:
    """Return what was measured, with its times in milliseconds."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        nats = await enter(open_test_nats(Backend.EMBEDDED))
        postgres = await enter(open_test_postgres(Backend.EMBEDDED))
        dsn = postgres.dsn(await enter(open_database(postgres.dsn("postgres"))))
        await migrated(dsn)
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        await enter(real_router(Path(scratch), nats.url, dsn))
        client = await enter(open_connection(nats.url, name="load"))
        session_id = await _fill(client, dsn)
        console = await enter(open_console(nats.url, **PROXY))
        browser = await enter(open_browser())
        rows = f"{API}/sessions/{session_id}/rows"
        paints = await _paints(browser, console, "#/list", ".entry")
        talks = await _paints(browser, console, f"#/session/{session_id}", ".row[id]")
        return [
            ("a page of 50 conversations", await _pages(console, f"{API}/sessions", _LIST)),
            ("a page of 100 messages", await _pages(console, rows, {"limit": 100})),
            ("first paint of the list", paints[0]),
            ("the list shows conversations", paints[1]),
            ("first paint of the conversation", talks[0]),
            ("the conversation shows messages", talks[1]),
        ]


async def _fill(client: Client, dsn: str) -> UUID:
    """Write a conversation and copies of its session; return the id of the conversation."""
    sessions = SessionApi(client, principal="console", acting_for=_ANN, patience=_PATIENCE)
    transcripts = TranscriptApi(client, principal="console", acting_for=_ANN, patience=_PATIENCE)
    session = await sessions.create(origin="console")
    for start in range(0, _ROWS, _ROWS_AT_ONCE):
        await transcripts.append(
            session.id,
            [
                AppendedRow(
                    role=Role.ASSISTANT if number % 2 else Role.USER,
                    content=f"Row {number} of a *long* conversation.",
                )
                for number in range(start, start + _ROWS_AT_ONCE)
            ],
        )
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(COPY_SESSION_SQL, session.id, _SESSIONS - 1)
        await connection.execute("ANALYZE")
    finally:
        await connection.close()
    return session.id


async def _pages(console: ConsoleWorld, path: str, query: dict[str, Any]) -> list[float]:
    """Return how long each page takes from the first to the last."""
    took = []
    async with console.person("ann") as ann:
        more: dict[str, Any] | None = {}
        while more is not None:
            begun = time.perf_counter()
            answer = await ann.get(path, params={**query, **more})
            took.append((time.perf_counter() - begun) * 1000)
            page = answer.raise_for_status().json()
            names = {"cursor": "next_cursor", "before": "next_before"}
            more = next(({name: page[key]} for name, key in names.items() if page.get(key)), None)
    return took


async def _paints(
    browser: Browser, console: ConsoleWorld, place: str, wanted: str
) -> tuple[list[float], list[float]]:
    """Return how long new browsers take until they paint, and until they show an element."""

    async def one(window: Window) -> tuple[float, float]:
        begun = time.perf_counter()
        await window.open(place)
        await window.page.locator(wanted).first.wait_for()
        shown = (time.perf_counter() - begun) * 1000
        paint = await window.page.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        )
        return float(paint), shown

    found = await _in_windows(browser, console, one)
    return [paint for paint, _ in found], [shown for _, shown in found]


async def _in_windows(
    browser: Browser,
    console: ConsoleWorld,
    look: Callable[[Window], Awaitable[tuple[float, float]]],
) -> list[tuple[float, float]]:
    found = []
    for _ in range(_WINDOWS):
        async with open_context(browser, "ann") as context:
            found.append(await look(Window(await context.new_page(), console.url)))
    return found


def _main() -> None:
    # The table stands alone on standard output.
    quiet = structlog.make_filtering_bound_logger(logging.ERROR)
    structlog.configure(wrapper_class=quiet)
    measured = asyncio.run(measure())
    print(f"With {_SESSIONS:,} conversations and one of {_ROWS:,} messages:\n")
    print("| | times | median | p95 |\n|---|---|---|---|")
    for name, took in measured:
        worst = statistics.quantiles(took, n=20, method="inclusive")[-1]
        print(f"| {name} | {len(took)} | {statistics.median(took):.0f} ms | {worst:.0f} ms |")


if __name__ == "__main__":
    _main()
