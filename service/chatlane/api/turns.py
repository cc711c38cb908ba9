"""Pass claims and renewals of one agent's workers to the service that decides them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chatlane.domain.ids import time_of
from chatlane_schemas.turns import (
    ClaimReply,
    ClaimRequest,
    ClaimStatus,
    RenewReply,
    RenewRequest,
    TakeReply,
    TurnTake,
)

if TYPE_CHECKING:
    from typing import Protocol

    from chatlane.api.api_request import ApiRequest, Handle
    from chatlane.api.endpoint import RequestHandler
    from chatlane.observability.metrics import Metrics

    class Desk(Protocol):
        """Decides claims and renewals, several in one transaction."""

        async def claim(self, agent: str, request: ClaimRequest) -> ClaimReply:
            """Return the answer to a claim; the same claim id gets the same answer."""

        async def renew(self, agent: str, request: RenewRequest) -> RenewReply:
            """Return the answer to a renewal."""

        async def take(self, agent: str, request: TurnTake) -> TakeReply:
            """Return the new messages that a running turn takes in, and those it took in before."""


class TurnHandlers:
    """The handlers of `turn.claim.<agent>`, `turn.renew.<agent>` and `turn.take.<agent>`.

    The agent is taken from the subject that the handlers are bound to, never from the body, because
    NATS permissions pin the subject.
    """

    def __init__(
        self, agent: str, session_service: Desk, request_handler: RequestHandler, metrics: Metrics
    ) -> None:
        self.agent = agent
        self._session_service = session_service
        self._request_handler = request_handler
        self._metrics = metrics

    def requests(self) -> dict[str, Handle]:
        """Return the handler of each request, by its verb."""
        return {"claim": self.claim, "renew": self.renew, "take": self.take}

    async def claim(self, asked: ApiRequest) -> bytes:
        """Answer `turn.claim.<agent>`."""
        return await self._request_handler.answer("turn.claim", ClaimRequest, asked, self._claim)

    async def renew(self, asked: ApiRequest) -> bytes:
        """Answer `turn.renew.<agent>`."""
        return await self._request_handler.answer("turn.renew", RenewRequest, asked, self._renew)

    async def take(self, asked: ApiRequest) -> bytes:
        """Answer `turn.take.<agent>`."""
        return await self._request_handler.answer("turn.take", TurnTake, asked, self._take)

    async def _take(self, request: TurnTake) -> TakeReply:
        return await self._session_service.take(self.agent, request)

    async def _claim(self, request: ClaimRequest) -> ClaimReply:
        started = time.monotonic()
        reply = await self._session_service.claim(self.agent, request)
        self._metrics.turns_claimed.labels(self.agent, reply.status).inc()
        if reply.status is ClaimStatus.CLAIMED and reply.attempt == 1:
            waited = datetime.now(UTC) - time_of(reply.turn_id)
            self._metrics.turn_waited.labels(self.agent).observe(max(0.0, waited.total_seconds()))
        self._metrics.claim_seconds.observe(time.monotonic() - started)
        return reply

    async def _renew(self, request: RenewRequest) -> RenewReply:
        reply = await self._session_service.renew(self.agent, request)
        self._metrics.turn_renewals.labels(self.agent, reply.status).inc()
        return reply
