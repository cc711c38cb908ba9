"""Commands that change sessions, each one request of the session API.

A change that takes no value is an entry of `CHANGES`.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, NamedTuple
from uuid import UUID

import typer
from pydantic import JsonValue
from pydantic_core import to_json

from chatlane.cli.sessions.filters import OfPerson, person_named
from chatlane.cli.sessions.queries import Apis, Named, ask
from chatlane.cli.sessions.views import print_changed
from chatlane.cli.shared.error_report import CommandError
from chatlane.cli.shared.options import AsJson, Config, Principal
from chatlane.cli.shared.terminal import open_console, plain, print_json
from chatlane.domain.prompts.sanitize import json_line
from chatlane_client.api.submission import Submission
from chatlane_schemas.live_turns import TurnOutcome
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.session_changes import Preference
from chatlane_schemas.session_api.sessions import SessionView
from chatlane_schemas.turns import StopReply


class Change(NamedTuple):
    """A change of sessions that takes no value.

    Attributes:
        name: The word of the command.
        text: What `--help` says.
        request: Sends the request for one session.
        confirmation: What the command prints of a changed session, after its id.
    """

    name: str
    text: str
    request: Callable[[Apis, UUID], Awaitable[SessionView]]
    confirmation: str


CHANGES: Final = (
    Change(
        "archive",
        "Put sessions into the archive; nothing else of them changes.",
        lambda apis, of: apis.sessions.archive(of),
        "is archived",
    ),
    Change(
        "unarchive",
        "Take sessions out of the archive.",
        lambda apis, of: apis.sessions.archive(of, archived=False),
        "is not archived",
    ),
    Change(
        "pin",
        "Pin sessions: lists by activity can show them first.",
        lambda apis, of: apis.sessions.pin(of),
        "is pinned",
    ),
    Change(
        "unpin",
        "Take the pin off sessions.",
        lambda apis, of: apis.sessions.pin(of, pinned=False),
        "is not pinned",
    ),
    Change(
        "protect",
        "Make ended sessions read only: nothing can be written to them, a copy can.",
        lambda apis, of: apis.sessions.protect(of),
        "is read only",
    ),
    Change(
        "unprotect",
        "Allow changes of sessions that were read only.",
        lambda apis, of: apis.sessions.protect(of, read_only=False),
        "can be changed",
    ),
    Change(
        "end",
        "End sessions; the next message of their chats opens another one.",
        lambda apis, of: apis.sessions.end(of),
        "is ended",
    ),
    Change(
        "reopen",
        "Open sessions again that have ended or were suspended.",
        lambda apis, of: apis.sessions.reopen(of),
        "is open",
    ),
    Change(
        "suspend",
        "Suspend sessions: the next message opens another one, whatever holds them.",
        lambda apis, of: apis.life.suspend(of),
        "is suspended",
    ),
    Change(
        "mark",
        "Mark sessions as interrupted: no rule ends them for a while, and their agents learn of it.",
        lambda apis, of: apis.life.mark(of),
        "is marked as interrupted",
    ),
    Change(
        "unmark",
        "Remove the mark of an interruption from sessions.",
        lambda apis, of: apis.life.unmark(of),
        "has no mark",
    ),
)

_SeveralNamed = Annotated[
    list[str],
    typer.Argument(
        metavar="SESSION...",
        help="Session ids, their last characters, or session keys (their current sessions).",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the group."""
    for change in CHANGES:
        app.command(change.name, help=change.text)(_command_of(change))
    for command in (stop, label, update, prune, create, submit):
        app.command()(command)


def _command_of(change: Change) -> Callable[..., None]:
    def run(
        sessions: _SeveralNamed,
        config: Config = None,
        *,
        as_json: AsJson = False,
        principal: Principal = None,
    ) -> None:
        async def made(apis: Apis) -> None:
            # A name that fits no session must not leave the change half made.
            found = [await apis.find(named) for named in sessions]
            for before in found:
                after = await change.request(apis, before.id)
                if as_json:
                    print_json([after])
                else:
                    typer.echo(f"{after.id} {change.confirmation}")

        ask(config, principal, made)

    return run


def stop(
    session: Named,
    config: Config = None,
    *,
    as_json: AsJson = False,
    principal: Principal = None,
) -> None:
    """Stop the running turn of a session and drop waiting messages; the session stays open."""

    async def stopped(apis: Apis) -> StopReply:
        return await apis.sessions.stop((await apis.find(session)).id)

    reply = ask(config, principal, stopped)
    if as_json:
        print_json([reply])
        return
    outcome = "nothing ran" if reply.turn_id is None else f"turn {reply.turn_id} is stopped"
    typer.echo(f"{outcome}; {reply.dropped} waiting messages are not answered")


