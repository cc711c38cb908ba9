"""The newest exchanges of a conversation of one person."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chatlane_bridges.answers.person_service import MAX_ROWS, PAGE_ROWS, PersonService
from chatlane_bridges.openai.message_lists import StoredExchange, stored_exchanges
from chatlane_schemas.session_api.sessions import SessionView

if TYPE_CHECKING:
    from chatlane_schemas.session_api.transcripts import TranscriptEntry


@dataclass(frozen=True, slots=True)
class Read:
    """The newest rows of a conversation.

    Attributes:
        last_seq: Place of the newest row of its last session; 0 if that has none.
    """

    exchanges: list[StoredExchange]
    last_seq: int


async def read_newest(service: PersonService, session: SessionView) -> Read:
    """Return the newest exchanges of a conversation."""
    rows: tuple[TranscriptEntry, ...] = ()
    async for page in service.transcripts.pages(
        session.id, page_size=PAGE_ROWS, whole_chain=True, as_stored=True
    ):
        rows = (*page, *rows)
        if len(rows) >= MAX_ROWS:
            break
    is_own = bool(rows) and rows[-1].session_id in {None, session.id}
    return Read(stored_exchanges(rows), rows[-1].seq if is_own else 0)
