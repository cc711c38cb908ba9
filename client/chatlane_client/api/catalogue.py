"""Client of the catalogue: lists of sessions, and what people keep of a session in their list."""

from collections.abc import AsyncIterator, Collection
from datetime import datetime
from typing import TypedDict, Unpack
from uuid import UUID

from chatlane_client.api.requests import Api
from chatlane_schemas.session_api.catalogue import (
    SessionLabel,
    SessionPin,
    SessionProtect,
    SessionTree,
)
from chatlane_schemas.session_api.person_state import (
    SessionDraft,
    SessionDraftReply,
    SessionRead,
    SessionReadReply,
)
from chatlane_schemas.session_api.projects import SessionMove
from chatlane_schemas.session_api.session_marks import Worktree
from chatlane_schemas.session_api.session_openings import (
    ImportSource,
    SessionImport,
    SessionImportReply,
)
from chatlane_schemas.session_api.sessions import (
    SessionCount,
    SessionCountReply,
    SessionCounts,
    SessionList,
    SessionListReply,
    SessionOrder,
    SessionState,
    SessionView,
)


class SessionFilters(TypedDict, total=False):
    """Selects sessions: those that match all given filters.

    Attributes:
        platform: Only sessions of this platform.
        agent: Only sessions of this agent.
        origin: Only sessions that this kind of caller opened; `chat` for messages of a chat.
        without_origins: No sessions that these kinds of callers opened.
        profile: Only sessions of this profile.
        cwd: Only sessions with this working directory.
        project_id: Only sessions in this folder.
        label: Only sessions with this label.
        title_part: Only sessions whose title has this part, in any case.
        active_since: Only sessions in which a person has written since; a time with time zone.
        active_before: Only sessions without a message since this time.
        archived: Only archived sessions, or only others; None for both.
        hide_empty: Whether to leave out sessions without a message, a title, a turn and a worktree.
        tips_only: Whether to leave out sessions that a compaction continued in another session.
        state: Only sessions in this state.
    """

    platform: str | None
    agent: str | None
    origin: str | None
    without_origins: tuple[str, ...]
    profile: str | None
    cwd: str | None
    project_id: UUID | None
    label: str | None
    title_part: str | None
    active_since: datetime | None
    active_before: datetime | None
    archived: bool | None
    hide_empty: bool
    tips_only: bool
    state: SessionState | None
    with_rooms: bool


