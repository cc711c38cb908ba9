"""Leaves a line in the audit for what a command changes: who ran it, on what, and how it ended."""

import getpass
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chatlane.store.pool import Store


def actor() -> str:
    """Return who runs this command: the user of the operating system, by number if nameless."""
    try:
        return f"os:{getpass.getuser()}"
    except (KeyError, OSError):
        # In a container: nothing there knows a name for the number that its user is given.
        return f"os:{os.getuid()}"


@asynccontextmanager
async def audited(
    store: "Store", action: str, detail: dict[str, object] | None = None
) -> AsyncIterator[dict[str, object]]:
    """Write a line before the block, and another one that says how it ended.

    Yields:
        What else there is to know; what the block adds is in the second line.

    Raises:
        TransientError: The database is away; the block has not begun, or its end is not noted.
    """
    from chatlane.store import audit

    told = dict(detail or {})

    async def note(outcome: str) -> None:
        async with store.transaction() as connection:
            await audit.write(connection, action, None, told, actor=actor(), outcome=outcome)

    await note("begun")
    try:
        yield told
    except BaseException as error:
        await note(type(error).__name__)
        raise
    await note(str(told.pop("outcome", "done")))
