"""Says which sessions have changed, at most once a second for each."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from chatlane_schemas.codec import encode
from chatlane_schemas.events import SessionUpdated
from chatlane_schemas.subjects import event as event_subject

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from chatlane.domain.states import Session

# Said in one second by one router: what it costs is bounded, what is left waits for the next.
MOST_AT_ONCE: Final = 250
# More than this has no use for a list on a screen, which is what it is for.
_MOST_WAITING: Final = 50_000


class Tell(Protocol):
    """Says something to whoever listens now, once per message id; fails silently."""

    async def __call__(self, subject: str, payload: bytes, message_id: str | None = None) -> None:
        """Say it."""
        ...


class Updates:
    """Collects the sessions that committed transactions wrote, and tells of them.

    A change is told in the second after it, under an id of session and second. So routers that
    change a session in the same second tell of it once, and nobody who looks then misses what
    any of them did. What a router that dies has collected is not told.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._changed: dict[UUID, Session] = {}

    def note(self, sessions: Mapping[UUID, Session]) -> None:
        """Remember sessions that were written, by id."""
        if len(self._changed) < _MOST_WAITING:
            self._changed.update(sessions)

    async def run(self) -> None:
        """Tell what has collected, at the start of every second, until cancelled."""
        while True:
            now = datetime.now(UTC)
            await asyncio.sleep(1 - now.microsecond / 1_000_000)
            await self.flush(datetime.now(UTC))

    async def flush(self, now: datetime) -> int:
        """Tell of those that have waited longest; returns how many they were."""
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
