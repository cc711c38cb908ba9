"""Execute chat commands and answer them. Pure, as `lanes`.

A command is not a message: it has no row, starts no turn and does not count as activity. It runs
once, at its place in the log, whether or not a turn is live. Its answer goes out in the order of
the session.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.domain.addressing.owners import is_shared_lane, owner_of
from chatlane.domain.addressing.people import person_form
from chatlane.domain.addressing.sources import class_of
from chatlane.domain.commands import replies
from chatlane.domain.commands.command_words import PASSED_ON, CommandName
from chatlane.domain.commands.session_summaries import (
    SessionScope,
    SessionSummaries,
    SessionSummary,
    list_key,
    scope_of,
)
from chatlane.domain.counts import CountName
from chatlane.domain.effects import TitleRow
from chatlane.domain.ids import derived_id
from chatlane.domain.lanes import not_before
from chatlane.domain.notices import NoticeId
from chatlane.domain.sessions.session_flags import end_session
from chatlane.domain.sessions.titles import best_match
from chatlane.domain.states import Session
from chatlane_schemas.content.visible_text import shown_title
from chatlane_schemas.events import EndReason, ResetReason
from chatlane_schemas.results import Part
from chatlane_schemas.session_api.session_changes import MAX_TITLE_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from chatlane.domain.catalog import Catalog
    from chatlane.domain.commands.command_words import CommandRules
    from chatlane.domain.commands.session_summaries import ShownList
    from chatlane.domain.effects import Effects
    from chatlane.domain.lanes import Placement
    from chatlane.domain.notices import Notices
    from chatlane.domain.resolved_message import ResolvedMessage

MAX_LISTED: Final = 10
_NO_TITLE: Final = "-"
_NUMBER: Final = re.compile("[1-9][0-9]?")


class CommandInvocation(NamedTuple):
    """A permitted command and its place; `session` is the open session of its lane, if any.

    Attributes:
        is_in_several_places: More than one lane leads to the session.
    """

    arrived: ResolvedMessage
    name: CommandName
    argument: str
    rules: CommandRules
    session: Session | None
    is_in_several_places: bool = False

    @property
    def session_or_raise(self) -> Session:
        """Return the session, for a command that needs one."""
        if self.session is None:
            raise ValueError(self.name)
        return self.session

    @property
    def notices(self) -> Notices:
        """Return the texts in the language of the platform."""
        return self.arrived.notices

    def text(self, notice_id: NoticeId) -> str:
        """Return a text without fields in the language of the platform."""
        return self.notices.text(notice_id)

    @property
    def passes_on(self) -> bool:
        """Return whether the text after the command is a message to the agent."""
        has_words = bool(self.argument or self.arrived.event.attachments)
        return self.name in PASSED_ON and has_words

    @property
    def rest(self) -> str:
        """Return the text after the line of the command."""
        return self.arrived.command.rest if self.arrived.command is not None else ""

    @property
    def is_running(self) -> bool:
        """Return whether a turn of the session is live."""
        return self.session is not None and self.session.active_turn is not None

    @property
    def needs_database(self) -> bool:
        """Return whether the command needs SQL statements besides those for sessions and titles.

        Earlier decisions of the batch then have to be written first.
        """
        if self.name is CommandName.RESUME:
            return bool(self.argument)
        if self.session is None:
            return False
        needs = {
            # A command from one of several places does not touch a turn or messages of all of them.
            CommandName.NEW: self.is_running and not self.is_in_several_places,
            CommandName.STOP: self.is_running,
            CommandName.UNDO: not self.is_running,
            CommandName.RETRY: not self.is_running,
            CommandName.MODEL: bool(self.argument),
            CommandName.BRANCH: True,
        }
        return needs.get(self.name, False)


@dataclass(slots=True)
class CommandHandlers:
    """Executes the commands of one batch, in their order among its messages.

    Attributes:
        cards: Summaries of the sessions that the commands of the batch may concern.
    """

    placement: Placement
    summaries: SessionSummaries
    effects: Effects
    catalog: Catalog

    def accept(self, arrived: ResolvedMessage) -> CommandInvocation | None:
        """Return the command to execute; None if there is none, or after refusing it.

        Text after the line of a command is a message, even if the command is refused.
        """
        command = arrived.command
        if command is None:
            return None
        if command.name is None:
            # Has no effect and so no dedupe mark.
            self.effects.count((CountName.KEPT, "other_bot"))
            return None
        if self.placement.is_repeat(arrived):
            return None
        rules = self.catalog.platforms[arrived.event.platform].commands
        session = self.placement.find_session(arrived)
        if session is not None and session.ended_at is not None:
            session = None
        invocation = CommandInvocation(
            arrived,
            command.name,
            command.argument,
            rules,
            session,
            session is not None and self._is_in_several_places(session),
        )
        is_permitted = may_use(arrived, rules, invocation.name)
        self.effects.count(
            (CountName.COMMANDS, invocation.name, "done" if is_permitted else "refused")
        )
        if not invocation.rest and not (is_permitted and invocation.passes_on):
            self.placement.mark_seen(arrived)
        if not is_permitted:
            self.answer(
                invocation, replies.refused(invocation.notices, invocation.name, rules.prefix)
            )
            self.bring_rest(invocation)
        return invocation if is_permitted else None

    def _is_in_several_places(self, session: Session) -> bool:
        loaded = sum(lane.session_id == session.id for lane in self.placement.lanes.values())
        return loaded + self.summaries.of(session).other_lanes > 1

    def run_command(self, invocation: CommandInvocation) -> str:
        """Execute a command that needs memory only, and return the reply."""
        return HANDLERS[invocation.name](self, invocation)

    def answer(self, invocation: CommandInvocation, said: str) -> None:
        """Send the reply to a command to the chat."""
        arrived = invocation.arrived
        begin = len(self.effects.publications)
        has_files = arrived.event.attachments and not (invocation.passes_on or invocation.rest)
        self._say(
            arrived,
            f"{said}\n{invocation.text(NoticeId.ATTACHMENTS_IGNORED)}" if has_files else said,
        )
        self.effects.trace(begin, arrived.trace)

    def _say(self, arrived: ResolvedMessage, said: str) -> None:
        # An ended session is used as well, to keep its answers in one order. Without a session
        # there is no order to keep.
        session = self.placement.find_session(arrived) or _placeholder_session(arrived)
        answer_id = derived_id(arrived.stored_at, arrived.digests[0], "reply")
        arrived.notice_in(session).say(Part(text=said), answer_id, self.effects)

    def new_session(self, invocation: CommandInvocation) -> str:
        """Point the lane to a new session; end the old one unless another lane points to it."""
        arrived, session = invocation.arrived, invocation.session
        behind = self.placement.find_session(arrived)
        if session is not None and not invocation.is_in_several_places:
            now = not_before(arrived.stored_at, session.last_activity_at)
            end_session(session, now, EndReason.REQUESTED, self.effects)
            self.summaries.of(session).ended_at = now
        reason = ResetReason.REQUESTED if behind is not None else None
        following = self.placement.start(arrived, reason, behind)
        _own(following, arrived)
        paragraphs = [
            invocation.text(NoticeId.STARTED_HERE)
            if invocation.is_in_several_places
            else invocation.text(NoticeId.STARTED)
        ]
        if invocation.is_in_several_places and invocation.is_running:
            paragraphs.append(invocation.text(NoticeId.ANSWER_STILL_ARRIVES))
        if title := shown_title(invocation.argument):
            paragraphs.append(self.entitle(following, title, invocation))
        return "\n".join(paragraphs)

    def title(self, invocation: CommandInvocation) -> str:
        """Show, set or remove the title."""
        session = invocation.session
        if session is None:
            return invocation.text(NoticeId.NO_CONVERSATION)
        title = shown_title(invocation.argument)
        if not title:
            title_now = self.summaries.of(session).title
            return (
                replies.titled(invocation.notices, title_now)
                if title_now
                else invocation.text(NoticeId.NO_TITLE)
            )
        _own(session, invocation.arrived)
        return self.entitle(session, "" if title == _NO_TITLE else title, invocation)

    def entitle(self, session: Session, title: str, invocation: CommandInvocation) -> str:
        """Set the title of a session, unless it is too long or another session in scope has it."""
        if len(title) > MAX_TITLE_CHARACTERS:
            return replies.title_too_long(invocation.notices, MAX_TITLE_CHARACTERS)
        scope = session.owner or session.session_key
        card = self.summaries.of(session)
        scopes = self.scope(invocation.arrived).title_scopes | {scope}
        holder = self.summaries.titled(title, scopes) if title else None
        if holder is not None and holder.id != session.id:
            return replies.title_taken(invocation.notices, title)
        self.effects.titles.append(TitleRow(session.id, title or None, scope))
        card.title, card.title_scope = (title, scope) if title else (None, None)
        return (
            replies.titled(invocation.notices, title)
            if title
            else invocation.text(NoticeId.TITLE_CLEARED)
        )

    def list_sessions(self, invocation: CommandInvocation) -> str:
        """Return the list of sessions that the person may name here."""
        summaries = self._listed(invocation)
        self._note_shown(invocation, summaries)
        if not summaries:
            return invocation.text(NoticeId.NO_CONVERSATIONS)
        current = None if invocation.session is None else invocation.session.id
        text = replies.listing(invocation.notices, summaries, current)
        is_choice = invocation.name is CommandName.RESUME
        return (
            replies.choice(invocation.notices, text, invocation.rules.prefix) if is_choice else text
        )

    def _listed(self, invocation: CommandInvocation) -> list[SessionSummary]:
        self._refresh()
        current = None if invocation.session is None else invocation.session.id
        found = self.summaries.within(self.scope(invocation.arrived))
        summaries = [card for card in found if card.user_messages or card.id == current]
        if invocation.session is not None and all(card.id != current for card in summaries):
            # The lane came from another place, or the session has no owner yet; its people may see
            # it.
            summaries.append(self.summaries.of(invocation.session))
        return sorted(summaries, key=lambda card: card.id, reverse=True)[:MAX_LISTED]

    def sought(self, invocation: CommandInvocation) -> SessionSummary | None:
        """Return the session that the argument names: by number in the list, title or id."""
        wanted = shown_title(invocation.argument)
        if _NUMBER.fullmatch(wanted):
            listed = self._numbered(invocation)
            if int(wanted) <= len(listed):
                return listed[int(wanted) - 1]
        found = self.summaries.within(self.scope(invocation.arrived))
        title = best_match(wanted, (card.title for card in found if card.title is not None))
        for card in found:
            if (title is not None and card.title == title) or wanted.lower() == str(card.id):
                return card
        return None

    def _note_shown(
        self, invocation: CommandInvocation, summaries: Sequence[SessionSummary]
    ) -> None:
        arrived = invocation.arrived
        key = list_key(arrived.session_key, arrived.person)
        self.summaries.shown.show(key, arrived.stored_at, [card.id for card in summaries])

    def _shown(self, invocation: CommandInvocation) -> ShownList | None:
        arrived = invocation.arrived
        return self.summaries.shown.by_key.get(list_key(arrived.session_key, arrived.person))

    def means_old_list(self, invocation: CommandInvocation) -> bool:
        """Return whether the argument is a number of a list that was shown too long ago."""
        shown = self._shown(invocation)
        is_number = _NUMBER.fullmatch(shown_title(invocation.argument)) is not None
        return is_number and shown is not None and not shown.is_valid(invocation.arrived.stored_at)

    def _numbered(self, invocation: CommandInvocation) -> Sequence[SessionSummary | None]:
        """Return the sessions as numbered in the list that a person saw; None if deleted.

        For a person who has seen no list, a number refers to the list as it would be shown now.
        """
        shown = self._shown(invocation)
        if shown is None:
            return self._listed(invocation)
        return [self.summaries.by_id.get(id_) for id_ in shown.session_ids]

    def help(self, invocation: CommandInvocation) -> str:
        """Return the commands that the person may use."""
        names = (
            name for name in CommandName if may_use(invocation.arrived, invocation.rules, name)
        )
        return replies.help_text(invocation.notices, names, invocation.rules.prefix)

    def nothing_to_stop(self, invocation: CommandInvocation) -> str:
        """Return the reply if no turn is live."""
        is_stream = invocation.arrived.agent.delivery == "stream"
        return (
            invocation.text(NoticeId.NOTHING_TO_STOP_STREAM)
            if is_stream
            else invocation.text(NoticeId.NOTHING_TO_STOP)
        )

    def pass_on(self, invocation: CommandInvocation) -> str:
        """Deliver the text after a command to the agent as a separate message."""
        if not invocation.passes_on:
            return replies.nothing_said(
                invocation.notices, invocation.name, invocation.rules.prefix
            )
        arrived, is_queued = invocation.arrived, invocation.name is CommandName.QUEUE
        message = arrived._replace(
            event=arrived.event.model_copy(update={"text": invocation.argument or None}),
            # The reply to the command replaces the note.
            delivery_policy=replace(arrived.delivery_policy, note=""),
            busy="queue" if is_queued else "steer",
        )
        was_running = invocation.is_running
        begin = len(self.effects.publications)
        self.placement.route_behind_command(message)
        self.effects.trace(begin, arrived.trace)
        if arrived.agent.delivery == "stream":
            return invocation.text(NoticeId.ANSWERED_SEPARATELY)
        if not was_running:
            return invocation.text(NoticeId.ANSWERED_NOW)
        return invocation.text(NoticeId.QUEUED) if is_queued else invocation.text(NoticeId.STEERED)

    def bring_rest(self, invocation: CommandInvocation) -> None:
        """Deliver the text after the line of a command to the agent, with its attachments."""
        if not invocation.rest:
            return
        arrived = invocation.arrived
        event = arrived.event.model_copy(update={"text": invocation.rest})
        begin = len(self.effects.publications)
        self.placement.route_behind_command(arrived._replace(event=event))
        self.effects.trace(begin, arrived.trace)

    def not_now(self, invocation: CommandInvocation) -> str:
        """Return the reason why the transcript is not changed."""
        return (
            invocation.text(NoticeId.WAIT_OR_STOP)
            if invocation.is_running
            else invocation.text(NoticeId.NO_CONVERSATION)
        )

    def model(self, invocation: CommandInvocation) -> str:
        """Return the current model."""
        if invocation.session is None:
            return invocation.text(NoticeId.NO_CONVERSATION)
        name = self.summaries.of(invocation.session).model
        return (
            replies.model_now(invocation.notices, name)
            if name
            else invocation.text(NoticeId.NO_MODEL)
        )

    def status(self, invocation: CommandInvocation) -> str:
        """Return the state of the conversation."""
        behind = self.placement.find_session(invocation.arrived)
        if behind is None:
            return invocation.text(NoticeId.NO_CONVERSATION)
        self._refresh()
        card = self.summaries.of(behind)
        placed_now = self.summaries.waiting[behind.id]
        placed_now += sum(row.session_id == behind.id for row in self.effects.waiting)
        return replies.status(
            invocation.notices,
            card,
            behind.agent,
            waiting=card.waiting + placed_now,
            is_running=behind.active_turn is not None,
            has_ended=behind.ended_at is not None,
        )

    def _refresh(self) -> None:
        """Update the summaries with the decisions of the batch so far."""
        for session in self.placement.sessions.values():
            if session.id not in self.summaries.loaded or session.id in self.summaries.by_id:
                card = self.summaries.of(session)
                card.user_messages, card.owner = session.user_messages, session.owner

    def scope(self, arrived: ResolvedMessage) -> SessionScope:
        """Return the scope of sessions that a command may name."""
        known = self.summaries.scopes.get((arrived.session_key, arrived.person))
        return known or scope_of(arrived.session_key, arrived.person)


HANDLERS: Final[Mapping[CommandName, Callable[[CommandHandlers, CommandInvocation], str]]] = {
    CommandName.NEW: CommandHandlers.new_session,
    CommandName.STOP: CommandHandlers.nothing_to_stop,
    CommandName.QUEUE: CommandHandlers.pass_on,
    CommandName.STEER: CommandHandlers.pass_on,
    CommandName.UNDO: CommandHandlers.not_now,
    CommandName.RETRY: CommandHandlers.not_now,
    CommandName.TITLE: CommandHandlers.title,
    CommandName.SESSIONS: CommandHandlers.list_sessions,
    CommandName.RESUME: CommandHandlers.list_sessions,
    CommandName.BRANCH: CommandHandlers.not_now,
    CommandName.MODEL: CommandHandlers.model,
    CommandName.STATUS: CommandHandlers.status,
    CommandName.HELP: CommandHandlers.help,
}


def may_use(arrived: ResolvedMessage, rules: CommandRules, name: CommandName) -> bool:
    """Return whether the sender of a message may use a command in this chat."""
    if name in rules.off:
        return False
    event = arrived.event
    chat_class = class_of(event.chat.kind if event.chat else "dm")
    return rules.permits(name, chat_class, ids_of(arrived))


def ids_of(arrived: ResolvedMessage) -> set[str]:
    """Return every platform id of the sender of a message, in each of its forms."""
    event, person = arrived.event, arrived.person
    sender = event.sender
    known = {person}
    if sender is not None:
        known |= {sender.id, sender.alt_id, *sender.aliases}
    ids = {id_ for id_ in known if id_}
    return ids | {form for id_ in ids if (form := person_form(event.platform, id_))}


def _own(session: Session, arrived: ResolvedMessage) -> None:
    """Make the person the owner of a session that has none."""
    if session.owner is None and not is_shared_lane(arrived.session_key):
        session.owner = owner_of(session.session_key, arrived.person)


def _placeholder_session(arrived: ResolvedMessage) -> Session:
    """Return a temporary session that replies where there is none; it is not stored."""
    return Session(
        id=derived_id(arrived.stored_at, arrived.digests[0], "no session"),
        session_key=arrived.session_key,
        agent=arrived.agent.name,
        platform=arrived.event.platform,
        started_at=arrived.stored_at,
    )
