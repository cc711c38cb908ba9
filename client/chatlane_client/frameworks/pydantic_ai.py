"""Answer turns with an agent of Pydantic AI.

    agent = Agent("openai:gpt-5", instructions="Answer briefly.")
    worker = TurnWorker(client, "main", turn_handler(agent), principal="main")

The transcript is the memory: rows become messages of the model and back, with tool calls, their
results and reasoning.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import groupby
from typing import Any, Final, Generic, TypeVar

from pydantic_ai import Agent, AgentRun, UsageLimits, messages
from pydantic_ai.capabilities import (
    AbstractCapability,
    HandleDeferredToolCalls,
    WrapToolExecuteHandler,
)
from pydantic_ai.exceptions import (
    AgentRunError,
    FallbackExceptionGroup,
    ModelAPIError,
    ModelAuthenticationError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelRequestRejectedError,
    RunCancelled,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    UserContent,
)
from pydantic_ai.models import Model, download_item
from pydantic_ai.tools import (
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    Tool,
    ToolDefinition,
    ToolDenied,
)
from pydantic_ai.toolsets import FunctionToolset
from pydantic_core import to_json
from typing_extensions import override

from chatlane_client.api.front_end_tools import FrontEndTools
from chatlane_client.errors import AgentUnavailableError, TurnFailedError
from chatlane_client.frameworks.shared import options as shared_options
from chatlane_client.frameworks.shared.approvals import denial_of
from chatlane_client.frameworks.shared.display import Display
from chatlane_client.frameworks.shared.failures import OPERATOR_PAUSE
from chatlane_client.frameworks.shared.files import is_readable
from chatlane_client.frameworks.shared.front_end import result_for_model
from chatlane_client.frameworks.shared.kept_calls import KeptCalls
from chatlane_client.frameworks.shared.options import instructions_of
from chatlane_client.frameworks.shared.rows import (
    Row,
    ToolCall,
    answer_of,
    assistant_row,
    calls_of,
    prompt_text,
    reasoning_of,
    stored_rows,
    tool_row,
)
from chatlane_client.turn import Answer, Handler, NoReply, Reply, Turn
from chatlane_schemas import Attachment, ModelOverride, Part, Role, TranscriptRow, TurnMessage
from chatlane_schemas.content.prompts import prompt_of
from chatlane_schemas.results import Reasoning

_log = logging.getLogger("chatlane_client")

DepsT = TypeVar("DepsT")
OutputT = TypeVar("OutputT")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOptions(shared_options.TurnOptions):
    """How turns are answered, with the limits of one turn; by default those of Pydantic AI."""

    usage_limits: UsageLimits | None = None


def turn_handler(
    agent: Agent[DepsT, OutputT],
    *,
    deps_of: Callable[[Turn], DepsT] | None = None,
    model_of: Callable[[ModelOverride], Model | str] | None = None,
    options: TurnOptions | None = None,
    has_front_end_tools: bool = False,
) -> Handler:
    """Return a handler that answers turns with an agent.

    * Tool calls that require approval are asked in the chat, as a permission.
    * Results of tools that are JSON are kept: another attempt at the turn does not call these tools
      with these arguments again.
    * Messages that arrive during a turn are taken in if the busy mode is `steer`.
    * A stopped turn is answered with the text so far.
    * While the model is away, or its key or name is wrong, the turn waits. A request that the
      provider refuses fails the turn.
    * The output of the agent is the answer: a string, a `Part`, or anything else as JSON.

    Args:
        agent: The agent. Enter it around the worker (`async with agent:`), so that MCP servers are
            started once.
        deps_of: Returns the dependencies of a run.
        model_of: Returns the model for the choice of a person; without it, the choice has no effect.
        options: Limits and formats.
        has_front_end_tools: The model may call the tools of the front end of a turn. The front end
            writes their descriptions, and their names have to differ from those of the agent's tools.
    """
    given = options or TurnOptions()
    return _Answering(agent, deps_of, model_of, given, has_front_end_tools).answer


def front_end_toolset(turn: Turn) -> FunctionToolset[Any]:
    """Return the tools of the front end of a turn, for one run."""
    tools = FrontEndTools(turn)

    def called(name: str) -> Callable[..., Awaitable[str]]:
        async def call(**arguments: Any) -> str:  # noqa: ANN401 - by the schema of the front end
            return await result_for_model(tools, name, arguments)

        return call

    return FunctionToolset(
        [
            Tool.from_schema(
                called(tool.name),
                tool.name,
                tool.description,
                tool.schema_of_arguments(),
                sequential=True,
            )
            for tool in tools.declared.values()
        ]
    )


def messages_of(rows: Iterable[Row]) -> list[ModelMessage]:
    """Return rows of a transcript as messages of a model, oldest first.

    Rows of people have the header of `prompt_of`. Rows without content are left out.
    """
    listed: list[ModelMessage] = []
    for is_response, group in groupby(rows, key=lambda row: row.role is Role.ASSISTANT):
        if is_response:
            responses = (ModelResponse(parts=[*_response_parts(row)]) for row in group)
            listed += [response for response in responses if response.parts]
        elif parts := [part for row in group for part in _request_parts(row)]:
            listed.append(ModelRequest(parts=parts))
    return listed


def rows_of(listed: Iterable[ModelMessage]) -> list[TranscriptRow]:
    """Return the messages of a model and its tools as rows of a transcript, oldest first.

    Prompts are left out: the transcript has the messages of people. A call without a result gets
    one that says so.
    """
    rows: list[TranscriptRow] = []
    for message in listed:
        if isinstance(message, ModelResponse):
            rows += [row] if (row := _assistant_row(message)) else []
        else:
            rows += [row for part in message.parts if (row := _tool_row(part))]
    return stored_rows(rows)


def _response_parts(row: Row) -> Iterator[ModelResponsePart]:
    if (reasoning := row.reasoning) is not None:
        for thought in reasoning.data or [{}]:
            known = {name: thought.get(name) for name in _THOUGHT_FIELDS}
            text = thought.get("content", reasoning.text or "")
            yield messages.ThinkingPart(content=str(text), **known)  # type: ignore[arg-type]
    if row.content:
        yield messages.TextPart(content=row.content)
    for call in calls_of(row):
        yield messages.ToolCallPart(call.name, call.arguments, call.id)


def _request_parts(row: Row) -> Iterator[ModelRequestPart]:
    content = row.content or ""
    if row.role is Role.TOOL:
        yield messages.ToolReturnPart(
            tool_name=row.tool_name or "tool",
            content=content,
            tool_call_id=row.tool_call_id or "",
        )
    elif row.role is Role.SYSTEM:
        yield messages.SystemPromptPart(content=content)
    elif text := prompt_text(row):
        yield messages.UserPromptPart(content=text)


_THOUGHT_FIELDS: Final = ("id", "signature", "provider_name", "provider_details")


def _assistant_row(response: ModelResponse) -> TranscriptRow | None:
    text = "".join(it.content for it in response.parts if isinstance(it, messages.TextPart))
    calls = [
        ToolCall(it.tool_call_id, it.tool_name, it.args_as_json_str())
        for it in response.parts
        if isinstance(it, messages.ToolCallPart)
    ]
    thoughts = [it for it in response.parts if isinstance(it, messages.ThinkingPart)]
    return assistant_row(text, calls, _reasoning(thoughts))


def _reasoning(thoughts: Sequence[messages.ThinkingPart]) -> Reasoning | None:
    """Return reasoning as a row has it, or None if there is none or too much."""
    data = [
        {"content": thought.content, **known}
        for thought in thoughts
        if (known := {key: value for key in _THOUGHT_FIELDS if (value := getattr(thought, key))})
    ]
    text = "\n".join(thought.content for thought in thoughts if thought.content)
    return reasoning_of(text, data)


def _tool_row(part: ModelRequestPart) -> TranscriptRow | None:
    if not isinstance(part, messages.ToolReturnPart):
        return None
    return tool_row(part.tool_call_id, part.tool_name, part.model_response_str())


class _Keeping(AbstractCapability[DepsT]):
    """Keeps what tools return until the end of the turn; those of the front end keep it themselves."""

    def __init__(self, calls: KeptCalls, front_end_tools: Collection[str]) -> None:
        self._calls = calls
        self._front_end_tools = front_end_tools

    @override
    async def wrap_tool_execute(
        self,
        ctx: RunContext[DepsT],
        *,
        call: messages.ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Run a call as a step of the turn."""
        if call.tool_name in self._front_end_tools:
            return await handler(args)
        return await self._calls.run(call.tool_name, call.args_as_json_str(), lambda: handler(args))


