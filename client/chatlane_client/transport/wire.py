"""Send one confirmed publish or one request, and translate the errors.

All messages of the client pass through this module. It checks sizes first, because a message over
`max_payload` makes the server close the connection for good.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Final, NamedTuple, TypeVar, assert_never
from weakref import WeakKeyDictionary

import nats.errors
import nats.js.errors
from nats.aio.client import Client

from chatlane_client.errors import (
    ChatlaneClientError,
    ConflictingRequestError,
    ConnectionClosedError,
    ForbiddenRequestError,
    InvalidAnswerError,
    OversizedMessageError,
    RefusedPublishError,
    RefusedRequestError,
    RetryLaterError,
    SessionNotFoundError,
    StaleRequestError,
    UnansweredRequestError,
    UnavailableServiceError,
    UnconfirmedPublishError,
)
from chatlane_client.transport.connection import note_answer, note_silence, until_connected
from chatlane_client.transport.retry import Backoff, CancellationGuard
from chatlane_client.transport.secured import without_chats
from chatlane_client.transport.tracing import trace_headers
from chatlane_schemas import DecodeError, Envelope, decode, encode
from chatlane_schemas.session_api.sessions import ApiError, ApiErrorCode, ApiReply, SessionReply

_log = logging.getLogger("chatlane_client")

# Kinds of failure that were logged since a publish succeeded, by connection.
_failing: Final[WeakKeyDictionary[Client, set[tuple[str, str]]]] = WeakKeyDictionary()

AnswerT = TypeVar("AnswerT", bound=Envelope)

MESSAGE_ID_HEADER: Final = "Nats-Msg-Id"
ANSWER_WITHIN: Final = timedelta(seconds=2)
# Error codes of a stream without room: by its own limit, the account's or the disk's.
_FULL: Final = frozenset({10023, 10047, 10077})
_FULL_STREAM_RETRY: Final = timedelta(seconds=1)
_CLOSED: Final = (nats.errors.ConnectionClosedError, nats.errors.ConnectionDrainingError)


class Stored(NamedTuple):
    """Position of a message in a stream; a duplicate was there before and is not stored twice."""

    sequence: int
    is_repeat: bool


async def publish_stored(
    client: Client,
    subject: str,
    message: Envelope,
    *,
    message_id: str | None = None,
    give_up_after: timedelta | None = None,
    waits_for_room: bool = True,
    answer_within: timedelta = ANSWER_WITHIN,
    backoff: Backoff = Backoff(),  # noqa: B008 - frozen
) -> Stored:
    """Publish until a stream confirms; every attempt carries the message id and the trace context.

    An unconfirmed attempt may be stored anyway, so it is repeated with the same id and the stream
    keeps one copy.

    Args:
        client: An open connection.
        subject: A subject of a stream.
        message: The message to publish.
        message_id: By which the stream recognises a duplicate; by default the envelope id.
        give_up_after: None retries without a limit.
        waits_for_room: Whether to retry a full stream like one that does not reply.
        answer_within: How long one attempt waits.
        backoff: Pauses between attempts.

    Raises:
        UnconfirmedPublishError: No confirmation in time.
        RetryLaterError: The stream is full, and `waits_for_room` is false.
        OversizedMessageError: The message was not sent.
        RefusedPublishError: The stream will never accept the message.
        ConnectionClosedError: The client can never send again.
    """
    body = encode(message)
    patience = give_up_after.total_seconds() if give_up_after is not None else None
    try:
        async with asyncio.timeout(patience):
            guard = CancellationGuard()
            for pause in backoff.pauses():
                try:
                    stored = await _try_publish(
                        client,
                        subject,
                        message,
                        body,
                        message_id=message_id or message.id,
                        answer_within=answer_within,
                    )
                except RetryLaterError:
                    if not waits_for_room:
                        raise
                    stored = None
                if stored:
                    return stored
                guard.check()
                await asyncio.sleep(pause)
    except TimeoutError as exc:
        raise UnconfirmedPublishError(subject, message.id) from exc
    raise AssertionError("pauses never end")


async def publish_unstored(
    client: Client, subject: str, message: Envelope, *, reply: str = ""
) -> None:
    """Publish to current subscribers; without a connection, drop the message and do not queue it.

    Raises:
        OversizedMessageError: The message was not sent.
        ConnectionClosedError: The client can never send again.
    """
    body = encode(message)
    check_size(client, subject, message, body)
    try:
        if client.is_connected:
            await client.publish(subject, body, reply=reply)
    except _CLOSED as exc:
        raise ConnectionClosedError from exc
    except nats.errors.Error as exc:
        _log.info("publish_dropped", extra={"subject": subject, "error": type(exc).__name__})


async def ask(
    client: Client,
    subject: str,
    request: Envelope,
    answer_model: type[AnswerT],
    *,
    answer_within: timedelta = ANSWER_WITHIN,
) -> AnswerT:
    """Send a request once and return the answer.

    Raises:
        UnansweredRequestError: No answer in time; the request may have taken effect.
        UnavailableServiceError: The service cannot answer now.
        RefusedRequestError: The service will never answer this request.
        InvalidAnswerError: The answer does not follow the contract.
        OversizedMessageError: The request was not sent.
        ConnectionClosedError: The client can never send again.
    """
    body = encode(request)
    patience = answer_within.total_seconds()
    await _connected_within(client, subject, patience)
    check_size(client, subject, request, body)
    try:
        answer = await client.request(subject, body, timeout=patience)
    except _CLOSED as exc:
        raise ConnectionClosedError from exc
    except nats.errors.NoRespondersError as exc:
        raise UnansweredRequestError(subject, reached_nobody=True) from exc
    except (nats.errors.Error, TimeoutError) as exc:
        raise UnansweredRequestError(subject, reached_nobody=False) from exc
    return _read_answer(subject, answer_model, answer.data)


async def _connected_within(client: Client, subject: str, patience: float) -> None:
    if client.is_connected:
        return
    try:
        async with asyncio.timeout(patience):
            await until_connected(client)
    except TimeoutError as exc:
        raise UnansweredRequestError(subject, reached_nobody=True) from exc


def check_size(
    client: Client,
    subject: str,
    message: Envelope,
    body: bytes,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Raise an error for a message that the server or the receiver would not accept.

    Raises:
        OversizedMessageError: The message is too large.
    """
    if len(body) > message.max_bytes:
        raise OversizedMessageError(subject, len(body), message.max_bytes)
    size_bytes = len(body) + _header_bytes(headers or {})
    if size_bytes > client.max_payload:
        raise OversizedMessageError(subject, size_bytes, client.max_payload)


