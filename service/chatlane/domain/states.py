"""Represent the rows that a decision loads under lock, changes in memory and writes back once."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from chatlane_schemas.events import ResetReason
    from chatlane_schemas.source import Source
    from chatlane_schemas.turns import CancelReason


@dataclass(slots=True)
class Lane:
    """One place where people talk to one agent, and the session that it points to now.

    `bound_to` is the value in the database (None: no row yet); the write is a compare-and-set
    against it.
    """

    session_key: str
    session_id: UUID
    bound_to: UUID | None = None


@dataclass(slots=True)
class Session:
    """One conversation: its lifecycle and its counters.

    `last_activity_at` counts people only, and `asked_turn_ended_at` is the end of the last turn
    that answered one. `last_message_at` is the time of the newest row that neither a person nor a
    tool wrote. Nothing is written to a `read_only` session. A shared session of a chat has been in
    `room` since it began; the database clears it when another place leads to the session. The agent waits until `staff_until`. The counters are the next free values. They have no gaps, because they change
    under the session's row lock and commit with the rows that they number. `owner` is the owner
    name in the form of `owners`; None if several people talk. `has_new_key` says that the session
    became shared: `session_key` is that of a shared lane and not yet written. `model_override` is
    JSON text. `answers` counts complete results. The following are written only if `has_new_flags`
    says that they differ from the database: suspension, interruption mark, the note for the next
    session, what the session has to announce about its start, and `interruptions`: attempts in a
    row that were lost with their worker.
    """

    id: UUID
    session_key: str
    agent: str
    platform: str
    started_at: datetime
    start_reason: ResetReason | None = None
    parent_id: UUID | None = None
    link_kind: str | None = None
    ended_at: datetime | None = None
    end_reason: str | None = None
    last_activity_at: datetime | None = None
    served_boundary: datetime | None = None
    active_turn: UUID | None = None
    next_seq: int = 1
    next_arrival: int = 1
    next_out_seq: int = 1
    user_messages: int = 0
    owner: str | None = None
    suspended_at: datetime | None = None
    resume_marked_at: datetime | None = None
    resume_reason: str | None = None
    held_until: datetime | None = None
    model_override: str | None = None
    answers: int = 0
    carry_over: str | None = None
    opening_note: str | None = None
    reset_had_activity: bool | None = None
    told_in: UUID | None = None
    interruptions: int = 0
    asked_turn_ended_at: datetime | None = None
    staff_until: datetime | None = None
    last_message_at: datetime | None = None
    read_only: bool = False
    room: str | None = None
    is_new: bool = False
    has_new_flags: bool = False
    has_new_key: bool = False

    @property
    def has_live_turn(self) -> bool:
        """Return whether a turn of it is live, which prevents every reset."""
        return self.active_turn is not None

    def take_seq(self) -> int:
        """Take the next place in the transcript."""
        seq = self.next_seq
        self.next_seq = seq + 1
        return seq

    def take_arrival(self) -> int:
        """Take the next place among the waiting messages."""
        arrival = self.next_arrival
        self.next_arrival = arrival + 1
        return arrival

    def take_out_seq(self) -> int:
        """Take the next place in the order of outbound messages."""
        out_seq = self.next_out_seq
        self.next_out_seq = out_seq + 1
        return out_seq


class AskedQuestion(NamedTuple):
    """The open question of a turn, and the newest outbound message that asks."""

    id: UUID
    message_id: UUID


@dataclass(slots=True)
class Turn:
    """One unit of agent work on one session.

    `due_in` is written as a span from the database's own clock: to the end of the lease while
    claimed, to the next notification while ready. `source` is the target of answers: that of the
    last message it was claimed with, None before. `token` outlives the lease: until another worker
    claims the turn, its holder may still renew or finish. `cancel` is the reason for a requested
    end. `rest` is `resting` until workers may be notified, `rested` after that, and `parked` while the turn waits for the answer to `open_question` without a worker. `interruptions`
    counts the attempts that were lost with their worker, the last one at `interrupted_at`.
    `is_begun` is false while the worker of the current attempt has yet to report that it begins,
    and `unbegun` counts the attempts that never began or were handed back. `is_asked` is set by the first claim with a
    message of a person. `waits_since` is when an attempt first found the agent unavailable, and
    `wait_told` says that the chat was told so. While the agent is unavailable, `is_trial` says
    whether this turn is the one that tries it; else it is None, and it is never written. `draft` is the
    platform's id of the message that shows the answer so far. `has_spoken` says that the turn has
    sent a message before its answer, `has_steps` that results of its steps are kept. `open_question` is the question of its attempt.
    `known_text` is a source with its JSON text.
    """

    id: UUID
    session_id: UUID
    agent: str
    state: str
    source: Source | None = None
    attempt: int = 0
    dispatch: int = 1
    due_in: timedelta = timedelta(0)
    claim_id: str | None = None
    worker: str | None = None
    token: str | None = field(default=None, repr=False)
    result_id: str | None = None
    outcome: str | None = None
    error: str | None = None
    cancel: CancelReason | None = None
    rest: str | None = None
    interruptions: int = 0
    interrupted_at: datetime | None = None
    is_begun: bool = True
    unbegun: int = 0
    is_asked: bool = False
    waits_since: datetime | None = None
    wait_told: bool = False
    is_trial: bool | None = None
    draft: str | None = None
    has_spoken: bool = False
    has_steps: bool = False
    open_question: AskedQuestion | None = None
    known_text: tuple[Source, str] | None = field(default=None, repr=False, compare=False)

    @property
    def source_text(self) -> str | None:
        """Return the source as JSON text, made at most once for each source."""
        if self.source is None:
            return None
        if self.known_text is None or self.known_text[0] is not self.source:
            self.known_text = self.source, self.source.model_dump_json(exclude_none=True)
        return self.known_text[1]

    @property
    def tries(self) -> int:
        """Return the number of attempts that count."""
        return self.attempt - self.unbegun

    @property
    def is_live(self) -> bool:
        """Return whether it still occupies its session."""
        return self.state in {"ready", "claimed"}

    @property
    def is_parked(self) -> bool:
        """Return whether it waits for the answer to its question without a worker."""
        return self.state == "ready" and self.rest == "parked"

    @property
    def is_unclaimed(self) -> bool:
        """Return whether no worker has claimed it yet, so that its messages still wait."""
        return self.state == "ready" and self.attempt == 0


@dataclass(slots=True)
class AgentPause:
    """The time in which the turns of an unavailable agent wait, but for one that tries it.

    Attributes:
        left: Rest of the pause.
        trial: The turn that tries the agent after the pause.
        trial_left: How long the others still wait for the outcome.
    """

    agent: str
    left: timedelta
    trial: UUID | None = None
    trial_left: timedelta = timedelta(0)

    def admit(self, turn_id: UUID, lease: timedelta) -> timedelta:
        """Return how long a turn has to wait; without a wait it is the one that tries the agent."""
        if self.left > timedelta(0):
            return self.left
        if self.trial not in {None, turn_id} and self.trial_left > timedelta(0):
            return self.trial_left
        self.trial, self.trial_left = turn_id, lease
        return timedelta(0)
