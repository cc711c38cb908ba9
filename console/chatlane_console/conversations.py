"""Requests to the service for one caller: sessions, transcripts, and pages of both."""

from datetime import timedelta
from typing import Any, Final, TypedDict
from uuid import UUID

from nats.aio.client import Client

from chatlane_client import ProjectApi, SessionApi, TranscriptApi
from chatlane_client.api.requests import Api
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.person_state import (
    Erasure,
    PersonErase,
    PersonErasure,
    PersonErasureReply,
)
from chatlane_schemas.session_api.sessions import SessionList, SessionListReply
from chatlane_schemas.session_api.transcripts import (
    TranscriptHits,
    TranscriptLoad,
    TranscriptRemoved,
    TranscriptRemovedReply,
    TranscriptReply,
    TranscriptRevisions,
    TranscriptRevisionsReply,
    TranscriptSearch,
)

PATIENCE: Final = timedelta(seconds=8)
"""How long the console repeats a request: shorter than browsers and proxies wait."""


class _Rights(TypedDict):
    principal: str
    acting_for: Person | None
    is_operator: bool
    patience: timedelta


class PageApi(Api):
    """Reads single pages, whose cursors the caller of the HTTP API keeps."""

    async def sessions(self, **wanted: Any) -> SessionListReply:  # noqa: ANN401 - fields of the request
        """Return a page of sessions; takes the fields of `SessionList`."""
        request = SessionList(**self._stamp(), **wanted)
        return await self._ask("session", "list", request, SessionListReply)

    async def rows(self, session_id: UUID, **wanted: Any) -> TranscriptReply:  # noqa: ANN401 - fields of the request
        """Return a page of a transcript; takes the fields of `TranscriptLoad`."""
        request = TranscriptLoad(**self._stamp(), session_id=session_id, **wanted)
        return await self._ask("transcript", "load", request, TranscriptReply)

    async def hits(self, query: str, **wanted: Any) -> TranscriptHits:  # noqa: ANN401 - fields of the request
        """Return a page of rows that match a query; takes the fields of `TranscriptSearch`."""
        request = TranscriptSearch(**self._stamp(), query=query, **wanted)
        return await self._ask("transcript", "search", request, TranscriptHits)

    async def removed(self, session_id: UUID, **wanted: Any) -> TranscriptRemovedReply:  # noqa: ANN401 - fields of the request
        """Return a page of removed rows; takes the fields of `TranscriptRemoved`."""
        request = TranscriptRemoved(**self._stamp(), session_id=session_id, **wanted)
        return await self._ask("transcript", "removed", request, TranscriptRemovedReply)

    async def revisions(
        self,
        session_id: UUID,
        seq: int,
        **wanted: Any,  # noqa: ANN401 - fields of the request
    ) -> TranscriptRevisionsReply:
        """Return earlier texts of a row; takes the fields of `TranscriptRevisions`."""
        request = TranscriptRevisions(**self._stamp(), session_id=session_id, seq=seq, **wanted)
        return await self._ask("transcript", "revisions", request, TranscriptRevisionsReply)


class PersonApi(Api):
    """Asks for the erasure of the person that it acts for."""

    async def erase(self, *, request_id: str | None = None) -> Erasure:
        """Ask for the erasure of all data of the person; an open request is returned again."""
        return await self._erasure("erase", PersonErase(**self._stamp(request_id)))

    async def erasure(self, erasure_id: UUID) -> Erasure:
        """Return a requested erasure.

        Raises:
            SessionNotFoundError: There is none with this id.
        """
        return await self._erasure("erasure", PersonErasure(**self._stamp(), erasure_id=erasure_id))

    async def _erasure(self, verb: str, request: PersonErase | PersonErasure) -> Erasure:
        reply = await self._ask("person", verb, request, PersonErasureReply)
        if reply.erasure is None:
            raise self._incomplete("person", verb, "no erasure")
        return reply.erasure


class Conversations:
    """The requests of one caller: of a person to the own sessions, of an operator to all."""

    def __init__(
        self, client: Client, *, principal: str, person: Person | None, is_operator: bool = False
    ) -> None:
        """Create the requests.

        Args:
            client: An open connection.
            principal: The name that the connection's permissions allow in requests.
            person: The person whose sessions are reached; None for all, as an operator.
            is_operator: Whether an operator makes the requests for the person.
        """
        self.caller = "operator" if person is None else person.model_dump_json()
        rights = _Rights(
            principal=principal,
            acting_for=person,
            is_operator=person is None or is_operator,
            patience=PATIENCE,
        )
        self.sessions = SessionApi(client, **rights)
        self.transcripts = TranscriptApi(client, **rights)
        self.projects = ProjectApi(client, **rights)
        self.people = PersonApi(client, **rights)
        self.pages = PageApi(client, **rights)
