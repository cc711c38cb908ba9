"""Decode requests, authorize them, count them, and encode a reply to each."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from chatlane.api.problems import problem_text
from chatlane.errors import TransientError
from chatlane.observability.logs import get_logger
from chatlane.requests.change_service import CHANGES
from chatlane.store.audit import Operator
from chatlane_schemas.codec import DecodeError, decode, encode
from chatlane_schemas.envelope import MAX_PAYLOAD_BYTES, Envelope, Record, new_envelope_id
from chatlane_schemas.session_api.deliveries import DeliveryFind
from chatlane_schemas.session_api.people import OperatorRequest, Person
from chatlane_schemas.session_api.rooms import RoomMembers
from chatlane_schemas.session_api.sessions import ApiError, ApiErrorCode, ApiReply

if TYPE_CHECKING:
    from uuid import UUID

    from chatlane.observability.metrics import Metrics

_log = get_logger("api")

RequestT = TypeVar("RequestT", bound=Envelope)
ItemT = TypeVar("ItemT", bound=Record)

# Half of the NATS default payload limit; larger answers continue on another page.
MAX_REPLY_BYTES: Final = 512 * 1024
# Reserved for the envelope around the items of a page.
ITEM_BYTES: Final = MAX_REPLY_BYTES - 1024
# Part of the server's payload limit that is reserved for the headers of an answer.
_HEADER_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request and the tokens of its subject, the only trusted facts about its caller.

    Attributes:
        agent: If given, the caller sees only sessions of this agent.
        account: Platform and account; if given, the caller acts for a user who talks to it.
    """

    principal: str
    body: bytes
    agent: str | None = None
    account: tuple[str, str] | None = None

    @property
    def is_bound(self) -> bool:
        """The caller is a worker or a front end; a caller bound to neither is an operator."""
        return self.agent is not None or self.account is not None


Handle: TypeAlias = Callable[[ApiRequest], Awaitable[bytes]]
"""Answers a request; never raises."""
Reads: TypeAlias = Mapping[str, tuple[type[Envelope], Callable[[Any], Awaitable[Envelope]]]]
"""The model of each read-only request and the function that answers it, by method."""
CallerReads: TypeAlias = Mapping[
    str, tuple[type[Envelope], Callable[[Any, ApiRequest], Awaitable[Envelope]]]
]
"""The same for requests whose answer depends on the caller, which the function gets as well."""
MakeChange: TypeAlias = Callable[[str, Any, bytes], Awaitable[Envelope]]
"""Makes a change once, given the caller (an `Operator` if it is to be audited), the request, and a
digest of its content."""


