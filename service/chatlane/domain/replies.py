"""What the router answers to commands, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chatlane.domain.cards import FIRST_WORDS_CHARACTERS
from chatlane.domain.clusters import beginning
from chatlane.domain.commands import CommandName
from chatlane.domain.inert import named
from chatlane_schemas.session_changes import shown_title

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from chatlane.domain.cards import Card

NEW: Final = "A new conversation. What was said before stays in the old one."
NEW_IN_ONE_PLACE: Final = (
    "A new conversation, only here. What was said before stays in the old one, which goes on in the "
    "other places that lead to it."
)
LIST_IS_OLD: Final = "The list you were shown is too old to choose from. This is the list now:"
NO_CONVERSATION: Final = "There is no conversation here yet. Write something to begin one."
STOPPED: Final = "Stopped."
NOTHING_TO_STOP: Final = "There is nothing to stop."
NO_STOPPING: Final = "This agent answers each message by itself. There is nothing to stop."
STILL_RUNS: Final = "An answer is being worked on. Wait for it, or stop it, and try again."
STILL_ANSWERED: Final = "What was being worked on is still answered."
QUEUED: Final = "This is answered by itself, after what is being worked on."
STEERED: Final = "This goes to the answer that is being worked on, or is answered next."
ANSWERED_NOW: Final = "Nothing is running: this is answered now."
EACH_BY_ITSELF: Final = "This agent answers each message by itself, and this one, too."
NOTHING_TO_UNDO: Final = "There is nothing to take back."
WRONG_NUMBER: Final = "That is not a number of turns."
RETRIED: Final = "Asking once more."
BRANCHED: Final = "This goes on in a copy. The conversation it was copied from stays as it is."
NOT_FOUND: Final = "There is no such conversation here."
ALREADY_HERE: Final = "This is that conversation."
NO_MODEL: Final = "The agent chooses the model."
MODEL_CLEARED: Final = "From the next answer on the agent chooses the model."
WRONG_MODEL: Final = "That is no name of a model."
NO_OTHERS: Final = "There are no conversations here yet."
NO_TITLE: Final = "This conversation has no title."
TITLE_CLEARED: Final = "This conversation has no title any more."
FILES_UNREAD: Final = "(A command takes no files: what came with it was not passed on.)"
NOTHING_RUNS: Final = "Nothing is running."
RUNS: Final = "An answer is being worked on."

_HELP: Final = {
    CommandName.NEW: ("[title]", "begin a new conversation"),
    CommandName.STOP: ("", "stop the answer that is being worked on, and drop what waits"),
    CommandName.QUEUE: ("text", "say something that is answered by itself, after what runs"),
    CommandName.STEER: ("text", "say something to the answer that is being worked on"),
    CommandName.UNDO: ("[number]", "take back the last thing you said and its answer, or more"),
    CommandName.RETRY: ("", "ask for the last answer once more"),
    CommandName.TITLE: ("[title]", "show or set the title; a dash removes it"),
    CommandName.SESSIONS: ("", "list your conversations here"),
    CommandName.RESUME: ("[number, title or id]", "go back to an older conversation"),
    CommandName.BRANCH: ("[title]", "go on in a copy of this conversation"),
    CommandName.MODEL: ("[name]", "show or choose the model; a dash takes the choice back"),
    CommandName.STATUS: ("", "say where this conversation stands"),
    CommandName.HELP: ("", "list the commands"),
}
_MANY_WAITING: Final = 100
_SHOWN_CHARACTERS: Final = 60


def help_text(names: Iterable[CommandName], prefix: str) -> str:
    """Return the commands that somebody may use, a line each."""
    lines = (
        f"{' '.join(filter(None, (prefix + name, _HELP[name][0])))}: {_HELP[name][1]}"
        for name in names
    )
    return "\n".join(lines)


def refused(name: CommandName, prefix: str) -> str:
    """Return the answer to who may not use a command."""
    return f"You may not use {prefix}{name} here."


def nothing_said(name: CommandName, prefix: str) -> str:
    """Return the answer to a command without the words it is to pass on."""
    return f"Write what to say behind {prefix}{name}."


def effect(name: CommandName) -> str:
    """Return in a few words what a command does."""
    return _HELP[name][1]


def titled(title: str) -> str:
    """Return what a conversation is called."""
    return f"This conversation is called {named(title)}."


def title_taken(title: str) -> str:
    """Return why a title was not set."""
    return f"Another conversation is called {named(title)} already. Choose another title."


def title_too_long(max_characters: int) -> str:
    """Return why a title was not set."""
    return f"A title has at most {max_characters} characters."


def stopped(*, was_running: bool, dropped: int) -> str:
    """Return what was stopped."""
    lines = [STOPPED] if was_running or not dropped else []
    if dropped:
        lines.append(f"{_count(dropped, 'waiting message')} will not be answered.")
    return " ".join(lines)


def with_unanswered(told: str, *, dropped: int, left: int) -> str:
    """Return the answer to `/new` with what becomes of messages that were still to be answered.

    Args:
        told: The answer.
        dropped: How many messages of the person will not be answered.
        left: How many messages of other people still will be.
    """
    lines = [told]
    if dropped:
        verb = "was" if dropped == 1 else "were"
        lines.append(f"{_count(dropped, 'message')} in it {verb} not answered.")
    if left:
        lines.append(f"{_count(left, 'message')} of others will still be answered.")
    return "\n".join(lines)


def undone(text: str | None) -> str:
    """Return what was taken back; `text` is what people had said in the first turn of it."""
    said = shown_title(text or "")
    if not said:
        return "Taken back."
    return f"Taken back, from here on: {_beginning(said)}"


def resumed(card: Card) -> str:
    """Return which conversation goes on."""
    return f"Back in {_name(card)}."


def model(name: str) -> str:
    """Return which model answers."""
    return f"Model {shown_title(name)}, from the next answer on."


def model_now(name: str) -> str:
    """Return which model answers."""
    return f"Model {shown_title(name)}."


def choice(told: str, prefix: str) -> str:
    """Return a list of conversations with how to choose one."""
    return f"{told}\nWrite {prefix}{CommandName.RESUME} and a number to go back to one."


def status(card: Card, agent: str, *, waiting: int, is_running: bool, has_ended: bool) -> str:
    """Return where a conversation stands."""
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


def listing(cards: Sequence[Card], current: UUID | None) -> str:
    """Return conversations, a numbered line each."""
    return "\n".join(f"{n}. {_line(card, current)}" for n, card in enumerate(cards, 1))


def _line(card: Card, current: UUID | None) -> str:
    mark = ", this one" if card.id == current else ""
    return f"{_name(card)} ({_moment(card.started_at)}, {_count(card.said, 'message')}{mark})"


def _name(card: Card) -> str:
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
