"""The state of a running endpoint."""

from chatlane_bridges.answers.answer_streams import AnswerStream, Place
from chatlane_bridges.answers.person_service import PersonService
from chatlane_bridges.http.bridge_state import BridgeState
from chatlane_bridges.openai.asks import Ask
from chatlane_bridges.openai.conversation_finder import ConversationFinder
from chatlane_bridges.openai.keys import Caller, Keys
from chatlane_bridges.openai.settings import Declarations, OpenAiSettings
from chatlane_client import Submission


class EndpointState(BridgeState):
    """The parts of the process that routes use."""

    def __init__(self, settings: OpenAiSettings, declared: Declarations) -> None:
        """Create it; `open` connects it.

        Raises:
            OSError: A file with a token cannot be read.
            ValueError: A token cannot be used.
        """
        super().__init__(settings)
        self.settings = settings
        self.keys = Keys(declared, settings)

    def service_of(self, caller: Caller) -> PersonService:
        """Return the service for the person of a request.

        Raises:
            ApiProblem: NATS was not reached yet.
        """
        return self.service_for(caller.person)

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
        return await self.started(service, find, ask.words, "\0".join(about))

    async def follow(self, caller: Caller, submission: Submission) -> AnswerStream:
        """Return the answer to words that were submitted before, while it comes."""

        async def find() -> Place:
            return Place(submission.session, joined=submission)

        return await self.started(self.service_of(caller), find, "", str(submission.message_id))