@dataclass(frozen=True, slots=True)
class _Answering(Generic[DepsT, OutputT]):
    """Answers turns with an agent."""

    agent: Agent[DepsT, OutputT]
    deps_of: Callable[[Turn], DepsT] | None
    model_of: Callable[[ModelOverride], Model | str] | None
    options: TurnOptions
    has_front_end_tools: bool

    async def answer(self, turn: Turn) -> Answer:
        """Run the agent, with less input if the provider refuses the input."""
        given = await self._input(turn)
        while True:
            run = _Run(turn, self.agent, self.options, self._front_end_tools(turn))
            try:
                return await run.answer(given, self._settings(turn))
            except asyncio.CancelledError as exc:
                if (answer := run.unfinished(exc)) is None:
                    raise
                return answer
            except ModelRequestRejectedError as exc:
                smaller = None if run.has_worked else given.smaller(exc)
                if smaller is None:
                    raise _error_of(exc, run.rows) from exc
                given = smaller
            except (AgentRunError, FallbackExceptionGroup) as exc:
                raise _error_of(exc, run.rows) from exc

    def _front_end_tools(self, turn: Turn) -> FunctionToolset[DepsT]:
        return front_end_toolset(turn) if self.has_front_end_tools else FunctionToolset()

    async def _input(self, turn: Turn) -> "_Input":
        history = messages_of(await turn.history(limit=self.options.history_rows))
        files = [
            content
            for message in turn.messages
            for file in message.attachments
            if (content := await _content_of(file, self.options)) is not None
        ]
        return _Input(history, turn.prompt or "(nothing)", files, messages_of(turn.earlier_rows))

    def _settings(self, turn: Turn) -> dict[str, Any]:
        """Return the arguments of a run besides its input."""
        settings: dict[str, Any] = {"instructions": instructions_of(turn)}
        if self.deps_of is not None:
            settings["deps"] = self.deps_of(turn)
        if self.model_of is not None and turn.model_override is not None:
            settings["model"] = self.model_of(turn.model_override)
        return settings | {"usage_limits": self.options.usage_limits}


