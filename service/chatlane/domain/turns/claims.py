"""Decides who gets a turn, and who may keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatlane_schemas.turns import ClaimStatus, RenewStatus

if TYPE_CHECKING:
    from datetime import timedelta

    from chatlane.domain.catalog import Agent
    from chatlane.domain.states import Turn


def claim_status(turn: Turn | None, agent: str, claim_id: str) -> ClaimStatus:
    """Return how a claim is answered; `claimed` means it may be granted or is granted already.

    The same claim id gets the same answer as long as the attempt it opened is the current
    one: a lost reply costs nothing.
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
    """Return whether this very claim opened the current attempt."""
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
    """Open the next attempt; from here on the results of earlier ones are late.

    A first attempt counts as begun without a word, which most turns are spared so.
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
        Whether the turn has changed: who no longer promises to tell when it begins cannot use the
        answer, and the attempt counts.
    """
    if turn.is_begun or tells_begin:
        return False
    turn.is_begun = True
    return True


def go_on(turn: Turn) -> None:
    """Note that who holds the current attempt is there after all, should its lease have ended.

    It was counted as one that nobody began, and nobody else had it since.
    """
    if turn.state == "ready" and not turn.is_begun:
        turn.unbegun -= 1


def held_status(turn: Turn | None, agent: str, attempt: int, token: str) -> RenewStatus:
    """Return whether the current attempt is this one; `renewed` says it is."""
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
    """Extend the lease of the current attempt, also when it ran out and nobody else claimed.

    That of a turn that is to end stays as it is.

    Args:
        begun: Whether its worker has begun; None where it does not say. That it has not is no
            promise to say when it does where a turn has only one try: what gets lost would run twice.
    """
    status = held_status(turn, agent.name, attempt, token)
    if turn is not None and status is RenewStatus.RENEWED:
        go_on(turn)
        if begun is not None and (begun or agent.max_attempts > 1):
            turn.is_begun = begun
    # One that is to end may use up its lease for it; its session waits no longer than that.
    if turn is not None and status is RenewStatus.RENEWED and turn.cancel is None:
        turn.state = "claimed"
        turn.due_in = agent.lease
    return status
