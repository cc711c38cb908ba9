"""Read tools, context, state and results of calls that a run brings from its front end."""

import json
import re
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from ag_ui.core import (
    AssistantMessage,
    Message,
    ReasoningMessage,
    RunAgentInput,
    TextPart,
    ToolMessage,
    UserMessage,
)
from pydantic_core import to_json

from chatlane_bridges.answers.answer_streams import Place
from chatlane_bridges.answers.conversations import Conversations
from chatlane_bridges.answers.front_ends import FrontEndInput, call_key
from chatlane_bridges.answers.person_service import PersonService
from chatlane_bridges.http.problems import invalid
from chatlane_client import ConflictingRequestError, SessionNotFoundError, Submission
from chatlane_schemas.content.front_end import FrontEnd
from chatlane_schemas.questions import LARGEST_STEP
from chatlane_schemas.results import Role

_CALL: Final = re.compile("[0-9a-f]{64}")
# Ids of calls that run at the agent begin with the prefix of their run.
_AGENT_CALL: Final = re.compile("[0-9a-f]{32}-(.*)", re.DOTALL)
_LEFT: Final = "There is no result: the person wrote something else instead."


def given_by(run_input: RunAgentInput) -> FrontEnd | None:
    """Return tools, context and state of a run, if it has any.

    Raises:
        ValidationError: They are too many or too large, or a name, a schema or the state cannot be
            used.
        ApiProblem: The state is no JSON.
    """
    if not run_input.tools and not run_input.context and run_input.state is None:
        return None
    # Of dicts, so that an error names the tool.
    tools = [
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": json.dumps({} if tool.parameters is None else tool.parameters),
        }
        for tool in run_input.tools or ()
    ]
    context = [
        {"description": entry.description, "value": entry.value}
        for entry in run_input.context or ()
    ]
    given = {"tools": tools, "context": context, "state": _state_of(run_input)}
    return FrontEnd.model_validate(given)


def _state_of(run_input: RunAgentInput) -> str | None:
    if run_input.state is None:
        return None
    try:
        return json.dumps(run_input.state, allow_nan=False, ensure_ascii=False)
    except (ValueError, RecursionError) as exc:
        raise invalid("The state is no JSON.", "state") from exc


def turn_of_results(messages: Sequence[Message]) -> UUID | None:
    """Return the turn whose call has its result at the end of the list; None if words are there.

    Raises:
        ApiProblem: The result belongs to no call of an agent.
    """
    if not messages or not isinstance(messages[-1], ToolMessage):
        return None
    trailing: list[str] = []
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        trailing.append(message.tool_call_id)
    found = next((id_ for id_ in trailing if _CALL.fullmatch(id_)), None)
    if found is None:
        raise invalid("A result names a call of the agent.", "messages")
    return UUID(found[:32])


def going_on(messages: Sequence[Message]) -> FrontEndInput:
    """Return results of calls, and what the client has of the answer to the last words.

    Raises:
        ApiProblem: A result is no text, or too large.
    """
    since = _since_words(messages)
    texts = (it.content or "" for it in since if isinstance(it, AssistantMessage))
    thoughts = (it.content or "" for it in since if isinstance(it, ReasoningMessage))
    calls = (found[1] for id_ in _calls_in(since) if (found := _AGENT_CALL.fullmatch(id_)))
    return FrontEndInput(
        results=_results_in(since),
        text="".join(texts),
        thoughts="".join(thoughts),
        calls=frozenset(calls),
    )


async def place_of_call(
    service: PersonService, conversations: Conversations, thread_id: str, turn_id: UUID
) -> Place:
    """Return the place of the turn whose call has a result.

    Raises:
        ApiProblem: The thread has no such turn.
    """
    session = await conversations.named(thread_id)
    rows = [] if session is None else await service.transcripts.newest(session.id)
    row = next(
        (row for row in reversed(rows) if row.turn_id == turn_id and row.role is Role.USER), None
    )
    if session is None or row is None or row.message_id is None:
        raise invalid("The thread has no such call.", "messages")
    return Place(session, joined=Submission(session, row.message_id, turn_id))


async def leave_call(
    service: PersonService, conversations: Conversations, run_input: RunAgentInput
) -> None:
    """Answer a call that the client knows, if the person has written something else since."""
    known = _calls_in(run_input.messages)
    if not any(_CALL.fullmatch(id_) for id_ in known):
        return
    session = await conversations.named(run_input.thread_id)
    if session is None:
        return
    question = await service.sessions.question(session.id, front_end_calls=True)
    if question is None or (key := call_key(question)) not in known:
        return
    result = _results_in(run_input.messages).get(key, _LEFT)
    try:
        await service.sessions.reply(session.id, question.question_id, result)
    except (ConflictingRequestError, SessionNotFoundError):
        # It has a result, or its time is over.
        return


def _since_words(messages: Sequence[Message]) -> Sequence[Message]:
    places = [place for place, it in enumerate(messages) if isinstance(it, UserMessage)]
    return messages[places[-1] + 1 :] if places else messages


def _calls_in(messages: Sequence[Message]) -> set[str]:
    listed = (it.tool_calls or () for it in messages if isinstance(it, AssistantMessage))
    return {call.id for calls in listed for call in calls}


def _results_in(messages: Sequence[Message]) -> dict[str, str]:
    return {
        message.tool_call_id: _result_of(message)
        for message in messages
        if isinstance(message, ToolMessage) and _CALL.fullmatch(message.tool_call_id)
    }


def _result_of(message: ToolMessage) -> str:
    content = message.content
    if not isinstance(content, str):
        texts = [part.text for part in content if isinstance(part, TextPart)]
        if len(texts) < len(content):
            raise invalid("A result has text only.", "messages")
        content = "\n\n".join(texts)
    result = content or message.error or ""
    if len(to_json(result)) > LARGEST_STEP:
        raise invalid(f"A result has more than {LARGEST_STEP} bytes.", "messages", "too_large")
    return result
