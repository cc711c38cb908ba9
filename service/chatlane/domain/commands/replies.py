"""Put together the replies to commands from the texts of a language."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chatlane.domain.commands.command_words import CommandName
from chatlane.domain.commands.session_summaries import FIRST_WORDS_CHARACTERS
from chatlane.domain.notices import NoticeId
from chatlane.domain.prompts.sanitize import beginning, named
from chatlane_schemas.content.visible_text import shown_title

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from chatlane.domain.commands.session_summaries import SessionSummary
    from chatlane.domain.notices import Notices

_MANY_WAITING: Final = 100
_SHOWN_CHARACTERS: Final = 60


def help_text(notices: Notices, names: Iterable[CommandName], prefix: str) -> str:
    """Return the commands that a person may use, one per line."""
    return "\n".join(_help_line(notices, name, prefix) for name in names)


def _help_line(notices: Notices, name: CommandName, prefix: str) -> str:
    arguments = notices.optional(f"help_{name}_arguments")
    command = " ".join(filter(None, (prefix + name, arguments)))
    return notices.text(NoticeId.PART_HELP, command=command, effect=effect(notices, name))


def effect(notices: Notices, name: CommandName) -> str:
    """Describe a command in a few words."""
    return notices.text(NoticeId(f"help_{name}"))


def refused(notices: Notices, name: CommandName, prefix: str) -> str:
    """Return the reply to a person who may not use a command."""
    return notices.text(NoticeId.COMMAND_FORBIDDEN, command=prefix + name)


def nothing_said(notices: Notices, name: CommandName, prefix: str) -> str:
    """Return the reply to a command without the text that it needs."""
    return notices.text(NoticeId.TEXT_MISSING, command=prefix + name)


def titled(notices: Notices, title: str) -> str:
    """Return the reply with the title of a conversation."""
    return notices.text(NoticeId.TITLE, title=named(title))


def title_taken(notices: Notices, title: str) -> str:
    """Return the reply if another conversation has the title."""
    return notices.text(NoticeId.TITLE_TAKEN, title=named(title))


def title_too_long(notices: Notices, max_characters: int) -> str:
    """Return the reply if the title is too long."""
    return notices.text(NoticeId.TITLE_TOO_LONG, max_characters=max_characters)


def stopped(notices: Notices, *, was_running: bool, dropped: int) -> str:
    """Return the reply to `/stop`."""
    sentences = [notices.text(NoticeId.STOPPED)] if was_running or not dropped else []
    if dropped:
        sentences.append(
            notices.text(NoticeId.DROPPED_ONE if dropped == 1 else NoticeId.DROPPED, count=dropped)
        )
    return " ".join(sentences)


def with_unanswered(notices: Notices, reply: str, *, dropped: int, left: int) -> str:
    """Return the reply to `/new` with the number of messages that are still unanswered.

    Args:
        dropped: How many messages of the person will not be answered.
        left: How many messages of other people will still be answered.
    """
    paragraphs = [reply]
    if dropped:
        paragraphs.append(
            notices.text(
                NoticeId.UNANSWERED_ONE if dropped == 1 else NoticeId.UNANSWERED, count=dropped
            )
        )
    if left:
        paragraphs.append(
            notices.text(NoticeId.LEFT_ONE if left == 1 else NoticeId.LEFT, count=left)
        )
    return "\n".join(paragraphs)


def undone(notices: Notices, text: str | None) -> str:
    """Return the reply to `/undo`; `text` is the text of the first turn that was undone."""
    words = shown_title(text or "")
    if not words:
        return notices.text(NoticeId.UNDONE)
    return notices.text(NoticeId.UNDONE_FROM, text=beginning(words, _SHOWN_CHARACTERS))


def resumed(notices: Notices, card: SessionSummary) -> str:
    """Return the reply with the resumed conversation."""
    return notices.text(NoticeId.RESUMED, conversation=_name(notices, card))


def model_chosen(notices: Notices, name: str) -> str:
    """Return the reply after a change of the model."""
    return notices.text(NoticeId.MODEL_CHOSEN, model=shown_title(name))


def model_now(notices: Notices, name: str) -> str:
    """Return the reply with the current model."""
    return notices.text(NoticeId.MODEL, model=shown_title(name))


def choice(notices: Notices, sessions: str, prefix: str) -> str:
    """Return a list of conversations with the hint how to choose one."""
    hint = notices.text(NoticeId.CHOOSE, command=f"{prefix}{CommandName.RESUME}")
    return f"{sessions}\n{hint}"


def status(
    notices: Notices,
    card: SessionSummary,
    agent: str,
    *,
    waiting: int,
    is_running: bool,
    has_ended: bool,
) -> str:
    """Return the reply with the state of a conversation."""
    at, messages = _moment(card.started_at), _messages(notices, card)
    began = (
        notices.text(NoticeId.STATUS_UNTITLED, at=at, messages=messages)
        if card.title is None
        else notices.text(NoticeId.STATUS_TITLED, title=named(card.title), at=at, messages=messages)
    )
    running = notices.text(NoticeId.ANSWER_RUNNING if is_running else NoticeId.NO_ANSWER_RUNNING)
    status_lines = [
        f"{began} {notices.text(NoticeId.STATUS_ENDED)}" if has_ended else began,
        f"{running} {_waiting(notices, waiting)}" if waiting else running,
        notices.text(NoticeId.STATUS_AGENT_MODEL, agent=agent, model=shown_title(card.model))
        if card.model
        else notices.text(NoticeId.STATUS_AGENT, agent=agent),
        notices.text(NoticeId.STATUS_ID, id=str(card.id)),
    ]
    return "\n".join(status_lines)


def _waiting(notices: Notices, count: int) -> str:
    if count > _MANY_WAITING:
        return notices.text(NoticeId.WAITING_MANY, count=_MANY_WAITING)
    return notices.text(NoticeId.WAITING_ONE if count == 1 else NoticeId.WAITING, count=count)


def listing(notices: Notices, summaries: Sequence[SessionSummary], current: UUID | None) -> str:
    """Return conversations as numbered lines."""
    return "\n".join(f"{n}. {_line(notices, card, current)}" for n, card in enumerate(summaries, 1))


def _line(notices: Notices, card: SessionSummary, current: UUID | None) -> str:
    return notices.text(
        NoticeId.PART_SESSION_CURRENT if card.id == current else NoticeId.PART_SESSION,
        conversation=_name(notices, card),
        at=_moment(card.started_at),
        messages=_messages(notices, card),
    )


def _name(notices: Notices, card: SessionSummary) -> str:
    if card.title:
        return named(card.title)
    words = card.first_words or ""
    is_whole = len(words) < FIRST_WORDS_CHARACTERS
    begin = beginning(shown_title(words), _SHOWN_CHARACTERS, is_whole=is_whole)
    return begin if shown_title(words) else notices.text(NoticeId.PART_UNTITLED)


def _messages(notices: Notices, card: SessionSummary) -> str:
    return notices.text(
        NoticeId.PART_MESSAGES_ONE if card.user_messages == 1 else NoticeId.PART_MESSAGES,
        count=card.user_messages,
    )


def _moment(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M UTC")
