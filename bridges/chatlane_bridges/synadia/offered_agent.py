"""An agent of chatlane as callers on NATS find it: a durable conversation behind a prompt."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from mimetypes import guess_type
from typing import Final
from weakref import WeakValueDictionary

from nats.aio.client import Client
from obstore.exceptions import BaseError
from synadia_ai.agent_service import (
    AgentService,
    CallNext,
    PromptStream,
    RequestInterceptorContext,
    RequestRejectedError,
)
from synadia_ai.agents import (
    Attachment,
    Envelope,
    QueryTimeout,
    ResponseChunk,
    VerifiedSender,
)

from chatlane_bridges.answers.answer_follower import Answer
from chatlane_bridges.answers.answer_streams import AnswerStream, Place
from chatlane_bridges.answers.person_service import PersonService
from chatlane_bridges.synadia.queries import replies_to
from chatlane_bridges.synadia.settings import ORIGIN, DeclaredAgent, OfferSettings
from chatlane_client import (
    ChatlaneClientError,
    ConflictingRequestError,
    RefusedRequestError,
    SessionNotFoundError,
    Submission,
)
from chatlane_client.frameworks.shared.files import load_file
from chatlane_client.frameworks.shared.options import TurnOptions
from chatlane_client.media.store import MediaRefusedError, MediaStore, chat_folder
from chatlane_schemas import Attachment as StoredFile
from chatlane_schemas import new_envelope_id
from chatlane_schemas.inbound import MAX_ATTACHMENTS
from chatlane_schemas.live_turns import TurnOutcome
from chatlane_schemas.questions import OpenQuestionView
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.sessions import SessionOrder, SessionView

_MESSAGE_ID: Final = "Nats-Msg-Id"
# A chunk is far below the largest message of a NATS server.
_CHUNK_CHARACTERS: Final = 64 * 1024
_MAX_FILE_BYTES: Final = 512 * 1024
_UNKNOWN: Final = "application/octet-stream"
_message_id: ContextVar[str | None] = ContextVar("message_id", default=None)


class OfferedAgent:
    """Answers the prompts for one declared agent."""

    def __init__(
        self,
        client: Client,
        settings: OfferSettings,
        name: str,
        declared: DeclaredAgent,
        store: MediaStore | None,
    ) -> None:
        """Create it; without a store for their files, callers attach none."""
        self._client = client
        self._store = store
        self._settings = settings
        self._name = name
        self._declared = declared
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def offered(self, bus: Client) -> AsyncIterator[None]:
        """Register the agent for the length of the block."""
        service = AgentService(
            agent=self._settings.host,
            owner=self._settings.owner,
            session_name=self._name,
            nc=bus,
            description=self._declared.description,
            # Messages refer to files, so what a caller attaches needs a store.
            attachments_ok=self._store is not None,
            min_sender_trust="any" if self._declared.person else "signed",
            interceptors=[_MessageIds()],
            max_concurrent_prompts=self._settings.prompts,
        )
        service.on_prompt(self.answer)
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    async def answer(self, envelope: Envelope, stream: PromptStream) -> None:
        """Submit a prompt, and stream the answer of its turn.

        The turn goes on if the caller or this process goes away. A prompt that is repeated with the
        same `Nats-Msg-Id` gets the answer of the first one.

        Raises:
            RequestRejectedError: There is no answer; the text says why.
        """
        person = self._person(stream)
        service = PersonService(self._client, self._settings.principal, person)

        async def put(question: OpenQuestionView) -> None:
            await self._put(service, following.submission, question, stream)

        async def find() -> Place:
            session = await self._session(service)
            key = _message_id.get()
            return Place(
                session,
                request_id=None if key is None else self._id(person, key),
                attachments=await self._files(person, envelope.attachments or ()),
            )

        following = AnswerStream(service, put)
        lock = self._turns.setdefault(person.id, asyncio.Lock())
        try:
            await following.start(find, envelope.prompt, lock)
            async for part in following.parts():
                if isinstance(part, Answer):
                    await self._end(service, following.submission, part, stream)
                    continue
                for chunk in _chunks(part):
                    await stream.send(chunk)
        except RefusedRequestError as exc:
            raise RequestRejectedError(400, exc.message) from None
        except ChatlaneClientError as exc:
            raise RequestRejectedError(503, f"the service is away: {type(exc).__name__}") from None

    async def _files(self, person: Person, sent: Sequence[Attachment]) -> tuple[StoredFile, ...]:
        """Keep the files of a prompt, and return the references to them.

        Raises:
            RequestRejectedError: They are not kept.
        """
        if self._store is None or not sent:
            return ()
        if len(sent) > MAX_ATTACHMENTS:
            raise RequestRejectedError(400, f"a message has at most {MAX_ATTACHMENTS} attachments")
        folder = chat_folder(person.platform, person.account, person.id)
        try:
            return tuple(
                [
                    await self._store.keep(
                        folder,
                        _once(decoded(file)),
                        media_type=guess_type(file.filename)[0] or _UNKNOWN,
                        name=file.filename,
                    )
                    for file in sent
                ]
            )
        except MediaRefusedError as exc:
            raise RequestRejectedError(400, str(exc)) from None
        except BaseError:
            raise RequestRejectedError(503, "the store of files is away") from None

    def _person(self, stream: PromptStream) -> Person:
        sender = stream.sender
        found = self._declared.person
        if found is None:
            if not isinstance(sender, VerifiedSender):
                raise RequestRejectedError(401, "signature required")
            found = sender.id.user
        return Person(
            platform=self._settings.platform,
            account=self._settings.account or self._settings.principal,
            id=found,
        )

    async def _session(self, service: PersonService) -> SessionView:
        """Return the conversation of a person with this agent; open it the first time."""
        sessions, label = service.sessions, f"agent {self._name}"
        page = await sessions.list_page(
            order=SessionOrder.ACTIVITY,
            limit=1,
            origin=ORIGIN,
            label=label,
            profile=self._declared.profile,
            archived=False,
        )
        if page.sessions:
            session = await service.tip(page.sessions[0].id)
            is_over = session.ended_at is not None or session.is_suspended
            return await sessions.reopen(session.id) if is_over else session
        # Two processes that open it at the same time open one.
        opened = await sessions.create(
            origin=ORIGIN,
            profile=self._declared.profile,
            request_id=self._id(service.person, "create"),
        )
        try:
            session = await service.tip(opened.id)
        except SessionNotFoundError:
            # It was deleted since.
            opened = await sessions.create(origin=ORIGIN, profile=self._declared.profile)
            session = await service.tip(opened.id)
        return await sessions.label(session.id, [label])

    async def _put(
        self,
        service: PersonService,
        submission: Submission,
        question: OpenQuestionView,
        stream: PromptStream,
    ) -> None:
        """Ask the caller until an answer is taken; without one the default of the question counts."""
        session_id, problem = submission.session.id, ""
        while True:
            left = (question.due_at - datetime.now(UTC)).total_seconds()
            try:
                value, values = await replies_to(question, stream, problem, max(0.1, left))
            except QueryTimeout:
                return
            try:
                await service.sessions.reply(
                    session_id,
                    question.question_id,
                    value,
                    values=values,
                    request_id=new_envelope_id(),
                )
            except (ConflictingRequestError, SessionNotFoundError):
                return
            except RefusedRequestError as exc:
                problem = exc.message
            else:
                return

    async def _end(
        self, service: PersonService, submission: Submission, answer: Answer, stream: PromptStream
    ) -> None:
        match answer.outcome:
            case TurnOutcome.FAILED:
                raise RequestRejectedError(500, answer.notice or "the turn failed")
            case TurnOutcome.CANCELLED:
                raise RequestRejectedError(409, answer.notice or "the turn was stopped")
            case _:
                pass
        own_turn = None
        for row in await service.rows_since(submission, 0):
            if row.message_id == submission.message_id:
                own_turn = row.turn_id
            elif own_turn is not None and row.turn_id == own_turn:
                for file in row.attachments:
                    loaded = await load_file(file, TurnOptions(max_file_bytes=_MAX_FILE_BYTES))
                    name = file.name or "file"
                    if loaded is None:
                        await stream.send(f"\n[file not sent: {name}]")
                        continue
                    sent = [Attachment.from_bytes(name, loaded.data)]
                    await stream.send(ResponseChunk(text="", attachments=sent))

    def _id(self, person: Person, what: str) -> str:
        """Return an id of a request, which no other person and agent gets."""
        about = (ORIGIN, person.model_dump_json(), self._name, what)
        return hashlib.sha256("\0".join(about).encode()).hexdigest()


class _MessageIds:
    """Notes the message id of a prompt, by which a repeated one is known."""

    async def around_request(self, ctx: RequestInterceptorContext, call_next: CallNext) -> None:
        """Run a request with its id."""
        _message_id.set(ctx.headers.get(_MESSAGE_ID))
        await call_next()


def decoded(file: Attachment) -> bytes:
    """Return the content of a file.

    Raises:
        RequestRejectedError: It is no base64, or has characters that are not ASCII.
    """
    try:
        return file.to_bytes()
    except ValueError:
        raise RequestRejectedError(400, "an attachment is no base64") from None


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _chunks(text: str) -> Iterator[str]:
    for start in range(0, len(text), _CHUNK_CHARACTERS):
        yield text[start : start + _CHUNK_CHARACTERS]
