"""Follow each request for an answer in its own task, which outlives a cancelled response."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Final

from chatlane_bridges.answers.answer_follower import Answer, AnswerFollower, PutQuestion
from chatlane_bridges.answers.answer_steps import NewState, Step
from chatlane_bridges.answers.front_ends import FrontEndInput
from chatlane_bridges.answers.person_service import PersonService
from chatlane_client import ChatlaneClientError, Submission
from chatlane_schemas.inbound import Attachment
from chatlane_schemas.session_api.sessions import SessionView

_log: Final = logging.getLogger("chatlane_bridges")


@dataclass(frozen=True, slots=True)
class Place:
    """The place where words are submitted, or were submitted before.

    Attributes:
        session: The session.
        after_seq: Place of a row before the words.
        request_id: Id of the request that submits them; the same for a repeated one.
        joined: The message of an earlier request that has these words.
        attachments: Files that are submitted with the words.
    """

    session: SessionView
    after_seq: int = 0
    request_id: str | None = None
    joined: Submission | None = None
    attachments: tuple[Attachment, ...] = ()


class AnswerStream:
    """The answer to one request: its parts as they come, then the whole.

    Attributes:
        task: The task that follows the turn, once `start` was called.
        submission: The message that is answered, once `start` has returned.
    """

    task: asyncio.Task[None]
    submission: Submission

    def __init__(
        self,
        service: PersonService,
        put: PutQuestion | None = None,
        *,
        has_questions: bool = True,
        front_end: FrontEndInput | None = None,
    ) -> None:
        """Create it for the person of a service.

        Args:
            service: The service.
            put: Puts questions of the turn to the person.
            has_questions: Whether a question at the end is part of the text.
            front_end: The front end that runs tools.
        """
        self._has_questions = has_questions
        self._front_end = front_end
        self._service = service
        self._put = put
        self._parts: asyncio.Queue[str | Step | Answer | Exception] = asyncio.Queue()
        self._started: asyncio.Future[Submission] = asyncio.get_running_loop().create_future()

    async def start(
        self, find: Callable[[], Awaitable[Place]], words: str, turn: asyncio.Lock
    ) -> None:
        """Submit words and return when the service has them; or follow what was submitted before.

        Args:
            find: Returns their place.
            words: The words.
            turn: Lock of the conversation, held until the service has them.

        Raises:
            Exception: Why it has not.
        """
        self.task = asyncio.create_task(self._run(find, words, turn))
        try:
            self.submission = await asyncio.shield(self._started)
        except asyncio.CancelledError:
            self.leave()
            raise

    def leave(self) -> None:
        """Stop following; the turn goes on."""
        self.task.cancel()

    async def parts(self) -> AsyncIterator[str | Answer]:
        """Yield parts of the text, then the whole answer.

        Raises:
            Exception: Why there is none.
        """
        async with aclosing(self.parts_and_steps()) as parts:
            async for part in parts:
                if isinstance(part, str | Answer):
                    yield part

    async def parts_and_steps(self) -> AsyncGenerator[str | Step | Answer]:
        """Yield parts of the text, thoughts and tool calls, then the whole answer.

        Raises:
            Exception: Why there is none.
        """
        try:
            while True:
                part = await self._parts.get()
                if isinstance(part, Exception):
                    raise part
                yield part
                if isinstance(part, Answer):
                    return
        finally:
            self.leave()

    async def confirm(self, state: NewState) -> None:
        """Tell the turn that the client has a new state."""
        sessions, session_id = self._service.sessions, self.submission.session.id
        try:
            await sessions.reply(session_id, state.question_id, "")
        except ChatlaneClientError as exc:
            # Another client of the person was faster, its time is over, or its attempt has ended.
            _log.info("state_not_confirmed", extra={"error": type(exc).__name__})

    async def whole(self) -> Answer:
        """Return the whole answer.

        Raises:
            Exception: Why there is none.
        """
        async for part in self.parts():
            if isinstance(part, Answer):
                return part
        raise AssertionError("parts end with the answer")

    async def _run(
        self, find: Callable[[], Awaitable[Place]], words: str, turn: asyncio.Lock
    ) -> None:
        sessions = self._service.sessions
        try:
            async with AsyncExitStack() as stack:
                async with turn:
                    place = await find()
                    # Before the words, so that no piece of the answer is missed.
                    updates = await stack.enter_async_context(sessions.watch(place.session.id))
                    submission = place.joined or await sessions.submit(
                        place.session.id,
                        words,
                        attachments=place.attachments,
                        front_end=None if self._front_end is None else self._front_end.given,
                        request_id=place.request_id,
                    )
                follower = AnswerFollower(
                    self._service,
                    submission,
                    place.after_seq,
                    self._put,
                    has_questions=self._has_questions,
                    front_end=self._front_end,
                )
                self._started.set_result(submission)
                self._parts.put_nowait(await follower.run(updates, self._parts.put_nowait))
        except Exception as exc:  # noqa: BLE001 - the request tells it
            if self._started.done():
                self._parts.put_nowait(exc)
            else:
                self._started.set_exception(exc)
