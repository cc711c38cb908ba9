"""Send requests to the service and repeat them until it replies."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import TypedDict, TypeVar

from nats.aio.client import Client

from chatlane_client.errors import InvalidAnswerError, TransientError, UnansweredRequestError
from chatlane_client.transport.retry import Backoff, CancellationGuard
from chatlane_client.transport.wire import ask
from chatlane_schemas import Envelope, new_envelope_id
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.sessions import SessionReply, SessionView
from chatlane_schemas.topology import subjects

_log = logging.getLogger("chatlane_client")

ReplyT = TypeVar("ReplyT", bound=Envelope)


class Requests:
    """Sends requests of one principal; a repeated request keeps its id."""

    def __init__(
        self,
        client: Client,
        *,
        principal: str,
        patience: timedelta | None,
        acting_for: Person | None = None,
        agent: str | None = None,
        is_operator: bool = False,
    ) -> None:
        """Create the sender.

        Args:
            client: An open connection.
            principal: The name that the connection's permissions allow in requests.
            patience: When to give up on a request; None retries without a limit.
            acting_for: The person named in every request; permissions pin the person's account.
            agent: The agent whose sessions the requests are about; permissions pin it for workers.
            is_operator: Whether to use the subjects that are bound to no person or agent.
        """
        self._client = client
        self._principal = principal
        self._patience = patience
        self._acting_for = acting_for
        self._agent = agent
        self._is_operator = is_operator

    def subject(self, noun: str, verb: str) -> str:
        """Return the subject of a request."""
        person = self._acting_for
        if person is None or self._is_operator:
            return subjects.api(self._principal, noun, verb, self._agent)
        return subjects.api_for_account(
            self._principal, noun, verb, person.platform, person.account
        )

    async def ask(self, noun: str, verb: str, request: Envelope, model: type[ReplyT]) -> ReplyT:
        """Send a request until there is a reply.

        Raises:
            UnansweredRequestError: The service did not reply in time.
            RefusedRequestError: The service refused the request.
            InvalidAnswerError: The answer does not follow the contract.
            ConnectionClosedError: The client can never send again.
        """
        subject = self.subject(noun, verb)
        patience = self._patience.total_seconds() if self._patience is not None else None
        try:
            async with asyncio.timeout(patience):
                guard = CancellationGuard()
                for number, pause in enumerate(Backoff().pauses()):
                    reply = await self._try(subject, request, model, is_first=number == 0)
                    guard.check()
                    if reply is not None:
                        return reply
                    await asyncio.sleep(pause)
        except TimeoutError as exc:
            raise UnansweredRequestError(subject, reached_nobody=False) from exc
        raise AssertionError("pauses never end")

    async def _try(
        self, subject: str, request: Envelope, model: type[ReplyT], *, is_first: bool
    ) -> ReplyT | None:
        try:
            return await ask(self._client, subject, request, model)
        except TransientError as exc:
            if is_first:
                about = {"subject": subject, "error": str(exc)}
                _log.info("request_unanswered: %s; trying again", exc, extra=about)
            return None


class Stamp(TypedDict):
    """Fields of every request: its envelope and the person it is made for."""

    id: str
    at: datetime
    acting_for: Person | None


class Api:
    """Base class of the session API clients: principal, person or agent, and patience."""

    def __init__(
        self,
        client: Client,
        *,
        principal: str,
        acting_for: Person | None = None,
        agent: str | None = None,
        is_operator: bool = False,
        patience: timedelta = timedelta(seconds=10),
    ) -> None:
        """Create the client.

        Args:
            client: An open connection.
            principal: The name that the connection's permissions allow in requests.
            acting_for: The person whose sessions it reads and changes; None for all.
            agent: The agent whose sessions a worker reads and changes, one session per
                request; None for all.
            is_operator: Whether the caller is an operator; required for an operator to act for
                a person.
            patience: When to give up on a request.
        """
        self._requests = Requests(
            client,
            principal=principal,
            patience=patience,
            acting_for=acting_for,
            agent=agent,
            is_operator=is_operator,
        )
        self._client = client
        self._principal = principal
        self._acting_for = acting_for
        self._is_operator = is_operator

    def _stamp(self, request_id: str | None = None) -> Stamp:
        """Return the common fields of a request; a repeated request keeps its id."""
        return {
            "id": request_id or new_envelope_id(),
            "at": datetime.now(UTC),
            "acting_for": self._acting_for,
        }

    async def _ask(self, noun: str, verb: str, request: Envelope, model: type[ReplyT]) -> ReplyT:
        return await self._requests.ask(noun, verb, request, model)

    async def _ask_session(self, verb: str, request: Envelope) -> SessionView:
        """Send a request and return the session of its reply, or raise that there is none."""
        reply = await self._ask("session", verb, request, SessionReply)
        if reply.session is None:
            raise self._incomplete("session", verb, "no session")
        return reply.session

    def _incomplete(self, noun: str, verb: str, detail: str) -> InvalidAnswerError:
        return InvalidAnswerError(self._requests.subject(noun, verb), detail)
