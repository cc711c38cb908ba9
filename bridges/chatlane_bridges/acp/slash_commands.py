"""Slash commands that the bridge carries out itself; all others are text for the agent."""

from typing import Any, Final, NamedTuple
from uuid import UUID

from chatlane_bridges.acp.conversation import Conversation
from chatlane_bridges.acp.session_options import DEFAULT_MODEL, choose_model, model_of
from chatlane_client import ConflictingRequestError
from chatlane_schemas.session_api.session_changes import MAX_TITLE_CHARACTERS

_DESCRIPTIONS: Final[dict[str, tuple[str, str | None]]] = {
    "title": ("Show or set the title of the conversation.", "title"),
    "stop": ("End the running turn and drop what waits.", None),
    "undo": ("Take the last turn back.", None),
    "retry": ("Answer the last message again.", None),
    "branch": ("Begin another conversation as a copy of this one.", "title"),
    "model": ("Show or choose the model that answers.", "model, or `default`"),
}


class Done(NamedTuple):
    """The effect of a command."""

    text: str
    turn_id: UUID | None = None
    """The turn that answers now."""
    title: str | None = None
    """The new title of the conversation."""


class Command(NamedTuple):
    """A command with its argument."""

    name: str
    argument: str


def available_commands() -> dict[str, Any]:
    """Return the update that offers the commands."""
    commands: list[dict[str, Any]] = []
    for name, (description, hint) in _DESCRIPTIONS.items():
        command: dict[str, Any] = {"name": name, "description": description}
        if hint is not None:
            command["input"] = {"hint": hint}
        commands.append(command)
    return {"sessionUpdate": "available_commands_update", "availableCommands": commands}


def command_in(text: str) -> Command | None:
    """Return the command of a prompt; None if the prompt is for the agent."""
    word, _, argument = text.strip().partition(" ")
    name = word.removeprefix("/")
    if not word.startswith("/") or name not in _DESCRIPTIONS or "\n" in text.strip():
        return None
    return Command(name, argument.strip())


async def carry_out(command: Command, conversation: Conversation) -> Done:
    """Carry a command out and return what to show."""
    try:
        return await _COMMANDS[command.name](conversation, command.argument)
    except ConflictingRequestError as exc:
        return Done(f"That is not possible now: {exc.message}.")


async def _title(conversation: Conversation, title: str) -> Done:
    if not title:
        session = await conversation.refresh()
        return Done(f"Title: {session.title}" if session.title else "There is no title.")
    title = title[:MAX_TITLE_CHARACTERS]
    session = await conversation.service.sessions.set_title(conversation.tip, title)
    return Done(f"Title: {session.title}", title=session.title)


async def _stop(conversation: Conversation, _: str) -> Done:
    stopped = await conversation.service.sessions.stop(conversation.tip)
    is_idle = stopped.turn_id is None and not stopped.dropped
    return Done("Nothing was running." if is_idle else "Stopped.")


async def _undo(conversation: Conversation, _: str) -> Done:
    changed = await conversation.service.transcripts.rewind(conversation.tip)
    if not changed.removed_rows:
        return Done("There is nothing to take back.")
    return Done(f"Taken back: {changed.undone_text or 'the last turn'}")


async def _retry(conversation: Conversation, _: str) -> Done:
    changed = await conversation.service.transcripts.retry(conversation.tip)
    return Done("", turn_id=changed.turn_id)


async def _branch(conversation: Conversation, title: str) -> Done:
    sessions = conversation.service.sessions
    branch = await sessions.fork(conversation.tip)
    if title:
        branch = await sessions.set_title(branch.id, title[:MAX_TITLE_CHARACTERS])
    return Done(f"The copy is the conversation {branch.title or branch.id}.")


async def _model(conversation: Conversation, model: str) -> Done:
    session = await conversation.refresh()
    if model:
        session = await choose_model(conversation.service, session, model)
    chosen = model_of(session)
    return Done(
        "The default model of the agent answers."
        if chosen == DEFAULT_MODEL
        else f"The model {chosen} answers."
    )


_COMMANDS: Final = {
    "title": _title,
    "stop": _stop,
    "undo": _undo,
    "retry": _retry,
    "branch": _branch,
    "model": _model,
}
