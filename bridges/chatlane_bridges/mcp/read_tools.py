"""Tools that read: sessions, transcripts, deliveries, streams and dead letters."""

from datetime import datetime
from typing import Annotated, Any, Final, cast
from uuid import UUID

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

from chatlane_bridges.mcp.operator_link import OperatorLink, told_errors
from chatlane_client.api.catalogue import SessionFilters
from chatlane_schemas.dead import DeadReason
from chatlane_schemas.session_api.sessions import SessionOrder
from chatlane_schemas.topology.streams import StreamName

READS: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)

Session = Annotated[UUID, Field(description="Id of the session.")]
Limit = Annotated[int, Field(ge=1, le=50, description="Most items of the answer.")]
PageCursor = Annotated[str | None, Field(description="`next_cursor` of the answer before.")]


class SessionWish(BaseModel):
    """A filter of sessions; all fields that are given must match."""

    platform: str | None = None
    agent: str | None = None
    origin: str | None = Field(default=None, description="`chat`, or a kind of caller.")
    profile: str | None = None
    label: str | None = None
    title_part: str | None = None
    active_since: datetime | None = Field(default=None, description="With a time zone.")
    active_before: datetime | None = Field(default=None, description="With a time zone.")
    archived: bool | None = None

    def filters(self) -> SessionFilters:
        """Return the filters of the session API."""
        return cast("SessionFilters", self.model_dump(exclude_none=True))


class ReadTools:
    """The tools that read; each is one request to the service, which the audit has."""

    def __init__(self, link: OperatorLink) -> None:
        self._link = link

    def add_to(self, server: MCPServer[Any]) -> None:
        """Add the tools to a server."""
        for tool in (
            self.list_sessions,
            self.count_sessions,
            self.get_session,
            self.read_transcript,
            self.read_row,
            self.search_transcripts,
            self.list_deliveries,
            self.get_open_question,
            self.list_dead_letters,
            self.explain_session,
            self.get_streams,
        ):
            server.add_tool(tool, annotations=READS)

    async def list_sessions(
        self,
        wanted: SessionWish | None = None,
        *,
        by_activity: bool = True,
        limit: Limit = 20,
        cursor: PageCursor = None,
    ) -> dict[str, Any]:
        """List sessions of all people, those with the newest message first or by start."""
        order = SessionOrder.ACTIVITY if by_activity else SessionOrder.STARTED
        with told_errors():
            sessions = await self._link.sessions()
            page = await sessions.list_page(
                order=order, limit=limit, cursor=cursor, **(wanted or SessionWish()).filters()
            )
        return {
            "sessions": [_shown(session) for session in page.sessions],
            "next_cursor": page.next_cursor,
        }

    async def count_sessions(self, wanted: SessionWish | None = None) -> dict[str, Any]:
        """Count sessions: all that match, and how many of them are open or archived."""
        with told_errors():
            sessions = await self._link.sessions()
            return _shown(await sessions.count(**(wanted or SessionWish()).filters()))

    async def get_session(self, session_id: Session) -> dict[str, Any]:
        """Get a session: its state, its running turn, what waits, and its sums of usage."""
        with told_errors():
            sessions = await self._link.sessions()
            return _shown(await sessions.get(session_id, whole_chain=True))

    async def read_transcript(
        self,
        session_id: Session,
        *,
        limit: Annotated[int, Field(ge=1, le=100, description="Most rows.")] = 30,
        before_seq: Annotated[
            int | None, Field(description="`next_before_seq` of the answer before.")
        ] = None,
        reasoning: bool = False,
    ) -> dict[str, Any]:
        """Read rows of a transcript, the newest ones or those before a row, in order."""
        with told_errors():
            pages = await self._link.pages()
            page = await pages.rows(
                session_id=session_id,
                limit=limit,
                before_seq=before_seq,
                as_stored=True,
                reasoning=reasoning,
            )
        return {"rows": [_shown(row) for row in page.rows], "next_before_seq": page.next_before_seq}

    async def read_row(
        self, session_id: Session, seq: Annotated[int, Field(description="Place of the row.")]
    ) -> dict[str, Any]:
        """Read the whole text of a row that a transcript gives shortened (`content_bytes`)."""
        with told_errors():
            transcripts = await self._link.transcripts()
            try:
                return {"content": await transcripts.content(session_id, seq)}
            except LookupError:
                return {"content": None}

    async def search_transcripts(
        self,
        query: Annotated[
            str,
            Field(
                min_length=1,
                max_length=512,
                description='Words that a row must have; `"in a row"`, `prefix*`, `-without`.',
            ),
        ],
        *,
        session_id: UUID | None = None,
        agent: str | None = None,
        limit: Limit = 20,
        cursor: PageCursor = None,
    ) -> dict[str, Any]:
        """Search the words of all transcripts, best match first."""
        with told_errors():
            pages = await self._link.pages()
            page = await pages.hits(
                query=query, session_id=session_id, agent=agent, limit=limit, cursor=cursor
            )
        return {"hits": [_shown(hit) for hit in page.hits], "next_cursor": page.next_cursor}

    async def list_deliveries(
        self, session_id: Session, message_id: UUID | None = None
    ) -> dict[str, Any]:
        """List what became of the newest messages that a session sent, or of one of them."""
        with told_errors():
            sessions = await self._link.sessions()
            found = await sessions.deliveries(session_id, message_id)
        return {"deliveries": [_shown(delivery) for delivery in found]}

    async def get_open_question(self, session_id: Session) -> dict[str, Any]:
        """Get the question for which the running turn of a session waits, if it does."""
        with told_errors():
            sessions = await self._link.sessions()
            question = await sessions.question(session_id)
        return {"question": None if question is None else _shown(question)}

    async def list_dead_letters(
        self,
        reason: DeadReason | None = None,
        *,
        session_id: Annotated[UUID | None, Field(description="Only those of this session.")] = None,
        limit: Limit = 20,
        cursor: PageCursor = None,
    ) -> dict[str, Any]:
        """List messages that were set aside, newest first: why, who has to act, and where they were.

        Their bodies are not shown.
        """
        with told_errors():
            letters = await self._link.dead_letters()
            page = await letters.list_page(
                reason=reason, session_id=session_id, limit=limit, cursor=cursor
            )
        return {
            "letters": [_shown(letter) for letter in page.letters],
            "next_cursor": page.next_cursor,
        }

    async def explain_session(self, session_id: Session) -> dict[str, Any]:
        """Explain why a session has no answer yet, what happens next, and when."""
        with told_errors():
            explanations = await self._link.explanations()
            found = await explanations.session(session_id)
        return {
            "why": found.why,
            "next": found.next,
            "next_at": None if found.next_at is None else found.next_at.isoformat(),
            "facts": [_shown(fact) for fact in found.facts],
        }

    async def get_streams(self) -> dict[str, Any]:
        """Get how many messages wait in each stream, and since when."""
        streams: dict[str, Any] = {}
        for name in StreamName:
            state = await self._link.stream_state(name)
            if state is not None:
                streams[name] = {
                    "messages": state["messages"],
                    "bytes": state["bytes"],
                    "oldest_at": state["first_ts"] if state["messages"] else None,
                    "consumers": state["consumer_count"],
                }
        return {"streams": streams}


def _shown(found: BaseModel) -> dict[str, Any]:
    return found.model_dump(mode="json", exclude_none=True)
