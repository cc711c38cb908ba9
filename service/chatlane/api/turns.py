"""Pass claims and renewals of one agent's workers to the service that decides them."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import cache, partial
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
    from chatlane.api.endpoint import Handle, RequestHandler
    from chatlane.observability.metrics import Metrics
    from chatlane.turns.claims import ClaimService


class TurnHandlers:
    """The handlers of `turn.claim.<agent>`, `turn.renew.<agent>` and `turn.take.<agent>`.

    The agent is taken from the subject that the handlers are bound to, never from the body, because
    NATS permissions pin the subject.
    """

    def __init__(
        self,
        agent: str,
        claim_service: ClaimService,
        request_handler: RequestHandler,
        metrics: Metrics,
    ) -> None:
        self.agent = agent
        self._claim_service = claim_service
        self._request_handler = request_handler
        # Cached, because every turn is claimed.
        self._claims = cache(partial(metrics.turns_claimed.labels, agent))
        self._waited = metrics.turn_waited.labels(agent)
        self._claim_seconds = metrics.claim_seconds
        self._renewals = cache(partial(metrics.turn_renewals.labels, agent))

    def requests(self) -> dict[str, Handle]:
        """Return the handler of each request, by its verb."""
        answer = self._request_handler.answer
        return {
            "claim": partial(answer, "turn.claim", ClaimRequest, self._claim),
            "renew": partial(answer, "turn.renew", RenewRequest, self._renew),
            "take": partial(answer, "turn.take", TurnTake, self._take),
        }

    async def _take(self, request: TurnTake) -> TakeReply:
        return await self._claim_service.take(self.agent, request)

    async def _claim(self, request: ClaimRequest) -> ClaimReply:
        started = time.monotonic()
        reply = await self._claim_service.claim(self.agent, request)
        self._claims(reply.status).inc()
        if reply.status is ClaimStatus.CLAIMED and reply.attempt == 1:
            waited = datetime.now(UTC) - time_of(reply.turn_id)
            self._waited.observe(max(0.0, waited.total_seconds()))
        self._claim_seconds.observe(time.monotonic() - started)
        return reply

    async def _renew(self, request: RenewRequest) -> RenewReply:
        reply = await self._claim_service.renew(self.agent, request)
        self._renewals(reply.status).inc()
        return reply
