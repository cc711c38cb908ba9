"""Keep a worker's lease on a turn, timed by the worker's clock from before its request."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from time import monotonic
from uuid import UUID

from chatlane_client.errors import InvalidAnswerError, RefusedRequestError, TransientError
from chatlane_client.transport.retry import Backoff, CancellationGuard, cancel_until_ended
from chatlane_client.transport.wire import ANSWER_WITHIN
from chatlane_schemas import RenewReply, RenewStatus

_log = logging.getLogger("chatlane_client")

Renew = Callable[[timedelta], Awaitable[RenewReply]]
"""Requests a renewal once and waits for the reply at most for the given time."""


class Lease:
    """The period in which this worker holds a turn.

    The service counts the period from the arrival of the request, the worker from before it sends
    the request. So the lease ends first for the worker, whatever the clocks of the two machines
    show.

    Attributes:
        was_renewed: Whether the lease was renewed at least once.
    """

    def __init__(self, asked_at: float, length: timedelta, turn_id: UUID | None = None) -> None:
        """Start a lease.

        Args:
            asked_at: Monotonic time just before the request that was granted.
            length: Length of the lease from the reply.
            turn_id: The turn, for the log.
        """
        self.was_renewed = False
        self._turn_id = turn_id
        self._is_unanswered = False
        self._begin(asked_at, length.total_seconds())

    async def secure(self, renew: Renew) -> bool:
        """Return whether the worker holds the lease; renew it first if its reply came late.

        A claim that took many attempts may have expired by the worker's count although the service
        granted it just now.
        """
        if monotonic() < self._renew_at:
            return True
        status = await self._renew(renew, monotonic() + self._length)
        return status is RenewStatus.RENEWED

    @asynccontextmanager
    async def kept(self, renew: Renew, on_loss: Callable[[], None]) -> AsyncIterator["Keeping"]:
        """Keep the lease for the length of the block; report at once when it ends."""
        keeping = Keeping(self, renew, on_loss, max(0.0, self._renew_at - monotonic()))
        try:
            yield keeping
        finally:
            await keeping.end()

    async def keep(self, renew: Renew) -> str:
        """Renew after each third of the lease until it is lost; return the reason of the loss."""
        while True:
            await asyncio.sleep(self._renew_at - monotonic())
            status = await self._renew(renew, self._ends_at)
            if status is not RenewStatus.RENEWED:
                return status or "expired"

    def _begin(self, asked_at: float, length: float) -> None:
        self._length = length
        self._renew_at = asked_at + length / 3
        self._ends_at = asked_at + length

    async def _renew(self, renew: Renew, until: float) -> RenewStatus | None:
        """Retry until there is a reply; return None if none arrives in time."""
        guard = CancellationGuard()
        for pause in self._backoff().pauses():
            asked_at = monotonic()
            if asked_at >= until:
                return None
            reply = await self._try_renew(renew, until - asked_at)
            guard.check()
            if reply is not None:
                self._is_unanswered = False
                if reply.status is RenewStatus.RENEWED:
                    self.was_renewed = True
                    self._begin(asked_at, reply.lease_ms / 1000)
                if reply.cancel is not None:
                    # A turn that is to end gets no renewal: only the remaining time is left.
                    self._renew_at = self._ends_at
                return reply.status
            await asyncio.sleep(min(pause, until - monotonic()))
        raise AssertionError("pauses never end")

    async def _try_renew(self, renew: Renew, remaining: float) -> RenewReply | None:
        patience = min(remaining, self._length / 3, ANSWER_WITHIN.total_seconds())
        try:
            return await renew(timedelta(seconds=patience))
        except (TransientError, InvalidAnswerError, RefusedRequestError) as exc:
            if not self._is_unanswered:
                self._is_unanswered = True
                about = {"turn_id": str(self._turn_id), "error": str(exc)}
                _log.warning(
                    "renewal_unanswered: turn %s: %s; trying again", self._turn_id, exc, extra=about
                )
            return None

    def _backoff(self) -> Backoff:
        return Backoff(longest=timedelta(seconds=min(2.0, self._length / 6)))


class Keeping:
    """Keeps a lease from its first renewal time on; most turns end before that."""

    def __init__(
        self, lease: Lease, renew: Renew, on_loss: Callable[[], None], seconds: float
    ) -> None:
        self._lease = lease
        self._renew = renew
        self._on_loss = on_loss
        self._task: asyncio.Task[str] | None = None
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    @property
    def loss(self) -> str:
        """Reason why the lease was lost, or the error that ended its renewals."""
        if self._task is None:
            raise asyncio.InvalidStateError("nothing is lost")
        return self._task.result()

    async def end(self) -> None:
        """Stop renewing the lease."""
        self._timer.cancel()
        if self._task is not None:
            await cancel_until_ended(self._task)

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._lease.keep(self._renew))
        self._task.add_done_callback(lambda _: self._on_loss())
