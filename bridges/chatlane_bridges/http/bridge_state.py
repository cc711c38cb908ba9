"""The state of a running server: its connection, and the answers that it follows."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from chatlane_bridges.answers.answer_streams import AnswerStream, Place
from chatlane_bridges.answers.front_ends import FrontEndInput
from chatlane_bridges.answers.person_service import PersonService
from chatlane_bridges.http.problems import unavailable
from chatlane_bridges.http.settings import HttpSettings
from chatlane_schemas.session_api.people import Person

if TYPE_CHECKING:
    from nats.aio.client import Client

# A start that waits longer would not notice that it is to be stopped.
_CONNECTED_WITHIN: Final = timedelta(seconds=5)


class BridgeState:
    """The parts of the process that requests use."""

    def __init__(self, settings: HttpSettings, *, has_questions: bool = True) -> None:
        """Create it; `open` connects it.

        Args:
            settings: Settings of the server.
            has_questions: Whether a question at the end of an answer is part of its text.
        """
        self._settings = settings
        self._has_questions = has_questions
        self._is_open = asyncio.Event()
        self._client: Client | None = None
        self._following: set[AnswerStream] = set()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Stay connected for the length of the block; without NATS requests get 503."""
        connecting = asyncio.create_task(self._stay_connected())
        connected = asyncio.create_task(self._is_open.wait())
        try:
            await asyncio.wait(
                {connecting, connected},
                timeout=_CONNECTED_WITHIN.total_seconds(),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if connecting.done():
                connecting.result()
            yield
        finally:
            ending = [*self._following]
            for stream in ending:
                stream.leave()
            connected.cancel()
            tasks = (stream.task for stream in ending)
            await asyncio.gather(connected, *tasks, return_exceptions=True)
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)

    async def _stay_connected(self) -> None:
        async with self._settings.connection(f"{self._settings.principal} bridge") as client:
            self._client = client
            self._is_open.set()
            await asyncio.Event().wait()

    @property
    def is_ready(self) -> bool:
        """Return whether the process is connected to NATS."""
        return self._client is not None and self._client.is_connected

    def service_for(self, person: Person) -> PersonService:
        """Return the service for a person.

        Raises:
            ApiProblem: NATS was not reached yet.
        """
        if self._client is None:
            raise unavailable()
        return PersonService(self._client, self._settings.principal, person)

    async def started(
        self,
        service: PersonService,
        find: Callable[[], Awaitable[Place]],
        words: str,
        about: str,
        front_end: FrontEndInput | None = None,
    ) -> AnswerStream:
        """Submit words, and return their answer while it comes.

        Args:
            service: The service for the person.
            find: Returns the place of the words.
            words: The words.
            about: Their conversation: requests about the same are submitted one after the other.
            front_end: The front end that runs tools.

        Raises:
            ApiProblem: The request cannot be carried out.
            ChatlaneClientError: The service has refused it, or does not answer.
        """
        lock = self._turns.setdefault(about, asyncio.Lock())
        stream = AnswerStream(service, has_questions=self._has_questions, front_end=front_end)
        await stream.start(find, words, lock)
        self._following.add(stream)
        stream.task.add_done_callback(lambda _: self._following.discard(stream))
        return stream
