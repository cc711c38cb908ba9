"""Routes of sessions: list, open, read, write to; once for people, once for operators."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Response

from chatlane_console.conversations import Conversations
from chatlane_console.routes.bodies import (
    Deliveries,
    EverySessionsQuery,
    NewMessage,
    NewSession,
    OpenQuestion,
    QuestionAnswer,
    SessionsPage,
    SessionsQuery,
    Stopped,
    Submitted,
)
from chatlane_console.routes.callers import (
    RequestId,
    SignedIn,
    State,
    all_conversations,
    own_conversations,
    person_of,
)
from chatlane_console.routes.files import files_of
from chatlane_schemas.session_api.sessions import SessionOrder, SessionView

ORIGIN = "console"

own_list_router = APIRouter()
every_list_router = APIRouter()


def session_routes(reach: Callable[..., Conversations]) -> APIRouter:
    """Return the routes of sessions.

    Args:
        reach: Dependency that returns the requests of the caller.
    """
    router = APIRouter()
    for routes in (_session_routes, _turn_routes):
        router.include_router(routes(reach))
    return router


@own_list_router.get("/sessions", summary="List sessions")
async def list_sessions(
    conversations: Annotated[Conversations, Depends(own_conversations)],
    wanted: Annotated[SessionsQuery, Query()],
) -> SessionsPage:
    """Return a page of sessions that match all given filters.

    A session with the access `member` is a shared one of a room that the person is a member of.

    By activity, a session that gets a message between two pages moves to the front.
    """
    return await _page(conversations, wanted, with_rooms=True)


@every_list_router.get("/sessions", summary="List sessions")
async def list_every_session(
    conversations: Annotated[Conversations, Depends(all_conversations)],
    state: State,
    wanted: Annotated[EverySessionsQuery, Query()],
) -> SessionsPage:
    """Return a page of sessions of everybody, or of one person, that match all given filters.

    By activity, a session that gets a message between two pages moves to the front.
    """
    if wanted.person is not None:
        conversations = state.conversations_for(person_of(state, wanted.person))
    return await _page(conversations, wanted, with_rooms=False)


async def _page(
    conversations: Conversations, wanted: SessionsQuery, *, with_rooms: bool
) -> SessionsPage:
    given = wanted.model_dump(include=set(SessionsQuery.model_fields) - {"order"})
    order = None if wanted.order is SessionOrder.STARTED else wanted.order
    reply = await conversations.pages.sessions(order=order, with_rooms=with_rooms, **given)
    return SessionsPage(sessions=reply.sessions, next_cursor=reply.next_cursor)


def _session_routes(reach: Callable[..., Conversations]) -> APIRouter:
    router = APIRouter()
    reached = Annotated[Conversations, Depends(reach)]

    @router.post("/sessions", status_code=HTTPStatus.CREATED, summary="Open a session")
    async def create_session(
        conversations: reached, body: NewSession, request_id: RequestId, response: Response
    ) -> SessionView:
        """Open a session without a chat."""
        session = await conversations.sessions.create(
            origin=ORIGIN,
            profile=body.profile,
            cwd=body.cwd,
            model=body.model,
            config=body.config,
            request_id=request_id,
        )
        return tagged(response, session)

    @router.get("/sessions/{session_id}", summary="Get a session")
    async def get_session(
        conversations: reached, session_id: UUID, response: Response, *, whole_chain: bool = False
    ) -> SessionView:
        """Return a session; its `ETag` is the value for `If-Match` of a change."""
        session = await conversations.sessions.get(
            session_id, whole_chain=whole_chain, with_rooms=True
        )
        return tagged(response, session)

    return router


def _turn_routes(reach: Callable[..., Conversations]) -> APIRouter:
    router = APIRouter()
    reached = Annotated[Conversations, Depends(reach)]

    @router.post(
        "/sessions/{session_id}/messages",
        status_code=HTTPStatus.ACCEPTED,
        summary="Submit a message",
    )
    async def submit_message(
        conversations: reached,
        session_id: UUID,
        body: NewMessage,
        *,
        visitor: SignedIn,
        request_id: RequestId,
        state: State,
    ) -> Submitted:
        """Submit a message; it is queued like a message of a chat.

        If the running turn has an open question that the text answers, it is the answer.
        """
        # Without files there need not be a store.
        attachments = [
            files_of(state).attachment(visitor.person, receipt) for receipt in body.files
        ]
        done = await conversations.sessions.submit(
            session_id, body.text, attachments=attachments, request_id=request_id
        )
        await state.feeds.tell(session_id, "session.changed")
        return Submitted(
            session_id=done.session.id, message_id=done.message_id, turn_id=done.turn_id
        )

    @router.post("/sessions/{session_id}/stop", summary="Stop the running turn")
    async def stop_turn(
        conversations: reached, session_id: UUID, request_id: RequestId, state: State
    ) -> Stopped:
        """Stop the running turn and drop pending messages; the session stays open."""
        reply = await conversations.sessions.stop(session_id, request_id=request_id)
        await state.feeds.tell(session_id, "session.changed")
        return Stopped(turn_id=reply.turn_id, was_running=reply.was_running, dropped=reply.dropped)

    @router.get("/sessions/{session_id}/question", summary="Get the open question")
    async def get_question(conversations: reached, session_id: UUID) -> OpenQuestion:
        """Return the open question of the running turn, if there is one."""
        return OpenQuestion(question=await conversations.sessions.question(session_id))

    @router.post(
        "/sessions/{session_id}/question",
        status_code=HTTPStatus.NO_CONTENT,
        summary="Answer the open question",
    )
    async def answer_question(
        conversations: reached,
        session_id: UUID,
        body: QuestionAnswer,
        request_id: RequestId,
        state: State,
    ) -> None:
        """Answer the open question; the first answer counts."""
        await conversations.sessions.reply(
            session_id, body.question_id, body.value, values=body.values, request_id=request_id
        )
        await state.feeds.tell(session_id, "session.changed")

    @router.get("/sessions/{session_id}/deliveries", summary="List deliveries")
    async def list_deliveries(conversations: reached, session_id: UUID) -> Deliveries:
        """Return the deliveries of the newest messages that the agent sent to a chat."""
        return Deliveries(deliveries=await conversations.sessions.deliveries(session_id))

    return router


def tagged(response: Response, session: SessionView) -> SessionView:
    """Return a session, and give the response its version as `ETag`."""
    if session.version is not None:
        response.headers["ETag"] = f'"{session.version}"'
    return session
