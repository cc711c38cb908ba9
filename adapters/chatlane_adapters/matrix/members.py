"""Report who is in the rooms of an account: after each change, and again before a report ends."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Final

from chatlane_adapters.matrix.refusals import UNREACHABLE
from chatlane_client import RetryAfter
from chatlane_client.errors import (
    OversizedMessageError,
    RefusedRequestError,
    StaleRequestError,
    TransientError,
    UndeliverableError,
)
from chatlane_schemas.session_api.rooms import MAX_MEMBERS

_log: Final = logging.getLogger(__name__)

REPORTED_FOR: Final = timedelta(hours=1)
# Well before the report ends, so that a router or a homeserver may be away for a while.
_AGAIN_SECONDS: Final = 2400.0
_PAUSE_SECONDS: Final = 1.0
_MOST_PAUSE_SECONDS: Final = 60.0
# The settings of the account do not show rooms; they may be changed while the adapter runs.
_UNWANTED_SECONDS: Final = 600.0

Report = Callable[[str, Sequence[str], datetime, datetime], Awaitable[None]]


class MemberReports:
    """Reports the members of rooms, one room at a time.

    A change of a room that is already to be reported costs no report more.
    """

    def __init__(
        self,
        list_members: Callable[[str], Awaitable[Sequence[str]]],
        report: Report,
        is_direct: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Create the reports; nothing is reported before `run`.

        Args:
            list_members: Returns the ids of the members of a room.
            report: Reports room, members, when they were read, and when the report ends.
            is_direct: Whether a room is one of two people, which has no shared conversation.
        """
        self._list_members = list_members
        self._report = report
        self._is_direct = is_direct
        # When each room is to be reported, by the monotonic clock.
        self._due: dict[str, float] = {}
        self._changed = asyncio.Event()

    def note(self, room_id: str) -> None:
        """Report a room as soon as possible: its members may have changed."""
        self._due[room_id] = 0.0
        self._changed.set()

    def begin(self, room_ids: Iterable[str]) -> None:
        """Report rooms that the account is in, except those of two people."""
        for room_id in room_ids:
            if not self._is_direct(room_id):
                self._due.setdefault(room_id, monotonic())
        self._changed.set()

    async def run(self) -> None:
        """Report until cancelled.

        Raises:
            RevokedTokenError: The homeserver does not accept the account any more.
            ConnectionClosedError: The connection to NATS is closed for good.
        """
        pause = _PAUSE_SECONDS
        while True:
            room_id = await self._next()
            # A change from now on is one more report.
            self._due[room_id] = monotonic() + _AGAIN_SECONDS
            try:
                await self._report_room(room_id)
            except (RetryAfter, TransientError, *UNREACHABLE) as error:
                self._due[room_id] = min(self._due[room_id], 0.0)
                _log.warning(
                    "members_unreported",
                    extra={"error": type(error).__name__, "seconds": pause},
                )
                await asyncio.sleep(pause)
                pause = min(2 * pause, _MOST_PAUSE_SECONDS)
            except StaleRequestError:
                # Another process has reported the room later.
                pause = _PAUSE_SECONDS
            except RefusedRequestError as error:
                _log.info("members_refused", extra={"error": type(error).__name__})
                self._due[room_id] = 0.0
                await asyncio.sleep(_UNWANTED_SECONDS)
            else:
                pause = _PAUSE_SECONDS

    async def _next(self) -> str:
        """Return the room to report next, once it is due."""
        while True:
            self._changed.clear()
            room_id = min(self._due, key=self._due.__getitem__, default=None)
            wait = None if room_id is None else self._due[room_id] - monotonic()
            if room_id is not None and wait is not None and wait <= 0:
                if self._due[room_id] > 0 and self._is_direct(room_id):
                    del self._due[room_id]
                    continue
                return room_id
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _report_room(self, room_id: str) -> None:
        # Before the members are read: of two reports, the one that was begun later is newer.
        read_at = datetime.now(UTC)
        try:
            members = await self._list_members(room_id)
        except UndeliverableError:
            # The account has left the room, or the room is gone.
            members = ()
        if len(members) > MAX_MEMBERS:
            _log.warning("room_too_large", extra={"chat": room_id, "members": len(members)})
            members = ()
        try:
            await self._report(room_id, members, read_at, read_at + REPORTED_FOR)
        except OversizedMessageError:
            await self._report(room_id, (), read_at, read_at + REPORTED_FOR)
        if not members:
            self._due.pop(room_id, None)
