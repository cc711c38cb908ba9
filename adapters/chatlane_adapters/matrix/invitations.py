"""Accept the invitations of an account to rooms."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from chatlane_adapters.matrix.client import Invitation, MatrixClient
from chatlane_adapters.matrix.cursor import MAX_KEPT
from chatlane_adapters.matrix.refusals import UNREACHABLE
from chatlane_client import RetryAfter
from chatlane_client.errors import UndeliverableError

_log: Final = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 2.0
_JOIN_TRIES: Final = 5


class Invitations:
    """The invitations of one account that are still to be accepted.

    Args:
        client: Joins rooms.
        invitations_from: Patterns of users whose invitations are accepted.
        pending: Rooms that an earlier process was to join.
    """

    def __init__(
        self, client: MatrixClient, invitations_from: Sequence[str], pending: Iterable[str] = ()
    ) -> None:
        self._client = client
        self._invitations_from = invitations_from
        self._pending = dict.fromkeys(pending)
        self._joining: set[str] = set()

    @property
    def pending(self) -> tuple[str, ...]:
        """Rooms that are still to be joined."""
        return tuple(self._pending)

    def accept(self, joins: asyncio.TaskGroup) -> None:
        """Begin to join the rooms that are not being joined yet."""
        for room_id in self._pending.keys() - self._joining:
            self._joining.add(room_id)
            joins.create_task(self._join(room_id))

    def note(self, invitations: Sequence[Invitation]) -> None:
        """Note the invitations of people whose invitations are accepted."""
        for it in invitations:
            if any(fnmatchcase(it.inviter, pattern) for pattern in self._invitations_from):
                if len(self._pending) < MAX_KEPT:
                    self._pending[it.room_id] = None
            else:
                _log.info("invitation_ignored", extra={"chat": it.room_id})

    async def _join(self, room_id: str) -> None:
        """Accept an invitation; the homeserver then shows the room."""
        pause = _PAUSE_SECONDS
        for _ in range(_JOIN_TRIES):
            try:
                await self._client.join(room_id)
                break
            except RetryAfter as refusal:
                pause = refusal.after.total_seconds()
            except UndeliverableError as refusal:
                _log.warning("join_refused", extra={"chat": room_id, "reason": refusal.reason})
                break
            except UNREACHABLE:
                pause *= 2
            await asyncio.sleep(pause)
        self._joining.discard(room_id)
        self._pending.pop(room_id, None)
