"""Every reset mode has rules, every rule ends sessions, and every end is announced to the chat."""

from datetime import UTC, datetime, timedelta
from typing import Final, get_args
from uuid import UUID

import pytest

from chatlane.domain.effects import Effects
from chatlane.domain.notices import ENGLISH
from chatlane.domain.policy import (
    RULES_OF_MODE,
    ResetMode,
    ResetPolicy,
    reset_reason,
    served_boundary_at,
    timed_end,
)
from chatlane.domain.sessions.session_handoff import inherit_from, reason_after, tell_chat
from chatlane.domain.sessions.timed_resets import evaluate
from chatlane.domain.states import Session
from chatlane_schemas.codec import decode
from chatlane_schemas.events import EndReason, ResetReason, SessionEnded
from chatlane_schemas.outbound import OutboundMessage
from chatlane_schemas.source import Source

START: Final = datetime(2026, 5, 11, 9, tzinfo=UTC)
LATER: Final = START + timedelta(days=4000)
SOURCE: Final = Source.model_validate(
    {"platform": "telegram", "account": "bot", "chat": {"id": "701"}}
)
TIMED: Final = [mode for mode in get_args(ResetMode) if mode != "none"]
UNREQUESTED: Final = [reason for reason in ResetReason if reason is not ResetReason.REQUESTED]


def session_under(policy: ResetPolicy) -> Session:
    session = Session(UUID(int=1), "agent:main:telegram:bot:dm:701", "main", "telegram", START)
    session.last_activity_at = START
    session.served_boundary = served_boundary_at(START, policy)
    return session


def test_every_mode_has_rules() -> None:
    assert set(get_args(ResetMode)) == RULES_OF_MODE.keys()
    assert [mode for mode in get_args(ResetMode) if not RULES_OF_MODE[mode]] == ["none"]


def test_no_two_modes_have_the_same_rules() -> None:
    assert len(set(RULES_OF_MODE.values())) == len(RULES_OF_MODE)


def test_every_reset_reason_is_an_end_reason() -> None:
    """The router writes the reason of a reset as the reason why the session ended."""
    assert {reason.value for reason in ResetReason} - {
        reason.value for reason in EndReason
    } == set()


@pytest.mark.parametrize("mode", TIMED)
def test_a_message_after_long_silence_meets_a_rule_of_the_mode(mode: ResetMode) -> None:
    policy = ResetPolicy(mode)
    assert reset_reason(session_under(policy), policy, LATER) in RULES_OF_MODE[mode]


@pytest.mark.parametrize("reason", frozenset().union(*RULES_OF_MODE.values()))
def test_every_rule_ends_a_session_when_it_is_the_only_one(reason: ResetReason) -> None:
    (mode,) = (mode for mode, rules in RULES_OF_MODE.items() if rules == {reason})
    policy = ResetPolicy(mode, warning=timedelta(0))
    session = session_under(policy)
    due = timed_end(session, policy)
    assert due is not None
    assert due.reason == reason
    effects = Effects()
    evaluate(
        session,
        policy,
        now=LATER,
        committed_until=LATER,
        ending_at=due.at,
        has_waiting=False,
        effects=effects,
    )
    (published,) = effects.publications
    ended = decode(SessionEnded, published.payload)
    assert (session.end_reason, ended.reason) == (reason.value, reason.value)


@pytest.mark.parametrize("reason", UNREQUESTED)
def test_the_chat_is_told_of_every_reset_that_no_person_requested(reason: ResetReason) -> None:
    policy = ResetPolicy()
    previous = session_under(policy)
    previous.end_reason, previous.answers = reason.value, 1
    session = session_under(policy)
    inherit_from(session, previous, reason_after(previous))
    assert session.start_reason == reason
    effects = Effects()
    tell_chat(session, policy, SOURCE, is_wanted=True, notices=ENGLISH, effects=effects)
    (published,) = effects.publications
    assert decode(OutboundMessage, published.payload).text
