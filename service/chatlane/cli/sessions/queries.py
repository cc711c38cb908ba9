"""Requests from commands to a running router, and the argument that names a session."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, TypedDict, TypeVar
from uuid import UUID

import typer
from pydantic import ValidationError

from chatlane.cli.shared.error_report import NOT_FOUND, UNANSWERED, CommandError
from chatlane.cli.shared.options import open_nats, read_client_settings
from chatlane.cli.shared.short_ids import full_id, matching, only_match, short_digits
from chatlane_client.api.projects import ProjectApi
from chatlane_client.api.session_api import SessionApi
from chatlane_client.api.session_life import SessionLifeApi
from chatlane_client.api.transcripts import TranscriptApi
from chatlane_client.errors import UnansweredRequestError
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.sessions import SessionView

AnswerT = TypeVar("AnswerT")

_PATIENCE: Final = timedelta(seconds=5)
# Without permissions in NATS any name works.
_PRINCIPAL: Final = "cli"
_PAGE: Final = 200
# A router has no index of the last characters of ids, so the newest sessions are compared.
_SHORT_ID_RANGE: Final = 2000

Named = Annotated[
    str,
    typer.Argument(
        metavar="SESSION",
        help="Session id, its last characters (as `list` shows them), or a session key (its "
        "current session).",
    ),
]


@dataclass(frozen=True, slots=True)
class Apis:
    """The clients of the APIs of sessions, folders and transcripts."""

    sessions: SessionApi
    life: SessionLifeApi
    folders: ProjectApi
    transcripts: TranscriptApi

    async def find(self, named: str) -> SessionView:
        """Return the session of an id, of the last characters of an id, or of a session key.

        Raises:
            CommandError: No session matches, or several do.
            SessionNotFoundError: No session has this id.
        """
        if (session_id := full_id(named)) is not None:
            return await self.sessions.get(session_id)
        if (digits := short_digits(named)) is not None:
            return await self.sessions.get(await self._find_short(named, digits))
        view = await self.sessions.peek(named) if named else None
        if view is None:
            raise CommandError(
                f"{named!r} is neither a session id nor a session key: "
                "`chatlane sessions` lists both",
                exit_code=NOT_FOUND,
            )
        return view

    async def find_id(self, named: str) -> UUID:
        """Return the session id that an argument gives, whole or shortened."""
        if (session_id := full_id(named)) is not None:
            return session_id
        return await self._find_short(named, short_digits(named) or "?")

    async def find_folder(self, named: str) -> UUID:
        """Return the folder that an argument names: its id, the end of it, or its name.

        Raises:
            CommandError: The person has no such folder, or several.
        """
        if (folder_id := full_id(named)) is not None:
            return folder_id
        folders = await self.folders.list_all()
        found = [folder.id for folder in folders if folder.name == named]
        if not found and (digits := short_digits(named)) is not None:
            found = matching(digits, [folder.id for folder in folders])
        return only_match(named, found, "folder", "chatlane sessions folders")

    async def _find_short(self, named: str, digits: str) -> UUID:
        ids: list[UUID] = []
        async for view in self.sessions.list_all(page_size=_PAGE):
            ids.append(view.id)
            if len(ids) == _SHORT_ID_RANGE:
                break
        noun = f"session among the newest {_SHORT_ID_RANGE:,} whose id ends with"
        return only_match(named, matching(digits, ids), noun, "chatlane sessions")


class _Options(TypedDict):
    """For whom the clients of a command ask."""

    principal: str
    acting_for: Person | None
    is_operator: bool
    patience: timedelta


def ask(
    config: Path | None,
    principal: str | None,
    question: Callable[[Apis], Awaitable[AnswerT]],
    person: Person | None = None,
) -> AnswerT:
    """Return the answer of a running router.

    Args:
        principal: Name of the requester in NATS; by default that of the settings.

    Raises:
        CommandError: No router answers.
        typer.BadParameter: An argument has no valid value.
    """
    return asyncio.run(_asked(config, principal, question, person))


async def _asked(
    config: Path | None,
    principal: str | None,
    question: Callable[[Apis], Awaitable[AnswerT]],
    person: Person | None,
) -> AnswerT:
    settings = read_client_settings(config)
    principal = principal or settings.nats.principal or _PRINCIPAL
    async with open_nats(settings, "chatlane-cli") as client:
        options: _Options = {
            "principal": principal,
            "acting_for": person,
            "is_operator": True,
            "patience": _PATIENCE,
        }
        apis = Apis(
            SessionApi(client, **options),
            SessionLifeApi(client, **options),
            ProjectApi(client, **options),
            TranscriptApi(client, **options),
        )
        try:
            return await question(apis)
        except ValidationError as exc:
            raise typer.BadParameter(complaint(exc)) from exc
        except UnansweredRequestError as exc:
            raise CommandError(
                f"NATS runs at {settings.nats.url}, but no router answers: start one with "
                "`chatlane router`, or `chatlane dev` again if its routers have ended",
                exit_code=UNANSWERED,
            ) from exc


def complaint(error: ValidationError) -> str:
    """Return the reason why a value is invalid, without the value."""
    problem = error.errors(include_input=False, include_context=False, include_url=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
