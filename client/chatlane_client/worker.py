"""Serve the turns of an agent: claim, renew, answer.

One worker at a time holds a turn, for as long as it renews its lease. The attempt and the token of
a claim fence off all earlier workers.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic
from typing import Final

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from opentelemetry.trace import Span, SpanKind, StatusCode
from pydantic import ValidationError

from chatlane_client.api.session_api import SessionApi
from chatlane_client.api.steps import TurnSteps
from chatlane_client.api.titles import SessionTitles, TitleMaker
from chatlane_client.api.transcripts import TranscriptApi
from chatlane_client.claims import ClaimClient, Grant
from chatlane_client.control import WIND_DOWN, Controls, Signals
from chatlane_client.errors import (
    AgentUnavailableError,
    ConflictingRequestError,
    ConnectionClosedError,
    InvalidAnswerError,
    OversizedMessageError,
    RefusedPublishError,
    RefusedRequestError,
    TurnFailedError,
)
from chatlane_client.failpoints import WorkerPoint, hit
from chatlane_client.lease import Lease
from chatlane_client.live_output import LiveOutput, LiveOutputs
from chatlane_client.transport.connection import closed_error_first, until_connected
from chatlane_client.transport.connection_log import RepeatLimit
from chatlane_client.transport.process_name import process_name
from chatlane_client.transport.pull import Pull, open_pull
from chatlane_client.transport.retry import (
    Backoff,
    CancellationGuard,
    cancel_until_ended,
    was_set_within,
)
from chatlane_client.transport.tracing import context_of, link_to, span
from chatlane_client.transport.wire import publish_stored, publish_unstored
from chatlane_client.turn import Ask, Handler, NoReply, Reply, Turn
from chatlane_client.turn_input import Steering
from chatlane_client.turn_voice import Question, TurnVoice, buttons_of
from chatlane_schemas import (
    DecodeError,
    HandBack,
    Outcome,
    Part,
    RenewReply,
    ResultMessage,
    TranscriptRow,
    TurnDelta,
    TurnNotice,
    decode,
    new_envelope_id,
)
from chatlane_schemas.session_api.transcripts import TranscriptEntry
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import StreamName

_log = logging.getLogger("chatlane_client")

# A hanging worker keeps no more than these notices from others, until the server redelivers them.
_AT_ONCE: Final = 64
_PULL_FOR: Final = timedelta(seconds=1)
_SET_BACK_FOR: Final = timedelta(seconds=5)
# Docker kills a process 10 s after it asked it to stop.
HAND_BACK_AFTER: Final = timedelta(seconds=8)


class TurnWorker:
    """Runs a handler for the turns of one agent, as many at once as it has slots.

    The worker survives restarts of the server and periods without any router. It gives up only if
    its connection is closed for good.
    """

    def __init__(
        self,
        client: Client,
        agent: str,
        handler: Handler,
        *,
        slots: int = 1,
        principal: str,
        name: str | None = None,
        wind_down: timedelta = WIND_DOWN,
        hand_back_after: timedelta | None = HAND_BACK_AFTER,
        titles: TitleMaker | None = None,
    ) -> None:
        """Create the worker; `run` starts it.

        Args:
            client: An open connection.
            agent: The agent it works for.
            handler: Answers a turn.
            slots: Maximum number of turns at the same time.
            principal: The name that the connection's permissions allow in requests.
            name: Name by which people find the worker of a turn.
            wind_down: How long a handler that catches its cancellation may take before it is
                cancelled again. Its return value is the result of the turn as long as the lease
                lasts, which is not renewed once the turn is to end.
            hand_back_after: How long running turns may go on after `stop`. Then their handlers are
                cancelled and the turns handed back to other workers, without counting the attempt.
                Choose less than the time after which your process is killed. None lets them end.
            titles: Makes the title of a session of one person that has an answer and no title, from
                the message and its answer; not from messages that disappear.
        """
        self._client = client
        self._agent = agent
        self._handler = handler
        self._claims = ClaimClient(
            client, agent, principal=principal, worker=name or process_name()
        )
        self._transcripts = TranscriptApi(client, principal=principal, agent=agent)
        self._titles = None
        if titles is not None:
            sessions = SessionApi(client, principal=principal, agent=agent)
            self._titles = SessionTitles(sessions, titles)
        self._controls = Controls(wind_down)
        self._outputs = LiveOutputs(client, agent)
        self._free = slots
        self._was_freed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._hands_back = False
        self._working = 0
        self._hand_back_after = hand_back_after
        # A turn that was lost and claimed again is here twice until its first attempt has ended.
        self._running: dict[Signals, Grant] = {}

    @property
    def is_busy(self) -> bool:
        """Return whether any slot has a turn."""
        return self._working > 0

    def stop(self) -> None:
        """Take no new turn; `run` returns when the running turns are answered or handed back."""
        self._stopping.set()

    async def run(self) -> None:
        """Serve turns until stopped.

        Cancelling this method instead drops the running turns: their leases end and other workers
        get them.

        Raises:
            ConnectionClosedError: The connection is closed for good.
        """
        guard = CancellationGuard()
        with closed_error_first():
            async with (
                self._controls.listening(self._client, self._agent),
                self._outputs.listening(),
                contextlib.nullcontext() if self._titles is None else self._titles.asking(),
                open_pull(self._client, StreamName.TURNS, self._agent) as notices,
                asyncio.TaskGroup() as slots,
            ):
                slots.create_task(self._end_running())
                while notice := await self._next_notice(notices, guard):
                    if self._stopping.is_set():
                        # It may be about a turn that this worker has just handed back.
                        with contextlib.suppress(nats.errors.Error):
                            await notice.nak()
                        break
                    self._free -= 1
                    slots.create_task(self._serve(notice))
                await notices.give_back()

    async def _next_notice(self, notices: Pull, guard: CancellationGuard) -> Msg | None:
        """Return a notice when a slot is free for it, or None when stopping."""
        pauses, unavailable = Backoff().pauses(), RepeatLimit()
        while not self._free:
            self._was_freed.clear()
            await self._was_freed.wait()
        while not self._stopping.is_set():
            guard.check()
            try:
                await until_connected(self._client)
                return await notices.take(min(self._free, _AT_ONCE), _PULL_FOR)
            except nats.errors.TimeoutError:
                continue
            except nats.errors.ConnectionClosedError as exc:
                raise ConnectionClosedError from exc
            except nats.errors.Error as exc:
                # The durable does not exist, or the server is not ready yet.
                if unavailable.allows(str(exc)):
                    text = (
                        "notices_unavailable: check that chatlane.toml declares agent %s with turn "
                        "delivery, and run `chatlane admin apply`: %s"
                    )
                    about = {"agent": self._agent, "error": str(exc)}
                    _log.error(text, self._agent, exc, extra=about)
                await was_set_within(self._stopping, next(pauses))
        return None

    async def _serve(self, message: Msg) -> None:
        """Claim the turn of a notice and work on it; then acknowledge the notice."""
        self._working += 1
        try:
            notice = decode(TurnNotice, message.data)
            hit(WorkerPoint.NOTIFIED)
            # Watches from before the claim on: the turn may be stopped as soon as it is granted.
            with self._controls.watching(notice.turn_id) as signals:
                await self._claim_and_work(notice, message, signals)
        except (DecodeError, InvalidAnswerError, RefusedRequestError) as exc:
            # The notice may be of a newer release: a worker that understands it gets it.
            _log.error("turn_not_understood", extra={"error": str(exc)})
            await self._settle_notice(message, is_answered=False)
        finally:
            self._working -= 1
            self._free += 1
            self._was_freed.set()

    async def _claim_and_work(self, notice: TurnNotice, message: Msg, signals: Signals) -> None:
        grant = await self._claims.claim(notice.turn_id, stopping=self._stopping)
        if isinstance(grant, Grant):
            hit(WorkerPoint.CLAIMED)
        await self._settle_notice(message, is_answered=grant is not None)
        if isinstance(grant, Grant):
            hit(WorkerPoint.ACKNOWLEDGED)
            with self._span(grant, message) as current:
                await self._work(grant, signals, current)

    def _span(self, grant: Grant, notice: Msg) -> contextlib.AbstractContextManager[Span]:
        """Trace a turn: within the trace of the last message it answers, linked to the others."""
        about: dict[str, str | int] = {
            "chatlane.agent": self._agent,
            "chatlane.session_id": str(grant.session_id),
            "chatlane.turn_id": str(grant.turn_id),
            "chatlane.attempt": grant.attempt,
        }
        parents = [
            message.traceparent for message in grant.messages if message.traceparent is not None
        ]
        headers = notice.headers or {}
        # A notice may be a repetition, or follow from the turn before; only its headers have a
        # state.
        if parents and headers.get("traceparent") != parents[-1]:
            headers = {"traceparent": parents[-1]}
        parent = context_of(headers)
        links = [link for earlier in parents[:-1] if (link := link_to(earlier)) is not None]
        return span("turn", SpanKind.CONSUMER, about, parent=parent, links=links)

    async def _settle_notice(self, message: Msg, *, is_answered: bool) -> None:
        try:
            if is_answered:
                await message.ack()
            else:
                await message.nak(delay=_SET_BACK_FOR.total_seconds())
        except nats.errors.ConnectionClosedError as exc:
            raise ConnectionClosedError from exc
        except nats.errors.Error as exc:
            # The server redelivers it, and its claim is answered with "taken" or "finished".
            _log.warning("notice_unsettled", extra={"error": str(exc)})

    async def _work(self, grant: Grant, signals: Signals, current: Span) -> None:
        """Run the handler while the lease is held, and publish its result."""
        lease = Lease(grant.asked_at, grant.lease, grant.turn_id)
        renew = partial(self._renew, grant, signals)
        if not await lease.secure(partial(renew, has_begun=False)):
            _log.warning("turn_lost", extra=_about(grant, reason="answered too late"))
            return
        # A worker that had to renew before it began must report the beginning.
        if grant.attempt > 1 or lease.was_renewed:
            await self._claims.tell_begin(grant)
        if self._hands_back:
            # The claim was unanswered when the other turns were handed back.
            signals.hand_back()
        over = asyncio.Event()
        working = asyncio.create_task(self._answer(grant, signals))
        working.add_done_callback(lambda _: over.set())
        self._running[signals] = grant
        try:
            async with lease.kept(renew, over.set) as keeping:
                await over.wait()
                if working.done():
                    await self._answered(grant, working.result(), current)
                else:
                    current.set_status(StatusCode.ERROR, "the turn was lost")
                    _log.warning("turn_lost", extra=_about(grant, reason=keeping.loss))
        finally:
            del self._running[signals]
            await cancel_until_ended(working)

    async def _end_running(self) -> None:
        """After `stop`, let the loss of a running turn not count, and hand back what takes long."""
        await self._stopping.wait()
        for grant in [*self._running.values()]:
            await self._claims.tell_stop(grant)
        if self._hand_back_after is None:
            return
        ends_at = monotonic() + self._hand_back_after.total_seconds()
        while self.is_busy and (left := ends_at - monotonic()) > 0:
            self._was_freed.clear()
            await was_set_within(self._was_freed, left)
        self._hands_back = True
        for signals in self._running:
            signals.hand_back()

    async def _answered(self, grant: Grant, result: ResultMessage | None, current: Span) -> None:
        if result is None:
            return
        hit(WorkerPoint.ANSWERED)
        if result.outcome is Outcome.FAILED:
            current.set_status(StatusCode.ERROR)
        await self._publish(grant, result)
        hit(WorkerPoint.PUBLISHED)
        if result.outcome is Outcome.OK:
            self._ask_for_title(grant, result)

    def _ask_for_title(self, grant: Grant, result: ResultMessage) -> None:
        # A title outlives a message that disappears, and in a session of several people it could be
        # set after the erasure of the person whose words it has.
        is_kept = all(message.expires_at is None for message in grant.messages)
        if self._titles is None or grant.audience == "shared" or not is_kept:
            return
        question = "\n".join(filter(None, (message.text for message in grant.messages)))
        answer = "\n".join(filter(None, (part.text for part in result.parts)))
        self._titles.note_answer(grant.session_id, question, answer)

    async def _renew(
        self,
        grant: Grant,
        signals: Signals,
        answer_within: timedelta,
        *,
        has_begun: bool = True,
    ) -> RenewReply:
        """Renew the lease and pass on whether the turn is to end."""
        has_begun = has_begun and not self._stopping.is_set()
        reply = await self._claims.renew(grant, answer_within, has_begun=has_begun)
        signals.tell(reply.cancel, steer=reply.steer)
        return reply

    async def _answer(self, grant: Grant, signals: Signals) -> ResultMessage | None:
        """Return the handler's answer to a turn as a result, which may be a failure.

        A parked turn has none.
        """
        guard = CancellationGuard()
        try:
            with self._outputs.open(grant) as output:
                turn = self._turn(grant, signals, output)
                answer = await signals.obeyed_by(self._handler(turn))
        except asyncio.CancelledError:
            # A handler may also raise a `CancelledError` that was meant for one of its own tasks.
            guard.check()
            return _unanswered(grant, signals)
        except Exception as exc:  # noqa: BLE001 - any error fails the turn
            return _raised(grant, exc)
        if signals.is_stopping and signals.cancel_reason is None:
            # The handler was cancelled: what it returned may be a part of the answer only.
            rows = answer.transcript if isinstance(answer, Reply | NoReply) else ()
            return _handed_back(grant, HandBack.STOPPING, "the worker stops", rows)
        if isinstance(answer, Ask):
            return await self._park(grant, signals, answer)
        return _result(grant, answer)

    async def _park(self, grant: Grant, signals: Signals, ask: Ask) -> ResultMessage | None:
        """End the attempt with a question; return a result only if the turn is not parked."""
        voice = TurnVoice(self._claims.requests, grant, signals)
        try:
            within = ask.until - datetime.now(UTC)
            question = Question(
                ask.message,
                within,
                options=buttons_of(ask.options),
                fields=tuple(ask.fields),
                kind=ask.kind,
                default=ask.default,
            )
            is_parked = await voice.park(question, ask.name)
        except ConflictingRequestError:
            # The turn is to end, or the result of this attempt changes nothing.
            return _result(grant, NoReply())
        except (RefusedRequestError, OversizedMessageError, ValidationError, TypeError) as exc:
            _log.exception("turn_failed", extra=_about(grant, reason="invalid question"))
            return _failure(grant, f"invalid question: {type(exc).__name__}", retry=False)
        if is_parked:
            return None
        return _failure(grant, "the router is of a release that parks no turns", retry=True)

    async def _publish(self, grant: Grant, result: ResultMessage) -> None:
        subject = subjects.result(self._agent, grant.session_id)
        try:
            await publish_stored(self._client, subject, result)
        except (OversizedMessageError, RefusedPublishError) as exc:
            _log.exception("result_refused", extra=_about(grant, reason=type(exc).__name__))
            failure = _failure(grant, type(exc).__name__, retry=False)
            await publish_stored(self._client, subject, failure)

    def _turn(self, grant: Grant, signals: Signals, output: LiveOutput) -> Turn:
        return Turn(
            id=grant.turn_id,
            session_id=grant.session_id,
            session_key=grant.session_key,
            agent=self._agent,
            attempt=grant.attempt,
            source=grant.source,
            messages=grant.messages,
            prompt_context=grant.prompt_context,
            session_is_new=grant.session_is_new,
            reset_reason=grant.reset_reason,
            reset_had_activity=grant.reset_had_activity,
            opening_note=grant.opening_note,
            interruption=grant.interruption,
            model_override=grant.model_override,
            resume_pending=grant.resume_pending,
            undelivered=grant.undelivered,
            earlier_rows=grant.earlier_rows,
            signals=signals,
            take_in=Steering(partial(self._claims.take, grant), grant, signals).take,
            load_history=partial(self._history, grant),
            publish_delta=partial(self._delta, grant, itertools.count()),
            publish_piece=output.show,
            voice=TurnVoice(self._claims.requests, grant, signals),
            steps=TurnSteps(self._claims.requests, grant),
        )

    async def _history(self, grant: Grant, limit: int) -> tuple[TranscriptEntry, ...]:
        pointer = grant.history
        return await self._transcripts.newest(
            pointer.session_id, limit=limit, before_seq=pointer.before_seq
        )

    async def _delta(self, grant: Grant, numbers: Iterator[int], text: str) -> None:
        delta = TurnDelta(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            turn_id=grant.turn_id,
            attempt=grant.attempt,
            index=next(numbers),
            text=text,
        )
        await publish_unstored(self._client, subjects.delta(self._agent, grant.turn_id), delta)


def _result(grant: Grant, answer: str | Reply | NoReply) -> ResultMessage:
    """Return the answer as a result; an invalid answer becomes a permanent failure."""
    try:
        return _success(grant, Reply(parts=(answer,)) if isinstance(answer, str) else answer)
    except (ValidationError, AttributeError, TypeError) as exc:
        _log.exception("turn_failed", extra=_about(grant, reason="invalid answer"))
        return _failure(grant, f"invalid answer: {type(exc).__name__}", retry=False)


def _unanswered(grant: Grant, signals: Signals) -> ResultMessage:
    """Return the result of a turn whose handler let its cancellation through."""
    if signals.cancel_reason is not None:
        return _result(grant, NoReply())
    if signals.is_stopping:
        return _handed_back(grant, HandBack.STOPPING, "the worker stops")
    return _failure(grant, "CancelledError", retry=True)


def _raised(grant: Grant, exc: Exception) -> ResultMessage:
    """Return the result of a turn whose handler raised an error."""
    match exc:
        case TurnFailedError():
            return _failure(grant, exc.message, retry=exc.retry, transcript=exc.transcript)
        case AgentUnavailableError():
            return _handed_back(
                grant, HandBack.UNAVAILABLE, exc.message, exc.transcript, exc.again_in
            )
        case _:
            reason = type(exc).__name__
            _log.error("turn_failed", exc_info=exc, extra=_about(grant, reason=reason))
            # Without the error text, which may quote messages.
            return _failure(grant, reason, retry=True)


def _success(grant: Grant, answer: Reply | NoReply) -> ResultMessage:
    parts = () if isinstance(answer, NoReply) else answer.parts
    return ResultMessage(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        session_id=grant.session_id,
        turn_id=grant.turn_id,
        attempt=grant.attempt,
        token=grant.token,
        message_ids=grant.message_ids,
        outcome=Outcome.OK if parts else Outcome.NO_REPLY,
        parts=tuple(Part(text=part) if isinstance(part, str) else part for part in parts),
        transcript=tuple(answer.transcript),
        usage=dict(answer.usage),
        costs=dict(answer.costs),
        gauges=dict(answer.gauges),
        carry_over=answer.carry_over,
    )


def _failure(
    grant: Grant, error: str, *, retry: bool, transcript: Sequence[TranscriptRow] = ()
) -> ResultMessage:
    return ResultMessage(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        session_id=grant.session_id,
        turn_id=grant.turn_id,
        attempt=grant.attempt,
        token=grant.token,
        message_ids=grant.message_ids,
        outcome=Outcome.FAILED,
        retry=retry,
        error=error,
        transcript=tuple(transcript),
    )


def _handed_back(
    grant: Grant,
    why: HandBack,
    error: str,
    transcript: Sequence[TranscriptRow] = (),
    again_in: timedelta | None = None,
) -> ResultMessage:
    again_in_ms = None if again_in is None else max(0, round(again_in.total_seconds() * 1000))
    failure = _failure(grant, error, retry=True, transcript=transcript)
    return failure.model_copy(update={"hand_back": why, "again_in_ms": again_in_ms})


def _about(grant: Grant, *, reason: str) -> dict[str, object]:
    return {
        "turn_id": str(grant.turn_id),
        "session_id": str(grant.session_id),
        "attempt": grant.attempt,
        "reason": reason,
    }
