"""What the router answers to commands, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chatlane.domain.commands import CommandName
from chatlane_schemas.session_changes import shown_title

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from chatlane.domain.cards import Card

NEW: Final = "A new conversation. What was said before stays in the old one."
NO_CONVERSATION: Final = "There is no conversation here yet. Write something to begin one."
NO_OTHERS: Final = "There are no conversations here yet."
NO_TITLE: Final = "This conversation has no title."
TITLE_CLEARED: Final = "This conversation has no title any more."
FILES_UNREAD: Final = "(A command takes no files: what came with it was not passed on.)"
NOTHING_RUNS: Final = "Nothing is running."
RUNS: Final = "An answer is being worked on."

_HELP: Final = {
    CommandName.NEW: ("[title]", "begin a new conversation"),
    CommandName.TITLE: ("[title]", "show or set the title; a dash removes it"),
    CommandName.SESSIONS: ("", "list your conversations here"),
    CommandName.STATUS: ("", "say where this conversation stands"),
    CommandName.HELP: ("", "list the commands"),
}
_MANY_WAITING: Final = 100


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


def titled(title: str) -> str:
    """Return what a conversation is called."""
    return f"This conversation is called “{title}”."


def title_taken(title: str) -> str:
    """Return why a title was not set."""
    return f"Another conversation is called “{title}” already. Choose another title."


def title_too_long(max_characters: int) -> str:
    """Return why a title was not set."""
    return f"A title has at most {max_characters} characters."


def status(card: Card, agent: str, *, waiting: int, is_running: bool, has_ended: bool) -> str:
    """Return where a conversation stands."""
    called = "This conversation" if card.title is None else f"“{card.title}”"
    began = f"{called} began {_moment(card.started_at)}, {_count(card.said, 'message')}."
    lines = [
        f"{began} It has ended; the next message begins a new one." if has_ended else began,
        f"{RUNS if is_running else NOTHING_RUNS}{_waiting(waiting)}",
        f"Agent {agent}" + (f", model {card.model}." if card.model else "."),
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
    name = f"“{card.title}”" if card.title else (shown_title(card.first_words or "") or "no title")
    mark = ", this one" if card.id == current else ""
    return f"{name} ({_moment(card.started_at)}, {_count(card.said, 'message')}{mark})"


def _moment(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M UTC")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
