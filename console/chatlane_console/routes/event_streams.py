"""Server-sent events of the sessions that a browser shows."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Header
from sse_starlette import EventSourceResponse, ServerSentEvent

from chatlane_console.conversations import Conversations
from chatlane_console.live.feeds import Attached
from chatlane_console.routes.callers import SignedIn, State

_PING_SECONDS = 15
_SEND_SECONDS = 30.0


class _EventStream(EventSourceResponse):
    media_type: str | None = "text/event-stream"


def event_routes(reach: Callable[..., Conversations]) -> APIRouter:
    """Return the routes of event streams.

    Args:
        reach: Dependency that returns the requests of the caller.
    """
    router = APIRouter()
    reached = Annotated[Conversations, Depends(reach)]

    @router.get(
        "/sessions/{session_id}/events",
        summary="Follow a session",
        response_class=_EventStream,
    )
    async def follow_session(
        conversations: reached,
        session_id: UUID,
        visitor: SignedIn,
        state: State,
        last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", max_length=100)] = None,
    ) -> EventSourceResponse:
        """Return the events of a session from now on, as server-sent events.

        The first one is `ready`, or `resync` if events since `Last-Event-ID` were lost: then read
        the session and its rows again. `turn.started`, `turn.piece`, `turn.recap`, `turn.asked`,
        `turn.answered`, `turn.waiting` and `turn.ended` have the fields of the contract.
        `session.changed` and `session.ended` are hints to read again. `gone` says that the session
        is not there any more.
        """
        attached = await state.feeds.attach(conversations, session_id, last_event_id)
        events = _events(attached, is_new=last_event_id is None, until=visitor.expires_at)
        return EventSourceResponse(events, ping=_PING_SECONDS, send_timeout=_SEND_SECONDS)

    return router


async def _events(
    attached: Attached, *, is_new: bool, until: datetime
) -> AsyncIterator[ServerSentEvent]:
    """Yield the events of a feed until the sign-in ends."""
    feed = attached.feed
    if not attached.is_resumed:
        first = "ready" if is_new else "resync"
        yield ServerSentEvent("{}", event=first, id=f"{feed.id}-{attached.after}", retry=1000)
    remaining = (until - datetime.now(UTC)).total_seconds()
    try:
        async with asyncio.timeout(max(0.0, remaining)):
            async for event in feed.events(attached.after):
                yield ServerSentEvent(event.data, event=event.name, id=event.id)
    except TimeoutError:
        return
