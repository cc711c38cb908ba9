"""Decide which worker gets a turn and how long it keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatlane_schemas.turns import ClaimStatus, RenewStatus

if TYPE_CHECKING:
    from datetime import timedelta

    from chatlane.domain.catalog import Agent
    from chatlane.domain.states import Turn


def claim_status(turn: Turn | None, agent: str, claim_id: str) -> ClaimStatus:
    """Return the answer to a claim; `claimed` means that it may be granted or already is.

    A claim id gets the same answer as long as the attempt that it opened is the current one, so
    a worker can repeat a claim whose reply got lost.
    """
    if turn is None or turn.agent != agent:
        return ClaimStatus.UNKNOWN
    if not turn.is_live:
        return ClaimStatus.VOID if turn.state == "void" else ClaimStatus.FINISHED
    if turn.cancel is not None and not is_granted(turn, claim_id):
        return ClaimStatus.VOID
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
