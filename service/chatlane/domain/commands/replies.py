"""Hold the texts with which the router answers commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chatlane.domain.commands.command_words import CommandName
from chatlane.domain.commands.session_summaries import FIRST_WORDS_CHARACTERS
from chatlane.domain.prompts.sanitize import beginning, named
from chatlane_schemas.session_api.session_changes import shown_title

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from chatlane.domain.commands.session_summaries import SessionSummary

NEW: Final = "New conversation started. The previous one is kept."
NEW_IN_ONE_PLACE: Final = (
    "New conversation started, only in this chat. The previous one continues in the other chats "
    "that share it."
)
LIST_IS_OLD: Final = "That list is outdated. This is the current list:"
NO_CONVERSATION: Final = "There is no conversation here yet. Send a message to start one."
STOPPED: Final = "Stopped."
NOTHING_TO_STOP: Final = "There is nothing to stop."
NO_STOPPING: Final = "This agent answers each message separately. There is nothing to stop."
STILL_RUNS: Final = "An answer is in progress. Wait for it or stop it, then try again."
STILL_ANSWERED: Final = "The answer in progress will still arrive."
QUEUED: Final = "Queued. This will be answered separately, after the current answer."
STEERED: Final = "Sent to the answer in progress. If it is too late, this will be answered next."
ANSWERED_NOW: Final = "No answer is in progress. This will be answered now."
EACH_BY_ITSELF: Final = "This agent answers each message separately, also this one."
NOTHING_TO_UNDO: Final = "There is nothing to undo."
WRONG_NUMBER: Final = "That is not a valid number of turns."
RETRIED: Final = "Retrying."
BRANCHED: Final = "You are now in a copy of the conversation. The original is unchanged."
NOT_FOUND: Final = "There is no such conversation here."
ALREADY_HERE: Final = "You are already in this conversation."
NO_MODEL: Final = "The agent chooses the model."
MODEL_CLEARED: Final = "The agent will choose the model, starting with the next answer."
WRONG_MODEL: Final = "That is not a valid model name."
NO_OTHERS: Final = "There are no conversations here yet."
NO_TITLE: Final = "This conversation has no title."
TITLE_CLEARED: Final = "The title was removed."
FILES_UNREAD: Final = "(Attachments on commands are ignored.)"
NOTHING_RUNS: Final = "No answer is in progress."
RUNS: Final = "An answer is in progress."

_HELP: Final = {
    CommandName.NEW: ("[title]", "start a new conversation"),
    CommandName.STOP: ("", "stop the answer in progress and drop waiting messages"),
    CommandName.QUEUE: (
        "text",
        "send a message that is answered separately, after the current answer",
    ),
    CommandName.STEER: ("text", "send a message to the answer in progress"),
    CommandName.UNDO: ("[number]", "undo your last message and its answer, or several"),
    CommandName.RETRY: ("", "repeat your last message for a new answer"),
    CommandName.TITLE: ("[title]", "show or set the title; a dash removes it"),
    CommandName.SESSIONS: ("", "list your conversations here"),
    CommandName.RESUME: ("[number, title or id]", "return to an older conversation"),
    CommandName.BRANCH: ("[title]", "continue in a copy of this conversation"),
    CommandName.MODEL: ("[name]", "show or choose the model; a dash removes the choice"),
    CommandName.STATUS: ("", "show the state of this conversation"),
    CommandName.HELP: ("", "list the commands"),
}
_MANY_WAITING: Final = 100
_SHOWN_CHARACTERS: Final = 60


def help_text(names: Iterable[CommandName], prefix: str) -> str:
    """Return the commands that a person may use, one per line."""
    lines = (
        f"{' '.join(filter(None, (prefix + name, _HELP[name][0])))}: {_HELP[name][1]}"
        for name in names
    )
    return "\n".join(lines)


def refused(name: CommandName, prefix: str) -> str:
    """Return the reply to a person who may not use a command."""
    return f"You may not use {prefix}{name} here."


def nothing_said(name: CommandName, prefix: str) -> str:
    """Return the reply to a command without the text that it needs."""
    return f"Write your message after {prefix}{name}."


def effect(name: CommandName) -> str:
    """Describe a command in a few words."""
    return _HELP[name][1]


def titled(title: str) -> str:
    """Return the reply with the title of a conversation."""
    return f"This conversation is called {named(title)}."


def title_taken(title: str) -> str:
    """Return the reply if another conversation has the title."""
    return f"Another conversation is called {named(title)} already. Choose another title."


def title_too_long(max_characters: int) -> str:
    """Return the reply if the title is too long."""
    return f"A title has at most {max_characters} characters."


def stopped(*, was_running: bool, dropped: int) -> str:
    """Return the reply to `/stop`."""
    lines = [STOPPED] if was_running or not dropped else []
    if dropped:
        lines.append(f"{_count(dropped, 'waiting message')} will not be answered.")
    return " ".join(lines)


def with_unanswered(told: str, *, dropped: int, left: int) -> str:
    """Return the reply to `/new` with the number of messages that are still unanswered.

    Args:
        told: The reply.
        dropped: How many messages of the person will not be answered.
        left: How many messages of other people will still be answered.
    """
    lines = [told]
    if dropped:
        verb = "was" if dropped == 1 else "were"
        lines.append(f"{_count(dropped, 'message')} in it {verb} not answered.")
    if left:
        lines.append(f"{_count(left, 'message')} of others will still be answered.")
    return "\n".join(lines)


def undone(text: str | None) -> str:
    """Return the reply to `/undo`; `text` is the text of the first turn that was undone."""
    words = shown_title(text or "")
    if not words:
        return "Undone."
    return f"Undone, starting with: {_beginning(words)}"


def resumed(card: SessionSummary) -> str:
    """Return the reply with the resumed conversation."""
    return f"Back in {_name(card)}."


def model(name: str) -> str:
    """Return the reply after a change of the model."""
    return f"Model {shown_title(name)}, from the next answer on."


def model_now(name: str) -> str:
    """Return the reply with the current model."""
    return f"Model {shown_title(name)}."


def choice(told: str, prefix: str) -> str:
    """Return a list of conversations with the hint how to choose one."""
    return f"{told}\nWrite {prefix}{CommandName.RESUME} and a number to go back to one."


def status(
    card: SessionSummary, agent: str, *, waiting: int, is_running: bool, has_ended: bool
) -> str:
    """Return the reply with the state of a conversation."""
    called = "This conversation" if card.title is None else named(card.title)
    began = f"{called} began {_moment(card.started_at)}, {_count(card.said, 'message')}."
    lines = [
        f"{began} It has ended; the next message begins a new one." if has_ended else began,
        f"{RUNS if is_running else NOTHING_RUNS}{_waiting(waiting)}",
        f"Agent {agent}" + (f", model {shown_title(card.model)}." if card.model else "."),
        f"Id {card.id}.",
    ]
    return "\n".join(lines)


def _waiting(count: int) -> str:
    if count == 0:
        return ""
    if count > _MANY_WAITING:
        return f" More than {_MANY_WAITING} messages wait."
    return f" {_count(count, 'message')} {'waits' if count == 1 else 'wait'}."


def listing(summaries: Sequence[SessionSummary], current: UUID | None) -> str:
    """Return conversations as numbered lines."""
    return "\n".join(f"{n}. {_line(card, current)}" for n, card in enumerate(summaries, 1))


def _line(card: SessionSummary, current: UUID | None) -> str:
    mark = ", this one" if card.id == current else ""
    return f"{_name(card)} ({_moment(card.started_at)}, {_count(card.said, 'message')}{mark})"


def _name(card: SessionSummary) -> str:
    if card.title:
        return named(card.title)
    words = card.first_words or ""
    is_whole = len(words) < FIRST_WORDS_CHARACTERS
    begin = beginning(shown_title(words), _SHOWN_CHARACTERS, is_whole=is_whole)
    return begin if shown_title(words) else "a conversation without title"


def _beginning(text: str) -> str:
    return beginning(text, _SHOWN_CHARACTERS)


def _moment(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M UTC")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
