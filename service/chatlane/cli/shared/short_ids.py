"""Ids on a command line: whole, or only the last characters that tables show."""

import re
from collections.abc import Iterable
from typing import Annotated, Final
from uuid import UUID

import typer

from chatlane.cli.shared.error_report import NOT_FOUND, WRONG_SETTINGS, CommandError

_MIN_DIGITS: Final = 4
_SHORT_ID: Final = re.compile(rf"[0-9a-f]{{{_MIN_DIGITS},32}}")

IdText = Annotated[str, typer.Argument(metavar="ID", help="Id, or its last characters.")]


def full_id(text: str) -> UUID | None:
    """Return the id in a text, or None if it is not a whole id."""
    try:
        return UUID(text)
    except ValueError:
        return None


def short_digits(text: str) -> str | None:
    """Return the digits of a shortened id, or None if a text cannot be one."""
    digits = text.lower().replace("-", "")
    return digits if _SHORT_ID.fullmatch(digits) else None


def matching(digits: str, ids: Iterable[UUID]) -> list[UUID]:
    """Return the ids that end with these digits."""
    return [full for full in ids if full.hex.endswith(digits)]


def only_match(text: str, matches: list[UUID], noun: str, listing: str) -> UUID:
    """Return the one id that a shortened id stands for.

    Raises:
        CommandError: It stands for none or for several.
    """
    if not matches:
        raise CommandError(
            f"there is no {noun} {text!r}: `{listing}` lists them", exit_code=NOT_FOUND
        )
    if len(matches) > 1:
        found = ", ".join(map(str, matches[:3]))
        raise CommandError(
            f"{text!r} is the end of several ids, such as {found}: write more of it",
            exit_code=WRONG_SETTINGS,
        )
    return matches[0]
