"""Routes that change a session; once for people, once for operators."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Response

from chatlane_console.conversations import Conversations
from chatlane_console.routes.bodies import (
    CopiedSession,
    SessionDeletion,
    SessionPatch,
    SwitchedChat,
)
from chatlane_console.routes.callers import ExpectedVersion, RequestId, State
from chatlane_console.routes.sessions import tagged
from chatlane_schemas.session_api.session_changes import Preference
from chatlane_schemas.session_api.sessions import SessionView


def change_routes(reach: Callable[..., Conversations]) -> APIRouter:
    """Return the routes that change a session.

    Args:
        reach: Dependency that returns the requests of the caller.
    """
    router = APIRouter()
    for routes in (_value_routes, _copy_routes, _life_routes):
        router.include_router(routes(reach))
    return router


def _value_routes(reach: Callable[..., Conversations]) -> APIRouter:
    router = APIRouter()
    reached = Annotated[Conversations, Depends(reach)]

    @router.patch("/sessions/{session_id}", summary="Change a session")
    async def change_session(
        conversations: reached,
        session_id: UUID,
        *,
        body: SessionPatch,
        request_id: RequestId,
        version: ExpectedVersion,
        state: State,
        response: Response,
    ) -> SessionView:
        """Set the given values, clear those that are null, and keep the rest.

        Title, archive, pin, labels, folder, protection, and all other values are changes of their
        own: a later one may be refused after an earlier one was made, and repeating the request
        goes on. `If-Match` is for title, archive, labels, folder and the other values; pin and
        protection replace what is there.
        """
        session = await _changed(conversations, session_id, body, request_id, version)
        await state.feeds.tell(session_id, "session.changed")
        return tagged(response, session)

    @router.delete("/sessions/{session_id}", summary="Delete a session")
    async def delete_session(
        conversations: reached, session_id: UUID, request_id: RequestId, state: State
    ) -> SessionDeletion:
        """Delete a session and its transcript, and return a receipt; copies in forked sessions stay."""
        reply = await conversations.sessions.remove(session_id, request_id=request_id)
        await state.feeds.tell(session_id, "gone")
        return SessionDeletion(session_id=session_id, at=reply.at, deleted=reply.deleted)

    return router


def _copy_routes(reach: Callable[..., Conversations]) -> APIRouter:
    router = APIRouter()
    reached = Annotated[Conversations, Depends(reach)]

    @router.post(
        "/sessions/{session_id}/fork", status_code=HTTPStatus.CREATED, summary="Copy a session"
    )
    async def fork_session(
        conversations: reached,
        session_id: UUID,
        body: CopiedSession,
        request_id: RequestId,
        response: Response,
    ) -> SessionView:
        """Open a session that begins as a copy of this one, which stays as it is."""
        session = await conversations.sessions.fork(
            session_id,
            through_seq=body.through_seq,
            session_key=body.session_key,
            request_id=request_id,
        )
        return tagged(response, session)

    @router.post("/sessions/{session_id}/switch", summary="Continue a chat in a session")
    async def switch_session(
        conversations: reached,
        session_id: UUID,
        body: SwitchedChat,
        request_id: RequestId,
        response: Response,
    ) -> SessionView:
        """Let a chat continue in this session, which is opened again if it has ended."""
        session = await conversations.sessions.switch(
            body.session_key,
            session_id,
            expected_session_id=body.expected_session_id,
            request_id=request_id,
        )
        return tagged(response, session)

    return router


def _life_routes(reach: Callable[..., Conversations]) -> APIRouter:
    router = APIRouter()
    reached = Annotated[Conversations, Depends(reach)]

    @router.post("/sessions/{session_id}/end", summary="End a session")
    async def end_session(
        conversations: reached,
        session_id: UUID,
        request_id: RequestId,
        state: State,
        response: Response,
    ) -> SessionView:
        """End a session; its transcript stays."""
        session = await conversations.sessions.end(session_id, request_id=request_id)
        await state.feeds.tell(session_id, "session.ended")
        return tagged(response, session)

    @router.post("/sessions/{session_id}/reopen", summary="Open a session again")
    async def reopen_session(
        conversations: reached,
        session_id: UUID,
        request_id: RequestId,
        state: State,
        response: Response,
    ) -> SessionView:
        """Open a session again that has ended or was suspended."""
        session = await conversations.sessions.reopen(session_id, request_id=request_id)
        await state.feeds.tell(session_id, "session.changed")
        return tagged(response, session)

    @router.post("/sessions/{session_id}/reset", summary="Begin a chat anew")
    async def reset_session(
        conversations: reached,
        session_id: UUID,
        request_id: RequestId,
        state: State,
        response: Response,
    ) -> SessionView:
        """End a session and return the next one of its chat."""
        session = await conversations.sessions.reset(session_id, request_id=request_id)
        await state.feeds.tell(session_id, "session.ended")
        return tagged(response, session)

    return router


async def _changed(
    conversations: Conversations,
    session_id: UUID,
    body: SessionPatch,
    request_id: str | None,
    version: str | None,
) -> SessionView:
    """Make the changes of a body one after the other, each on the version that the last one made."""
    sessions, given = conversations.sessions, body.model_fields_set

    def named(part: str) -> str | None:
        return None if request_id is None else f"{request_id}.{part}"

    def title(expected: str | None) -> Awaitable[SessionView]:
        return sessions.set_title(
            session_id,
            body.title or "",
            expected_version=expected,
            request_id=named("title"),
        )

    def archive(expected: str | None) -> Awaitable[SessionView]:
        return sessions.archive(
            session_id,
            archived=bool(body.archived),
            expected_version=expected,
            request_id=named("archive"),
        )

    def pin(_: str | None) -> Awaitable[SessionView]:
        return sessions.pin(session_id, pinned=bool(body.pinned), request_id=named("pin"))

    def label(expected: str | None) -> Awaitable[SessionView]:
        return sessions.label(
            session_id,
            body.labels or (),
            expected_version=expected,
            request_id=named("label"),
        )

    def move(expected: str | None) -> Awaitable[SessionView]:
        return sessions.move(
            session_id, body.project_id, expected_version=expected, request_id=named("move")
        )

    def protect(_: str | None) -> Awaitable[SessionView]:
        return sessions.protect(
            session_id, read_only=bool(body.read_only), request_id=named("protect")
        )

    def preferences(expected: str | None) -> Awaitable[SessionView]:
        return sessions.update(
            session_id,
            cwd=body.cwd,
            model=body.model,
            config_patch=body.config,
            clear=[name for name in Preference if name in given and getattr(body, name) is None],
            expected_version=expected,
            request_id=named("update"),
        )

    changes = [
        change
        for change, names in (
            (title, {"title"}),
            (archive, {"archived"}),
            (preferences, set(map(str, Preference))),
            (pin, {"pinned"}),
            (label, {"labels"}),
            (move, {"project_id"}),
            (protect, {"read_only"}),
        )
        if given & names
    ]
    session = await changes[0](version)
    for change in changes[1:]:
        session = await change(None if version is None else session.version)
    return session
