"""Does what people tell the router in a chat, and answers. Pure, as `lanes`.

A command is no message: it has no row, starts no turn and is no activity. It acts when it is
its turn in the log, whatever runs, once, and its answer goes out in the order of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.domain import replies
from chatlane.domain.cards import Cards, Reach, reach_of
from chatlane.domain.commands import CommandName
from chatlane.domain.effects import TitleRow
from chatlane.domain.ids import derived_id
from chatlane.domain.lanes import not_before
from chatlane.domain.owners import owner_of
from chatlane.domain.people import person_form
from chatlane.domain.session_life import end_session
from chatlane.domain.sources import class_of
from chatlane.domain.speaking import Speaking
from chatlane.domain.states import Session
from chatlane_schemas.events import EndReason, ResetReason
from chatlane_schemas.outbound import OutboundKind
from chatlane_schemas.results import Part
from chatlane_schemas.session_changes import MAX_TITLE_CHARACTERS, shown_title
from chatlane_schemas.source import source_of

if TYPE_CHECKING:
    from chatlane.domain.catalog import Catalog
    from chatlane.domain.commands import CommandRules
    from chatlane.domain.effects import Effects
    from chatlane.domain.lanes import Arrived, Placement
    from chatlane_schemas.inbound import InboundEvent

MAX_LISTED: Final = 10
_NO_TITLE: Final = "-"


class _Given(NamedTuple):
    """A command and where it was given; `session` is the one that goes on there, if any."""

    arrived: Arrived
    name: CommandName
    argument: str
    rules: CommandRules
    session: Session | None


class Commanding:
    """Carries out the commands of one batch, in their place among its messages.

    Args:
        cards: Of the sessions that the commands of the batch may be about.
    """

    def __init__(
        self, placement: Placement, cards: Cards, effects: Effects, catalog: Catalog
    ) -> None:
        self._placement = placement
        self._cards = cards
        self._effects = effects
        self._catalog = catalog

    def place(self, arrived: Arrived) -> None:
        """Do what a message commands, or count why it does nothing."""
        command = arrived.command
        if command is None or self._placement.is_repeat(arrived):
            return
        self._placement.mark_seen(arrived)
        if command.name is None:
            self._effects.count(("kept", "other_bot"))
            return
        begin = len(self._effects.publications)
        session = self._placement.find_session(arrived)
        if session is not None and session.ended_at is not None:
            session = None
        rules = self._catalog.platforms[arrived.event.platform].commands
        self._obey(_Given(arrived, command.name, command.argument, rules, session))
        self._effects.trace(begin, arrived.trace)

    def _obey(self, given: _Given) -> None:
        is_permitted = _is_permitted(given, given.name)
        self._effects.count(("commands", given.name, "done" if is_permitted else "refused"))
        if is_permitted:
            said = self._carry_out(given)
        else:
            said = replies.refused(given.name, given.rules.prefix)
        if is_permitted and given.arrived.event.attachments:
            said = f"{said}\n{replies.FILES_UNREAD}"
        self._say(given.arrived, said)

    def _carry_out(self, given: _Given) -> str:
        """Return what to answer once it is done."""
        match given.name:
            case CommandName.NEW:
                return self._begin_anew(given)
            case CommandName.TITLE:
                return self._title(given)
            case CommandName.SESSIONS:
                return self._list(given)
            case CommandName.STATUS:
                return self._status(given)
            case CommandName.HELP:
                names = (name for name in CommandName if _is_permitted(given, name))
                return replies.help_text(names, given.rules.prefix)

    def _say(self, arrived: Arrived, said: str) -> None:
        # Also one that has ended: its answers are in one order. Where nobody has talked yet
        # there is nothing to be in order with.
        session = self._placement.find_session(arrived) or _nobodys(arrived)
        answer_id = derived_id(arrived.stored_at, arrived.digests[0], "reply")
        speaking = Speaking(
            session,
            arrived.agent.name,
            source_of(arrived.event),
            arrived.stored_at,
            kind=OutboundKind.NOTICE,
        )
        speaking.say(Part(text=said), answer_id, self._effects)

    def _begin_anew(self, given: _Given) -> str:
        arrived, session = given.arrived, given.session
        behind = self._placement.find_session(arrived)
        if session is not None:
            now = not_before(arrived.stored_at, session.last_activity_at)
            end_session(session, now, EndReason.REQUESTED, self._effects)
            self._cards.of(session).ended_at = now
        reason = ResetReason.REQUESTED if behind is not None else None
        following = self._placement.start(arrived, reason, behind)
        _own(following, arrived)
        title = shown_title(given.argument)
        if not title:
            return replies.NEW
        return f"{replies.NEW}\n{self._entitle(following, title, given)}"

    def _title(self, given: _Given) -> str:
        session = given.session
        if session is None:
            return replies.NO_CONVERSATION
        title = shown_title(given.argument)
        if not title:
            title_now = self._cards.of(session).title
            return replies.titled(title_now) if title_now else replies.NO_TITLE
        _own(session, given.arrived)
        return self._entitle(session, "" if title == _NO_TITLE else title, given)

    def _entitle(self, session: Session, title: str, given: _Given) -> str:
        """Give a session a title, unless it is too long or another session of theirs has it."""
        if len(title) > MAX_TITLE_CHARACTERS:
            return replies.title_too_long(MAX_TITLE_CHARACTERS)
        scope = session.owner or session.session_key
        card = self._cards.of(session)
        scopes = self.reach(given.arrived).title_scopes | {scope}
        holder = self._cards.titled(title, scopes) if title else None
        if holder is not None and holder.id != session.id:
            return replies.title_taken(title)
        self._effects.titles.append(TitleRow(session.id, title or None, scope))
        card.title, card.title_scope = (title, scope) if title else (None, None)
        return replies.titled(title) if title else replies.TITLE_CLEARED

    def _list(self, given: _Given) -> str:
        self._refresh()
        current = None if given.session is None else given.session.id
        found = self._cards.within(self.reach(given.arrived))
        told = [card for card in found if card.said or card.id == current][:MAX_LISTED]
        return replies.listing(told, current) if told else replies.NO_OTHERS

    def _status(self, given: _Given) -> str:
        behind = self._placement.find_session(given.arrived)
        if behind is None:
            return replies.NO_CONVERSATION
        self._refresh()
        card = self._cards.of(behind)
        placed_now = sum(row.session_id == behind.id for row in self._effects.waiting)
        return replies.status(
            card,
            behind.agent,
            waiting=card.waiting + placed_now,
            is_running=behind.active_turn is not None,
            has_ended=behind.ended_at is not None,
        )

    def _refresh(self) -> None:
        """Let the cards say what the batch has decided so far."""
        for session in self._placement.sessions.values():
            if session.is_new or session.id in self._cards.by_id:
                card = self._cards.of(session)
                card.said, card.owner = session.user_messages, session.owner

    def reach(self, arrived: Arrived) -> Reach:
        """Return whose sessions a command may name."""
        known = self._cards.reaches.get((arrived.session_key, arrived.person))
        return known or reach_of(arrived.session_key, arrived.person)


def _is_permitted(given: _Given, name: CommandName) -> bool:
    event, rules = given.arrived.event, given.rules
    if name in rules.off:
        return False
    chat_class = class_of(event.chat.kind if event.chat else "dm")
    return rules.permits(name, chat_class, _ids(event, given.arrived.person))


def _ids(event: InboundEvent, person: str | None) -> set[str]:
    """Return every id the person who gave a command is known by."""
    sender = event.sender
    told = {person}
    if sender is not None:
        told |= {sender.id, sender.alt_id, *sender.aliases}
    ids = {one for one in told if one}
    return ids | {form for one in ids if (form := person_form(event.platform, one))}


def _own(session: Session, arrived: Arrived) -> None:
    """Let a session be the person's who is the first to do something in it."""
    if session.owner is None:
        session.owner = owner_of(session.session_key, arrived.person)


def _nobodys(arrived: Arrived) -> Session:
    """Return what speaks where there is no session; it is not kept."""
    return Session(
        id=derived_id(arrived.stored_at, arrived.digests[0], "no session"),
        session_key=arrived.session_key,
        agent=arrived.agent.name,
        platform=arrived.event.platform,
        started_at=arrived.stored_at,
    )
