"""Answer claims and renewals of workers, many in one transaction."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from chatlane.domain.effects import Effects
from chatlane.domain.prompts.context import prompted, with_senders
from chatlane.domain.sessions.session_flags import model_override_of, resume_mark_of
from chatlane.domain.sessions.session_handoff import announce_to_agent, is_told_in
from chatlane.domain.turns import claims
from chatlane.domain.turns.claims import (
    claimable,
    defer,
    held_status,
    place_messages,
    rest_of_line,
    steerable,
)
from chatlane.domain.turns.lifecycle import MAX_TURN_BYTES, MAX_TURN_MESSAGES, void_turn
from chatlane.domain.turns.turn_events import live_turn_path, turn_started
from chatlane.errors import StoreUnavailableError
from chatlane.failpoints import RouterPoint, hit
from chatlane.observability.logs import get_logger
from chatlane.postgres import blockers
from chatlane.store import deliveries, pending_messages, turns
from chatlane.store.conversations import sessions, timed_resets
from chatlane.store.history import edits, messages
from chatlane_schemas.turns import (
    ClaimReply,
    ClaimRequest,
    ClaimStatus,
    HistoryPointer,
    Interruption,
    RenewReply,
    RenewRequest,
    RenewStatus,
    TakeReply,
    TurnTake,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.catalog import Agent
    from chatlane.domain.states import Session, Turn
    from chatlane.domain.turns.claims import WaitingHead
    from chatlane.postgres.pool import Store
    from chatlane.turns.session_updates import Tell
    from chatlane_schemas.deliveries import Undelivered
    from chatlane_schemas.results import TranscriptRow
    from chatlane_schemas.turns import TurnMessage


_MAX_BATCH: Final = 128
# After this many lock waits in one batch, the remaining requests fail and their callers retry.
_MOST_HELD_UP: Final = 3
# A turn whose rows another transaction has locked is served after the others for this many
# seconds, and its transaction waits at most _SHORT_WAIT for a lock.
_SERVED_LAST_FOR: Final = 10.0
_SHORT_WAIT: Final = timedelta(milliseconds=50)
# A worker repeats a claim after a second without an answer, which a busy router or worker may exceed.
# Such a copy gets the answer that was given. Counted in seconds; and longer answers are not kept.
_ANSWER_KEPT_FOR: Final = 3.0
_LONGEST_KEPT_ANSWER: Final = 16 * 1024
# A reply to a claim has to fit into one message.
_MAX_STEP_BYTES: Final = 256 * 1024

# Agent, turn, id of the claim, and whether it tells that the attempt begins.
_CopyKey: TypeAlias = "tuple[str, UUID, str, bool]"

_log = get_logger("claims")
_Reply = TypeVar("_Reply", ClaimReply, RenewReply)


@dataclass(slots=True, eq=False)
class _Claim:
    agent: Agent
    request: ClaimRequest
    answer: asyncio.Future[ClaimReply]


@dataclass(slots=True, eq=False)
class _Renewal:
    agent: Agent
    request: RenewRequest
    answer: asyncio.Future[RenewReply]


class ClaimService:
    """Answer claims and renewals in micro-batches.

    Requests that arrive while a transaction runs share the next transaction. A copy of a claim gets
    the answer of the first one: while that waits, and for some seconds afterwards. To the worker it
    is the same as an answer that was long on its way.

    Raises (from `claim` and `renew`):
        StoreUnavailableError: Whether the claim was granted is unknown; a retry with the same
            claim id is safe.
    """

    def __init__(self, store: Store, agents: Mapping[str, Agent], tell: Tell | None = None) -> None:
        """Create the service; `tell` publishes the start of each attempt."""
        self._store = store
        self._agents = agents
        self._publish = tell
        self._queue: list[_Claim | _Renewal] = []
        self._claimed: dict[_CopyKey, asyncio.Future[ClaimReply]] = {}
        self._answered: OrderedDict[_CopyKey, tuple[float, ClaimReply]] = OrderedDict()
        self._wakeup = asyncio.Event()
        self._held_up: dict[UUID, float] = {}

    async def claim(self, agent: str, request: ClaimRequest) -> ClaimReply:
        """Answer one claim of a worker of `agent`."""
        known = self._agents.get(agent)
        if known is None:
            return _claim_reply(request, ClaimStatus.UNKNOWN)
        # A worker repeats a claim whose answer takes long. Without this, the copies would make the
        # answers of all claims take longer.
        copy_of = (agent, request.turn_id, request.id, request.tells_begin)
        if (given := self._answer_given(copy_of)) is not None:
            return given
        answer = self._claimed.get(copy_of)
        if answer is None:
            answer = self._claimed[copy_of] = asyncio.get_running_loop().create_future()
            self._enqueue(_Claim(known, request, answer))
        try:
            # The end of one request must not end its copies.
            reply = await asyncio.shield(answer)
        finally:
            self._claimed.pop(copy_of, None)
        self._keep_answer(copy_of, reply)
        return reply

    def _keep_answer(self, copy_of: _CopyKey, reply: ClaimReply) -> None:
        self._drop_old_answers()
        size = sum(len(message.text or "") for message in reply.messages)
        # Rows of earlier attempts may take much memory.
        is_small = size <= _LONGEST_KEPT_ANSWER and not reply.earlier_rows
        is_granted = reply.status is ClaimStatus.CLAIMED
        if is_granted and is_small and copy_of not in self._answered:
            self._answered[copy_of] = monotonic(), reply

    def _drop_old_answers(self) -> None:
        # A timer for each answer would cost more than the rest of this. The oldest come first.
        oldest_kept = monotonic() - _ANSWER_KEPT_FOR
        answered = self._answered
        while answered and answered[next(iter(answered))][0] < oldest_kept:
            answered.popitem(last=False)

    def forget_answers(self) -> None:
        """Decide further copies in the database, which publishes the starts of their attempts again.

        Call it when the connection is lost and when it is back: what was published may be lost.
        """
        self._answered.clear()

    def _answer_given(self, copy_of: _CopyKey) -> ClaimReply | None:
        """Return the answer to an earlier copy of a claim in the first half of its lease."""
        self._drop_old_answers()
        given_at, reply = self._answered.get(copy_of, (0.0, None))
        if reply is None or reply.lease_ms is None:
            return None
        passed_ms = ceil((monotonic() - given_at) * 1000)
        if 2 * passed_ms > reply.lease_ms:
            return None
        return reply.model_copy(update={"lease_ms": reply.lease_ms - passed_ms})

    async def renew(self, agent: str, request: RenewRequest) -> RenewReply:
        """Answer one renewal of a worker of `agent`."""
        known = self._agents.get(agent)
        if known is None:
            return _renew_reply(request, RenewStatus.UNKNOWN, timedelta(0))
        pending = _Renewal(known, request, asyncio.get_running_loop().create_future())
        self._enqueue(pending)
        return await pending.answer

    async def take(self, agent: str, request: TurnTake) -> TakeReply:
        """Add messages that arrived since the claim to a running turn of a worker of `agent`.

        Raises:
            TransientError: The caller has to retry.
        """
        known = self._agents.get(agent)
        if known is None:
            now = datetime.now(UTC)
            return TakeReply(id=request.id, at=now, status=RenewStatus.UNKNOWN)
        return await take_in(self._store, known, request)

    def _enqueue(self, pending: _Claim | _Renewal) -> None:
        self._queue.append(pending)
        self._wakeup.set()

    async def run(self) -> None:
        """Serve until cancelled; a failed transaction fails its requests, and callers retry."""
        while True:
            await self._wakeup.wait()
            batch, self._queue = self._queue[:_MAX_BATCH], self._queue[_MAX_BATCH:]
            if not self._queue:
                self._wakeup.clear()
            for part in self._apart(batch):
                await self._serve(part)

    def _apart(self, batch: list[_Claim | _Renewal]) -> list[list[_Claim | _Renewal]]:
        now = monotonic()
        self._held_up = {turn: until for turn, until in self._held_up.items() if until > now}
        if not self._held_up:
            return [batch]
        free = [pending for pending in batch if pending.request.turn_id not in self._held_up]
        alone = [[pending] for pending in batch if pending.request.turn_id in self._held_up]
        return [free, *alone] if free else alone

    async def _serve(
        self, batch: list[_Claim | _Renewal], patience: timedelta | None = None
    ) -> None:
        if len(batch) == 1 and batch[0].request.turn_id in self._held_up:
            patience = _SHORT_WAIT
        try:
            await _Serving(self._store, batch, patience, self._publish).run()
        except StoreUnavailableError as error:
            if error.is_held_up and len(batch) > 1:
                await self._serve_each(batch)
            else:
                if error.is_held_up:
                    self._held_up[batch[0].request.turn_id] = monotonic() + _SERVED_LAST_FOR
                _refuse(batch, error)
        except Exception as error:  # noqa: BLE001 - callers wait for an answer in any case
            _log.exception("claims_failed", count=len(batch))
            if len(batch) == 1:
                _refuse(batch, StoreUnavailableError(kind=type(error).__name__))
            else:
                await self._serve_each(batch)

    async def _serve_each(self, batch: list[_Claim | _Renewal]) -> None:
        """Serve requests one by one, so that the one that fails does not fail the others."""
        held_up = 0
        for place, pending in enumerate(batch, 1):
            await self._serve([pending], _SHORT_WAIT)
            held_up += _is_held_up(pending)
            if held_up == _MOST_HELD_UP:
                _refuse(batch[place:], StoreUnavailableError(kind="too many locks"))
                return


class _Serving:
    """Serve one batch in one transaction: lock, decide, write, read back, answer."""

    def __init__(
        self,
        store: Store,
        batch: list[_Claim | _Renewal],
        patience: timedelta | None,
        tell: Tell | None,
    ) -> None:
        self._store = store
        self._publish = tell
        self._patience = patience
        self._claims = [pending for pending in batch if isinstance(pending, _Claim)]
        self._renewals = [pending for pending in batch if isinstance(pending, _Renewal)]
        self._effects = Effects()
        self._sessions: dict[UUID, Session] = {}
        self._changed: dict[UUID, Session] = {}
        self._turns: dict[UUID, Turn] = {}
        self._granted: list[_Claim] = []
        self._answers: list[tuple[_Claim, ClaimStatus]] = []
        self._renewed: list[tuple[_Renewal, RenewStatus]] = []
        self._steered: set[UUID] = set()
        self._said: dict[UUID, list[TurnMessage]] = {}
        self._untold: set[UUID] = set()
        self._undelivered: dict[UUID, tuple[Undelivered, ...]] = {}
        self._steps: dict[UUID, list[TranscriptRow]] = {}

    async def run(self) -> None:
        async with self._store.transaction() as connection:
            if self._patience is not None:
                await blockers.shorten_wait(connection, self._patience)
            await self._lock(connection)
            self._renew()
            await self._find_steered(connection)
            await self._claim(connection)
            await turns.update(connection, self._effects.changed_turns)
            granted = [pending.request.turn_id for pending in self._granted]
            self._said = await messages.of_turns(connection, granted)
            again = [turn_id for turn_id in granted if self._turns[turn_id].attempt > 1]
            if again:
                thoughtful = {
                    pending.request.turn_id for pending in self._granted if pending.agent.reasoning
                }
                self._steps = await messages.steps_of_turns(
                    connection, again, _MAX_STEP_BYTES, with_reasoning=thoughtful
                )
            await self._report_failed_deliveries(connection)
            if self._granted:
                hit(RouterPoint.CLAIMS_WRITTEN)
        if self._granted:
            hit(RouterPoint.CLAIMS_COMMITTED)
            await self._publish_starts()
        self._answer()

    async def _lock(self, connection: PoolConnectionProxy) -> None:
        turn_ids = {pending.request.turn_id for pending in self._claims}
        turn_ids |= {pending.request.turn_id for pending in self._renewals}
        session_ids, self._untold = await turns.find_claimed_sessions(connection, turn_ids)
        if self._claims:
            self._sessions = await sessions.lock(connection, set(session_ids.values()))
        self._turns = await turns.lock(connection, session_ids)

    def _renew(self) -> None:
        for pending in self._renewals:
            request = pending.request
            turn = self._turns.get(request.turn_id)
            status = claims.renew(
                turn, pending.agent, request.attempt, request.token, begun=request.begun
            )
            self._renewed.append((pending, status))
            if turn is not None and status is RenewStatus.RENEWED:
                self._effects.changed_turns.append(turn)

    async def _report_failed_deliveries(self, connection: PoolConnectionProxy) -> None:
        """Find the messages that the agents of granted turns have to know as not delivered."""
        turn_ids = {pending.request.turn_id for pending in self._granted}
        pairs = [(self._turns[turn_id].session_id, turn_id) for turn_id in turn_ids]
        reporting = [pair for pair in pairs if pair[0] in self._untold]
        if reporting:
            self._undelivered = await deliveries.report_failed(connection, reporting)

    async def _find_steered(self, connection: PoolConnectionProxy) -> None:
        session_ids = {turn.session_id for turn in self._effects.changed_turns}
        if session_ids:
            self._steered = await pending_messages.sessions_with_steered(connection, session_ids)

    async def _claim(self, connection: PoolConnectionProxy) -> None:
        pending_heads = await self._lines(connection)
        emptied = await self._emptied(connection)
        pauses = await self._staff_pauses(connection)
        fresh: list[_Claim] = []
        for pending in self._claims:
            turn = self._turns.get(pending.request.turn_id)
            status = claims.claim_status(turn, pending.agent.name, pending.request.id)
            is_free = turn is not None and turn.state == "ready" and not turn.is_parked
            if turn is not None and is_free and status is ClaimStatus.TAKEN:
                # Its agent is unavailable: the sweep decides how long it waits, and tells the chat.
                defer(turn, timedelta(0))
                self._effects.changed_turns.append(turn)
            if status is ClaimStatus.CLAIMED and pending.request.turn_id in emptied:
                status = ClaimStatus.VOID
            if turn is not None and status is ClaimStatus.CLAIMED:
                is_early = self._is_early(turn, pending_heads, pauses)
                status = ClaimStatus.TAKEN if is_early else status
            if turn is None or status is not ClaimStatus.CLAIMED:
                self._answers.append((pending, status))
                continue
            self._granted.append(pending)
            if not claims.is_granted(turn, pending.request.id):
                is_first = turn.attempt == 0
                self._grant(turn, pending)
                if is_first:
                    fresh.append(pending)
            elif claims.answer_again(turn, tells_begin=pending.request.tells_begin):
                self._effects.changed_turns.append(turn)
        takings = [self._freeze(pending, pending_heads) for pending in fresh]
        await pending_messages.take(connection, takings)
        await sessions.update(connection, self._changed.values())

    async def _lines(self, connection: PoolConnectionProxy) -> dict[UUID, list[WaitingHead]]:
        """Return the pending messages of unclaimed turns; void turns that have none."""
        found = (self._turns.get(pending.request.turn_id) for pending in self._claims)
        unclaimed = {turn.id: turn for turn in found if turn is not None and turn.is_unclaimed}
        if not unclaimed:
            return {}
        session_ids = [turn.session_id for turn in unclaimed.values()]
        pending_heads = await pending_messages.heads(connection, session_ids, MAX_TURN_MESSAGES)
        for turn in unclaimed.values():
            if turn.session_id not in pending_heads:
                # No messages are pending under the session's lock, so no next turn can follow and
                # nothing is published: this transaction needs no place in the outbox order.
                session = self._change(turn)
                void_turn(turn, session, has_waiting=False, effects=self._effects)
        return pending_heads

    async def _staff_pauses(self, connection: PoolConnectionProxy) -> dict[UUID, timedelta]:
        """Return how long sessions still wait while people of the team talk to their chats."""
        staffed = {
            session.id: session.staff_until
            for session in self._sessions.values()
            if session.staff_until is not None
        }
        if not staffed:
            return {}
        now = await timed_resets.now(connection)
        return {session_id: until - now for session_id, until in staffed.items() if until > now}

    async def _emptied(self, connection: PoolConnectionProxy) -> set[UUID]:
        """Return the started turns whose messages have all been deleted since.

        Their claims are only refused. The sweep ends them and announces the next turn.
        """
        found = (self._turns.get(claim.request.turn_id) for claim in self._claims)
        begun = {turn.id for turn in found if turn is not None and turn.is_live and turn.attempt}
        return await edits.emptied(connection, begun) if begun else set()

    def _is_early(
        self,
        turn: Turn,
        pending_heads: dict[UUID, list[WaitingHead]],
        pauses: dict[UUID, timedelta],
    ) -> bool:
        """Return whether the turn still has to wait; it is announced again afterwards."""
        if turn.state != "ready":
            return False
        span = pauses.get(turn.session_id, timedelta(0))
        if turn.is_unclaimed:
            span = max(span, rest_of_line(pending_heads.get(turn.session_id, ()), turn))
        if span == timedelta(0):
            return False
        defer(turn, span)
        self._effects.changed_turns.append(turn)
        return True

    def _change(self, turn: Turn) -> Session:
        session = self._sessions[turn.session_id]
        self._changed[session.id] = session
        return session

    def _grant(self, turn: Turn, pending: _Claim) -> None:
        claims.grant(
            turn,
            claim_id=pending.request.id,
            worker=pending.request.worker,
            token=secrets.token_urlsafe(24),
            lease=pending.agent.lease,
            tells_begin=pending.request.tells_begin,
        )
        self._effects.changed_turns.append(turn)

    def _freeze(
        self, pending: _Claim, pending_heads: dict[UUID, list[WaitingHead]]
    ) -> tuple[UUID, int, UUID, int]:
        """Fix the messages that a turn answers, and assign their places in the transcript."""
        turn = self._turns[pending.request.turn_id]
        session = self._change(turn)
        heads = claimable(
            pending_heads[session.id],
            max_messages=MAX_TURN_MESSAGES,
            max_bytes=MAX_TURN_BYTES,
        )
        taking = place_messages(turn, session, heads)
        announce_to_agent(session, turn.id)
        return taking

    async def _publish_starts(self) -> None:
        """Publish that the granted attempts begin, before their workers can show anything.

        Not through the outbox: a worker whose claim has no answer repeats it, and so this.
        """
        if self._publish is None:
            return
        now = datetime.now(UTC)
        for pending in self._granted:
            turn = self._turns[pending.request.turn_id]
            ids = (message.id for message in self._said[turn.id])
            event = turn_started(turn, self._sessions[turn.session_id], now, ids)
            if event is not None:
                await self._publish(event.subject, event.payload, event.message_id)

    def _answer(self) -> None:
        for pending, status in self._answers:
            _resolve(pending.answer, _claim_reply(pending.request, status))
        for pending in self._granted:
            _resolve(pending.answer, self._grant_reply(pending))
        for renewal, renewed in self._renewed:
            turn = self._turns.get(renewal.request.turn_id)
            if turn is None or renewed is not RenewStatus.RENEWED:
                reply = _renew_reply(renewal.request, renewed, timedelta(0))
            else:
                reply = _renew_reply(renewal.request, renewed, turn.due_in).model_copy(
                    update={
                        "cancel": turn.cancel,
                        "steer": turn.session_id in self._steered,
                    }
                )
            _resolve(renewal.answer, reply)

    def _grant_reply(self, pending: _Claim) -> ClaimReply:
        turn = self._turns[pending.request.turn_id]
        session = self._sessions[turn.session_id]
        turn_messages = self._said[turn.id]
        is_first = turn_messages[0].seq == 1
        shown = prompted(pending.agent.prompts, turn.source, session.session_key, turn_messages)
        is_told = is_told_in(session, turn.id, is_first=is_first)
        return ClaimReply(
            id=pending.request.id,
            at=datetime.now(UTC),
            status=ClaimStatus.CLAIMED,
            turn_id=turn.id,
            session_id=session.id,
            session_key=session.session_key,
            attempt=turn.attempt,
            token=turn.token,
            lease_ms=round(turn.due_in.total_seconds() * 1000),
            source=turn.source,
            audience=None if turn.source is None else live_turn_path(session, turn.source).audience,
            messages=shown.messages,
            prompt_context=shown.context,
            history=HistoryPointer(session_id=session.id, before_seq=turn_messages[0].seq),
            # Earlier rows may be messages that no worker has seen.
            session_is_new=is_first or is_told,
            reset_reason=session.start_reason if is_told else None,
            reset_had_activity=bool(is_told and session.reset_had_activity),
            opening_note=session.opening_note if is_told else None,
            interruption=_interruption(turn),
            earlier_rows=tuple(self._steps.get(turn.id, ())),
            model_override=model_override_of(session),
            resume_pending=resume_mark_of(session),
            undelivered=self._undelivered.get(session.id, ()),
        )


def _interruption(turn: Turn) -> Interruption | None:
    if turn.interrupted_at is None:
        return None
    return Interruption(count=turn.interruptions, last_at=turn.interrupted_at)


def _refuse(batch: list[_Claim | _Renewal], error: StoreUnavailableError) -> None:
    for pending in batch:
        if not pending.answer.done():
            pending.answer.set_exception(error)


def _is_held_up(pending: _Claim | _Renewal) -> bool:
    error = None if pending.answer.cancelled() else pending.answer.exception()
    return isinstance(error, StoreUnavailableError) and error.is_held_up


def _resolve(future: asyncio.Future[_Reply], reply: _Reply) -> None:
    # The caller may have given up meanwhile.
    if not future.done():
        future.set_result(reply)


def _claim_reply(request: ClaimRequest, status: ClaimStatus) -> ClaimReply:
    return ClaimReply(id=request.id, at=datetime.now(UTC), status=status, turn_id=request.turn_id)


def _renew_reply(request: RenewRequest, status: RenewStatus, lease: timedelta) -> RenewReply:
    return RenewReply(
        id=request.id,
        at=datetime.now(UTC),
        status=status,
        lease_ms=round(lease.total_seconds() * 1000),
    )


async def take_in(store: Store, agent: Agent, request: TurnTake) -> TakeReply:
    """Move pending messages into a running turn and return those after `request.after_seq`.

    Only the current attempt of a turn that is not cancelled takes messages in. A repeated
    request with the same `after_seq` returns the same messages, so a lost reply is harmless.

    Raises:
        TransientError: Nothing was taken in, or that is unknown; the caller has to retry.
    """
    async with store.transaction() as connection:
        session_ids = await turns.find_sessions(connection, [request.turn_id])
        locked = await sessions.lock(connection, session_ids.values())
        turn = (await turns.lock(connection, session_ids)).get(request.turn_id)
        status = held_status(turn, agent.name, request.attempt, request.token)
        if turn is None or status is not RenewStatus.RENEWED:
            return TakeReply(id=request.id, at=datetime.now(UTC), status=status)
        session = locked[turn.session_id]
        if turn.cancel is None:
            await _take(connection, turn, session)
        turn_messages = (await messages.of_turns(connection, [turn.id])).get(turn.id, [])
    newer = [message for message in turn_messages if message.seq > request.after_seq]
    shown = with_senders(agent.prompts, session.session_key, newer)
    return TakeReply(id=request.id, at=datetime.now(UTC), status=status, messages=shown)


async def _take(connection: PoolConnectionProxy, turn: Turn, session: Session) -> None:
    heads = await pending_messages.steered_heads(connection, session.id, MAX_TURN_MESSAGES)
    if not heads or turn.source is None:
        return
    held = await messages.size_of_turn(connection, turn.id)
    taken = steerable(
        heads,
        turn.source,
        max_messages=MAX_TURN_MESSAGES - held.messages,
        max_bytes=MAX_TURN_BYTES - held.size_bytes,
    )
    if not taken:
        return
    arrivals = [head.arrival for head in taken]
    await pending_messages.take_some(connection, session.id, arrivals, turn.id, session.next_seq)
    session.next_seq += len(taken)
    turn.source = taken[-1].source
    turn.is_asked = turn.is_asked or any(head.is_of_person for head in taken)
    await sessions.update(connection, [session])
    await turns.update(connection, [turn])
