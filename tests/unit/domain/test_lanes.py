"""Which session a message belongs to and what happens to it there, as pure decisions."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest

from chatlane.domain.catalog import Agent
from chatlane.domain.effects import Effects
from chatlane.domain.lanes import Placement
from chatlane.domain.policy import ResetPolicy
from chatlane.domain.resolved_message import ResolvedMessage, details_json
from chatlane.domain.states import Lane, Session
from chatlane_schemas.codec import decode
from chatlane_schemas.events import SessionEnded, SessionStarted
from chatlane_schemas.inbound import Chat, InboundEvent, Kind, Sender
from chatlane_schemas.routed import RoutedMessage
from chatlane_schemas.source import source_json

START = datetime(2026, 5, 11, 9, tzinfo=UTC)
KEY = "agent:main:telegram:bot:dm:701"
TURNS, STREAM = Agent("main"), Agent("main", delivery="stream")
IDLE = ResetPolicy("idle", idle=timedelta(hours=1))
SLOTS = 32


def minutes(number: float) -> datetime:
    return START + timedelta(minutes=number)


@dataclass
class World:
    """What a router would load and write, from batch to batch."""

    agent: Agent = TURNS
    policy: ResetPolicy = field(default_factory=ResetPolicy)
    lanes: dict[str, Lane] = field(default_factory=dict)
    sessions: dict[UUID, Session] = field(default_factory=dict)
    seen: set[bytes] = field(default_factory=set)

    def place(self, *messages: ResolvedMessage) -> Effects:
        effects = Effects()
        placement = Placement(self.lanes, self.sessions, self.seen, effects, SLOTS)
        for message in messages:
            placement.place(message)
        return effects

    def message(
        self,
        mid: str,
        at: datetime = START,
        key: str = KEY,
        **fields: Any,  # noqa: ANN401 - any field of an event
    ) -> ResolvedMessage:
        event = InboundEvent(
            id=f"e{mid}",
            at=START,
            platform="telegram",
            account="bot",
            chat=Chat(id="701"),
            sender=Sender(id="701"),
            message_id=mid,
            **({"text": f"m{mid}"} | fields),
        )
        return ResolvedMessage(
            event=event,
            session_key=key,
            former_keys=(),
            digests=(sha256(f"{key}/{event.kind}/{mid}".encode()).digest(),),
            agent=self.agent,
            policy=self.policy,
            stored_at=at,
            size_bytes=100,
            source=source_json(event),
            details=details_json(event),
        )

    def end_turns(self) -> None:
        for session in self.sessions.values():
            session.active_turn = None

    @property
    def session(self) -> Session:
        """The session the lane leads to now."""
        return self.sessions[self.lanes[KEY].session_id]


def events(effects: Effects) -> list[SessionStarted | SessionEnded]:
    return [
        decode(SessionStarted, one.payload)
        if one.subject.endswith(".started")
        else decode(SessionEnded, one.payload)
        for one in effects.publications
        if one.stream == "EVENTS"
    ]


def test_first_contact_opens_a_lane_a_session_and_a_turn() -> None:
    world = World()
    effects = world.place(world.message("1"))
    session = world.session
    assert (session.session_key, session.agent, session.platform) == (KEY, "main", "telegram")
    assert (session.started_at, session.last_activity_at, session.is_new) == (START, START, True)
    assert world.lanes[KEY].bound_to is None
    (waiting,) = effects.waiting
    assert (waiting.session_id, waiting.arrival, waiting.content) == (session.id, 1, "m1")
    (turn,) = effects.new_turns
    assert session.active_turn == turn.id
    (started,) = events(effects)
    assert isinstance(started, SessionStarted)
    assert (started.session_id, started.reason, started.previous_session_id) == (
        session.id,
        None,
        None,
    )


def test_deciding_again_gives_the_same_rows() -> None:
    """After a rollback, in another router, after a restore: ids follow from what caused them."""
    one, other = World(), World()
    assert one.place(one.message("1"), one.message("2")) == other.place(
        other.message("1"), other.message("2")
    )
    assert one.session == other.session


def test_more_messages_wait_behind_the_turn_that_is_there() -> None:
    world = World()
    world.place(world.message("1"))
    effects = world.place(world.message("2", minutes(1)), world.message("3", minutes(2)))
    assert [row.arrival for row in effects.waiting] == [2, 3]
    assert effects.new_turns == []
    assert len(world.sessions) == 1
    assert (world.session.user_messages, world.session.last_activity_at) == (3, minutes(2))


def test_an_idle_session_gets_one_turn_for_all_that_comes_at_once() -> None:
    world = World()
    world.place(world.message("1"))
    world.end_turns()
    effects = world.place(world.message("2"), world.message("3"))
    assert len(effects.new_turns) == 1


def test_a_repeat_changes_nothing_within_a_batch_and_between_batches() -> None:
    world = World()
    effects = world.place(world.message("1"), world.message("1", minutes(1)))
    again = world.place(world.message("1", minutes(2)))
    assert len(effects.waiting) == 1
    assert again == Effects(counts={("duplicates", "inbound"): 1})
    assert world.session.last_activity_at == START


def test_any_of_its_digests_makes_a_message_a_repeat() -> None:
    world = World()
    one = world.message("1")._replace(digests=(b"as it came", b"canonical"))
    other = world.message("2")._replace(digests=(b"another form", b"canonical"))
    effects = world.place(one, other)
    assert [row.digest for row in effects.seen] == [b"as it came", b"canonical"]
    assert effects.counts["duplicates", "inbound"] == 1


@pytest.mark.parametrize(
    "kind", [Kind.EDIT, Kind.DELETE, Kind.REACTION, Kind.SERVICE, Kind.MIGRATION]
)
def test_other_kinds_are_marked_as_seen_and_start_nothing(kind: Kind) -> None:
    world = World()
    effects = world.place(world.message("1", kind=kind))
    (mark,) = effects.seen
    assert (mark.session_id, mark.arrival) == (None, None)
    assert effects.counts == {("kept", kind): 1}
    assert not world.sessions
    assert not effects.publications


def test_a_bot_that_may_not_speak_leaves_no_mark_and_starts_nothing() -> None:
    world = World()
    effects = world.place(world.message("1")._replace(is_ignored=True))
    assert effects.counts == {("kept", "bot"): 1}
    assert effects.seen == []
    assert not world.sessions


def test_marks_tell_where_the_message_went() -> None:
    world = World()
    effects = world.place(world.message("1"), world.message("2"))
    assert [(row.session_id, row.arrival) for row in effects.seen] == [
        (world.session.id, 1),
        (world.session.id, 2),
    ]


def test_the_message_that_resets_is_the_first_of_the_new_session() -> None:
    world = World(policy=IDLE)
    world.place(world.message("1"))
    world.end_turns()
    old = world.session
    effects = world.place(world.message("2", minutes(61)), world.message("3", minutes(61)))
    assert (old.ended_at, old.end_reason) == (minutes(61), "idle")
    assert (world.session.start_reason, world.session.id != old.id) == ("idle", True)
    assert {(row.session_id, row.arrival) for row in effects.waiting} == {
        (world.session.id, 1),
        (world.session.id, 2),
    }
    ended, started = events(effects)
    assert isinstance(ended, SessionEnded)
    assert isinstance(started, SessionStarted)
    assert (ended.session_id, ended.reason) == (old.id, "idle")
    assert (started.session_id, started.reason) == (world.session.id, "idle")
    assert started.previous_session_id == old.id


def test_a_running_turn_puts_a_reset_off() -> None:
    world = World(policy=IDLE)
    world.place(world.message("1"))
    old = world.session
    world.place(world.message("2", minutes(90)))
    assert world.session is old
    world.end_turns()
    world.place(world.message("3", minutes(151)))
    assert world.session is not old


def test_a_timer_neither_counts_as_activity_nor_resets() -> None:
    world = World(policy=IDLE)
    world.place(world.message("1"))
    world.end_turns()
    old = world.session
    world.place(world.message("2", minutes(300), kind=Kind.SYSTEM))
    assert world.session is old
    assert (old.last_activity_at, old.user_messages) == (START, 1)


def test_a_timer_opens_a_session_that_nobody_was_active_in() -> None:
    world = World(policy=IDLE)
    world.place(world.message("1", kind=Kind.SYSTEM))
    assert (world.session.last_activity_at, world.session.user_messages) == (None, 0)


@pytest.mark.parametrize("kind", [Kind.MESSAGE, Kind.SYSTEM])
def test_a_lane_left_behind_by_its_session_gets_a_new_one(kind: Kind) -> None:
    world = World()
    world.place(world.message("1"))
    old = world.session
    old.ended_at, old.end_reason = START, "merged"
    world.place(world.message("2", minutes(1), kind=kind))
    assert world.session is not old
    assert world.session.start_reason is None


def test_a_lane_whose_session_is_not_there_gets_a_new_one() -> None:
    world = World(lanes={KEY: Lane(KEY, UUID(int=9), bound_to=UUID(int=9))})
    world.place(world.message("1"))
    assert world.session.id != UUID(int=9)
    assert world.lanes[KEY].bound_to == UUID(int=9)


def test_a_clock_that_steps_back_never_takes_activity_back() -> None:
    world = World(policy=IDLE)
    world.place(world.message("1", minutes(30)))
    world.end_turns()
    world.place(world.message("2", START), world.message("3", minutes(20)))
    assert world.session.last_activity_at == minutes(30)
    assert len(world.sessions) == 1


def test_a_conversation_follows_its_profile_to_another_agent() -> None:
    world = World()
    world.place(world.message("1"))
    world.agent = Agent("other")
    world.place(world.message("2"))
    assert world.session.agent == "other"


def test_a_stream_agent_gets_each_message_at_once() -> None:
    world = World(agent=STREAM)
    effects = world.place(world.message("1"), world.message("2", minutes(1)))
    routed = [
        decode(RoutedMessage, one.payload) for one in effects.publications if one.stream == "ROUTED"
    ]
    assert [(one.seq, one.text, one.session_is_new) for one in routed] == [
        (1, "m1", True),
        (2, "m2", False),
    ]
    assert [(row.seq, row.role, str(row.id)) for row in effects.messages] == [
        (1, "user", routed[0].id),
        (2, "user", routed[1].id),
    ]
    assert not effects.waiting
    assert not effects.new_turns


def test_a_stream_agent_is_told_why_a_session_is_new_once() -> None:
    world = World(agent=STREAM, policy=IDLE)
    world.place(world.message("1"))
    effects = world.place(world.message("2", minutes(61)), world.message("3", minutes(62)))
    told = [
        decode(RoutedMessage, one.payload).reset_reason
        for one in effects.publications
        if one.stream == "ROUTED"
    ]
    assert told == ["idle", None]


def test_conversations_of_one_batch_do_not_mix() -> None:
    world = World()
    other = "agent:main:telegram:bot:dm:702"
    effects = world.place(world.message("1"), world.message("1", key=other), world.message("2"))
    assert len(world.sessions) == 2
    assert [row.session_key for row in effects.waiting] == [KEY, other, KEY]
    assert [row.arrival for row in effects.waiting] == [1, 1, 2]


def test_only_what_is_more_than_plain_is_written_as_details() -> None:
    world = World()
    plain, request_handler = world.place(
        world.message("1"), world.message("2", reply_to="1")
    ).waiting
    assert plain.details == '{"kind":"message"}'
    assert '"reply_to":"1"' in request_handler.details
