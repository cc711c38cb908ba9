"""Decide when a worker gets a turn, how long it keeps it, and which messages the turn takes.

A burst of messages, or an album, becomes one turn, and a message that waits for its files is not
overtaken by later messages. So workers hear of the turn at its due time and not before. The due
time is stored in the database and survives a crash of any process.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.domain.ids import time_of
from chatlane_schemas.turns import ClaimStatus, RenewStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from chatlane.domain.catalog import Agent
    from chatlane.domain.states import Session, Turn
    from chatlane_schemas.source import Source


def claim_status(turn: Turn | None, agent: str, claim_id: str) -> ClaimStatus:
    """Return the answer to a claim; `claimed` means that it may be granted or already is.

    A turn whose agent is unavailable is `taken`, unless it is the one that tries the agent. So is a
    parked one: the notification is an old one.

    A claim id gets the same answer as long as the attempt that it opened is the current one, so
    a worker can repeat a claim whose reply got lost.
    """
    if turn is None or turn.agent != agent:
        return ClaimStatus.UNKNOWN
    if not turn.is_live:
        return ClaimStatus.VOID if turn.state == "void" else ClaimStatus.FINISHED
    if turn.cancel is not None and not is_granted(turn, claim_id):
        return ClaimStatus.VOID
    if turn.is_parked or (turn.state == "ready" and turn.is_trial is False):
        return ClaimStatus.TAKEN
    if turn.state == "ready" or turn.claim_id == claim_id:
        return ClaimStatus.CLAIMED
    return ClaimStatus.TAKEN


def is_granted(turn: Turn, claim_id: str) -> bool:
    """Return whether this claim id opened the current attempt."""
    return turn.state == "claimed" and turn.claim_id == claim_id


def grant(
    turn: Turn,
    *,
    claim_id: str,
    worker: str,
    token: str,
    lease: timedelta,
    tells_begin: bool = False,
) -> None:
    """Open the next attempt; results of earlier attempts are late from here on.

    A first attempt counts as begun without a message from the worker, which saves most turns
    that message.
    """
    turn.state = "claimed"
    turn.attempt += 1
    turn.is_begun = turn.attempt == 1 or not tells_begin
    turn.claim_id = claim_id
    turn.worker = worker
    turn.token = token
    turn.due_in = lease


def answer_again(turn: Turn, *, tells_begin: bool) -> bool:
    """Answer the claim that opened the current attempt once more.

    Returns:
        Whether the turn has changed. A worker that no longer announces the begin of its attempts
        cannot use the answer, so the attempt counts as begun.
    """
    if turn.is_begun or tells_begin:
        return False
    turn.is_begun = True
    return True


def go_on(turn: Turn) -> None:
    """Uncount an attempt as never begun: its worker is alive although the lease ended.

    No other worker has had the turn since.
    """
    if turn.state == "ready" and not turn.is_begun:
        turn.unbegun -= 1


def held_status(turn: Turn | None, agent: str, attempt: int, token: str) -> RenewStatus:
    """Compare an attempt with the current one; `renewed` means that they are the same."""
    if turn is None or turn.agent != agent:
        return RenewStatus.UNKNOWN
    if not turn.is_live:
        return RenewStatus.FINISHED
    if turn.token is None or (turn.attempt, turn.token) != (attempt, token):
        return RenewStatus.STALE
    if turn.cancel is not None and turn.state != "claimed":
        return RenewStatus.FINISHED
    return RenewStatus.RENEWED


def renew(
    turn: Turn | None, agent: Agent, attempt: int, token: str, *, begun: bool | None = None
) -> RenewStatus:
    """Extend the lease of the current attempt, even an expired one that no other worker claimed.

    The lease of a cancelled turn is not extended.

    Args:
        begun: Whether its worker has begun; None if the worker does not say. False is ignored
            where a turn has only one attempt: if the message about the begin got lost, the turn
            would run twice.
    """
    status = held_status(turn, agent.name, attempt, token)
    if turn is not None and status is RenewStatus.RENEWED:
        go_on(turn)
        if begun is not None and (begun or agent.max_attempts > 1):
            turn.is_begun = begun
    # A cancelled turn may use up its lease to end; its session waits no longer than that.
    if turn is not None and status is RenewStatus.RENEWED and turn.cancel is None:
        turn.state = "claimed"
        turn.due_in = agent.lease
    return status


@dataclass(frozen=True, slots=True)
class WaitingHead:
    """A waiting message, as far as a claim needs it to decide where its turn ends.

    `is_alone`: it has a separate turn, alone or with the others of its album (album id and author).
    `ready_in` is how long it must not be answered yet.
    """

    arrival: int
    session_key: str
    size_bytes: int
    source: Source
    is_alone: bool = False
    album: tuple[str, str | None] | None = None
    ready_in: timedelta = timedelta(0)
    awaits_files: bool = False
    is_of_person: bool = True

    @property
    def lacks_files(self) -> bool:
        """Return whether its files are still to come."""
        return self.awaits_files and self.ready_in > timedelta(0)

    def is_one_with(self, other: WaitingHead) -> bool:
        """Return whether the platform shows both as one message."""
        return self.album is not None and self.album == other.album


def claimable(
    heads: Sequence[WaitingHead], *, max_messages: int, max_bytes: int
) -> Sequence[WaitingHead]:
    """Return the waiting messages that the turn takes: of one lane, bounded, at least one."""
    taken = 0
    size = 0
    for head in heads[:max_messages]:
        size += head.size_bytes
        if head.session_key != heads[0].session_key or (taken and size > max_bytes):
            break
        if taken and (head.is_alone or heads[0].is_alone) and not head.is_one_with(heads[0]):
            break
        if _wait_for_files(heads, head) > NONE:
            break
        taken += 1
    return heads[:taken]


def place_messages(
    turn: Turn, session: Session, taken: Sequence[WaitingHead]
) -> tuple[UUID, int, UUID, int]:
    """Assign the places of the messages that a turn takes in the transcript.

    Returns:
        The session, the arrival of the last message, the turn, and the first place.
    """
    first_seq = session.next_seq
    session.next_seq += len(taken)
    turn.source = taken[-1].source
    turn.is_asked = any(head.is_of_person for head in taken)
    return session.id, taken[-1].arrival, turn.id, first_seq


NONE: Final = timedelta(0)
# Limit for a burst or an album that never ends.
LONGEST_BURST: Final = timedelta(seconds=10)


def defer(turn: Turn, span: timedelta) -> None:
    """Delay a turn that a worker claimed too early."""
    turn.rest = "resting"
    turn.due_in = span


def extend(turn: Turn, at: datetime, span: timedelta, cap: timedelta) -> None:
    """Delay a turn that this batch opened for another message of the batch.

    Args:
        at: When the message was stored; the age of the turn is that of its first message.
        span: How long this message waits for others.
        cap: How long the turn may wait for its burst, counted from the first message.
    """
    since = max(NONE, at - time_of(turn.id))
    turn.due_in = max(turn.due_in, min(since + span, cap))


def rest_of_line(heads: Sequence[WaitingHead], turn: Turn) -> timedelta:
    """Return how long a turn with these waiting messages still has to wait when it is claimed.

    A message that waits for its files delays the turn only if it is the first, or of the album of the
    first. The turn waits for a burst once: after that it takes the messages that are there.
    """
    if not heads:
        return NONE
    if span := _wait_for_files(heads, heads[0]):
        return span
    if turn.rest == "rested":
        return NONE
    soft = max((head.ready_in for head in heads if not head.awaits_files), default=NONE)
    return min(soft, LONGEST_BURST)


def _wait_for_files(heads: Sequence[WaitingHead], head: WaitingHead) -> timedelta:
    """Return how long a message waits for its files and for those of its album."""
    if head.album is None:
        return head.ready_in if head.lacks_files else NONE
    lacking = (it.ready_in for it in heads if it.lacks_files and it.is_one_with(head))
    return max(lacking, default=NONE)


class SteeringHead(NamedTuple):
    """A waiting message, as far as its use as input of a running turn depends on it."""

    arrival: int
    size_bytes: int
    source: Source
    has_files: bool
    is_of_person: bool = True


def steerable(
    heads: Sequence[SteeringHead], place: Source, *, max_messages: int, max_bytes: int
) -> Sequence[SteeringHead]:
    """Return the waiting messages that a turn takes in: text from its own chat, bounded.

    The first message that cannot be taken in, for example one with files, stays for the next turn,
    and so do all after it: messages keep the order in which they were written.
    """
    taken = size = 0
    for head in heads[: max(0, max_messages)]:
        size += head.size_bytes
        if head.has_files or size > max_bytes or _where(head.source) != _where(place):
            break
        taken += 1
    return heads[:taken]


def _where(source: Source) -> tuple[str | None, ...]:
    chat = None if source.chat is None else source.chat.id
    return source.platform, source.account, source.scope, chat, source.thread_id