@dataclass(frozen=True, slots=True)
class _Input:
    """The start of a run: its prompt and its history.

    Attributes:
        earlier: What earlier attempts at the turn did; each of their calls has a result.
    """

    history: list[ModelMessage]
    prompt: str
    files: list[UserContent]
    earlier: list[ModelMessage]

    def smaller(self, error: ModelRequestRejectedError) -> "_Input | None":
        """Return the input with less of what the provider refused, or None if it is the least."""
        if isinstance(error, ModelAuthenticationError | ModelNotFoundError):
            return None
        if self.files:
            # Not every model reads files; the prompt mentions them.
            return replace(self, files=[])
        if isinstance(error, ModelContextWindowExceededError) and self.history:
            rest = self.history[len(self.history) // 2 + 1 :]
            return replace(self, history=_from_a_prompt(rest))
        return None

    def arguments(self) -> dict[str, Any]:
        """Return prompt and history as arguments of a run."""
        prompt = [self.prompt, *self.files] if self.files else self.prompt
        earlier = _up_to_a_result(self.earlier)
        if not earlier:
            return {"user_prompt": prompt, "message_history": self.history or None}
        begun = ModelRequest(parts=[messages.UserPromptPart(content=prompt)])
        return {"message_history": [*self.history, begun, *earlier]}


def _from_a_prompt(listed: list[ModelMessage]) -> list[ModelMessage]:
    """Return messages without the results at the beginning whose calls are left out."""
    for place, message in enumerate(listed):
        if isinstance(message, ModelRequest) and not any(
            isinstance(part, messages.ToolReturnPart) for part in message.parts
        ):
            return listed[place:]
    return []


def _up_to_a_result(listed: list[ModelMessage]) -> list[ModelMessage]:
    """Return messages without the responses at their end: the model answers again."""
    while listed and isinstance(listed[-1], ModelResponse):
        listed = listed[:-1]
    return listed


async def _content_of(file: Attachment, options: TurnOptions) -> UserContent | None:
    """Return a file for a model, or None if it is not fit for one; the prompt mentions it then."""
    if not file.url or not is_readable(file, options):
        return None
    is_image = file.media_type.startswith("image/")
    link = messages.ImageUrl if is_image else messages.DocumentUrl
    wanted = link(
        file.url,
        media_type=file.media_type,
        force_download="allow-local" if options.has_local_files else True,
    )
    try:
        loaded = await download_item(wanted, data_format="bytes")
    except Exception as exc:  # noqa: BLE001 - of any HTTP library; a lost file must not fail a turn
        # Without the text of the error, which has the link.
        _log.warning("file_not_loaded", extra={"error": type(exc).__name__})
        return None
    if len(loaded["data"]) > options.max_file_bytes:
        return None
    return messages.BinaryContent(data=loaded["data"], media_type=file.media_type)


class _Run(Generic[DepsT, OutputT]):
    """One run of an agent for a turn."""

    def __init__(
        self,
        turn: Turn,
        agent: Agent[DepsT, OutputT],
        options: TurnOptions,
        front_end_tools: FunctionToolset[DepsT],
    ) -> None:
        self._turn = turn
        self._front_end_tools = front_end_tools
        self._agent = agent
        self._options = options
        self._display = Display(turn)
        self._run: AgentRun[DepsT, OutputT] | None = None

    @property
    def rows(self) -> list[TranscriptRow]:
        """The messages of the run so far."""
        return rows_of(self._run.new_messages()) if self._run is not None else []

    @property
    def has_worked(self) -> bool:
        """Return whether tools have run."""
        return any(row.role is Role.TOOL for row in self.rows)

    async def answer(self, given: _Input, settings: dict[str, Any]) -> Answer:
        """Run the agent to its end."""
        approving = HandleDeferredToolCalls[DepsT](handler=self._approve)
        keeping = _Keeping[DepsT](KeptCalls(self._turn), self._front_end_tools.tools)
        async with self._agent.iter(
            **given.arguments(),
            **settings,
            capabilities=[approving, keeping],
            toolsets=[self._front_end_tools],
        ) as self._run:
            run = self._run
            async for node in run:
                await self._take_in(run)
                if Agent.is_model_request_node(node):
                    self._display.begin_response()
                    async with node.stream(run.ctx) as events:
                        await self._show(events)
                elif Agent.is_call_tools_node(node):
                    async with node.stream(run.ctx) as events:
                        await self._show(events)
        if run.result is None:
            raise UnexpectedModelBehavior("the run has no result")
        return self._reply(run, run.result.output)

    def unfinished(self, cancelled: asyncio.CancelledError) -> Answer | None:
        """Return the answer of a cancelled run, or None if it has none."""
        state = RunCancelled.from_cancellation(cancelled)
        rows = rows_of(state.new_messages()) if state is not None else []
        if self._turn.cancel_reason is not None and (text := self._display.text):
            return Reply(parts=[self._part(text)], transcript=rows, **self._counts(self._run))
        if (self._turn.cancel_reason is not None or self._turn.is_stopping) and rows:
            return NoReply(transcript=rows, **self._counts(self._run))
        return None

    async def _take_in(self, run: AgentRun[DepsT, OutputT]) -> None:
        """Pass on what was written meanwhile; a run that was about to end goes on."""
        if run.result is not None:
            return
        if taken := await self._turn.take_steered():
            run.enqueue(*await self._contents(taken))

    async def _contents(self, taken: Sequence[TurnMessage]) -> list[UserContent]:
        loaded = [await _content_of(file, self._options) for it in taken for file in it.attachments]
        return [prompt_of(taken), *(content for content in loaded if content is not None)]

    async def _show(self, events: Any) -> None:  # noqa: ANN401 - a stream of either kind of node
        async for event in events:
            match event:
                case messages.PartStartEvent(part=messages.TextPart(content=text)):
                    await self._display.show_text(text)
                case messages.PartDeltaEvent(delta=messages.TextPartDelta(content_delta=text)):
                    await self._display.show_text(text)
                case messages.PartStartEvent(part=messages.ThinkingPart(content=text)):
                    await self._display.show_thought(text)
                case messages.PartDeltaEvent(delta=messages.ThinkingPartDelta(content_delta=text)):
                    await self._display.show_thought(text)
                case messages.FunctionToolCallEvent(part=call):
                    await self._display.show_call(call.tool_call_id, call.tool_name)
                case messages.FunctionToolResultEvent(part=result):
                    await self._show_result(result)
                case _:
                    pass

    async def _show_result(self, result: messages.ToolReturnPart[Any]) -> None:
        is_done = result.outcome == "success"
        text = result.model_response_str()
        await self._display.show_result(result.tool_call_id, text, is_done=is_done)

    async def _approve(
        self, _: RunContext[DepsT], requests: DeferredToolRequests
    ) -> DeferredToolResults:
        """Ask the person about each call that needs an approval, one after the other."""
        approvals: dict[str, bool | ToolDenied] = {}
        for call in requests.approvals:
            arguments = json.dumps(call.args_as_dict(), ensure_ascii=False)
            denial = await denial_of(self._turn, call.tool_name, arguments, self._options)
            approvals[call.tool_call_id] = True if denial is None else ToolDenied(denial)
        return requests.build_results(approvals=approvals)

    def _reply(self, run: AgentRun[DepsT, OutputT], output: object) -> Answer:
        parts = [] if output is None or output == "" else [self._part(output)]
        return answer_of(parts, self.rows, self._counts(run))

    def _part(self, output: object) -> Part:
        if isinstance(output, Part):
            return output
        text = output if isinstance(output, str) else to_json(output, indent=2).decode()
        return self._options.part(text)

    def _counts(self, run: AgentRun[DepsT, OutputT] | None) -> dict[str, Any]:
        """Return usage, costs and gauges as fields of an answer."""
        if run is None:
            return {}
        used = run.usage
        usage = {name: count for name in _COUNTED if (count := getattr(used, name))}
        responses = [it for it in run.new_messages() if isinstance(it, ModelResponse)]
        last = responses[-1].usage if responses else None
        gauges = {}
        if last is not None and last.input_tokens:
            context = last.input_tokens + last.output_tokens
            gauges = {"context_tokens": context, "last_prompt_tokens": last.input_tokens}
        costs = {"cost_usd": used.cost} if used.cost else {}
        return {"usage": usage, "costs": costs, "gauges": gauges}


_COUNTED: Final = (
    "requests",
    "tool_calls",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
)


def _error_of(exc: Exception, rows: list[TranscriptRow]) -> Exception:
    """Return an error of a run in the terms of chatlane; texts of errors may quote messages."""
    name = type(exc).__name__.removeprefix("_HTTP")
    if isinstance(exc, FallbackExceptionGroup):
        last = exc.exceptions[-1]
        return _error_of(last, rows) if isinstance(last, AgentRunError) else exc
    if isinstance(exc, ModelAPIError):
        status = f", status {exc.status_code}" if isinstance(exc, ModelHTTPError) else ""
        text = f"{exc.model_name}: {name}{status}"
        if isinstance(exc, ModelAuthenticationError | ModelNotFoundError):
            _log.error("model_refused", extra={"error": text})
            return AgentUnavailableError(text, again_in=OPERATOR_PAUSE, transcript=rows)
        if isinstance(exc, ModelRequestRejectedError):
            return TurnFailedError(f"the model refused: {text}", transcript=rows)
        again_in = None if exc.retry_after is None else timedelta(seconds=exc.retry_after)
        return AgentUnavailableError(text, again_in=again_in, transcript=rows)
    is_worth_repeating = isinstance(exc, UnexpectedModelBehavior)
    return TurnFailedError(name, retry=is_worth_repeating, transcript=rows)
