"""The ASGI application of the endpoint: an address for each agent, to which a run is posted."""

from collections.abc import AsyncIterator
from typing import Final
from uuid import UUID

from ag_ui.core import BaseEvent, RunAgentInput, TextPart, UserMessage
from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.responses import Response

from chatlane_bridges.ag_ui.front_end_input import (
    given_by,
    going_on,
    leave_call,
    place_of_call,
    turn_of_results,
)
from chatlane_bridges.ag_ui.interrupts import Asked, answer, asked_by
from chatlane_bridges.ag_ui.run_events import RunEvents
from chatlane_bridges.ag_ui.settings import ORIGIN, AgUiSettings
from chatlane_bridges.answers.answer_follower import Answer
from chatlane_bridges.answers.answer_steps import NewState
from chatlane_bridges.answers.answer_streams import AnswerStream, Place
from chatlane_bridges.answers.conversations import Conversations
from chatlane_bridges.answers.front_ends import FrontEndInput
from chatlane_bridges.answers.person_service import PersonService
from chatlane_bridges.http.application import new_app, read_bytes
from chatlane_bridges.http.bridge_state import BridgeState
from chatlane_bridges.http.declared_agents import AgentCaller, AgentCallers, AgentDeclarations
from chatlane_bridges.http.problems import invalid, problem_of
from chatlane_client import Submission

PING_SECONDS: Final = 15
# The client of the protocol knows no other end of a line.
_SEPARATOR: Final = "\n"


def create_app(settings: AgUiSettings, declared: AgentDeclarations) -> FastAPI:
    """Return the application; it connects to NATS when it starts.

    Raises:
        OSError: A file with a token cannot be read.
        ValueError: A token cannot be used.
    """
    state = BridgeState(settings, has_questions=False)
    callers = AgentCallers(declared, settings)
    app = new_app("chatlane ag-ui", state)

    async def run(name: str, request: Request) -> Response:
        caller = callers.find(request.headers, name)
        body = await read_bytes(request, settings.max_body_bytes)
        run_input = RunAgentInput.model_validate_json(body)
        events = _events(run_input, await _started(state, caller, run_input))
        return EventSourceResponse(_sent(events), ping=PING_SECONDS, sep=_SEPARATOR)

    app.add_api_route("/agents/{name}", run, methods=["POST"], response_model=None)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=[origin.strip() for origin in settings.allowed_origins.split(",")],
            allow_methods=["POST"],
            allow_headers=["*"],
        )
    return app


async def _started(
    state: BridgeState, caller: AgentCaller, run_input: RunAgentInput
) -> AnswerStream | None:
    """Start what a run asks for; return its answer, or None if it only stops what is there."""
    service = state.service_for(caller.person)
    conversations = Conversations(service, caller.agent, ORIGIN)
    about = f"{caller.person.model_dump_json()} {caller.name} {run_input.thread_id}"
    front_end = FrontEndInput(given_by(run_input))
    if not run_input.resume:
        turn_id = turn_of_results(run_input.messages)
        if turn_id is not None:

            async def find_call() -> Place:
                return await place_of_call(service, conversations, run_input.thread_id, turn_id)

            front_end = going_on(run_input.messages)
            return await state.started(service, find_call, "", about, front_end)
        words, key = _last_words(run_input)
        await leave_call(service, conversations, run_input)
        named = conversations.by_name(run_input.thread_id, key)
        return await state.started(service, named, words, about, front_end)
    entry, question = asked_by(run_input.resume)
    if entry.status == "cancelled":
        await _stop(service, conversations, run_input.thread_id, question)
        if not run_input.messages or not isinstance(run_input.messages[-1], UserMessage):
            return None
        stream = await _started(state, caller, run_input.model_copy(update={"resume": None}))
        if stream is None or not await _is_of(service, stream.submission, question.turn_id):
            return stream
        # The person has said nothing since.
        stream.leave()
        return None

    async def find() -> Place:
        session = await conversations.named(run_input.thread_id)
        if session is None:
            raise invalid("The thread has no interrupt.", "resume")
        key = conversations.request_id("reply", entry.interrupt_id, run_input.run_id)
        return await answer(service, session, entry, question, key)

    return await state.started(service, find, "", about, front_end)


async def _stop(
    service: PersonService, conversations: Conversations, thread_id: str, interrupt: Asked
) -> None:
    """Stop the turn of a question that the person does not answer, if it is still open."""
    session = await conversations.named(thread_id)
    question = None if session is None else await service.sessions.question(session.id)
    if question is not None and question.question_id == interrupt.question_id:
        await service.sessions.cancel_turn(question.turn_id)


async def _is_of(service: PersonService, submission: Submission, turn_id: UUID) -> bool:
    """Return whether a message is one of a turn."""
    rows = await service.rows_since(submission, 0)
    return any(row.message_id == submission.message_id and row.turn_id == turn_id for row in rows)


def _last_words(run_input: RunAgentInput) -> tuple[str, str]:
    """Return text and id of the last message of the person; the transcript has the others.

    Raises:
        ApiProblem: The list does not end with text of the person.
    """
    message = run_input.messages[-1] if run_input.messages else None
    if not isinstance(message, UserMessage):
        raise invalid("The last message is one of the user, or a result.", "messages")
    text = message.content
    if not isinstance(text, str):
        texts = [part.text for part in text if isinstance(part, TextPart)]
        if len(texts) < len(message.content):
            raise invalid("A message has text only.", "messages")
        text = "\n\n".join(texts)
    if not text.strip():
        raise invalid("The last message has no text.", "messages")
    return text, message.id


async def _events(
    run_input: RunAgentInput, stream: AnswerStream | None
) -> AsyncIterator[BaseEvent]:
    names = frozenset(tool.name for tool in run_input.tools or ())
    events = RunEvents(run_input.thread_id, run_input.run_id, names)
    for event in events.begin():
        yield event
    if stream is None:
        for event in events.cancel():
            yield event
        return
    try:
        async for part in stream.parts_and_steps():
            shown = events.end(part) if isinstance(part, Answer) else events.take(part)
            for event in shown:
                yield event
            if isinstance(part, NewState):
                await stream.confirm(part)
    except Exception as exc:  # noqa: BLE001 - the client gets it as the last event
        problem = problem_of(exc)
        for event in events.fail(problem.message, problem.code):
            yield event


async def _sent(events: AsyncIterator[BaseEvent]) -> AsyncIterator[ServerSentEvent]:
    async for event in events:
        yield ServerSentEvent(event.model_dump_json(by_alias=True), sep=_SEPARATOR)
