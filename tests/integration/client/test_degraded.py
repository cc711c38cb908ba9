"""A router that works, and says that a person should look: dead letters that nobody deals with."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import asyncpg
import httpx
import pytest

from chatlane.app.state import App
from tests.integration.client.real_router import real_router

pytestmark = pytest.mark.integration

SET_ASIDE: Final = """
INSERT INTO dead_letters (id, at, stage, reason, digest, size_bytes)
VALUES (gen_random_uuid(), clock_timestamp() - $2::text::interval, 'inbound', $1, '', 0)
"""


@pytest.fixture
async def router(bus_url: str, database_url: str, tmp_path: Path) -> AsyncIterator[App]:
    async with real_router(tmp_path, bus_url, database_url) as opened:
        yield opened


async def readiness(router: App) -> dict[str, Any]:
    """Let a router look at the database, and ask how it is."""
    assert router.survey is not None
    await router.survey.look_at_database()
    async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
        answer = await client.get(f"http://127.0.0.1:{router.http_port}/readyz")
    return {"status": answer.status_code, **answer.json()}


@pytest.mark.parametrize(
    ("reason", "age", "complaints"),
    [
        ("turn_failed", "23 h 59 min", []),
        ("turn_failed", "24 h 1 min", ["dead_letters"]),
        ("rate_limited", "20 days", []),
    ],
)
async def test_a_router_is_degraded_while_a_dead_letter_is_too_old(
    router: App, database_url: str, reason: str, age: str, complaints: list[str]
) -> None:
    database = await asyncpg.connect(database_url)
    try:
        await database.execute(SET_ASIDE, reason, age)
        told = await readiness(router)
        await database.execute("DELETE FROM dead_letters")
        after = await readiness(router)
    finally:
        await database.close()

    # The durables of this test are not quite those of the settings, which is seen as well.
    assert [one for one in told["complaints"] if one != "topology"] == complaints
    assert (told["status"], told["ready"]) == (200, True)
    assert told["state"] == ("degraded" if told["complaints"] else "ready")
    assert "dead_letters" not in after["complaints"]
