"""The events of a run: what a turn shows, in the order and nesting of the protocol."""

import json
from collections.abc import Iterator
from typing import Final
from uuid import uuid4

from ag_ui.core import (
    PROTOCOL_VERSION,
    BaseEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)

from chatlane_bridges.ag_ui.interrupts import interrupt_of
from chatlane_bridges.answers.answer_follower import Answer
from chatlane_bridges.answers.answer_steps import NewState, Step, Thought, ToolCall
from chatlane_bridges.answers.front_ends import call_key
from chatlane_schemas.live_turns import TurnOutcome

_FAILED: Final = "The agent could not answer."
_TOOL: Final = "tool"


class RunEvents:
    """Makes the events of one run; a text, a thought or a call is closed before the next begins."""

    def __init__(
        self, thread_id: str, run_id: str, front_end_tools: frozenset[str] = frozenset()
    ) -> None:
        """Create it.

        Args:
            thread_id: The conversation, as the client names it.
            run_id: The run, as the client names it.
            front_end_tools: Names of the tools that the client runs. It gets a call of one only when
                it is to run it.
        """
        self._front_end_tools = front_end_tools
        self._hidden_calls: set[str] = set()
        self._thread_id = thread_id
        self._run_id = run_id
        # The client adds to a message whose id it knows, so no other run has the ids of this one.
        self._prefix = uuid4().hex
        self._messages = 0
        self._text_id: str | None = None
        self._thought_id: str | None = None

    def begin(self) -> Iterator[BaseEvent]:
        """Yield the first event."""
        yield RunStartedEvent(
            thread_id=self._thread_id, run_id=self._run_id, protocol_version=PROTOCOL_VERSION
        )

    def take(self, part: str | Step) -> Iterator[BaseEvent]:
        """Yield the events of a part of the answer."""
        if isinstance(part, str):
            yield from self._say(part)
        elif isinstance(part, Thought):
            yield from self._think(part.text)
        elif isinstance(part, ToolCall):
            if part.name in self._front_end_tools:
                self._hidden_calls.add(part.id)
            else:
                yield from self._call(self._tool_id(part.id), part.name, part.arguments)
        elif isinstance(part, NewState):
            yield from self._close()
            yield StateSnapshotEvent(snapshot=part.values)
        elif part.id not in self._hidden_calls:
            tool_id = self._tool_id(part.id)
            yield ToolCallResultEvent(
                message_id=f"{tool_id}-result", tool_call_id=tool_id, content=part.text
            )

    def end(self, answer: Answer) -> Iterator[BaseEvent]:
        """Yield the last events after an answer."""
        if answer.question is not None and answer.question.front_end_call is not None:
            call = answer.question.front_end_call
            yield from self._call(call_key(answer.question), call.name, call.arguments)
            yield from self._finish(RunFinishedSuccessOutcome())
        elif answer.question is not None:
            paused = RunFinishedInterruptOutcome(interrupts=[interrupt_of(answer.question)])
            yield from self._finish(paused)
        elif answer.outcome is TurnOutcome.FAILED:
            yield from self.fail(answer.notice or _FAILED, "turn_failed")
        elif answer.outcome is TurnOutcome.CANCELLED:
            yield from self.cancel()
        else:
            yield from self._finish(RunFinishedSuccessOutcome())

    def cancel(self) -> Iterator[BaseEvent]:
        """Yield the last events of a run whose turn was stopped."""
        yield from self._finish(RunFinishedCancelledOutcome())

    def fail(self, message: str, code: str) -> Iterator[BaseEvent]:
        """Yield the last events of a run without an answer."""
        yield from self._close()
        yield RunErrorEvent(message=message, code=code)

    def _finish(self, outcome: RunFinishedOutcome) -> Iterator[BaseEvent]:
        yield from self._close()
        yield RunFinishedEvent(thread_id=self._thread_id, run_id=self._run_id, outcome=outcome)

    def _say(self, text: str) -> Iterator[BaseEvent]:
        if self._text_id is None:
            yield from self._close()
            self._text_id = self._next_id()
            yield TextMessageStartEvent(message_id=self._text_id, role="assistant")
        yield TextMessageContentEvent(message_id=self._text_id, delta=text)

    def _think(self, text: str) -> Iterator[BaseEvent]:
        if self._thought_id is None:
            yield from self._close()
            self._thought_id = self._next_id()
            yield ReasoningStartEvent(message_id=self._thought_id)
            yield ReasoningMessageStartEvent(message_id=self._thought_id, role="reasoning")
        yield ReasoningMessageContentEvent(message_id=self._thought_id, delta=text)

    def _call(self, tool_id: str, name: str, arguments: object) -> Iterator[BaseEvent]:
        yield from self._close()
        yield ToolCallStartEvent(tool_call_id=tool_id, tool_call_name=name or _TOOL)
        if arguments is not None:
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            yield ToolCallArgsEvent(tool_call_id=tool_id, delta=text)
        yield ToolCallEndEvent(tool_call_id=tool_id)

    def _close(self) -> Iterator[BaseEvent]:
        if self._text_id is not None:
            yield TextMessageEndEvent(message_id=self._text_id)
            self._text_id = None
        if self._thought_id is not None:
            yield ReasoningMessageEndEvent(message_id=self._thought_id)
            yield ReasoningEndEvent(message_id=self._thought_id)
            self._thought_id = None

    def _next_id(self) -> str:
        self._messages += 1
        return f"{self._prefix}-{self._messages}"

    def _tool_id(self, tool_id: str) -> str:
        return f"{self._prefix}-{tool_id}"
