"""Options that select sessions."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from pydantic import ValidationError

from chatlane.cli.sessions.queries import complaint
from chatlane.cli.shared.options import duration_option
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.topology.subjects import SubjectError, declared_name


def person_named(text: str) -> Person:
    """Return the person of an argument such as `telegram/bot/701`.

    Raises:
        typer.BadParameter: The argument has another form.
    """
    parts = text.split("/", 2)
    if len(parts) != 3 or not all(parts):  # noqa: PLR2004 - platform, account and id
        raise typer.BadParameter("write it as PLATFORM/ACCOUNT/ID, such as telegram/bot/701")
    platform, account, person_id = parts
    try:
        return Person(platform=platform, account=account, id=person_id)
    except ValidationError as exc:
        raise typer.BadParameter(complaint(exc)) from exc


def declared_option(text: str) -> str:
    """Return an argument that is the name of a platform.

    Raises:
        typer.BadParameter: No platform can have this name.
    """
    try:
        return declared_name(text)
    except SubjectError as exc:
        raise typer.BadParameter(str(exc)) from exc


Platform = Annotated[
    str | None,
    typer.Option(parser=declared_option, metavar="NAME", help="Only sessions of this platform."),
]
Agent = Annotated[str | None, typer.Option(help="Only sessions of this agent.")]
Origin = Annotated[
    str | None,
    typer.Option(help="Only sessions that this kind of caller opened; messages are `chat`."),
]
Active = Annotated[
    timedelta | None,
    typer.Option(
        parser=duration_option,
        metavar="DURATION",
        help="Only sessions with a message from a person in the last DURATION, such as 2h.",
    ),
]
OfPerson = Annotated[
    Person | None,
    typer.Option(
        "--person",
        parser=person_named,
        metavar="PLATFORM/ACCOUNT/ID",
        help="Only sessions of this person.",
    ),
]
Archived = Annotated[
    bool | None,
    typer.Option("--archived/--not-archived", help="Only archived sessions, or only the others."),
]
Profile = Annotated[str | None, typer.Option(help="Only sessions of this profile.")]
Label = Annotated[str | None, typer.Option(help="Only sessions with this label.")]
TitlePart = Annotated[
    str | None,
    typer.Option("--title", metavar="PART", help="Only sessions with this part in their title."),
]
Directory = Annotated[
    str | None, typer.Option("--cwd", help="Only sessions with this working directory.")
]
WithoutOrigin = Annotated[
    list[str] | None,
    typer.Option(help="No sessions that this kind of caller opened; may be repeated."),
]
HideEmpty = Annotated[
    bool,
    typer.Option("--hide-empty", help="No sessions without message, title, turn and worktree."),
]


def since(active: timedelta | None) -> datetime | None:
    """Return the time that lies a duration ago."""
    return None if active is None else datetime.now(UTC) - active
