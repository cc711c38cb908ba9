"""Wait until the service knows what an adapter has sent: its chat shows it before that."""

from typing import Final

import asyncpg

from tests.support.eventually import eventually

_QUERY: Final = """
SELECT EXISTS (SELECT 1 FROM deliveries WHERE platform_message_ids ? $1)
    OR EXISTS (SELECT 1 FROM turns WHERE draft = $1)
"""


async def until_known(dsn: str, message_id: str) -> None:
    """Wait until the receipt of a platform's message, or of a draft, is stored."""
    database = await asyncpg.connect(dsn)
    try:
        await eventually(lambda: database.fetchval(_QUERY, message_id))
    finally:
        await database.close()