def label(
    session: Named,
    labels: Annotated[
        list[str] | None,
        typer.Argument(metavar="[LABEL]...", help="All its labels; without them they are shown."),
    ] = None,
    config: Config = None,
    *,
    clear: Annotated[bool, typer.Option("--clear", help="Remove all labels.")] = False,
    as_json: AsJson = False,
    principal: Principal = None,
) -> None:
    """Show, replace or remove the labels of a session."""
    if clear and labels:
        raise typer.BadParameter("give labels or --clear, not both")

    async def labelled(apis: Apis) -> SessionView:
        view = await apis.find(session)
        if not labels and not clear:
            return view
        return await apis.sessions.label(view.id, labels or ())

    print_changed(
        config,
        principal,
        labelled,
        as_json=as_json,
        confirmation=lambda view: "\n".join(view.labels) or "(no labels)",
    )


def update(
    session: Named,
    config_file: Config = None,
    *,
    cwd: Annotated[str | None, typer.Option(help="Working directory of tools.")] = None,
    model: Annotated[str | None, typer.Option(help="Model that is to answer.")] = None,
    patch: Annotated[
        str | None,
        typer.Option(
            "--patch",
            metavar="JSON",
            help="Keys of the agent's settings to change, as a JSON Merge Patch.",
        ),
    ] = None,
    clear: Annotated[
        list[Preference] | None, typer.Option(help="Value to remove; may be repeated.")
    ] = None,
    as_json: AsJson = False,
    principal: Principal = None,
) -> None:
    """Change directory, model or settings of a session; what is not named stays."""
    keys = None if patch is None else _object(patch, "--patch")
    if cwd is None and model is None and keys is None and not clear:
        raise typer.BadParameter("name what to change: --cwd, --model, --patch or --clear")

    async def updated(apis: Apis) -> SessionView:
        view = await apis.find(session)
        return await apis.sessions.update(
            view.id, cwd=cwd, model=model, config_patch=keys, clear=clear or ()
        )

    print_changed(
        config_file,
        principal,
        updated,
        as_json=as_json,
        confirmation=lambda view: f"{view.id} is changed",
    )


def prune(
    config: Config = None,
    *,
    days: Annotated[
        int,
        typer.Option("--days", min=1, help="Days without a message after which a session ends."),
    ],
    is_sure: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")
    ] = False,
    principal: Principal = None,
) -> None:
    """End all sessions without a message for some days; suspended, held and busy ones stay."""
    if not is_sure:
        typer.confirm(f"End all sessions without a message for {days} days?", abort=True)

    async def pruned(apis: Apis) -> int:
        return await apis.sessions.prune(days)

    typer.echo(f"{ask(config, principal, pruned)} sessions are ended")


def create(
    config_file: Config = None,
    *,
    person: OfPerson = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Chat whose last session has ended, and that goes on."),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Profile of a session without a chat.")
    ] = None,
    origin: Annotated[str, typer.Option(help="Kind of caller that opens it.")] = "cli",
    cwd: Annotated[str | None, typer.Option(help="Working directory of tools.")] = None,
    model: Annotated[str | None, typer.Option(help="Model that is to answer.")] = None,
    settings: Annotated[
        str | None,
        typer.Option("--settings", metavar="JSON", help="Other settings for the agent."),
    ] = None,
    as_json: AsJson = False,
    principal: Principal = None,
) -> None:
    """Open a session, in a chat or without one."""
    values = None if settings is None else _object(settings, "--settings")

    async def created(apis: Apis) -> SessionView:
        return await apis.sessions.create(
            origin=origin,
            session_key=key,
            profile=profile,
            cwd=cwd,
            model=model,
            config=values,
        )

    view = ask(config_file, principal, created, person)
    if as_json:
        print_json([view])
    else:
        typer.echo(str(view.id))


def submit(
    session: Named,
    words: Annotated[
        str, typer.Argument(metavar="TEXT", help="What is said; `-` reads standard input.")
    ],
    config: Config = None,
    *,
    person: Annotated[
        Person | None,
        typer.Option(
            "--as",
            parser=person_named,
            metavar="PLATFORM/ACCOUNT/ID",
            help="Person who says it; by default nobody.",
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the answer, and print it.")
    ] = False,
    as_json: AsJson = False,
    principal: Principal = None,
) -> None:
    """Submit a message to a session; it is queued like a message of a chat."""
    message = typer.get_text_stream("stdin").read() if words == "-" else words

    async def submitted(apis: Apis) -> Submission:
        view = await apis.find(session)
        return await apis.sessions.submit(view.id, message, wait=wait)

    submission = ask(config, principal, submitted, person)
    if as_json:
        typer.echo(json_line(to_json(submission, exclude_none=True).decode()))
    elif submission.answer is not None:
        open_console().print(plain(submission.answer), soft_wrap=True)
    elif not wait:
        typer.echo(f"{submission.session.id} has message {submission.message_id}")
    elif submission.outcome is TurnOutcome.NO_REPLY:
        typer.echo("the agent had nothing to say")
    if submission.outcome in {TurnOutcome.CANCELLED, TurnOutcome.FAILED}:
        raise CommandError(submission.notice or f"no answer: the turn is {submission.outcome}")


def _object(text: str, option: str) -> dict[str, JsonValue]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise typer.BadParameter(f"{option}: not JSON") from exc
    if not isinstance(value, dict):
        raise typer.BadParameter(f"{option}: not a JSON object")
    return value
