"""What becomes of a turn that is to end, and every order in which it may happen."""

from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from chatlane.domain.catalog import Agent
from chatlane.domain.effects import Effects
from chatlane.domain.notices import ENGLISH
from chatlane.domain.states import Session, Turn
from chatlane.domain.turns.claims import claim_status, grant, renew
from chatlane.domain.turns.lifecycle import expire_lease, open_turn
from chatlane.domain.turns.turn_results import ArrivedResult, settle
from chatlane.domain.turns.worker_controls import stop_turn
from chatlane_schemas.codec import decode
from chatlane_schemas.results import Outcome, Part, ResultMessage
from chatlane_schemas.source import Source
from chatlane_schemas.turns import CancelReason, ClaimStatus, RenewStatus, TurnControl

AT: Final = datetime(2026, 5, 11, 9, tzinfo=UTC)
SESSION_ID, TURN_ID = UUID(int=1), UUID(int=2)
AGENT: Final = Agent("main", lease=timedelta(seconds=30), max_attempts=3)
SOURCE = Source.model_validate({"platform": "telegram", "account": "bot", "chat": {"id": "701"}})
INTERRUPTED, STOPPED, SESSION_ENDED = CancelReason


def busy_session() -> Session:
    session = Session(SESSION_ID, "agent:main:telegram:bot:dm:701", "main", "telegram", AT)
    session.active_turn = TURN_ID
    return session


def turn(state: str = "ready", attempt: int = 0) -> Turn:
    one = Turn(TURN_ID, SESSION_ID, "main", state, source=SOURCE, attempt=attempt)
    one.token = f"t{attempt}" if attempt else None
    one.due_in = timedelta(seconds=20)
    return one


def stopped(
    one: Turn,
    session: Session,
    reason: CancelReason = STOPPED,
    *,
    has_waiting: bool = False,
) -> tuple[bool, Effects]:
    effects = Effects()
    return stop_turn(one, session, reason, AT, has_waiting=has_waiting, effects=effects), effects


def arrived(one: Turn, outcome: Outcome, *, retry: bool = False, number: int = 1) -> ArrivedResult:
    result = ResultMessage(
        id=f"r{number}",
        at=AT,
        session_id=SESSION_ID,
        turn_id=one.id,
        attempt=one.attempt,
        token=one.token or "none",
        outcome=outcome,
        retry=retry,
        parts=(Part(text="so far"),) if outcome is Outcome.OK else (),
    )
    return ArrivedResult(result, "main", AT, b"{}", "chat.v1.rlog.1.main.x", 1, number)


def settled(one: Turn, session: Session, outcome: Outcome, *, retry: bool = False) -> Effects:
    effects = Effects()
    settle(
        arrived(one, outcome, retry=retry),
        session,
        one,
        agent=Agent("main"),
        has_waiting=False,
        notices=ENGLISH,
        effects=effects,
    )
    return effects


def said(effects: Effects) -> list[str]:
    return [one.stream for one in effects.publications if one.stream == "OUTBOUND"]


def test_the_worker_of_a_claimed_turn_is_told_and_the_session_stays_its_own() -> None:
    session, one = busy_session(), turn("claimed", 1)
    was_running, effects = stopped(one, session, has_waiting=True)
    assert was_running
    assert (one.state, one.cancel, session.active_turn) == ("claimed", STOPPED, TURN_ID)
    (control,) = effects.controls
    assert control.subject == f"chat.v1.control.main.{TURN_ID}"
    assert decode(TurnControl, control.payload).cancel is STOPPED
    assert not effects.new_turns


@pytest.mark.parametrize("attempt", [0, 1])
@pytest.mark.parametrize("has_waiting", [True, False])
def test_a_turn_in_nobodys_hands_is_over_at_once(attempt: int, *, has_waiting: bool) -> None:
    session, one = busy_session(), turn("ready", attempt)
    was_running, effects = stopped(one, session, has_waiting=has_waiting)
    assert not was_running
    assert one.state == "void"
    assert not effects.controls
    assert [new.id for new in effects.new_turns] == ([session.active_turn] if has_waiting else [])


@pytest.mark.parametrize("first", CancelReason)
@pytest.mark.parametrize("second", CancelReason)
def test_the_stronger_reason_stays(first: CancelReason, second: CancelReason) -> None:
    session, one = busy_session(), turn("claimed", 1)
    stopped(one, session, first)
    _, effects = stopped(one, session, second)
    order = list(CancelReason)
    assert one.cancel == max(first, second, key=order.index)
    # Told again in any case: the first time may have been lost.
    assert decode(TurnControl, effects.controls[0].payload).cancel == one.cancel


@pytest.mark.parametrize(
    ("reason", "is_said"), [(INTERRUPTED, True), (STOPPED, True), (SESSION_ENDED, False)]
)
def test_what_was_done_so_far_is_kept_and_said_while_its_session_lasts(
    reason: CancelReason, *, is_said: bool
) -> None:
    session, one = busy_session(), turn("claimed", 1)
    stopped(one, session, reason)
    effects = settled(one, session, Outcome.OK)
    assert (one.state, one.outcome, session.active_turn) == ("done", "ok", None)
    assert [row.content for row in effects.messages] == ["so far"]
    assert said(effects) == (["OUTBOUND"] if is_said else [])


@pytest.mark.parametrize("retry", [True, False])
def test_a_failure_confirms_the_stop(*, retry: bool) -> None:
    """Whatever it died of, it was to end: no other attempt, dead letter or apology."""
    session, one = busy_session(), turn("claimed", 1)
    stopped(one, session)
    effects = settled(one, session, Outcome.FAILED, retry=retry)
    assert (one.state, one.outcome, session.active_turn) == ("done", "no_reply", None)
    assert not effects.dead
    assert not said(effects)


