"""Requests to the service that are repeated until they are answered."""

import asyncio
import logging
from datetime import timedelta
from typing import TypeVar

from nats.aio.client import Client

from chatlane_client.errors import TransientError, UnansweredRequestError
from chatlane_client.retry import Backoff, CancellationGuard
from chatlane_client.wire import ask
from chatlane_schemas import Envelope, subjects
from chatlane_schemas.people import Person

_log = logging.getLogger("chatlane_client")

ReplyT = TypeVar("ReplyT", bound=Envelope)


class Requests:
    """Asks under one principal; a request keeps its id over its repetitions."""

    def __init__(
        self,
        client: Client,
        *,
        principal: str,
        patience: timedelta | None,
        acting_for: Person | None = None,
        agent: str | None = None,
    ) -> None:
        """Make one.

        Args:
            client: An open connection.
            principal: The name the connection's permissions allow it to ask under.
            patience: When to give up on a request; None asks for ever.
            acting_for: Who is named in every request; permissions pin whom they talk to.
            agent: Whose sessions are asked about; permissions pin it for workers.
        """
        self._client = client
        self._principal = principal
        self._patience = patience
        self._acting_for = acting_for
        self._agent = agent

    def subject(self, noun: str, verb: str) -> str:
        """Return the subject of a request."""
        person = self._acting_for
        if person is None:
            return subjects.api(self._principal, noun, verb, self._agent)
        return subjects.api_for_account(
            self._principal, noun, verb, person.platform, person.account
        )

    async def ask(self, noun: str, verb: str, request: Envelope, model: type[ReplyT]) -> ReplyT:
        """Ask until there is an answer.

        Raises:
            UnansweredRequestError: Nobody answered in time.
            RefusedRequestError: The service refused.
            InvalidAnswerError: The answer does not follow the contract.
            ConnectionClosedError: Nothing will ever be sent again.
        """
        subject = self.subject(noun, verb)
        patience = self._patience.total_seconds() if self._patience is not None else None
        try:
            async with asyncio.timeout(patience):
                guard = CancellationGuard()
                for pause in Backoff().pauses():
                    reply = await self._try(subject, request, model)
                    guard.check()
                    if reply is not None:
                        return reply
                    await asyncio.sleep(pause)
        except TimeoutError as exc:
            raise UnansweredRequestError(subject, reached_nobody=False) from exc
        raise AssertionError("pauses never end")

    async def _try(self, subject: str, request: Envelope, model: type[ReplyT]) -> ReplyT | None:
        try:
            return await ask(self._client, subject, request, model)
        except TransientError as exc:
            _log.info("request_unanswered", extra={"error": str(exc)})
            return None
