"""Audit entries for commands: who ran it, on what, and how it ended."""

import getpass
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chatlane.postgres.pool import Store


def actor() -> str:
    """Return the user of the operating system who runs this command."""
    try:
        return f"os:{getpass.getuser()}"
    except (KeyError, OSError):
        # A user of a container may have no name.
        return f"os:{os.getuid()}"


@asynccontextmanager
async def audited(
    store: "Store", action: str, detail: dict[str, object] | None = None
) -> AsyncIterator[dict[str, object]]:
    """Write an audit entry before the block, and one after it with its outcome.

    Yields:
        Details of the second entry, for the block to fill.

    Raises:
        TransientError: Postgres is unavailable. Either the block has not started, or its
            outcome is not recorded.
    """
    from chatlane.store import audit

    details = dict(detail or {})

    async def note(outcome: str) -> None:
        async with store.transaction() as connection:
            await audit.write(connection, action, None, details, actor=actor(), outcome=outcome)

    await note("begun")
    try:
        yield details
    except BaseException as error:
        await note(type(error).__name__)
        raise
    await note(str(details.pop("outcome", "done")))
