"""The life of a turn as decisions: what each step changes, and what it wants written."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlane.domain.catalog import Agent
from chatlane.domain.effects import Effects
from chatlane.domain.notices import ENGLISH
from chatlane.domain.states import Session, Turn
from chatlane.domain.turns.claims import WaitingHead, claimable
from chatlane.domain.turns.lifecycle import (
    TurnFailed,
    expire_lease,
    fail_turn,
    open_turn,
    repeat_notice,
    void_turn,
)
from chatlane.domain.turns.turn_results import ArrivedResult, Question, answer_stream, settle
from chatlane_schemas.codec import decode
from chatlane_schemas.live_turns import TurnFailure
from chatlane_schemas.outbound import OutboundMessage
from chatlane_schemas.results import Outcome, Part, ResultMessage, TranscriptRow
from chatlane_schemas.source import Source
from chatlane_schemas.turns import TurnNotice

AT = datetime(2026, 5, 11, 9, tzinfo=UTC)
SESSION_ID, TURN_ID = UUID(int=1), UUID(int=2)
SOURCE = Source.model_validate(
    {"platform": "telegram", "account": "bot", "chat": {"id": "701"}, "message_id": "9"}
)


def idle_session() -> Session:
    return Session(SESSION_ID, "agent:main:telegram:bot:dm:701", "main", "telegram", AT)


def busy_session() -> Session:
    session = idle_session()
    session.active_turn = TURN_ID
    session.next_seq = 2
    return session


def running_turn(attempt: int = 1) -> Turn:
    return Turn(
        TURN_ID,
        SESSION_ID,
        "main",
        "claimed",
        source=SOURCE,
        attempt=attempt,
        claim_id="c1",
        token="t1",  # noqa: S106 - a made-up one
        due_in=timedelta(seconds=30),
    )


def arrived(agent: str = "main", **fields: Any) -> ArrivedResult:  # noqa: ANN401 - any field
    told: dict[str, Any] = {
        "id": "r1",
        "at": AT,
        "session_id": SESSION_ID,
        "turn_id": TURN_ID,
        "attempt": 1,
        "token": "t1",
        "outcome": Outcome.OK,
        "parts": (Part(text="done"),),
    }
    result = ResultMessage(**(told | fields))
    return ArrivedResult(result, agent, AT, b"{}", "chat.v1.rlog.1.main.x", 1, 7)


def settled(
    result: ArrivedResult,
    session: Session,
    turn: Turn | None,
    *,
    has_waiting: bool = False,
    max_attempts: int = 3,
) -> Effects:
    effects = Effects()
    settle(
        result,
        session,
        turn,
        agent=Agent("main", max_attempts=max_attempts),
        has_waiting=has_waiting,
        notices=ENGLISH,
        effects=effects,
    )
    return effects


def outbound(effects: Effects) -> list[OutboundMessage]:
    return [
        decode(OutboundMessage, one.payload)
        for one in effects.publications
        if one.stream == "OUTBOUND"
    ]


def notices(effects: Effects) -> list[TurnNotice]:
    return [
        decode(TurnNotice, one.payload) for one in effects.publications if one.stream == "TURNS"
    ]


def test_an_idle_session_gets_a_turn_and_its_agent_is_told() -> None:
    session, effects = idle_session(), Effects()
    turn = open_turn(session, AT, b"digest", effects)
    assert session.active_turn == turn.id
    assert effects.new_turns == [turn]
    (notice,) = notices(effects)
    assert (notice.turn_id, notice.dispatch, notice.id) == (turn.id, 1, f"turn:{turn.id}:1")
    assert effects.publications[0].subject == "chat.v1.turn.main"


def test_the_same_trigger_opens_the_same_turn() -> None:
    """Deciding again, after a rollback or a restore, repeats the same ids."""
    one, other = (open_turn(idle_session(), AT, b"digest", Effects()) for _ in range(2))
    assert one == other
    assert open_turn(idle_session(), AT, b"another", Effects()).id != one.id


def test_each_notice_is_another_message_and_the_pauses_grow() -> None:
    effects = Effects()
    turn = open_turn(idle_session(), AT, b"digest", effects)
    pauses = [turn.due_in]
    for _ in range(6):
        repeat_notice(turn, effects)
        pauses.append(turn.due_in)
    assert [pause.total_seconds() for pause in pauses] == [3, 10, 30, 60, 120, 300, 300]
    assert len({one.message_id for one in effects.publications}) == 7


def test_a_result_ends_the_turn_and_frees_the_session() -> None:
    session, turn = busy_session(), running_turn()
    effects = settled(arrived(), session, turn)
    assert (turn.state, turn.result_id, turn.outcome) == ("done", "r1", "ok")
    assert session.active_turn is None
    assert [(row.seq, row.role, row.content) for row in effects.messages] == [
        (2, "assistant", "done")
    ]
    (answer,) = outbound(effects)
    assert (answer.out_seq, answer.text, answer.reply_to) == (1, "done", "9")
    assert answer.target == SOURCE
    assert not notices(effects)


def test_what_waits_gets_the_next_turn_at_once() -> None:
    session, turn = busy_session(), running_turn()
    effects = settled(arrived(), session, turn, has_waiting=True)
    (following,) = effects.new_turns
    assert session.active_turn == following.id != turn.id
    assert [notice.turn_id for notice in notices(effects)] == [following.id]


def test_parts_are_numbered_and_rows_are_those_of_the_worker() -> None:
    session, turn = busy_session(), running_turn()
    result = arrived(
        parts=(Part(text="a"), Part(text="b")),
        transcript=(
            TranscriptRow(role="tool", content="x", tool_call_id="t"),  # type: ignore[arg-type]
            TranscriptRow(role="assistant", content="a b"),  # type: ignore[arg-type]
        ),
    )
    effects = settled(result, session, turn)
    assert [(row.seq, row.role) for row in effects.messages] == [(2, "tool"), (3, "assistant")]
    assert [(one.out_seq, one.part, one.text) for one in outbound(effects)] == [
        (1, 0, "a"),
        (2, 1, "b"),
    ]
    assert (session.next_seq, session.next_out_seq) == (4, 3)


def test_a_repeated_result_changes_nothing() -> None:
    session, turn = busy_session(), running_turn()
    settled(arrived(), session, turn)
    before = (str(session), str(turn))
    effects = settled(arrived(), session, turn)
    assert (str(session), str(turn)) == before
    assert effects == Effects(counts={("duplicates", "results"): 1})


@pytest.mark.parametrize(
    "stale", [{"attempt": 2}, {"attempt": 0}, {"token": "t2"}, {"attempt": 2, "token": "t2"}]
)
def test_a_stale_result_is_kept_as_late_and_changes_nothing(stale: dict[str, Any]) -> None:
    session, turn = busy_session(), running_turn()
    before = (str(session), str(turn))
    effects = settled(arrived(**stale), session, turn)
    assert (str(session), str(turn)) == before
    assert [row.id for row in effects.late] == ["r1"]
    assert not effects.publications
    assert not effects.messages


@pytest.mark.parametrize("state", ["done", "failed", "void"])
def test_a_result_for_a_turn_that_is_over_is_late(state: str) -> None:
    session, turn = busy_session(), running_turn()
    turn.state = state
    assert len(settled(arrived(), session, turn).late) == 1


def test_a_result_after_the_lease_counts_while_nobody_else_claimed() -> None:
    session, turn = busy_session(), running_turn()
    expire_lease(
        turn, session, max_attempts=3, has_waiting=False, notices=ENGLISH, effects=Effects()
    )
    assert turn.state == "ready"
    settled(arrived(), session, turn)
    assert turn.state == "done"


def test_who_has_a_result_has_begun_even_if_nobody_was_told() -> None:
    session, turn = busy_session(), running_turn()
    turn.is_begun = False
    expire_lease(
        turn, session, max_attempts=3, has_waiting=False, notices=ENGLISH, effects=Effects()
    )
    assert (turn.tries, session.interruptions) == (0, 0)
    settled(arrived(outcome=Outcome.FAILED, retry=True, parts=()), session, turn)
    assert (turn.tries, turn.due_in) == (1, timedelta(seconds=5))


@pytest.mark.parametrize(
    ("turn", "agent", "reason"),
    [
        (None, "main", "unknown_turn"),
        (Turn(TURN_ID, UUID(int=9), "main", "claimed"), "main", "unknown_turn"),
        (running_turn(), "other", "agent_mismatch"),
    ],
)
def test_a_result_that_has_no_business_here_is_set_aside(
    turn: Turn | None, agent: str, reason: str
) -> None:
    effects = settled(arrived(agent), busy_session(), turn)
    assert [(row.stage, row.reason, row.sequence) for row in effects.dead] == [
        ("results", reason, 7)
    ]
    assert [one.subject for one in effects.publications] == ["chat.v1.dead.results"]


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_failure_worth_repeating_pauses_the_turn(attempt: int) -> None:
    session, turn = busy_session(), running_turn(attempt)
    result = arrived(outcome=Outcome.FAILED, retry=True, attempt=attempt, parts=(), error="away")
    effects = settled(result, session, turn)
    assert (turn.state, turn.token, turn.due_in) == ("ready", None, timedelta(seconds=5 * attempt))
    assert session.active_turn == turn.id
    assert not outbound(effects)
    assert not notices(effects)
    # It gave the turn up itself: whatever else it says about this attempt comes too late.
    assert len(settled(arrived(id="r2", attempt=attempt), session, turn).late) == 1


@pytest.mark.parametrize("has_retry", [True, False])
def test_the_last_failure_gives_the_turn_up(*, has_retry: bool) -> None:
    session, turn = busy_session(), running_turn(3)
    result = arrived(outcome=Outcome.FAILED, retry=has_retry, attempt=3, parts=(), error="away")
    effects = settled(result, session, turn, has_waiting=True)
    assert (turn.state, turn.outcome, turn.error) == ("failed", "failed", "away")
    (letter,) = effects.dead
    assert (letter.stage, letter.reason, letter.session_id) == ("turns", "turn_failed", SESSION_ID)
    (notice,) = outbound(effects)
    assert (notice.kind, notice.target, notice.out_seq) == ("notice", SOURCE, 1)
    assert "away" not in (notice.text or "")
    assert [one.turn_id for one in notices(effects)] == [session.active_turn]


def test_leases_end_in_another_attempt_until_the_last() -> None:
    session, turn = busy_session(), running_turn()
    for attempt in (1, 2, 3):
        turn.state, turn.attempt = "claimed", attempt
        effects = Effects()
        expire_lease(
            turn, session, max_attempts=3, has_waiting=False, notices=ENGLISH, effects=effects
        )
        assert turn.state == ("failed" if attempt == 3 else "ready")
        assert len(notices(effects)) == (0 if attempt == 3 else 1)
    assert session.active_turn is None


def test_a_turn_that_was_never_claimed_fails_without_a_word_to_anybody() -> None:
    session, effects = busy_session(), Effects()
    turn = Turn(TURN_ID, SESSION_ID, "main", "ready")
    failure = TurnFailed(TurnFailure.LOST, "gone", "Sorry.")
    fail_turn(turn, session, failure, has_waiting=False, effects=effects)
    assert [row.stream for row in effects.publications] == ["DEAD"]
    assert session.next_out_seq == 1


def test_a_void_turn_frees_the_session_for_what_waits() -> None:
    session, turn, effects = busy_session(), running_turn(), Effects()
    void_turn(turn, session, has_waiting=True, effects=effects)
    assert turn.state == "void"
    assert [one.id for one in effects.new_turns] == [session.active_turn]
    assert not effects.dead


QUESTION = Question(UUID(int=5), SOURCE)


def stream_answer(part: int = 0, agent: str = "main") -> ArrivedResult:
    fields = dict.fromkeys(("turn_id", "attempt", "token", "outcome"))
    return arrived(agent, **fields, parts=(), reply_to=str(QUESTION.id), part=part, text="done")


def test_the_first_answer_to_a_part_is_told_and_kept() -> None:
    session, effects = idle_session(), Effects()
    answer_stream(stream_answer(part=1), session, QUESTION, None, effects)
    (row,) = effects.messages
    assert (row.seq, row.role, row.reply_to, row.part) == (1, "assistant", QUESTION.id, 1)
    (answer,) = outbound(effects)
    assert (answer.part, answer.target, answer.reply_to, answer.turn_id) == (1, SOURCE, "9", None)


@pytest.mark.parametrize(
    ("question", "known", "agent", "what"),
    [
        (None, None, "main", ("dead_letters", "results", "invalid")),
        (QUESTION, None, "other", ("dead_letters", "results", "agent_mismatch")),
        (QUESTION, "r1", "main", ("duplicates", "results")),
        (QUESTION, "r0", "main", ("late_results", "main")),
    ],
)
def test_every_other_answer_changes_nothing(
    question: Question | None, known: str | None, agent: str, what: tuple[str, ...]
) -> None:
    session, effects = idle_session(), Effects()
    answer_stream(stream_answer(agent=agent), session, question, known, effects)
    assert effects.counts == {what: 1}
    assert not effects.messages
    assert not outbound(effects)
    assert session == idle_session()


HEADS = st.lists(
    st.builds(
        WaitingHead,
        arrival=st.just(0),
        session_key=st.sampled_from(["a", "a", "a", "b"]),
        size_bytes=st.integers(1, 400),
        source=st.just(SOURCE),
        is_alone=st.sampled_from([False, False, False, True]),
    ),
    min_size=1,
    max_size=80,
)


@given(heads=HEADS)
def test_a_turn_takes_the_longest_start_of_the_line_it_may(
    heads: list[WaitingHead],
) -> None:
    taken = claimable(heads, max_messages=50, max_bytes=1000)
    size = sum(head.size_bytes for head in taken)
    assert list(taken) == heads[: len(taken)]
    assert 1 <= len(taken) <= 50
    assert len(taken) == 1 or not any(head.is_alone for head in taken)
    assert {head.session_key for head in taken} == {heads[0].session_key}
    assert size <= 1000 or len(taken) == 1
    rest = heads[len(taken) :]
    if rest and len(taken) < 50:
        assert (
            rest[0].session_key != heads[0].session_key
            or size + rest[0].size_bytes > 1000
            or rest[0].is_alone
            or taken[0].is_alone
        )


def test_an_empty_line_gives_nothing() -> None:
    assert list(claimable([], max_messages=50, max_bytes=1000)) == []