async def _try_publish(
    client: Client,
    subject: str,
    message: Envelope,
    body: bytes,
    *,
    message_id: str,
    answer_within: timedelta,
) -> Stored | None:
    """Publish once; None means that the outcome is unknown.

    Raises:
        RetryLaterError: The stream is full.
    """
    await until_connected(client)
    headers = {MESSAGE_ID_HEADER: message_id, **trace_headers()}
    # Checked at each attempt: after a reconnect it may be another server.
    check_size(client, subject, message, body, headers)
    try:
        # Same as the `publish` of nats-py, but without its context object, which costs as much as
        # the rest.
        answer = await client.request(
            subject, body, timeout=answer_within.total_seconds(), headers=headers
        )
        confirmation = json.loads(answer.data)
        if "error" in confirmation:
            nats.js.errors.APIError.from_error(confirmation["error"])
    except _CLOSED as exc:
        raise ConnectionClosedError from exc
    except nats.js.errors.BadRequestError as exc:
        reason = exc.description or "bad request"
        raise RefusedPublishError(subject, message.id, exc.err_code, reason) from exc
    except (nats.errors.Error, TimeoutError) as exc:
        if isinstance(exc, TimeoutError):
            await note_silence(client)
        else:
            note_answer(client)
        if isinstance(exc, nats.js.errors.APIError) and exc.err_code in _FULL:
            _log_failure(client, "stream_full", subject, message.id, exc)
            raise RetryLaterError(subject, message.id, _FULL_STREAM_RETRY) from exc
        # No stream, no reply, an election: the outcome is unknown, not failed.
        _log_failure(client, "publish_unconfirmed", subject, message.id, exc)
        return None
    note_answer(client)
    _failing.pop(client, None)
    return Stored(confirmation["seq"], bool(confirmation.get("duplicate")))


def _log_failure(
    client: Client, event: str, subject: str, message_id: str, error: Exception
) -> None:
    """Log a failing publish once for each kind of message, until a publish succeeds."""
    place = without_chats(subject)
    kind = event, ".".join(subject.split(".")[:3])
    logged = _failing.setdefault(client, set())
    if kind in logged:
        return
    logged.add(kind)
    text = f"{type(error).__name__}: {without_chats(str(error))}".removesuffix(": ")
    about = {"subject": place, "message_id": message_id, "error": text}
    _log.warning(f"{event}: %s: %s; trying again", place, text, extra=about)


def _read_answer(subject: str, model: type[AnswerT], body: bytes) -> AnswerT:
    try:
        answer = decode(model, body)
    except DecodeError as exc:
        # A failed request is answered with the bare error, whatever the type of its reply.
        _raise_error(subject, body)
        raise InvalidAnswerError(subject, str(exc)) from exc
    if isinstance(answer, ApiReply) and answer.error is not None:
        if answer.error.code is ApiErrorCode.STALE and isinstance(answer, SessionReply):
            raise StaleRequestError(subject, answer.error.message, answer.session)
        raise _api_error(subject, answer.error)
    return answer


def _raise_error(subject: str, body: bytes) -> None:
    """Raise the error in a body, if it carries one."""
    with contextlib.suppress(DecodeError):
        reply = decode(ApiReply, body)
        if reply.error is not None:
            raise _api_error(subject, reply.error)


def _api_error(subject: str, error: ApiError) -> ChatlaneClientError:
    match error.code:
        case ApiErrorCode.UNAVAILABLE:
            return UnavailableServiceError(subject, error.message)
        case ApiErrorCode.NOT_FOUND:
            return SessionNotFoundError(subject, error.message)
        case ApiErrorCode.CONFLICT:
            return ConflictingRequestError(subject, error.message)
        case ApiErrorCode.STALE:
            return StaleRequestError(subject, error.message)
        case ApiErrorCode.FORBIDDEN:
            return ForbiddenRequestError(subject, error.message)
        case ApiErrorCode.INVALID:
            return RefusedRequestError(subject, error.message)
        case _:
            assert_never(error.code)


def _header_bytes(headers: Mapping[str, str]) -> int:
    """Return the size of the header block; requests and deltas have no headers."""
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return len(f"NATS/1.0\r\n{fields}\r\n") if headers else 0
