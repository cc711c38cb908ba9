"""Decode requests, authorize them, count them, and encode a reply to each."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final, TypeVar

from chatlane.api.problems import problem_text
from chatlane.errors import TransientError
from chatlane.observability.logs import get_logger
from chatlane.store.audit import Operator
from chatlane_schemas.codec import DecodeError, decode, encode
from chatlane_schemas.envelope import MAX_PAYLOAD_BYTES, Envelope, new_envelope_id
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.sessions import ApiError, ApiErrorCode, ApiReply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from chatlane.api.api_request import ApiRequest
    from chatlane.observability.metrics import Metrics

_log = get_logger("api")

RequestT = TypeVar("RequestT", bound=Envelope)

# Half of the NATS default payload limit; larger answers continue on another page.
MAX_REPLY_BYTES: Final = 512 * 1024
# Part of the server's payload limit that is reserved for the headers of an answer.
_HEADER_BYTES: Final = 1024


class RequestHandler:
    """Turns a request body into a reply body, also when the handler fails.

    Args:
        max_payload: Returns the most that the server takes in one message, headers included; it
            closes the connection of a client that sends more.
        agent_of: Returns the agent of a session, if there is one; without it, requests bound to an
            agent are refused.
        note_read: Audits a read by an operator: the session, if any, and the outcome.
    """

    def __init__(
        self,
        metrics: Metrics,
        max_payload: Callable[[], int] = lambda: MAX_PAYLOAD_BYTES,
        agent_of: Callable[[UUID], Awaitable[str | None]] | None = None,
        note_read: Callable[[Operator, UUID | None, str], Awaitable[None]] | None = None,
    ) -> None:
        self._metrics = metrics
        self._max_payload = max_payload
        self._agent_of = agent_of
        self._note_read = note_read

    async def answer(
        self,
        method: str,
        request: type[RequestT],
        asked: ApiRequest,
        act: Callable[[RequestT], Awaitable[Envelope]],
    ) -> bytes:
        """Return the encoded reply of `act`, or an `ApiReply` with the reason for a refusal."""
        started = time.monotonic()
        reply = await self._reply(method, request, asked, act)
        error = reply.error if isinstance(reply, ApiReply) else None
        took = timedelta(seconds=time.monotonic() - started)
        self._metrics.api_requests.labels(method, error.code if error else "ok").inc()
        self._metrics.api_seconds.labels(method).observe(took.total_seconds())
        return self._within_payload_limit(method, encode(reply))

    async def answer_read(
        self,
        method: str,
        request: type[RequestT],
        asked: ApiRequest,
        read: Callable[[RequestT], Awaitable[Envelope]],
    ) -> bytes:
        """Answer a read-only request; for an operator, write the audit entry before the reply."""

        async def act(decoded: RequestT) -> Envelope:
            reply = await read(decoded)
            if self._note_read is not None and not asked.is_bound:
                error = reply.error if isinstance(reply, ApiReply) else None
                await self._note_read(
                    Operator(asked.principal, method),
                    getattr(decoded, "session_id", None),
                    error.code if error else "done",
                )
            return reply

        return await self.answer(method, request, asked, act)

    async def answer_once(
        self,
        method: str,
        request: type[RequestT],
        asked: ApiRequest,
        decide: Callable[[str, RequestT, bytes], Awaitable[Envelope]],
    ) -> bytes:
        """Answer a request that changes something.

        Args:
            method: Name of the request.
            request: Model of the request.
            asked: The request as received.
            decide: Makes the change, given the caller (an `Operator` if it is to be audited), the
                request, and a digest of its content.
        """

        async def act(decoded: RequestT) -> Envelope:
            # The same id for two kinds of request is as wrong as for two bodies. The time of
            # sending may differ, so that a caller can repeat a request after a restart.
            content = decoded.model_dump_json(exclude={"at"}).encode()
            digest = sha256(method.encode() + b"\0" + content).digest()
            who = asked.principal if asked.is_bound else Operator(asked.principal, method)
            return await decide(who, decoded, digest)

        return await self.answer(method, request, asked, act)

    def _within_payload_limit(self, method: str, body: bytes) -> bytes:
        if len(body) <= self._max_payload() - _HEADER_BYTES:
            return body
        _log.error("answer_too_large", method=method, size_bytes=len(body))
        return encode(
            refusal(
                ApiErrorCode.INVALID,
                "the answer is larger than the NATS server takes: ask for less at once",
            )
        )

    async def _reply(
        self,
        method: str,
        request: type[RequestT],
        asked: ApiRequest,
        act: Callable[[RequestT], Awaitable[Envelope]],
    ) -> Envelope:
        try:
            decoded = decode(request, asked.body)
            return await self._authorize(asked, decoded) or await act(decoded)
        except DecodeError as exc:
            return refusal(ApiErrorCode.INVALID, problem_text(exc))
        except TransientError as exc:
            _log.warning("request_failed", method=method, reason=type(exc).__qualname__)
            return refusal(ApiErrorCode.UNAVAILABLE, "the service is not ready; try again")
        except Exception:  # noqa: BLE001 - without an answer the caller waits for its whole timeout
            _log.exception("request_crashed", method=method)
            return refusal(
                ApiErrorCode.UNAVAILABLE, "the request failed in the service; its log says why"
            )

    async def _authorize(self, asked: ApiRequest, request: Envelope) -> ApiReply | None:
        """Return the refusal of a request that its subject does not allow.

        The only place that checks this, so that no handler can omit it. A session of another agent
        is answered like a missing one. Only the settings can change the agent of a session, so it
        may be read before the handler locks the session.
        """
        if asked.account is not None and not _acts_for(request, asked.account):
            return refusal(ApiErrorCode.FORBIDDEN, "acting_for: must name a person of the account")
        if asked.agent is None:
            return None
        session_id = getattr(request, "session_id", None)
        if session_id is None:
            return refusal(
                ApiErrorCode.FORBIDDEN, "session_id: a worker asks about one session at a time"
            )
        if self._agent_of is None or await self._agent_of(session_id) != asked.agent:
            return refusal(ApiErrorCode.NOT_FOUND, "there is no session with this id")
        return None


def _acts_for(request: Envelope, account: tuple[str, str]) -> bool:
    person = getattr(request, "acting_for", None)
    return isinstance(person, Person) and (person.platform, person.account) == account


def refusal(code: ApiErrorCode, message: str) -> ApiReply:
    """Return the reply to a refused request."""
    return ApiReply(
        id=new_envelope_id(), at=datetime.now(UTC), error=ApiError(code=code, message=message)
    )
