"""Let a single process at a time deliver for an account.

The lease is the only message of its subject in a stream. The server stores another one only if the
process names the sequence of the last message correctly, so two processes never both take it. It
removes a message that is not renewed.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, Final

import nats.errors
import nats.js.errors
from nats.aio.client import Client

from chatlane_client.transport.connection import until_connected
from chatlane_client.transport.process_name import process_name
from chatlane_client.transport.retry import cancel_until_ended, was_set_within
from chatlane_schemas import Deliverer, encode, new_envelope_id
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import DELIVERER_LEASE

_log = logging.getLogger("chatlane_client")

_RENEW_AFTER: Final = DELIVERER_LEASE.total_seconds() / 4
# The holder ends before the server, so that no other process begins earlier.
_HELD_FOR: Final = DELIVERER_LEASE.total_seconds() - 1.0
_TRY_AGAIN: Final = 0.5
_ANSWER_WITHIN: Final = 1.0
# A service of an earlier release has no stream of leases, and its users have no right to it.
_PATIENCE: Final = 2 * DELIVERER_LEASE.total_seconds()
_SAID_EVERY: Final = timedelta(minutes=10).total_seconds()
_EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
_WRONG_LAST: Final = 10071
_LAST: Final = re.compile(r"wrong last sequence: (\d+)")


class DeliveryEndedError(Exception):
    """This process does not go on with a delivery; another one may."""


class DeliveryLease:
    """The lease on the deliveries of one account, for all parts of a process that send.

    A holder whose renewals are not answered pauses before another process can take the lease, and
    goes on if it turns out that none did.
    """

    def __init__(self, client: Client, *, platform: str, account: str) -> None:
        self._client = client
        self._about = {"platform": platform, "account": account}
        self._subject = subjects.deliverer(platform, account)
        # Of our message in the stream; 0 if we have none.
        self._sequence = 0
        self._until = 0.0
        self._is_unconfirmed = False
        self._changed = asyncio.Event()
        self._users = 0
        self._keeping: asyncio.Task[None] | None = None
        # Until the first answer, the service may be one that has no leases.
        self._is_known = False
        self._is_unguarded = False
        self._standby_said_at = float("-inf")

    @property
    def is_held(self) -> bool:
        """Return whether only this process may send now."""
        return self._is_unguarded or (self._sequence > 0 and monotonic() < self._until)

    @property
    def is_lost(self) -> bool:
        """Return whether another process may have sent messages since this one took the lease."""
        return not self._is_unguarded and self._sequence == 0

    @asynccontextmanager
    async def used(self) -> AsyncIterator[None]:
        """Take and keep the lease for the length of the block, and give it back at the end."""
        self._users += 1
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                keeping, self._keeping = self._keeping, None
                await cancel_until_ended(keeping)
                await self._give_back()

    async def until_held(self) -> None:
        """Return once this process may send.

        Raises:
            ConnectionClosedError: The connection is closed for good.
        """
        while not self.is_held:
            await self._until_changed()

    async def until_lost(self) -> None:
        """Return once another process may send."""
        while not self.is_lost:
            await self._until_changed()

    async def require(self) -> None:
        """Wait until this process may send.

        Raises:
            DeliveryEndedError: Another process may send instead.
        """
        while not self.is_held:
            if self.is_lost:
                raise DeliveryEndedError
            await self._until_changed()

    async def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do some work whenever this process holds the lease, until the work ends by itself."""
        async with self.used():
            while True:
                await self.until_held()
                working = asyncio.create_task(work())
                losing = asyncio.create_task(self.until_lost())
                try:
                    await asyncio.wait({working, losing}, return_when=asyncio.FIRST_COMPLETED)
                    if working.done():
                        return working.result()
                finally:
                    await cancel_until_ended(working, losing)

    async def _until_changed(self) -> None:
        if self._keeping is not None and self._keeping.done():
            self._keeping.result()
        self._changed.clear()
        await was_set_within(self._changed, _TRY_AGAIN)

    async def _keep(self) -> None:
        """Take the lease, renew it, and take it again after a loss, until cancelled."""
        began = monotonic()
        while True:
            await until_connected(self._client)
            was_held = self.is_held
            try:
                await self._take_or_renew()
            except (nats.errors.Error, TimeoutError) as exc:
                self._is_unconfirmed = True
                self._go_unguarded(began, exc)
            if self.is_held != was_held:
                event = "delivery_begun" if self.is_held else "delivery_paused"
                _log.info(event, extra=self._about)
            self._changed.set()
            await asyncio.sleep(_RENEW_AFTER if self.is_held else _TRY_AGAIN)

    async def _take_or_renew(self) -> None:
        asked_at = monotonic()
        try:
            self._sequence = await self._publish()
        except nats.js.errors.APIError as exc:
            if exc.err_code != _WRONG_LAST:
                raise
            self._is_known, self._is_unguarded = True, False
            found = _LAST.search(exc.description or "")
            newest = int(found[1]) if found else 0
            if self._is_unconfirmed and self.is_held and newest > self._sequence:
                # Nobody else could take it yet: it is our renewal, whose confirmation got lost.
                self._sequence = newest
                return
            self._sequence = 0
            self._say_standby()
            return
        self._is_known, self._is_unguarded, self._is_unconfirmed = True, False, False
        self._until = asked_at + _HELD_FOR
        self._standby_said_at = float("-inf")

    async def _publish(self, **headers: str) -> int:
        message = Deliverer(id=new_envelope_id(), at=datetime.now(UTC), process=process_name())
        stored = await self._client.jetstream().publish(
            self._subject,
            encode(message),
            timeout=_ANSWER_WITHIN,
            headers={_EXPECTED: str(self._sequence), **headers},
        )
        return stored.seq

    def _say_standby(self) -> None:
        if monotonic() - self._standby_said_at > _SAID_EVERY:
            self._standby_said_at = monotonic()
            advice = "another process delivers for this account; this one takes over when it ends"
            _log.warning(f"delivery_standby: {advice}", extra=self._about)

    def _go_unguarded(self, began: float, error: Exception) -> None:
        """Deliver without a lease if the service seems to have none."""
        if self._is_known or self._is_unguarded or monotonic() - began < _PATIENCE:
            return
        self._is_unguarded = True
        advice = "run `chatlane admin apply`, and render the NATS configuration again"
        text = f"delivery_unguarded: two processes of this account would both deliver; {advice}"
        _log.warning(text, extra={**self._about, "error": type(error).__name__})

    async def _give_back(self) -> None:
        if self._sequence and self._client.is_connected:
            with suppress(nats.errors.Error, TimeoutError):
                await self._publish(**{"Nats-TTL": "1s"})
        self._sequence, self._is_unguarded = 0, False
