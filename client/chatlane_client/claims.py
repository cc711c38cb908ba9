"""Send the requests by which a worker holds a turn: claim, renew, and take new messages."""

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Final, TypedDict
from uuid import UUID

import nats.errors
from nats.aio.client import Client

from chatlane_client.api.requests import Requests
from chatlane_client.errors import (
    InvalidAnswerError,
    RefusedRequestError,
    TransientError,
    UnansweredRequestError,
)
from chatlane_client.transport.retry import Backoff, CancellationGuard, was_set_within
from chatlane_client.transport.wire import ask, publish_unstored
from chatlane_schemas import (
    ClaimReply,
    ClaimRequest,
    ClaimStatus,
    HistoryPointer,
    Interruption,
    ModelOverride,
    RenewReply,
    RenewRequest,
    ResetReason,
    ResumeMark,
    Source,
    TranscriptRow,
    TurnMessage,
    Undelivered,
    new_envelope_id,
)
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.subjects import Audience
from chatlane_schemas.turns import TakeReply, TurnTake

_log = logging.getLogger("chatlane_client")

# Short at first: if only the reply was lost, the lease is already running. But at least twice as long
# as the last reply took, because copies keep a busy service busier.
_PATIENCE: Final = Backoff(timedelta(seconds=1), timedelta(seconds=4))
# Short at most: people wait for unclaimed turns when the service is back.
_PAUSES: Final = Backoff(longest=timedelta(seconds=1))
_SENT_WITHIN_SECONDS: Final = 1


