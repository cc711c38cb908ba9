"""`make console-load`: how fast the console is with a long list and a long conversation.

Prints a table in Markdown. Servers, router, console, traffic and browser are processes of this machine.
"""

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import httpx
from playwright.async_api import Browser as Chromium

from chatlane_client import SessionApi, TranscriptApi
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.transcripts import AppendedRow
from chatlane_servers.binaries import server_directory
from chatlane_servers.conditions import until
from chatlane_servers.embedded import free_port
from chatlane_servers.programs import Program
from tests.acceptance.console.browser import Window, open_browser, open_context
from tests.benchmarks.programs.generator import ACCOUNT, PLATFORM
from tests.benchmarks.rig import PATIENCE, Rig, open_rig
from tests.integration.console.console_world import API, SAFE, Browser

_SESSIONS: Final = 10_000
_ROWS: Final = 20_000
_ROWS_AT_ONCE: Final = 500
_WINDOWS: Final = 7
_MESSAGES_PER_SECOND: Final = 300
# The traffic goes on until all is measured.
_TRAFFIC_SECONDS: Final = 3600
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


INDEXED_SQL: Final = """
SELECT count(*) FROM searchable
"""


async def measure() -> list[tuple[str, list[float]]]:
    """Return what was measured, with its times in milliseconds."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        directory = stack.enter_context(server_directory("console-load-"))
        rig = await enter(open_rig(directory, has_users=False))
        router = await enter(rig.chatlane("router"))
        await rig.until_owned(router)
        session_id = await _fill(rig)
        # An indexer that catches up would take part of the router's time.
        await rig.until(router, lambda: rig.value(INDEXED_SQL), _ROWS + _SESSIONS - 1)
        url = await enter(_console(rig))
        rows = f"{API}/sessions/{session_id}/rows"
        measured = [
            ("a page of 50 conversations", await _pages(url, f"{API}/sessions", _LIST)),
            ("a page of 100 messages", await _pages(url, rows, {"limit": 100})),
        ]
        browser = await enter(open_browser())
        paints = await _paints(browser, url, "#/list", ".entry")
        talks = await _paints(browser, url, f"#/session/{session_id}", ".row[id]")
        flow = ("flow", rig.nats.url, _MESSAGES_PER_SECOND, _TRAFFIC_SECONDS, 1)
        await enter(rig.running(rig.script("generator", *flow)))
        beside = f"beside {_MESSAGES_PER_SECOND} messages a second"
        busy = await _pages(url, f"{API}/sessions", _LIST)
        busy_paints = await _paints(browser, url, "#/list", ".entry")
        return [
            *measured,
            ("first paint of the list", paints[0]),
            ("the list shows conversations", paints[1]),
            ("first paint of the conversation", talks[0]),
            ("the conversation shows messages", talks[1]),
            (f"a page of 50 conversations {beside}", busy),
            (f"the list shows conversations {beside}", busy_paints[1]),
        ]


async def _fill(rig: Rig) -> UUID:
    """Write a conversation and copies of its session; return the id of the conversation."""
    sessions = SessionApi(rig.client, principal="load", acting_for=_ANN, patience=_PATIENCE)
    transcripts = TranscriptApi(rig.client, principal="load", acting_for=_ANN, patience=_PATIENCE)
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
    await rig.database.execute(COPY_SESSION_SQL, session.id, _SESSIONS - 1)
    await rig.database.execute("ANALYZE")
    return session.id


@asynccontextmanager
async def _console(rig: Rig) -> AsyncIterator[str]:
    """Run a console behind a trusted proxy for the length of the block; yields its address."""
    port = free_port()
    settings = {
        "PORT": str(port),
        "NATS_URL": rig.nats.url,
        "PLATFORM": PLATFORM,
        "ACCOUNT": ACCOUNT,
        "SIGN_IN": "proxy",
        "PROXY_ADDRESSES": "127.0.0.1",
    }
    environment = {f"CHATLANE_CONSOLE_{name}": value for name, value in settings.items()}
    program = Program("console", ["-m", "chatlane", "console"], rig.directory, environment)
    url = f"http://127.0.0.1:{port}"

    async def is_ready() -> bool:
        program.require_running()
        try:
            async with httpx.AsyncClient() as client:
                return (await client.get(f"{url}/readyz")).is_success
        except httpx.TransportError:
            return False

    async with rig.running(program):
        await until(is_ready, PATIENCE)
        yield url


async def _pages(url: str, path: str, query: dict[str, Any]) -> list[float]:
    """Return how long each page takes from the first to the last."""
    took = []
    headers = {**SAFE, "x-forwarded-user": "ann"}
    async with Browser(base_url=url, headers=headers, timeout=60) as ann:
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
    browser: Chromium, url: str, place: str, wanted: str
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

    found = await _in_windows(browser, url, one)
    return [paint for paint, _ in found], [shown for _, shown in found]


async def _in_windows(
    browser: Chromium,
    url: str,
    look: Callable[[Window], Awaitable[tuple[float, float]]],
) -> list[tuple[float, float]]:
    found = []
    for _ in range(_WINDOWS):
        async with open_context(browser, "ann") as context:
            found.append(await look(Window(await context.new_page(), url)))
    return found


def _main() -> None:
    measured = asyncio.run(measure())
    load = os.getloadavg()[0]
    print(f"With {_SESSIONS:,} conversations and one of {_ROWS:,} messages, load {load:.0f}:\n")
    print("| | times | median | p95 |\n|---|---|---|---|")
    for name, took in measured:
        worst = statistics.quantiles(took, n=20, method="inclusive")[-1]
        print(f"| {name} | {len(took)} | {statistics.median(took):.0f} ms | {worst:.0f} ms |")


if __name__ == "__main__":
    _main()
