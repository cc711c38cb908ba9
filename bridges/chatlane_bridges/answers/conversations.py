"""Sessions of conversations whose messages have ids of their own."""

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Final
from uuid import UUID

from chatlane_bridges.answers.answer_streams import Place
from chatlane_bridges.answers.person_service import PersonService
from chatlane_bridges.http.declared_agents import DeclaredAgent
from chatlane_bridges.http.problems import invalid
from chatlane_schemas.session_api.sessions import SessionOrder, SessionView

# The names of the default profile.
_MAIN: Final = frozenset({"default", "main"})


class Conversations:
    """Finds and opens the conversations of one person with one agent.

    A message with an id is submitted once, however often it is sent.
    """

    def __init__(self, service: PersonService, agent: DeclaredAgent, origin: str) -> None:
        self._service = service
        self._agent = agent
        self._origin = origin

    def opened_for(self, message_id: str) -> Callable[[], Awaitable[Place]]:
        """Return the place of a message that begins a conversation."""

        async def find() -> Place:
            return self._place(await self._create(message_id), message_id)

        return find

    def by_id(self, session_id: UUID, message_id: str) -> Callable[[], Awaitable[Place]]:
        """Return the place of a message in a session.

        Raises (when it is called):
            SessionNotFoundError: The person has no such session.
            ApiProblem: It is one of another agent.
        """

        async def find() -> Place:
            return self._place(await self._open(await self._service.tip(session_id)), message_id)

        return find

    def by_name(self, name: str, message_id: str) -> Callable[[], Awaitable[Place]]:
        """Return the place of a message in the conversation to which a client has given a name."""

        async def find() -> Place:
            session = await self.named(name)
            if session is None:
                session = await self._create(name)
                session = await self._service.sessions.label(session.id, [_label(name)])
            return self._place(await self._open(session), message_id)

        return find

    async def named(self, name: str) -> SessionView | None:
        """Return the conversation with a name of the client."""
        label = _label(name)
        page = await self._service.sessions.list_page(
            order=SessionOrder.ACTIVITY,
            limit=1,
            origin=self._origin,
            label=label,
            profile=self._agent.profile,
        )
        for session in page.sessions:
            # A router of an earlier release does not know the filters.
            if label in session.labels:
                return await self._service.tip(session.id)
        return None

    def request_id(self, *about: str) -> str:
        """Return the id of a request, the same for a repeated one; no other person gets it."""
        person = self._service.person.model_dump_json()
        return sha256("\0".join((self._origin, person, *about)).encode()).hexdigest()

    async def _create(self, name: str) -> SessionView:
        session = await self._service.sessions.create(
            origin=self._origin,
            profile=self._agent.profile,
            model=self._agent.model,
            request_id=self.request_id("create", self._agent.profile, name),
        )
        return await self._service.tip(session.id)

    async def _open(self, session: SessionView) -> SessionView:
        names = _MAIN if self._agent.profile in _MAIN else {self._agent.profile}
        if session.profile is not None and session.profile not in names:
            raise invalid("The conversation is one of another agent.")
        if session.ended_at is not None or session.is_suspended:
            session = await self._service.sessions.reopen(session.id)
        return session

    def _place(self, session: SessionView, message_id: str) -> Place:
        return Place(session, 0, self.request_id("submit", str(session.id), message_id))


def _label(name: str) -> str:
    return f"conversation {sha256(name.encode()).hexdigest()[:16]}"