class AttemptStamp(TypedDict):
    """Fields of each request of a running attempt, under a new id."""

    id: str
    at: datetime
    session_id: UUID
    turn_id: UUID
    attempt: int
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A claimed turn.

    Attributes:
        asked_at: Monotonic time from which the lease counts: just before the first request that
            the service may have received.
        taken_in: Messages that arrived during the turn and that the turn has taken in.
    """

    turn_id: UUID
    session_id: UUID
    session_key: str
    attempt: int
    token: str = field(repr=False)
    asked_at: float
    lease: timedelta
    source: Source
    audience: Audience | None = None
    messages: tuple[TurnMessage, ...]
    taken_in: list[TurnMessage] = field(default_factory=list)
    history: HistoryPointer
    prompt_context: str | None = None
    session_is_new: bool
    reset_reason: ResetReason | None
    reset_had_activity: bool = False
    opening_note: str | None = None
    interruption: Interruption | None = None
    model_override: ModelOverride | None = None
    resume_pending: ResumeMark | None = None
    undelivered: tuple[Undelivered, ...] = ()
    earlier_rows: tuple[TranscriptRow, ...] = ()

    @property
    def message_ids(self) -> tuple[UUID, ...]:
        """Ids of all messages that the turn answers."""
        messages = (*self.messages, *self.taken_in)
        return tuple(message.id for message in messages if message.id is not None)

    def stamp(self) -> AttemptStamp:
        """Return the common fields of a new request of this attempt."""
        return {
            "id": new_envelope_id(),
            "at": datetime.now(UTC),
            "session_id": self.session_id,
            "turn_id": self.turn_id,
            "attempt": self.attempt,
            "token": self.token,
        }


class ClaimClient:
    """Claims and renews the turns of one agent."""

    def __init__(self, client: Client, agent: str, *, principal: str, worker: str) -> None:
        self._client = client
        self._worker = worker
        self._claim_subject = subjects.api(principal, "turn", "claim", agent)
        self._renew_subject = subjects.api(principal, "turn", "renew", agent)
        self._requests = Requests(client, principal=principal, agent=agent, patience=None)
        self._last_took = timedelta(0)

    @property
    def requests(self) -> Requests:
        """The sender of requests about turns."""
        return self._requests

    async def claim(self, turn_id: UUID, *, stopping: asyncio.Event) -> Grant | ClaimStatus | None:
        """Request a turn until there is a reply; None if stopped before.

        Every attempt carries the same claim id, and the same id gets the same reply, so a lost
        reply costs nothing.

        Raises:
            InvalidAnswerError: The answer does not follow the contract.
            RefusedRequestError: The service does not understand the request.
        """
        request = ClaimRequest(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            turn_id=turn_id,
            worker=self._worker,
            tells_begin=True,
        )
        heard_at: float | None = None
        is_logged = False
        guard = CancellationGuard()
        for pause, seconds in zip(_PAUSES.pauses(), _PATIENCE.pauses(), strict=True):
            asked_at = monotonic()
            at_least = min(2 * self._last_took, _PATIENCE.longest)
            try:
                reply = await ask(
                    self._client,
                    self._claim_subject,
                    request,
                    ClaimReply,
                    answer_within=max(timedelta(seconds=seconds), at_least),
                )
                self._last_took = timedelta(seconds=monotonic() - asked_at)
                guard.check()
                return self._outcome(reply, heard_at or asked_at)
            except TransientError as exc:
                if not (isinstance(exc, UnansweredRequestError) and exc.reached_nobody):
                    heard_at = heard_at or asked_at
                if not is_logged:
                    is_logged = True
                    about = {"turn_id": str(turn_id), "error": str(exc)}
                    _log.info(
                        "claim_unanswered: turn %s: %s; trying again", turn_id, exc, extra=about
                    )
            except (InvalidAnswerError, RefusedRequestError):
                await self._tell_unusable(request)
                raise
            guard.check()
            if await was_set_within(stopping, pause):
                break
        return None

    async def renew(
        self, grant: Grant, answer_within: timedelta, *, has_begun: bool = True
    ) -> RenewReply:
        """Request a renewal of the lease once.

        Args:
            grant: The claimed turn.
            answer_within: How long to wait for the reply.
            has_begun: Whether the loss of the lease counts as an attempt.

        Raises:
            TransientError: Ask again while the lease lasts.
            InvalidAnswerError: The answer does not follow the contract.
            RefusedRequestError: The service does not understand the request.
        """
        request = _renewal(grant, has_begun=has_begun)
        return await ask(
            self._client, self._renew_subject, request, RenewReply, answer_within=answer_within
        )

    async def tell_begin(self, grant: Grant) -> None:
        """Report that work on a turn begins now, so that losing it counts as an attempt.

        Raises:
            ConnectionClosedError: The client can never send again.
        """
        await self._tell(self._renew_subject, _renewal(grant, has_begun=True))

    async def tell_stop(self, grant: Grant) -> None:
        """Report that the worker stops, so that losing the turn does not count as an attempt.

        Raises:
            ConnectionClosedError: The client can never send again.
        """
        await self._tell(self._renew_subject, _renewal(grant, has_begun=False))

    async def _tell_unusable(self, claim: ClaimRequest) -> None:
        """Count an attempt that an unreadable reply may have granted.

        Otherwise the service would offer the turn for ever and block the messages behind it.
        """
        await self._tell(self._claim_subject, claim.model_copy(update={"tells_begin": False}))

    async def _tell(self, subject: str, request: ClaimRequest | RenewRequest) -> None:
        """Send a request without waiting for its reply, which would change nothing.

        The request has left this process when this method returns, unless the connection is down.
        """
        # Routers process a request only if it has a reply subject.
        await publish_unstored(self._client, subject, request, reply=self._client.new_inbox())
        guard = CancellationGuard()
        with contextlib.suppress(nats.errors.Error, TimeoutError):
            await self._client.flush(timeout=_SENT_WITHIN_SECONDS)
        guard.check()

    async def take(self, grant: Grant, after_seq: int) -> TakeReply:
        """Request the new messages for a running turn until there is a reply.

        Raises:
            InvalidAnswerError: The answer does not follow the contract.
            RefusedRequestError: The service does not understand the request.
        """
        request = TurnTake(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            turn_id=grant.turn_id,
            attempt=grant.attempt,
            token=grant.token,
            after_seq=after_seq,
        )
        return await self._requests.ask("turn", "take", request, TakeReply)

    def _outcome(self, reply: ClaimReply, asked_at: float) -> Grant | ClaimStatus:
        if reply.status is not ClaimStatus.CLAIMED:
            return reply.status
        if grant := _grant(reply, asked_at):
            return grant
        raise InvalidAnswerError(self._claim_subject, "a claimed turn lacks a field")


def _renewal(grant: Grant, *, has_begun: bool) -> RenewRequest:
    return RenewRequest(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        turn_id=grant.turn_id,
        attempt=grant.attempt,
        token=grant.token,
        begun=has_begun,
    )


def _grant(reply: ClaimReply, asked_at: float) -> Grant | None:
    """Return the granted turn, or None if the reply is incomplete."""
    if (
        reply.session_id is None
        or reply.session_key is None
        or reply.attempt is None
        or reply.token is None
        or reply.lease_ms is None
        or reply.source is None
        or reply.history is None
    ):
        return None
    return Grant(
        turn_id=reply.turn_id,
        session_id=reply.session_id,
        session_key=reply.session_key,
        attempt=reply.attempt,
        token=reply.token,
        asked_at=asked_at,
        lease=timedelta(milliseconds=reply.lease_ms),
        source=reply.source,
        audience=reply.audience,
        messages=reply.messages,
        history=reply.history,
        prompt_context=reply.prompt_context,
        session_is_new=reply.session_is_new,
        reset_reason=reply.reset_reason,
        reset_had_activity=reply.reset_had_activity,
        opening_note=reply.opening_note,
        interruption=reply.interruption,
        model_override=reply.model_override,
        resume_pending=reply.resume_pending,
        undelivered=reply.undelivered,
        earlier_rows=reply.earlier_rows,
    )