def test_a_worker_that_never_confirms_is_waited_for_as_long_as_its_lease() -> None:
    session, one = busy_session(), turn("claimed", 1)
    stopped(one, session)
    assert renew(one, AGENT, 1, "t1") is RenewStatus.RENEWED
    assert one.due_in == timedelta(seconds=20)
    effects = Effects()
    expire_lease(one, session, max_attempts=3, has_waiting=True, notices=ENGLISH, effects=effects)
    assert one.state == "void"
    assert [new.id for new in effects.new_turns] == [session.active_turn]
    assert renew(one, AGENT, 1, "t1") is RenewStatus.FINISHED
    assert len(settled(one, session, Outcome.OK).late) == 1


def test_nobody_claims_a_turn_that_is_to_end() -> None:
    one = turn("claimed", 1)
    one.claim_id, one.cancel = "c1", STOPPED
    assert claim_status(one, "main", "c2") is ClaimStatus.VOID
    # Its own claim gets the same answer as before; a renewal says the rest.
    assert claim_status(one, "main", "c1") is ClaimStatus.CLAIMED
    one.state = "ready"
    assert claim_status(one, "main", "c2") is ClaimStatus.VOID
    assert renew(one, AGENT, 1, "") is RenewStatus.STALE


class StoppedAtAnyTime(RuleBasedStateMachine):
    """One session, its people, workers that die, and somebody who stops it now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Session(SESSION_ID, "k", "main", "telegram", AT)
        self.turns: dict[UUID, Turn] = {}
        self.line = 0
        self.count = 0
        self.working: dict[UUID, set[int]] = {}

    def _number(self) -> int:
        self.count += 1
        return self.count

    def _take(self, effects: Effects) -> None:
        for new in effects.new_turns:
            assert new.id not in self.turns
            self.turns[new.id] = new

    @property
    def live(self) -> list[Turn]:
        return [one for one in self.turns.values() if one.is_live]

    @rule()
    def somebody_writes(self) -> None:
        effects = Effects()
        self.line += 1
        if self.session.active_turn is None:
            number = self._number()
            open_turn(self.session, AT + timedelta(milliseconds=number), b"%d" % number, effects)
        self._take(effects)

    @precondition(lambda self: self.live)
    @rule()
    def a_worker_claims(self) -> None:
        (one,) = self.live
        claim = f"c{self._number()}"
        was_first = one.attempt == 0
        if claim_status(one, "main", claim) is not ClaimStatus.CLAIMED:
            return
        assert one.cancel is None
        # Its lease has ended, and so has the work of whoever had it.
        self.working[one.id] = {one.attempt + 1}
        grant(one, claim_id=claim, worker="w", token=claim, lease=AGENT.lease)
        one.source = SOURCE
        if was_first:
            assert self.line
            self.line = 0

    @precondition(lambda self: self.live)
    @rule(reason=st.sampled_from(CancelReason), keeps_line=st.booleans())
    def somebody_stops_it(self, reason: CancelReason, *, keeps_line: bool) -> None:
        (one,) = self.live
        before = one.state
        effects = Effects()
        if not keeps_line or one.is_unclaimed:
            self.line = 0
        stop_turn(one, self.session, reason, AT, has_waiting=self.line > 0, effects=effects)
        assert one.state == ("claimed" if before == "claimed" else "void")
        self._take(effects)

    @precondition(lambda self: any(one.state == "claimed" for one in self.live))
    @rule()
    def the_lease_ends(self) -> None:
        (one,) = self.live
        # A worker stops by its own clock before that.
        self.working[one.id] = set()
        effects = Effects()
        expire_lease(
            one,
            self.session,
            max_attempts=3,
            has_waiting=self.line > 0,
            notices=ENGLISH,
            effects=effects,
        )
        self._take(effects)

    @precondition(lambda self: self.turns)
    @rule(data=st.data(), outcome=st.sampled_from(Outcome), retry=st.booleans())
    def a_result_comes(self, data: st.DataObject, outcome: Outcome, *, retry: bool) -> None:
        one = self.turns[data.draw(st.sampled_from(sorted(self.turns)))]
        before = (one.is_live, one.cancel, one.token)
        effects = Effects()
        if one.is_live:
            self.working[one.id] = set()
        settle(
            arrived(one, outcome, retry=retry, number=self._number()),
            self.session,
            one,
            agent=Agent("main"),
            has_waiting=self.line > 0,
            notices=ENGLISH,
            effects=effects,
        )
        self._take(effects)
        is_live, cancel, token = before
        if not is_live or token is None:
            assert len(effects.late) == 1
            assert not said(effects)
        if cancel is SESSION_ENDED:
            assert not said(effects)
        if is_live and cancel is not None:
            assert not one.is_live
            assert not effects.dead

    @invariant()
    def one_turn_at_most_holds_the_session(self) -> None:
        assert [one.id for one in self.live] == (
            [] if self.session.active_turn is None else [self.session.active_turn]
        )

    @invariant()
    def two_never_work_at_once(self) -> None:
        assert sum(len(attempts) for attempts in self.working.values()) <= 1

    @invariant()
    def nothing_waits_without_a_turn(self) -> None:
        assert self.live or not self.line


TestStoppedAtAnyTime = StoppedAtAnyTime.TestCase
TestStoppedAtAnyTime.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
