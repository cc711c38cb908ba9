"""Explain why a session has no answer yet, and what happens next. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime


class TurnProgress(NamedTuple):
    """The live turn of a session.

    Attributes:
        due_at: End of the lease while a worker has it; else when its workers are notified.
        waits_since: When an attempt first found its agent unavailable.
        is_asking: The agent asks the person something. Only a parked turn asks without a worker.
    """

    agent: str
    state: str
    is_resting: bool
    attempt: int
    worker: str | None
    created_at: datetime
    claimed_at: datetime | None
    due_at: datetime
    cancel: str | None
    waits_since: datetime | None
    is_asking: bool


class SessionProgress(NamedTuple):
    """The state of the work on a session in the database.

    Attributes:
        is_streamed: Its agent reads messages from a stream, without turns.
        waiting: Messages that no turn has taken, counted up to a limit.
        failed_turns: Dead letters of its failed turns, counted up to a limit.
        agent_pause: Until when its agent is unavailable.
    """

    now: datetime
    ended_at: datetime | None
    end_reason: str | None
    suspended_at: datetime | None
    staff_until: datetime | None
    is_streamed: bool
    waiting: int
    waiting_since: datetime | None
    failed_turns: int
    agent_pause: datetime | None
    turn: TurnProgress | None


class Outlook(NamedTuple):
    """Why a session has no answer yet, and what happens next."""

    state: str
    why: str
    next: str | None = None
    next_at: datetime | None = None


def outlook_of(progress: SessionProgress) -> Outlook:
    """Return why a session has no answer yet, and what happens next."""
    if progress.ended_at is not None:
        return Outlook(
            "ended",
            f"The session has ended ({progress.end_reason or 'unknown reason'}).",
            "The next message of its chat opens another session.",
        )
    if progress.turn is None:
        return _without_turn(progress)
    turn = progress.turn
    if turn.cancel is not None:
        return Outlook(
            "stopping",
            f"The turn is to end: {turn.cancel}.",
            "It ends with the answer of its worker, or with its lease.",
            turn.due_at,
        )
    if turn.state == "claimed":
        return _claimed(turn)
    return _unclaimed(progress, turn)


def _without_turn(progress: SessionProgress) -> Outlook:
    if progress.suspended_at is not None:
        return Outlook(
            "suspended", "The session is suspended.", "The next message opens another session."
        )
    if progress.is_streamed:
        return Outlook(
            "streamed",
            "Its agent reads messages from the stream ROUTED, without turns. Check that its worker "
            "runs.",
        )
    if progress.waiting:
        return Outlook(
            "waiting",
            "Messages wait, and no turn is open for them.",
            "A router opens a turn with the next message or result of the session.",
        )
    if progress.failed_turns:
        return Outlook(
            "failed",
            "A turn failed for good, and its messages have no answer.",
            "Nothing, until its dead letter is retried or the person writes again.",
        )
    return Outlook(
        "idle", "Nothing waits: every message was handled.", "The next message opens a turn."
    )


def _claimed(turn: TurnProgress) -> Outlook:
    if turn.is_asking:
        return Outlook(
            "asking",
            "The agent asked the person something, and the turn waits for the answer.",
            "The turn goes on with the answer, or when the time for it is over.",
        )
    return Outlook(
        "running",
        f"Worker {turn.worker or 'without a name'} works on attempt {turn.attempt}.",
        "Its lease ends unless the worker renews it; then a worker gets the turn again.",
        turn.due_at,
    )


def _unclaimed(progress: SessionProgress, turn: TurnProgress) -> Outlook:
    if turn.is_asking:
        return Outlook(
            "parked",
            "The agent asked the person something, and no worker has the turn until the answer.",
            "A worker gets the next attempt with the answer, or when the time for it is over.",
            turn.due_at,
        )
    if progress.staff_until is not None and progress.staff_until > progress.now:
        return Outlook(
            "staff",
            "A person of the team talks to the chat, and the agent waits.",
            "The turn goes to the workers.",
            turn.due_at,
        )
    pause = progress.agent_pause
    is_paused = pause is not None and pause > progress.now
    if turn.waits_since is not None or is_paused:
        return Outlook(
            "unavailable",
            f"The agent {turn.agent} is unavailable.",
            "A worker tries it again.",
            max(filter(None, (turn.due_at, pause))),
        )
    if turn.is_resting:
        return Outlook(
            "resting",
            "The turn waits for further messages, or for files.",
            "The turn goes to the workers.",
            turn.due_at,
        )
    if turn.attempt:
        return Outlook(
            "retrying",
            f"Attempt {turn.attempt} failed, or its worker was lost.",
            "A worker gets the next attempt.",
            turn.due_at,
        )
    return Outlook(
        "unclaimed",
        f"No worker of agent {turn.agent} has claimed the turn. Check that one runs.",
        "The workers are notified again.",
        turn.due_at,
    )
