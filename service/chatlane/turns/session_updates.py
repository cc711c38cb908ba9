"""Announce which sessions have changed, at most once a second for each session."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from chatlane_schemas.codec import encode
from chatlane_schemas.events import SessionUpdated
from chatlane_schemas.topology.subjects import event as event_subject

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from chatlane.domain.states import Session

# Announcements of one router in one second. This bounds the cost; the rest waits for the next
# second.
MOST_AT_ONCE: Final = 250
# The announcements update lists on a screen, where more than this is of no use.
_MOST_WAITING: Final = 50_000


class Tell(Protocol):
    """Publish a message to current subscribers, once per message id; fail silently."""

    async def __call__(self, subject: str, payload: bytes, message_id: str | None = None) -> None:
        """Publish it."""
        ...


class Updates:
    """Collect the sessions that committed transactions wrote, and announce them.

    A change is announced in the second after it, under an id made of session and second. So
    routers that change a session in the same second announce it once, and a client that reads
    the session then sees the changes of all of them. Changes that a router has collected when
    it crashes are not announced.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._changed: dict[UUID, Session] = {}

    def note(self, sessions: Mapping[UUID, Session]) -> None:
        """Remember sessions that were written, by id."""
        if len(self._changed) < _MOST_WAITING:
            self._changed.update(sessions)

    async def run(self) -> None:
        """Announce the collected sessions at the start of every second, until cancelled."""
        while True:
            now = datetime.now(UTC)
            await asyncio.sleep(1 - now.microsecond / 1_000_000)
            await self.flush(datetime.now(UTC))

    async def flush(self, now: datetime) -> int:
        """Announce the sessions that have waited longest; return how many."""
        some = list(self._changed.values())[:MOST_AT_ONCE]
        for session in some:
            del self._changed[session.id]
            updated = SessionUpdated(
                id=f"updated:{session.id}:{int(now.timestamp())}",
                at=now,
                session_id=session.id,
                session_key=session.session_key,
                agent=session.agent,
            )
            await self._tell(event_subject("session", "updated"), encode(updated), updated.id)
        return len(some)
