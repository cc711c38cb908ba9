"""Handle requests that change something: the model of each, and the service that decides it."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from chatlane_schemas.envelope import Envelope
from chatlane_schemas.session_api.session_changes import (
    SessionArchive,
    SessionChange,
    SessionEnd,
    SessionFork,
    SessionReopen,
    SessionReset,
    SessionStop,
    SessionSwitch,
    SessionTitle,
    SessionUpdate,
)
from chatlane_schemas.session_api.session_life import (
    SessionHold,
    SessionMark,
    SessionNote,
    SessionOverride,
    SessionRelease,
    SessionSuspend,
    SessionUnmark,
)
from chatlane_schemas.session_api.session_openings import SessionCreate, SessionSubmit
from chatlane_schemas.session_api.session_sweeps import SessionCleanup, SessionPrune, SessionRemove
from chatlane_schemas.session_api.transcripts import (
    TranscriptAppend,
    TranscriptChange,
    TranscriptCompact,
    TranscriptReplace,
    TranscriptRetry,
    TranscriptRewind,
)
from chatlane_schemas.turns import TurnCancel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from chatlane.api.api_request import ApiRequest, Handle
    from chatlane.api.endpoint import RequestHandler

RequestT = TypeVar("RequestT", bound=Envelope)

SESSION_CHANGES: Final[Mapping[str, type[SessionChange | SessionCreate]]] = MappingProxyType(
    {
        "session.create": SessionCreate,
        "session.submit": SessionSubmit,
        "session.remove": SessionRemove,
        "session.update": SessionUpdate,
        "session.title": SessionTitle,
        "session.archive": SessionArchive,
        "session.end": SessionEnd,
        "session.reopen": SessionReopen,
        "session.reset": SessionReset,
        "session.switch": SessionSwitch,
        "session.fork": SessionFork,
        "session.suspend": SessionSuspend,
        "session.mark": SessionMark,
        "session.unmark": SessionUnmark,
        "session.hold": SessionHold,
        "session.release": SessionRelease,
        "session.override": SessionOverride,
        "session.note": SessionNote,
    }
)
SESSION_SWEEPS: Final[Mapping[str, type[SessionPrune | SessionCleanup]]] = MappingProxyType(
    {"session.prune": SessionPrune, "session.cleanup": SessionCleanup}
)
STOPS: Final[Mapping[str, type[SessionStop | TurnCancel]]] = MappingProxyType(
    {"session.stop": SessionStop, "turn.cancel": TurnCancel}
)
TRANSCRIPT_CHANGES: Final[Mapping[str, type[TranscriptChange]]] = MappingProxyType(
    {
        "transcript.append": TranscriptAppend,
        "transcript.replace": TranscriptReplace,
        "transcript.compact": TranscriptCompact,
        "transcript.rewind": TranscriptRewind,
        "transcript.retry": TranscriptRetry,
    }
)


class ChangeHandlers(Generic[RequestT]):
    """Handles the requests of one table.

    Args:
        models: The model of each request, by method.
        decide: Makes the change once and returns the reply, given the principal, the request and
            its digest. A repeated request gets the first reply.
        answering: Decodes requests and encodes replies.
    """

    def __init__(
        self,
        models: Mapping[str, type[RequestT]],
        decide: Callable[[str, RequestT, bytes], Awaitable[Envelope]],
        request_handler: RequestHandler,
    ) -> None:
        self._models = models
        self._decide = decide
        self._request_handler = request_handler

    def requests(self) -> dict[str, Handle]:
        """Return the handler of each request."""
        return {method: partial(self._answer, method) for method in self._models}

    async def _answer(self, method: str, asked: ApiRequest) -> bytes:
        model = self._models[method]
        return await self._request_handler.answer_once(method, model, asked, self._decide)
