"""Requests of the protocol about one agent; the server keeps nothing of a task."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http import HTTPStatus
from typing import Final, NoReturn
from uuid import UUID

from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event
from a2a.server.request_handlers.request_handler import RequestHandler, validate_request_params
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    ExtendedAgentCardNotConfiguredError,
    InternalError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from typing_extensions import override

from chatlane_bridges.a2a.settings import ORIGIN
from chatlane_bridges.a2a.tasks import OVER, TaskName, text_artifact, words_of
from chatlane_bridges.answers.answer_follower import Answer
from chatlane_bridges.answers.answer_streams import AnswerStream, Place
from chatlane_bridges.answers.conversations import Conversations
from chatlane_bridges.http.bridge_state import BridgeState
from chatlane_bridges.http.declared_agents import AgentCaller
from chatlane_bridges.http.problems import problem_of
from chatlane_client import SessionNotFoundError, Submission
from chatlane_client.api.submission import answered

CALLER: Final = "caller"
"""Where the context of a call has its `AgentCaller`."""

_CANCELLED_WITHIN: Final = timedelta(seconds=10)


class AgentRequests(RequestHandler):
    """Answers the requests about an agent, for the person of the caller."""

    def __init__(self, state: BridgeState) -> None:
        self._state = state

    @override
    @validate_request_params
    async def on_message_send(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> Task | Message:
        with _errors():
            name, stream = await self._submitted(params, _caller(context))
            if params.configuration.return_immediately:
                stream.leave()
                return name.task(TaskStatus(state=TaskState.TASK_STATE_SUBMITTED))
            answer = await stream.whole()
            return name.task(name.ended(answer), answer.text)

    @override
    @validate_request_params
    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        with _errors():
            name, stream = await self._submitted(params, _caller(context))
            async for event in _events(name, stream):
                yield event

    @override
    @validate_request_params
    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event]:
        with _errors():
            caller, name = _caller(context), TaskName.parsed(params.id)
            task, submission = await self._read(caller, name)
            if task.status.state in OVER:
                raise UnsupportedOperationError("The task is over.")
            async for event in _events(name, await self._joined(caller, submission)):
                yield event

    @override
    @validate_request_params
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task | None:
        with _errors():
            task, _ = await self._read(_caller(context), TaskName.parsed(params.id))
            return task

    @override
    @validate_request_params
    async def on_cancel_task(
        self, params: CancelTaskRequest, context: ServerCallContext
    ) -> Task | None:
        with _errors():
            caller, name = _caller(context), TaskName.parsed(params.id)
            task, submission = await self._read(caller, name)
            if task.status.state in OVER:
                raise TaskNotCancelableError
            sessions = self._state.service_for(caller.person).sessions
            if submission.turn_id is not None:
                await sessions.cancel_turn(submission.turn_id)
            else:
                await sessions.stop(name.session_id)
            stream = await self._joined(caller, submission)
            try:
                async with asyncio.timeout(_CANCELLED_WITHIN.total_seconds()):
                    answer = await stream.whole()
                return name.task(name.ended(answer), answer.text)
            except TimeoutError:
                # Its worker does not confirm; the turn ends with its lease.
                return task

    async def _submitted(
        self, params: SendMessageRequest, caller: AgentCaller
    ) -> tuple[TaskName, AnswerStream]:
        message = params.message
        words = words_of(message.parts)
        if not words:
            raise ContentTypeNotSupportedError("A message has text only.")
        service = self._state.service_for(caller.person)
        conversations = Conversations(service, caller.agent, ORIGIN)
        key = message.message_id
        about = f"{caller.person.model_dump_json()} {message.context_id}"
        if message.task_id:
            name = TaskName.parsed(message.task_id)
            if message.context_id not in {"", name.context_id}:
                raise InvalidParamsError("The task is one of another context.")
            task, _ = await self._read(caller, name)
            if task.status.state is not TaskState.TASK_STATE_INPUT_REQUIRED:
                raise UnsupportedOperationError("The task waits for no input.")
            find = conversations.by_id(name.session_id, key)
            return name, await self._state.started(service, find, words, about)
        if message.context_id:
            try:
                find = conversations.by_id(UUID(message.context_id), key)
            except ValueError:
                raise InvalidParamsError("There is no such context.") from None
        else:
            find = conversations.opened_for(key)
        stream = await self._state.started(service, find, words, about)
        return TaskName.of(stream.submission), stream

    async def _joined(self, caller: AgentCaller, submission: Submission) -> AnswerStream:
        async def find() -> Place:
            return Place(submission.session, joined=submission)

        service = self._state.service_for(caller.person)
        return await self._state.started(service, find, "", str(submission.message_id))

    async def _read(self, caller: AgentCaller, name: TaskName) -> tuple[Task, Submission]:
        """Return a task as the transcript has it, and the message that began it.

        Raises:
            TaskNotFoundError: There is none for the person.
        """
        service = self._state.service_for(caller.person)
        session = await service.sessions.get(name.session_id)
        submission = Submission(session, name.message_id)
        rows = await service.rows_since(submission, 0)
        own = next((row for row in rows if row.message_id == name.message_id), None)
        submission = Submission(session, name.message_id, own.turn_id if own else None)
        ended = answered(submission, rows, {}, is_busy=session.is_busy)
        if ended is not None and ended.outcome is not None:
            return name.task(name.over(ended.outcome, None), ended.answer or ""), submission
        if own is None:
            if session.waiting is None and not session.is_busy:
                raise TaskNotFoundError
            return name.task(TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)), submission
        question = await service.sessions.question(name.session_id)
        if question is not None and question.turn_id == own.turn_id:
            return name.task(name.asked(question)), submission
        return name.task(TaskStatus(state=TaskState.TASK_STATE_WORKING)), submission

    @override
    async def on_list_tasks(
        self, params: ListTasksRequest, context: ServerCallContext
    ) -> ListTasksResponse:
        raise UnsupportedOperationError

    @override
    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        raise PushNotificationNotSupportedError

    @override
    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        raise PushNotificationNotSupportedError

    @override
    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        raise PushNotificationNotSupportedError

    @override
    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        raise PushNotificationNotSupportedError

    @override
    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        raise ExtendedAgentCardNotConfiguredError


async def _events(name: TaskName, stream: AnswerStream) -> AsyncGenerator[Event]:
    """Yield the task, parts of its answer as they come, and how it ended."""
    yield name.task(TaskStatus(state=TaskState.TASK_STATE_WORKING))
    task_id, context_id = name.id, name.context_id
    has_artifact = False
    async for part in stream.parts():
        if isinstance(part, Answer):
            yield TaskStatusUpdateEvent(
                task_id=task_id, context_id=context_id, status=name.ended(part)
            )
        else:
            artifact = text_artifact(part)
            yield TaskArtifactUpdateEvent(
                task_id=task_id, context_id=context_id, artifact=artifact, append=has_artifact
            )
            has_artifact = True


def _caller(context: ServerCallContext) -> AgentCaller:
    caller = context.state[CALLER]
    assert isinstance(caller, AgentCaller)  # noqa: S101 - the route has set it
    return caller


@contextmanager
def _errors() -> Iterator[None]:
    """Raise errors of the client library as those of the protocol."""
    try:
        yield
    except (A2AError, GeneratorExit, asyncio.CancelledError):
        raise
    except SessionNotFoundError:
        raise TaskNotFoundError("There is no such task or context.") from None
    except Exception as error:  # noqa: BLE001 - the client gets it, without what a person wrote
        _raise(error)


def _raise(error: Exception) -> NoReturn:
    problem = problem_of(error)
    kind = (
        InternalError if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR else InvalidParamsError
    )
    raise kind(problem.message) from None
