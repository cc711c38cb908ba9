"""The state of a running endpoint: its connection, keys, and the answers that it follows."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from chatlane_bridges.answers.answer_streams import AnswerStream, Place
from chatlane_bridges.answers.person_service import PersonService
from chatlane_bridges.openai.asks import Ask
from chatlane_bridges.openai.conversation_finder import ConversationFinder
from chatlane_bridges.openai.keys import Caller, Keys
from chatlane_bridges.openai.problems import unavailable
from chatlane_bridges.openai.settings import Declarations, OpenAiSettings
from chatlane_client import Submission

if TYPE_CHECKING:
    from nats.aio.client import Client

# A start that waits longer would not notice that it is to be stopped.
_CONNECTED_WITHIN: Final = timedelta(seconds=5)


class BridgeState:
    """The parts of the process that routes use.

    Attributes:
        models: Ids of the declared models.
    """

    def __init__(self, settings: OpenAiSettings, declared: Declarations) -> None:
        """Create it; `open` connects it.

        Raises:
            OSError: A file with a token cannot be read.
            ValueError: A token cannot be used.
        """
        self.settings = settings
        self.keys = Keys(declared, settings.platform, settings.account or settings.principal)
        self._is_open = asyncio.Event()
        self._client: Client | None = None
        self._following: set[AnswerStream] = set()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Stay connected for the length of the block; without NATS routes answer 503."""
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
        async with self.settings.connection("openai bridge") as client:
            self._client = client
            self._is_open.set()
            await asyncio.Event().wait()

    @property
    def is_ready(self) -> bool:
        """Return whether the process is connected to NATS."""
        return self._client is not None and self._client.is_connected

    def service_of(self, caller: Caller) -> PersonService:
        """Return the service for the person of a request.

        Raises:
            ApiProblem: NATS was not reached yet.
        """
        if self._client is None:
            raise unavailable()
        return PersonService(self._client, self.settings.principal, caller.person)

    async def answer(self, caller: Caller, ask: Ask) -> AnswerStream:
        """Submit the words of a request, and return their answer while it comes.

        Raises:
            ApiProblem: The request cannot be carried out.
            ChatlaneClientError: The service has refused it, or does not answer.
        """
        service = self.service_of(caller)
        finder = ConversationFinder(service, caller.model(ask.model))

        async def find() -> Place:
            return await finder.find(ask)

        about = (caller.person.model_dump_json(), repr((ask.session_id or ask.previous, ask.name)))
        return await self._started(service, find, ask.words, "\0".join(about))

    async def follow(self, caller: Caller, submission: Submission) -> AnswerStream:
        """Return the answer to words that were submitted before, while it comes."""

        async def find() -> Place:
            return Place(submission.session, joined=submission)

        return await self._started(self.service_of(caller), find, "", str(submission.message_id))

    async def _started(
        self, service: PersonService, find: Callable[[], Awaitable[Place]], words: str, about: str
    ) -> AnswerStream:
        lock = self._turns.setdefault(about, asyncio.Lock())
        stream = AnswerStream(service)
        await stream.start(find, words, lock)
        self._following.add(stream)
        stream.task.add_done_callback(lambda _: self._following.discard(stream))
        return stream