class CatalogueApi(Api):
    """Lists sessions, and changes what people keep of a session in their list."""

    async def list_page(
        self,
        *,
        order: SessionOrder = SessionOrder.STARTED,
        pinned_first: bool = False,
        limit: int = 50,
        cursor: str | None = None,
        **filters: Unpack[SessionFilters],
    ) -> SessionListReply:
        """Return one page of sessions; there is another page if it has a `next_cursor`.

        Args:
            order: Newest by start, or by the last message.
            pinned_first: Whether the pinned sessions of the person come first; only by activity.
            limit: Most sessions of the page, 1 to 200; a page may have fewer.
            cursor: `next_cursor` of the page before.
            filters: The sessions to list.
        """
        request = SessionList(
            **self._stamp(),
            **filters,
            order=None if order is SessionOrder.STARTED else order,
            pinned_first=pinned_first,
            limit=limit,
            cursor=cursor,
        )
        return await self._ask("session", "list", request, SessionListReply)

    async def list_all(
        self,
        *,
        order: SessionOrder = SessionOrder.STARTED,
        pinned_first: bool = False,
        page_size: int = 50,
        **filters: Unpack[SessionFilters],
    ) -> AsyncIterator[SessionView]:
        """Yield the sessions that match all given filters, newest first.

        By activity, a session that gets a message meanwhile may be left out.

        Args:
            order: Newest by start, or by the last message.
            pinned_first: Whether the pinned sessions of the person come first; only by activity.
            page_size: Sessions per request, 1 to 200.
            filters: The sessions to list.
        """
        cursor = None
        while True:
            reply = await self.list_page(
                order=order, pinned_first=pinned_first, limit=page_size, cursor=cursor, **filters
            )
            for session in reply.sessions:
                yield session
            if (cursor := reply.next_cursor) is None:
                return

    async def count(self, **filters: Unpack[SessionFilters]) -> SessionCounts:
        """Return how many sessions `list_all` would yield, and how many of them are open."""
        request = SessionCount(**self._stamp(), **filters)
        reply = await self._ask("session", "count", request, SessionCountReply)
        if reply.counts is None:
            raise self._incomplete("session", "count", "no counts")
        return reply.counts

    async def pin(
        self, session_id: UUID, *, pinned: bool = True, request_id: str | None = None
    ) -> SessionView:
        """Pin a session or unpin it; nothing else changes.

        Args:
            session_id: Session to change.
            pinned: Whether it is to be pinned.
            request_id: Id of an earlier request that this one repeats.
        """
        request = SessionPin(**self._stamp(request_id), session_id=session_id, pinned=pinned)
        return await self._ask_session("pin", request)

    async def label(
        self,
        session_id: UUID,
        labels: Collection[str],
        *,
        expected_version: str | None = None,
        request_id: str | None = None,
    ) -> SessionView:
        """Replace the labels of a session.

        Args:
            session_id: Session to change.
            labels: At most 16 labels of at most 64 characters; none removes all.
            expected_version: `version` of the session that the change is based on; None for any.
            request_id: Id of an earlier request that this one repeats.

        Raises:
            StaleRequestError: The session has changed since that version.
        """
        request = SessionLabel(
            **self._stamp(request_id),
            session_id=session_id,
            labels=tuple(labels),
            expected_version=expected_version,
        )
        return await self._ask_session("label", request)

    async def move(
        self,
        session_id: UUID,
        project_id: UUID | None,
        *,
        expected_version: str | None = None,
        request_id: str | None = None,
    ) -> SessionView:
        """Put a session into a folder of its person, or take it out.

        Args:
            session_id: Session to change.
            project_id: The folder; None for none.
            expected_version: `version` of the session that the change is based on; None for any.
            request_id: Id of an earlier request that this one repeats.

        Raises:
            StaleRequestError: The session has changed since that version.
            ConflictingRequestError: Several people share the session, or it is of no scheduled job
                and the folder is the built-in one.
        """
        request = SessionMove(
            **self._stamp(request_id),
            session_id=session_id,
            project_id=project_id,
            expected_version=expected_version,
        )
        return await self._ask_session("move", request)

    async def note_worktree(
        self,
        session_id: UUID,
        worktree: Worktree | None,
        *,
        expected_version: str | None = None,
        request_id: str | None = None,
    ) -> SessionView:
        """Note the working copy of a repository that was made for a session, or forget it.

        Args:
            session_id: Session to change.
            worktree: The working copy; None forgets it.
            expected_version: `version` of the session that the change is based on; None for any.
            request_id: Id of an earlier request that this one repeats.

        Raises:
            StaleRequestError: The session has changed since that version.
        """
        request = SessionTree(
            **self._stamp(request_id),
            session_id=session_id,
            worktree=worktree,
            expected_version=expected_version,
        )
        return await self._ask_session("tree", request)

    async def keep_draft(
        self,
        session_id: UUID,
        text: str,
        *,
        replaces: datetime | None = None,
        request_id: str | None = None,
    ) -> datetime | None:
        """Keep what the person has typed and not sent; return its `changed_at`, None if it is none.

        `get` has it in `draft`.

        Args:
            session_id: Session in which the person types.
            text: At most 16 kB; `""` removes the draft.
            replaces: `changed_at` of the draft that it replaces; None if there was none.
            request_id: Id of an earlier request that this one repeats.

        Raises:
            StaleRequestError: Another text is stored than the one that it replaces.
        """
        request = SessionDraft(
            **self._stamp(request_id), session_id=session_id, text=text, replaces=replaces
        )
        return (await self._ask("session", "draft", request, SessionDraftReply)).changed_at

    async def mark_read(
        self, session_id: UUID, through_seq: int, *, request_id: str | None = None
    ) -> int:
        """Mark up to which row the person has read a session; return where the mark is now.

        Args:
            session_id: Session that the person reads.
            through_seq: Place of the last row that the person has seen; the mark never goes back.
            request_id: Id of an earlier request that this one repeats.
        """
        request = SessionRead(
            **self._stamp(request_id), session_id=session_id, through_seq=through_seq
        )
        return (await self._ask("session", "read", request, SessionReadReply)).through_seq

    async def protect(
        self, session_id: UUID, *, read_only: bool = True, request_id: str | None = None
    ) -> SessionView:
        """Make an ended session read only, or take that back.

        Args:
            session_id: Session to change.
            read_only: Whether it is to be read only.
            request_id: Id of an earlier request that this one repeats.

        Raises:
            ConflictingRequestError: The session has not ended.
        """
        request = SessionProtect(
            **self._stamp(request_id), session_id=session_id, read_only=read_only
        )
        return await self._ask_session("protect", request)

    async def import_conversation(
        self,
        source: ImportSource,
        name: str,
        content: str,
        *,
        profile: str | None = None,
        is_continued: bool = False,
        request_id: str | None = None,
    ) -> SessionImportReply:
        """Import a conversation of another program; repeated, it adds what is new.

        Args:
            source: The program.
            name: Name for reports; of a session of Claude Code the name of its file.
            content: The conversation, compressed with gzip, in base64.
            profile: Persona of the session; None for the default one.
            is_continued: Whether the session is open; otherwise it is ended and read only.
            request_id: Id of an earlier request that this one repeats.

        Raises:
            RefusedRequestError: The content is no conversation of the program.
        """
        request = SessionImport(
            **self._stamp(request_id),
            source=source,
            name=name,
            content=content,
            profile=profile,
            is_continued=is_continued,
        )
        return await self._ask("session", "import", request, SessionImportReply)