class RequestHandler:
    """Turns a request body into a reply body, also when the handler fails.

    Args:
        max_payload: Returns the most that the server takes in one message, headers included; it
            closes the connection of a client that sends more.
        agent_of: Returns the agent of a session, if there is one; without it, requests bound to an
            agent are refused.
        people_of: The accounts, as (platform, account), whose people a front end of an account may
            name beside its own.
        note_read: Audits a read by an operator: the session, if any, the outcome, and the dead
            letter, if any.
    """

    def __init__(
        self,
        metrics: Metrics,
        max_payload: Callable[[], int] = lambda: MAX_PAYLOAD_BYTES,
        agent_of: Callable[[UUID], Awaitable[str | None]] | None = None,
        note_read: Callable[[Operator, UUID | None, str, UUID | None], Awaitable[None]]
        | None = None,
        people_of: Callable[[str, str], Collection[tuple[str, str]]] = lambda *_: (),
    ) -> None:
        # Cached, because finding the series of labels costs as much as counting.
        self._requests = cache(metrics.api_requests.labels)
        self._seconds = cache(metrics.api_seconds.labels)
        self._max_payload = max_payload
        self._agent_of = agent_of
        self._note_read = note_read
        self._people_of = people_of

    def reads(self, table: Reads) -> dict[str, Handle]:
        """Return the handlers of read-only requests, by method."""

        def for_anybody(read: Callable[[Any], Awaitable[Envelope]]) -> Any:  # noqa: ANN401
            return lambda request, _asked: read(request)

        return self.reads_of_callers(
            {method: (model, for_anybody(read)) for method, (model, read) in table.items()}
        )

    def reads_of_callers(self, table: CallerReads) -> dict[str, Handle]:
        """Return the handlers of read-only requests whose answer depends on the caller."""
        return {
            method: partial(self._answer_read, method, model, read)
            for method, (model, read) in table.items()
        }

    def changes(self, make_change: MakeChange) -> dict[str, Handle]:
        """Return the handlers of requests that change something, by method."""
        return {
            change.method: partial(self._answer_once, change.method, model, make_change)
            for model, change in CHANGES.items()
        }

    async def answer(
        self,
        method: str,
        model: type[RequestT],
        act: Callable[[RequestT], Awaitable[Envelope]],
        asked: ApiRequest,
    ) -> bytes:
        """Return the encoded reply of `act`, or an `ApiReply` with the reason for a refusal."""
        started = time.monotonic()
        reply = await self._reply(method, model, act, asked)
        code = _error_code(reply) or "ok"
        self._requests(method, code).inc()
        self._seconds(method).observe(time.monotonic() - started)
        return self._within_payload_limit(method, encode(reply))

    async def _answer_read(
        self,
        method: str,
        model: type[RequestT],
        read: Callable[[RequestT, ApiRequest], Awaitable[Envelope]],
        asked: ApiRequest,
    ) -> bytes:
        """Answer a read-only request; for an operator, write the audit entry before the reply."""

        async def act(request: RequestT) -> Envelope:
            reply = await read(request, asked)
            if self._note_read is not None and not asked.is_bound:
                await self._note_read(
                    Operator(asked.principal, method),
                    getattr(request, "session_id", None),
                    _error_code(reply) or "done",
                    getattr(request, "letter_id", None),
                )
            return reply

        return await self.answer(method, model, act, asked)

    async def _answer_once(
        self, method: str, model: type[RequestT], change: MakeChange, asked: ApiRequest
    ) -> bytes:
        async def act(request: RequestT) -> Envelope:
            # The same id for two kinds of request is as wrong as for two bodies. The time of
            # sending may differ, so that a caller can repeat a request after a restart.
            content = request.model_dump_json(exclude={"at"}).encode()
            digest = sha256(method.encode() + b"\0" + content).digest()
            caller = asked.principal if asked.is_bound else Operator(asked.principal, method)
            return await change(caller, request, digest)

        return await self.answer(method, model, act, asked)

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
        model: type[RequestT],
        act: Callable[[RequestT], Awaitable[Envelope]],
        asked: ApiRequest,
    ) -> Envelope:
        try:
            request = decode(model, asked.body)
            return await self._authorize(asked, request) or await act(request)
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
        if asked.is_bound and isinstance(request, OperatorRequest):
            return refusal(ApiErrorCode.FORBIDDEN, "only operators may make this request")
        if asked.account is not None and not self._acts_for(request, asked.account):
            return refusal(
                ApiErrorCode.FORBIDDEN,
                "acting_for: must name a person of the account, and other ids on accounts that it allows",
            )
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

    def _acts_for(self, request: Envelope, account: tuple[str, str]) -> bool:
        if isinstance(request, DeliveryFind | RoomMembers):
            # An adapter acts for its account.
            return (request.platform, request.account) == account
        person = getattr(request, "acting_for", None)
        if not isinstance(person, Person) or (person.platform, person.account) != account:
            return False
        others = {(other.platform, other.account) for other in person.also or ()}
        return not others or others <= {*self._people_of(*account)}


def refusal(code: ApiErrorCode, message: str) -> ApiReply:
    """Return the reply to a refused request."""
    return ApiReply(
        id=new_envelope_id(), at=datetime.now(UTC), error=ApiError(code=code, message=message)
    )


def _error_code(reply: Envelope) -> ApiErrorCode | None:
    return reply.error.code if isinstance(reply, ApiReply) and reply.error else None


def fits(item: Record) -> bool:
    """Return whether a single item fits into a reply."""
    return len(item.model_dump_json(exclude_none=True).encode()) < ITEM_BYTES


def fitting(items: Iterable[ItemT]) -> tuple[ItemT, ...]:
    """Return the first items that fit into a reply together; at least one if there is any.

    A single item always fits: it arrived in a body of at most 256 kB.
    """
    page: list[ItemT] = []
    left = ITEM_BYTES
    for item in items:
        left -= len(item.model_dump_json(exclude_none=True).encode()) + 1
        if left < 0 and page:
            break
        page.append(item)
    return tuple(page)
