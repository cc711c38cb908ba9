"""The parts of the client library that speak for one person."""

from datetime import timedelta
from typing import Final
from uuid import UUID

from nats.aio.client import Client

from chatlane_client import SessionApi, Submission, TranscriptApi
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.sessions import SessionView
from chatlane_schemas.session_api.transcripts import TranscriptEntry

# Longer than a router takes to start again.
_PATIENCE: Final = timedelta(seconds=60)
MAX_ROWS: Final = 1000
"""How many of the newest rows of a session are read."""
PAGE_ROWS: Final = 200
"""How many of them at once."""


class PersonService:
    """Reads and changes the sessions of one person."""

    def __init__(self, client: Client, principal: str, person: Person) -> None:
        self.person = person
        self.sessions = SessionApi(
            client, principal=principal, acting_for=person, patience=_PATIENCE
        )
        self.transcripts = TranscriptApi(
            client, principal=principal, acting_for=person, patience=_PATIENCE
        )

    async def tip(self, session_id: UUID) -> SessionView:
        """Return the session in which a conversation goes on."""
        session = await self.sessions.get(session_id)
        while session.tip_id is not None and session.tip_id != session.id:
            session = await self.sessions.get(session.tip_id)
        return session

    async def rows_since(self, submission: Submission, after_seq: int) -> list[TranscriptEntry]:
        """Return the newest rows of a session, oldest first, back to a submitted message.

        Args:
            submission: The message.
            after_seq: Place of a row before it.
        """
        found: list[TranscriptEntry] = []
        async for page in self.transcripts.pages(
            submission.session.id, page_size=PAGE_ROWS, as_stored=True
        ):
            newer = [row for row in page if row.seq > after_seq]
            found = [*newer, *found]
            has_own = any(row.message_id == submission.message_id for row in newer)
            if has_own or len(newer) < len(page) or len(found) >= MAX_ROWS:
                break
        return [await self._whole(submission.session.id, row) for row in found]

    async def _whole(self, session_id: UUID, row: TranscriptEntry) -> TranscriptEntry:
        if row.content_bytes is None:
            return row
        text = await self.transcripts.content(session_id, row.seq)
        return row.model_copy(update={"content": text})
