"""What becomes of data of before there were identities, also beside a router of that release."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, LiteralString

import asyncpg
import pytest

from chatlane.store.addressing import identities
from chatlane_schemas.session_api.people import Person
from tests.support.servers.migrations import FILES, apply_each, version_of

pytestmark = pytest.mark.integration

_OLD_ALIAS: Final[LiteralString] = """
INSERT INTO aliases (platform, account, kind, alias, canonical, first_seen_at, partner,
                     was_canonical)
VALUES ('signal', 'bot', 'person', $1, $2, $3, $4, $5)
"""
_OLD_UPDATE: Final[LiteralString] = """
UPDATE aliases SET canonical = $2, first_seen_at = $3, partner = $4, was_canonical = $5
WHERE platform = 'signal' AND account = 'bot' AND kind = 'person' AND alias = $1
"""
_OLD_SESSION: Final[LiteralString] = """
INSERT INTO sessions (id, session_key, agent, platform, started_at, owner)
VALUES (gen_random_uuid(), $1, 'main', 'signal', $2, 'signal:bot:' || $1)
"""
THEN: Final = datetime(2026, 5, 11, 9, tzinfo=UTC)
LATER: Final = THEN + timedelta(days=30)


async def owners_by_id(connection: asyncpg.Connection, raw: str) -> set[str]:
    """Return the names of the identity that an id belongs to now."""
    person = Person(platform="signal", account="bot", id=raw)
    identity = await identities.find(connection, person)  # type: ignore[arg-type]
    assert identity is not None
    return set(identity.names)


KIM, LEE, ADA = (
    "3fa85f64-5717-4562-b3fc-2c963f66afa6",
    "7d444840-9dc0-11d1-b245-5ffdce74fad2",
    "1b4e28ba-2fa1-11d2-883f-0016d3cca427",
)


async def test_f01_data_of_older_releases_shows_nobody_more_than_before(
    empty_database_url: str, tmp_path: Path
) -> None:
    """What cannot be decided is shown to operators only, whatever an older router does besides."""
    connection = await asyncpg.connect(empty_database_url)
    try:
        async for file in apply_each(empty_database_url, tmp_path):
            if file.name.startswith("0100_"):
                break
        # A number that changed hands, two ids that always were one, and two that became one.
        await connection.execute(
            _OLD_ALIAS,
            *(
                "+1",
                LEE,
                LATER,
                LEE,
                False,
            ),
        )
        await connection.execute(
            _OLD_ALIAS,
            *(
                KIM,
                "+1",
                THEN,
                "+1",
                False,
            ),
        )
        await connection.execute(
            _OLD_ALIAS,
            *(
                LEE,
                LEE,
                LATER,
                "+1",
                False,
            ),
        )
        await connection.execute(
            _OLD_ALIAS,
            *(
                ADA,
                ADA,
                THEN,
                "+3",
                False,
            ),
        )
        await connection.execute(
            _OLD_ALIAS,
            *(
                "+3",
                ADA,
                THEN,
                ADA,
                False,
            ),
        )
        await connection.execute(
            _OLD_ALIAS,
            *(
                "+4",
                "+4",
                THEN,
                "5",
                False,
            ),
        )
        await connection.execute(
            _OLD_ALIAS,
            *(
                "+5",
                "+4",
                THEN,
                "+4",
                True,
            ),
        )
        for owner in ("+1", LEE, ADA, "+4", "+5"):
            await connection.execute(_OLD_SESSION, owner, THEN)
        applied = {version_of(file) for file in FILES if version_of(file) < "0110"}
        async for _ in apply_each(empty_database_url, tmp_path, applied):
            pass

        assert await owners_by_id(connection, "+1") == {LEE}
        assert await owners_by_id(connection, KIM) == {"+1"}
        assert await owners_by_id(connection, ADA) == {ADA}
        assert await owners_by_id(connection, "+5") == {"+4", "+5"}

        # An older router beside this release: a number changes hands, and two turn out to be one.
        await connection.execute(
            _OLD_UPDATE,
            *(
                "+3",
                LEE,
                LATER,
                LEE,
                False,
            ),
        )
        await connection.execute(
            _OLD_UPDATE,
            *(
                "+4",
                KIM,
                THEN,
                KIM,
                True,
            ),
        )
        await connection.execute(
            _OLD_UPDATE,
            *(
                "+5",
                KIM,
                THEN,
                "+4",
                True,
            ),
        )
        assert await owners_by_id(connection, "+3") == {LEE}
        assert await owners_by_id(connection, ADA) == {ADA}
        assert await owners_by_id(connection, "+4") == {KIM, "+4", "+5"}
        former = await connection.fetch("SELECT form, identity, until FROM former_ids")
        assert [tuple(row) for row in former] == [("+3", ADA, LATER)]
        held = await connection.fetchval("SELECT held_since FROM aliases WHERE alias = '+3'")
        assert held > LATER
    finally:
        await connection.close()
