"""The migrations of this release one at a time, as dbmate sees them."""

import shutil
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Final

from chatlane.postgres.migrations import run_dbmate

FILES: Final = sorted(
    (Path(__file__).parents[3] / "service" / "chatlane" / "store" / "migrations").glob("*.sql")
)
_DOWN: Final = "-- migrate:down"


def version_of(file: Path) -> str:
    """Return the number a migration is known by."""
    return file.name.partition("_")[0]


def way_back(file: Path) -> str:
    """Return what a migration says to undo it."""
    return file.read_text("utf-8").partition(_DOWN)[2].strip()


async def apply_each(
    dsn: str, directory: Path, applied: Collection[str] = ()
) -> AsyncIterator[Path]:
    """Apply one migration after the other, and yield each when it is.

    Args:
        dsn: Of the owner of the tables.
        directory: Empty; holds the migrations up to the one that is applied.
        applied: Versions that the database has.
    """
    for file in FILES:
        shutil.copy(file, directory)
        if version_of(file) not in applied:
            await run_dbmate(dsn, directory, "migrate")
            yield file
