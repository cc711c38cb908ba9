"""Decide to which session each inbound message belongs and how it is handled there.

Pure: the lanes and sessions were loaded under lock, and the writes are returned as effects.
Messages are placed one after the other in log order, so a batch decides exactly as its messages
would have been decided alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from chatlane.domain.addressing.dedupe import fingerprint, is_copy
from chatlane.domain.addressing.keys import is_shared, may_go_on_in, parse_session_key
from chatlane.domain.addressing.owners import owner_of
from chatlane.domain.addressing.rooms import room_of
from chatlane.domain.counts import CountName
from chatlane.domain.dead_letters import add_dead_letter
from chatlane.domain.effects import (
    BusyArrival,
    DebounceRow,
    Effects,
    ErasedRow,
    ExpiringRow,
    FirstCopy,
    MessageRow,
    Publication,
    SeenRow,
    WaitingRow,
)
from chatlane.domain.ids import derived_id
from chatlane.domain.policy import reset_reason, served_boundary_at
from chatlane.domain.prompts.context import prompted_message
from chatlane.domain.replies import replied_message, with_pointer
from chatlane.domain.resolved_message import ResolvedMessage, author_of, details_json, says_nothing
from chatlane.domain.sessions.session_flags import (
    announce_start,
    end_session,
    model_override_of,
    resume_mark_of,
    share_session,
    staff_pause_of,
)
from chatlane.domain.sessions.session_handoff import (
    announce_to_agent,
    inherit_from,
    is_told_in,
    reason_after,
    tell_chat,
    tell_first_turn,
)
from chatlane.domain.states import Lane, Session
from chatlane.domain.turns.answers import Moment, take, withdraw
from chatlane.domain.turns.claims import extend
from chatlane.domain.turns.forms import Given
from chatlane.domain.turns.lifecycle import open_turn
from chatlane.domain.turns.questions import pressed_option, with_value
from chatlane_schemas.codec import encode
from chatlane_schemas.content.elements import CONTENT_FIELDS
from chatlane_schemas.dead import DeadReason, Stage
from chatlane_schemas.events import EndReason
from chatlane_schemas.inbound import Kind
from chatlane_schemas.results import Role
from chatlane_schemas.routed import RoutedMessage
from chatlane_schemas.source import source_of
from chatlane_schemas.topology.streams import StreamName
from chatlane_schemas.topology.subjects import routed as routed_subject
from chatlane_schemas.topology.subjects import slot_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from chatlane.domain.edits import Originals
    from chatlane.domain.limits.message_limits import Bots, Pair
    from chatlane.domain.log import LogMessage
    from chatlane.domain.replies import RepliedRow, Replies
    from chatlane.domain.states import Turn
    from chatlane.domain.turns.questions import OpenQuestion
    from chatlane_schemas.content.questions import FieldValue
    from chatlane_schemas.events import ResetReason
    from chatlane_schemas.inbound import InboundEvent

MAX_STAFF_PAUSE: Final = timedelta(days=7)
"""Longest time that an agent can be told to wait after our people have written."""

# What a message tells the claim, and what it does to a running turn.
_MARKED: Final = frozenset({"queue", "steer"})
_DISTURBING: Final = frozenset({"interrupt", "steer"})


@dataclass(slots=True)
class Placement:
    """Places the messages of one batch.

    Attributes:
        lanes: By session key, those that exist.
        sessions: By id, every session that a lane points to; loaded under lock.
        seen: Digests that were routed before.
        questions: By digest, the sessions of messages that threads are opened on.
        bots: Budgets of other bots; None in a batch without messages of bots.
        originals: Targets of edits and deletes; None in a batch that needs none.
        owners: Older owner names of a person, by the owner name of their new sessions.
        replies: The messages that replies answer; None in a batch without replies.
        open_questions: Open questions of running turns, by session.
        copies: What is known of the first events with the digests in `seen`.
    """

    lanes: dict[str, Lane]
    sessions: dict[UUID, Session]
    seen: set[bytes]
    effects: Effects
    slots: int
    originals: Originals | None = None
    bots: Bots | None = None
    questions: Mapping[bytes, Sequence[UUID]] = field(default_factory=dict)
    owners: Mapping[str, frozenset[str]] = field(default_factory=dict)
    replies: Replies | None = None
    open_questions: dict[UUID, OpenQuestion] = field(default_factory=dict)
    copies: dict[bytes, FirstCopy] = field(default_factory=dict)
    _resting: dict[UUID, Turn] = field(default_factory=dict, init=False)

    def place(self, arrived: ResolvedMessage) -> None:
        """Route one message, or count why it starts nothing."""
        begin = len(self.effects.publications)
        self._place(arrived)
        self.effects.trace(begin, arrived.trace)

    def note_end(self, arrived: ResolvedMessage) -> None:
        """Note when a message that disappears is to be deleted from its log, also if it is a copy."""
        logged, ends_at = arrived.logged, arrived.event.expires_at
        if ends_at is None and self.originals is not None:
            ends_at = self.originals.end_of(arrived.targets)
        if logged is None or ends_at is None:
            return
        self.effects.erased.append(
            ErasedRow(StreamName.INBOUND, logged.sequence, logged.stored_at, ends_at)
        )

    def _place(self, arrived: ResolvedMessage) -> None:
        if arrived.is_ignored and not arrived.targets:
            # Leaves no mark: a person's copy of the same message may follow.
            if arrived.thread_of:
                self._open_thread(arrived)
            self.effects.count((CountName.KEPT, "bot"))
            return
        if arrived.pair is not None and not self.seen.isdisjoint(arrived.unheard_digests):
            self.effects.count((CountName.DUPLICATES, "inbound"))
            return
        if self.is_repeat(arrived):
            return
        if self.originals is not None:
            changed = self._after_edits(arrived, self.originals)
            if changed is None:
                return
            arrived = changed
        if arrived.is_ignored or not arrived.is_routed:
            self._keep_or_observe(arrived)
        elif says_nothing(arrived.event):
            self.mark_seen(arrived)
            self.effects.count((CountName.KEPT, "empty"))
        elif arrived.pair is None or self._is_heard(arrived, arrived.pair):
            self.route(arrived)

    def _after_edits(
        self, arrived: ResolvedMessage, originals: Originals
    ) -> ResolvedMessage | None:
        """Apply an edit or a delete, or return a message with the content of earlier edits."""
        if not arrived.targets:
            return originals.edited(arrived, self.effects)
        known = self.seen.intersection(arrived.targets)
        outcome = originals.change(arrived, known, self.effects)
        if outcome == "applied" and self.open_questions:
            self._withdraw_questions(originals.turns_of(arrived.targets), arrived.stored_at)
        self.seen.update(arrived.targets)
        self.effects.count((CountName.MESSAGE_CHANGES, arrived.event.kind, outcome))
        if outcome == "new":
            return originals.as_message(arrived, self.effects)
        self._keep(arrived)
        return None

    def _withdraw_questions(self, turn_ids: set[UUID], at: datetime) -> None:
        """End the questions of turns whose messages have changed: an answer would be to old words."""
        for session_id, question in list(self.open_questions.items()):
            if question.turn.id in turn_ids:
                withdraw(question, self.sessions[session_id], at, self.effects)
                del self.open_questions[session_id]

    def _open_thread(self, arrived: ResolvedMessage) -> None:
        """Bind a thread that was opened on a message to the session of that message."""
        if arrived.session_key in self.lanes:
            return
        known = (id_ for digest in arrived.thread_of for id_ in self.questions.get(digest, ()))
        for session in filter(None, map(self.sessions.get, known)):
            if session.ended_at is None and may_go_on_in(arrived.session_key, session.session_key):
                self._bind(arrived.session_key, session)
                return

    def _is_heard(self, arrived: ResolvedMessage, pair: Pair) -> bool:
        """Return whether a bot is within its budget; an ignored message is never accepted later."""
        if self.bots is None:
            return True
        hearing = self.bots.hear(pair, arrived.session_key, arrived.stored_at)
        if hearing == "heard":
            return True
        # Its regular digests stay free for a person's copy of the same message.
        self.seen.difference_update(arrived.digests)
        self.seen.update(arrived.unheard_digests)
        self.effects.seen += [SeenRow(mark, None, None) for mark in arrived.unheard_digests]
        self.effects.count((CountName.KEPT, "silenced_bot"))
        if hearing == "silenced":
            self.effects.silenced.append(arrived.session_key)
        return False

    def answers_question(self, arrived: ResolvedMessage, session: Session | None) -> UUID | None:
        """Take a message as the answer to the question of a running turn, and return that turn.

        A wrong value of a form is taken as well: the form asks again.
        """
        question = None if session is None else self.open_questions.get(session.id)
        is_said = arrived.event.kind in {Kind.MESSAGE, Kind.ACTION} and arrived.busy is None
        if session is None or question is None or not is_said:
            return None
        # Words are for the people of the team who talk to the chat, and a turn may wait for days.
        is_for_staff = question.is_parked and arrived.event.press is None
        if is_for_staff and staff_pause_of(session, arrived.stored_at) is not None:
            return None
        reading = question.reading_of(arrived.event, arrived.stored_at, arrived.notices)
        if reading is None:
            return None
        value = reading.value if isinstance(reading, Given) else None
        event = with_value(arrived.event, value)
        row = self.add_answer(arrived, session, event, value)
        self._placed(arrived, row)
        moment = Moment(session, arrived.stored_at, arrived.digests[0], arrived.notices)
        following = take(question, reading, moment, self.effects)
        if following is None:
            del self.open_questions[session.id]
        else:
            self.open_questions[session.id] = following
        self.mark_seen(arrived, session.id, row.seq)
        self.effects.count((CountName.KEPT, "answer"))
        return question.turn.id

    def add_answer(
        self,
        arrived: ResolvedMessage,
        session: Session,
        event: InboundEvent,
        value: FieldValue | None = None,
    ) -> MessageRow:
        """Add what a person said to a question to the transcript."""
        row = MessageRow(
            session_id=session.id,
            seq=session.take_seq(),
            id=derived_id(arrived.stored_at, arrived.digests[0], "message"),
            role=Role.USER,
            content=event.text or (None if value is None else str(value)),
            details=details_json(event),
            author=author_of(event),
            platform_message_id=event.message_id,
            source=arrived.source,
            created_at=arrived.stored_at,
        )
        self.effects.messages.append(row)
        session.last_activity_at = not_before(arrived.stored_at, session.last_activity_at)
        return row

    def _is_late_press(self, arrived: ResolvedMessage) -> bool:
        """Drop a press of a question that is not open; it starts nothing."""
        if pressed_option(arrived.event) is None:
            return False
        self.mark_seen(arrived)
        self.effects.count((CountName.KEPT, "late_answer"))
        return True

    def _record_staff(self, arrived: ResolvedMessage, pause: timedelta) -> None:
        """Add a message of our people to the transcript, where it is ours, and start nothing."""
        session = self._session_for(arrived)
        row = MessageRow(
            session_id=session.id,
            seq=session.take_seq(),
            id=derived_id(arrived.stored_at, arrived.digests[0], "message"),
            role=Role.ASSISTANT,
            content=arrived.event.text,
            details=self._refer(arrived)[0],
            author=author_of(arrived.event),
            platform_message_id=arrived.event.message_id,
            source=arrived.source,
            created_at=arrived.stored_at,
        )
        self.effects.messages.append(row)
        self._placed(arrived, row)
        self.mark_seen(arrived, session.id, row.seq)
        self.effects.count((CountName.KEPT, "staff"))
        if not pause:
            return
        session.staff_until = not_before(arrived.stored_at + pause, session.staff_until)
        if session.active_turn is not None:
            self._prolong_turn(arrived.stored_at, session.active_turn, pause, MAX_STAFF_PAUSE)

    def _keep(self, arrived: ResolvedMessage) -> None:
        self.mark_seen(arrived)
        self.effects.count((CountName.KEPT, "bot" if arrived.is_ignored else arrived.event.kind))

    def _keep_or_observe(self, arrived: ResolvedMessage) -> None:
        if arrived.thread_of:
            self._open_thread(arrived)
        # A row would show a reaction of our people as one of the person.
        is_of_staff = arrived.staff_pause is not None and arrived.event.kind is Kind.REACTION
        if arrived.event.observed and not (arrived.is_ignored or is_of_staff):
            self._observe(arrived)
        else:
            self._keep(arrived)

    def _observe(self, arrived: ResolvedMessage) -> None:
        """Add a message that is not answered to the transcript, as context for later turns."""
        session = None if says_nothing(arrived.event) else self._session_to_observe(arrived)
        if session is None:
            self._keep(arrived)
            return
        share_session(session, arrived.session_key)
        if session.next_seq == 1:
            tell_first_turn(session)
        row = self._row(arrived, session, self._refer(arrived)[0])
        self.effects.messages.append(row)
        self._placed(arrived, row)
        self.mark_seen(arrived, session.id)
        self.effects.count((CountName.KEPT, "observed"))

    def _session_to_observe(self, arrived: ResolvedMessage) -> Session | None:
        """Return the session for an observed message.

        A message opens one, a reaction only where the agent has talked before, and a change of the
        chat none.
        """
        if arrived.event.kind is Kind.SERVICE:
            session = self.find_session(arrived)
            return None if session is None or session.ended_at is not None else session
        if arrived.event.kind is Kind.REACTION and arrived.session_key not in self.lanes:
            return None
        return self._session_for(arrived._replace(wants_reset_notice=False))

    def _row(self, arrived: ResolvedMessage, session: Session, details: str) -> MessageRow:
        """Return a message as the next row of a transcript."""
        return MessageRow(
            session_id=session.id,
            seq=session.take_seq(),
            id=derived_id(arrived.stored_at, arrived.digests[0], "message"),
            role="user",
            content=arrived.event.text,
            details=details,
            author=author_of(arrived.event),
            platform_message_id=arrived.event.message_id,
            source=arrived.source,
            created_at=arrived.stored_at,
        )

    def _placed(self, arrived: ResolvedMessage, row: WaitingRow | MessageRow) -> None:
        """Record a message for later edits and replies of the batch, and when it expires."""
        event = arrived.event
        message_id = row.id if isinstance(row, MessageRow) else row.message_id
        if event.expires_at is not None and message_id is not None:
            self.effects.expiring.append(
                ExpiringRow(message_id, "content", row.session_id, event.expires_at)
            )
        if event.return_address is not None and message_id is not None:
            ends_at = event.return_address.expires_at
            self.effects.expiring.append(
                ExpiringRow(message_id, "return_address", row.session_id, ends_at)
            )
        if self.originals is not None:
            self.originals.placed(arrived.digests, row)
        if self.replies is not None:
            self.replies.add(arrived.digests, row)

    def route(self, arrived: ResolvedMessage) -> None:
        """Deliver a regular message to its session and its agent."""
        if arrived.staff_pause is not None:
            self._record_staff(arrived, arrived.staff_pause)
            return
        if arrived.pair is None and (self.open_questions or arrived.event.press is not None):
            session = self.find_session(arrived)
            if self.answers_question(arrived, session) is not None or self._is_late_press(arrived):
                return
        self.deliver(arrived, self._session_for(arrived))
        self.effects.count((CountName.ROUTED, arrived.event.platform))

    def route_behind_command(self, arrived: ResolvedMessage) -> None:
        """Deliver the message after a command to the agent, with the content of earlier edits."""
        if self.originals is not None:
            arrived = self.originals.edited(arrived, self.effects)
        self.route(arrived)

    def deliver(self, arrived: ResolvedMessage, session: Session) -> None:
        """Deliver a message to a session that the caller has chosen, and to its agent."""
        share_session(session, arrived.session_key)
        if arrived.event.kind is Kind.MESSAGE and arrived.pair is None:
            if self.bots is not None:
                self.bots.hear_person(arrived.session_key, arrived.stored_at)
            session.last_activity_at = not_before(arrived.stored_at, session.last_activity_at)
            if session.owner is None:
                # Even if a timer opened it: the first person to write becomes the owner.
                session.owner = owner_of(session.session_key, arrived.person)
            session.user_messages += 1
        if arrived.agent.delivery == "stream":
            self._deliver_stream(arrived, session)
        else:
            self._deliver_turn(arrived, session)

    def is_repeat(self, arrived: ResolvedMessage) -> bool:
        """Count a message that came before; otherwise mark it as seen for the rest of the batch.

        A message with the id of another one, but another sender or other words, becomes a dead
        letter: its words would be lost otherwise.
        """
        if not self.seen.isdisjoint(arrived.digests) and not self._is_awaited(arrived):
            other = self._find_other(arrived)
            if other is None or arrived.logged is None:
                self.effects.count((CountName.DUPLICATES, "inbound"))
            else:
                _set_aside(arrived, arrived.logged, other, self.effects)
            return True
        self.seen.update(arrived.digests)
        for digest in arrived.digests:
            found = fingerprint(digest, arrived.event, arrived.person)
            if found is not None:
                self.copies[digest] = FirstCopy(found)
        return False

    def _find_other(self, arrived: ResolvedMessage) -> FirstCopy | None:
        """Return the message whose id an arrived one has without being a copy of it."""
        known = [(digest, self.copies.get(digest)) for digest in arrived.digests]
        firsts = [(digest, first) for digest, first in known if first is not None]
        if any(is_copy(first, digest, arrived.event, arrived.person) for digest, first in firsts):
            return None
        return firsts[0][1] if firsts else None

    def _is_awaited(self, arrived: ResolvedMessage) -> bool:
        """Return whether only edits of a message came before it."""
        known = self.seen.intersection(arrived.digests)
        return self.originals is not None and self.originals.is_awaited(known)

    def find_session(self, arrived: ResolvedMessage) -> Session | None:
        """Return the session that its lane points to; it may have ended.

        Never another person's session: a lane that points to one counts as missing.
        """
        lane = self.lanes.get(arrived.session_key)
        session = None if lane is None else self.sessions.get(lane.session_id)
        if session is None or session.owner is None:
            return session
        return None if is_anothers(arrived, session.owner, self.owners) else session

    def is_anothers(self, arrived: ResolvedMessage, session: Session) -> bool:
        """Return whether a session belongs to another person than the sender of a message."""
        return is_anothers(arrived, session.owner, self.owners)

    def _session_for(self, arrived: ResolvedMessage) -> Session:
        session = self.find_session(arrived)
        if session is not None and _is_forgotten(session, arrived):
            # The old session is about to be deleted, so the new one inherits nothing from it.
            return self.start(arrived, None, None)
        if session is None or session.ended_at is not None:
            # First contact, or a lane whose session has ended. The write of the lane is a
            # compare-and-set, so a session that another transaction has just ended is not lost.
            return self.start(arrived, None if session is None else reason_after(session), session)
        # The settings may have given the profile to another agent since the session began.
        session.agent = arrived.agent.name
        if arrived.event.kind is Kind.SYSTEM and session.suspended_at is None:
            return session
        now = not_before(arrived.stored_at, session.last_activity_at)
        reason = reset_reason(session, arrived.policy, now)
        if reason is None:
            return session
        end_session(session, now, EndReason(reason), self.effects)
        return self.start(arrived, reason, session)

    def start(
        self, arrived: ResolvedMessage, reason: ResetReason | None, previous: Session | None
    ) -> Session:
        """Open a session and point the lane of a message to it."""
        lane = self.lanes.get(arrived.session_key)
        left = None if lane is None else self.sessions.get(lane.session_id)
        if left is not None and self.is_anothers(arrived, left):
            self.effects.repaired_lanes.append(arrived.session_key)
        session = Session(
            id=derived_id(arrived.stored_at, arrived.digests[0], "session"),
            session_key=arrived.session_key,
            agent=arrived.agent.name,
            platform=arrived.event.platform,
            started_at=arrived.stored_at,
            served_boundary=served_boundary_at(arrived.stored_at, arrived.policy),
            room=room_of(arrived.session_key),
            is_new=True,
        )
        if previous is not None:
            inherit_from(session, previous, reason)
        self.sessions[session.id] = session
        self._bind(arrived.session_key, session)
        announce_start(session, previous, reason, self.effects, source=arrived.source)
        if reason is not None:
            tell_chat(
                session,
                arrived.policy,
                source_of(arrived.event),
                is_wanted=arrived.wants_reset_notice,
                notices=arrived.notices,
                effects=self.effects,
            )
        return session

    def _bind(self, session_key: str, session: Session) -> None:
        lane = self.lanes.get(session_key)
        if lane is None:
            self.lanes[session_key] = Lane(session_key, session.id)
        else:
            lane.session_id = session.id

    def _deliver_turn(self, arrived: ResolvedMessage, session: Session) -> None:
        event = arrived.event
        details, _ = self._refer(arrived)
        arrival = session.take_arrival()
        busy = arrived.busy_mode
        rest = arrived.rest
        row = WaitingRow(
            session_id=session.id,
            arrival=arrival,
            session_key=arrived.session_key,
            message_id=derived_id(arrived.stored_at, arrived.digests[0], "message"),
            author=author_of(event),
            platform_message_id=event.message_id,
            size_bytes=arrived.size_bytes,
            content=event.text,
            details=details,
            source=arrived.source,
            stored_at=arrived.stored_at,
            busy=busy if busy in _MARKED else None,
            ready_in=arrived.delivery_policy.files_wait if event.awaits_files else rest,
            awaits_files=bool(event.awaits_files),
        )
        self.effects.waiting.append(row)
        self._placed(arrived, row)
        self.mark_seen(arrived, session.id, arrival)
        if session.active_turn is None:
            self._open(arrived, session, row.ready_in)
            return
        if rest is not None:
            self._prolong(arrived, session.active_turn, rest)
        if busy in _DISTURBING or arrived.delivery_policy.note:
            self.effects.busy_arrivals.append(BusyArrival(session.active_turn, session, arrived))

    def _open(self, arrived: ResolvedMessage, session: Session, rest: timedelta | None) -> None:
        """Open a turn for an idle session, delayed if the message is not ready."""
        turn = open_turn(session, arrived.stored_at, arrived.digests[0], self.effects, rest=rest)
        if turn.rest == "resting":
            self._resting[turn.id] = turn

    def _prolong(self, arrived: ResolvedMessage, turn_id: UUID, rest: timedelta) -> None:
        """Delay the turn for this message as well, if no worker has been notified of it yet."""
        self._prolong_turn(arrived.stored_at, turn_id, rest, arrived.rest_cap)

    def _prolong_turn(self, at: datetime, turn_id: UUID, rest: timedelta, cap: timedelta) -> None:
        turn = self._resting.get(turn_id)
        if turn is None:
            self.effects.rests.append(DebounceRow(turn_id, rest, cap))
        else:
            extend(turn, at, rest, cap)

    def _refer(self, arrived: ResolvedMessage) -> tuple[str, RepliedRow | None]:
        """Return the details of a message and the message that it answers, if that is known."""
        row = self.replies.find(arrived.replied) if self.replies is not None else None
        if row is None:
            return arrived.details, None
        return with_pointer(arrived.details, row), row

    def _deliver_stream(self, arrived: ResolvedMessage, session: Session) -> None:
        event = arrived.event
        details, replied = self._refer(arrived)
        message_id = derived_id(arrived.stored_at, arrived.digests[0], "message")
        is_first = session.next_seq == 1
        announce_to_agent(session, message_id)
        is_told = is_told_in(session, message_id, is_first=is_first)
        row = self._row(arrived, session, details)
        self.effects.messages.append(row)
        self._placed(arrived, row)
        self.mark_seen(arrived, session.id, row.seq)
        routed = RoutedMessage(
            id=str(message_id),
            at=arrived.stored_at,
            session_id=session.id,
            session_key=arrived.session_key,
            agent=arrived.agent.name,
            seq=row.seq,
            kind=event.kind,
            source=source_of(event),
            text=event.text,
            attachments=event.attachments,
            replied=None if replied is None else replied_message(replied),
            sent_at=event.sent_at,
            stored_at=arrived.stored_at,
            **{name: getattr(event, name) for name in CONTENT_FIELDS},
            session_is_new=is_first or is_told,
            reset_reason=session.start_reason if is_told else None,
            reset_had_activity=bool(is_told and session.reset_had_activity),
            opening_note=session.opening_note if is_told else None,
            model_override=model_override_of(session),
            resume_pending=resume_mark_of(session),
            staff_until=staff_pause_of(session, arrived.stored_at),
        )
        if arrived.agent.prompts is not None:
            routed = prompted_message(arrived.agent.prompts, routed)
        slot = slot_of(session.id, self.slots)
        self.effects.publications.append(
            Publication(
                session.id,
                "ROUTED",
                routed_subject(arrived.agent.name, slot, session.id),
                routed.id,
                encode(routed),
            )
        )

    def mark_seen(
        self, arrived: ResolvedMessage, session_id: UUID | None = None, place: int | None = None
    ) -> None:
        """Remember a message, so that it is recognized as a repeat when it comes again."""
        marks = [self._mark(digest, session_id, place) for digest in arrived.digests]
        if self.originals is not None:
            marks = self.originals.without_resumed(marks, self.effects)
        self.effects.seen += marks
        # For routers of an earlier release, which do not distinguish profiles.
        former = arrived.former_digests
        self.effects.former_seen += [SeenRow(digest, session_id, place) for digest in former]

    def _mark(self, digest: bytes, session_id: UUID | None, place: int | None) -> SeenRow:
        first = self.copies.get(digest)
        if first is None:
            return SeenRow(digest, session_id, place)
        self.copies[digest] = first._replace(session_id=session_id)
        return SeenRow(digest, session_id, place, first.fingerprint)


def is_anothers(
    arrived: ResolvedMessage, owner: str | None, owners: Mapping[str, frozenset[str]]
) -> bool:
    """Return whether a session belongs to another person than the sender of a message.

    Args:
        owners: Older owner names of a person, by the owner name of their new sessions.
    """
    if owner is None:
        return False
    own = owner_of(arrived.session_key, arrived.person)
    if own is None or owner == own or owner in owners.get(own, ()):
        return False
    if any(owner == owner_of(arrived.session_key, id_) for id_ in arrived.other_ids):
        return False
    # A timer may carry another sender, and a bot may write in a person's place.
    key = parse_session_key(arrived.session_key)
    is_named = arrived.person == (key.user if key.chat_class == "group" else key.chat)
    return is_named or (arrived.event.kind is Kind.MESSAGE and arrived.pair is None)


def _set_aside(
    arrived: ResolvedMessage, logged: LogMessage, other: FirstCopy, effects: Effects
) -> None:
    """Keep a message that has the id of another one for operators."""
    add_dead_letter(
        effects,
        stage=Stage.INBOUND,
        reason=DeadReason.MESSAGE_ID_REUSED,
        at=logged.stored_at,
        trigger=arrived.digests[0] + logged.sequence.to_bytes(8, "big"),
        body=logged.body,
        detail="another sender or other words than the first message with this id",
        log=logged.log,
        partition=logged.partition,
        sequence=logged.sequence,
        subject=logged.subject,
        session_id=other.session_id,
    )


def _is_forgotten(session: Session, arrived: ResolvedMessage) -> bool:
    """Return whether a session began before the erasure of its person, and belongs to them only."""
    is_old = arrived.forgotten is not None and session.started_at <= arrived.forgotten
    return is_old and not is_shared(parse_session_key(arrived.session_key))


def not_before(now: datetime, last: datetime | None) -> datetime:
    """Return the time of a decision about a conversation that was last active at `last`."""
    # The log's clock can step back when its leader moves; a conversation's time never does.
    return now if last is None or now > last else last
