"""What commands on sessions share: asking a running chatlane, and naming a session."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, TypeVar
from uuid import UUID

import typer
from pydantic import ValidationError

from chatlane.cli.options import open_nats, read_client_settings
from chatlane.cli.reporting import NOT_FOUND, UNANSWERED, CommandError
from chatlane_client.errors import UnansweredRequestError
from chatlane_client.session_api import SessionApi
from chatlane_client.transcripts import TranscriptApi
from chatlane_schemas.people import Person
from chatlane_schemas.sessions import SessionView

AnswerT = TypeVar("AnswerT")

_PATIENCE: Final = timedelta(seconds=5)
# Where NATS has no permissions any name will do.
_PRINCIPAL: Final = "cli"

Named = Annotated[
    str,
    typer.Argument(
        metavar="SESSION", help="Its id; or a session key, which is where that leads now."
    ),
]


@dataclass(frozen=True, slots=True)
class Apis:
    """What a command may ask."""

    sessions: SessionApi
    transcripts: TranscriptApi

    async def find(self, named: str) -> SessionView:
        """Return the session of an id or key.

        Raises:
            CommandError: There is none.
            SessionNotFoundError: There is none of this id.
        """
        try:
            session_id = UUID(named)
        except ValueError:
            pass
        else:
            return await self.sessions.get(session_id)
        view = await self.sessions.peek(named) if named else None
        if view is None:
            raise CommandError(
                f"{named!r} is neither the id of a session nor a key that leads to one: "
                "`chatlane sessions` lists them",
                exit_code=NOT_FOUND,
            )
        return view


def ask(
    config: Path | None,
    principal: str | None,
    question: Callable[[Apis], Awaitable[AnswerT]],
    person: Person | None = None,
) -> AnswerT:
    """Return what a running chatlane answers.

    Args:
        principal: Under which name to ask; else the one of the settings.

    Raises:
        CommandError: Nobody answers.
        typer.BadParameter: What is asked with cannot be what it is meant to be.
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
        sessions = SessionApi(
            client,
            principal=principal,
            acting_for=person,
            is_operator=True,
            patience=_PATIENCE,
        )
        transcripts = TranscriptApi(client, principal=principal, patience=_PATIENCE)
        try:
            return await question(Apis(sessions, transcripts))
        except ValidationError as exc:
            raise typer.BadParameter(complaint(exc)) from exc
        except UnansweredRequestError as exc:
            raise CommandError(
                f"NATS is there at {settings.nats.url}, but no router answers: start one with "
                "`chatlane router`, or let `chatlane dev` do it",
                exit_code=UNANSWERED,
            ) from exc


def complaint(error: ValidationError) -> str:
    """Return what is wrong with a value, without the value."""
    problem = error.errors(include_input=False, include_context=False, include_url=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
