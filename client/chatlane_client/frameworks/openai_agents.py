"""Answer turns with an agent of the OpenAI Agents SDK.

    agent = Agent("Desk", instructions="Answer briefly.")
    worker = TurnWorker(client, "main", turn_handler(agent), principal="main")

The transcript is the memory: rows become items of a response and back, with tool calls, their
results and reasoning. Give the run no session of the SDK beside it.
"""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar, cast

from agents import (
    Agent,
    FunctionTool,
    ModelBehaviorError,
    RunConfig,
    Runner,
    RunResultStreaming,
    RunState,
    ToolApprovalItem,
)
from agents.exceptions import AgentsException
from agents.items import TResponseInputItem
from agents.models.interface import Model
from agents.run_config import CallModelData, ModelInputData
from agents.tool import (
    ToolOriginType,
    get_function_tool_origin,
    maybe_invoke_function_tool_failure_error_function,
    set_function_tool_failure_error_function,
)
from agents.tool_context import ToolContext
from openai.types.responses import (
    ResponseReasoningSummaryTextDeltaEvent,
    ResponseReasoningTextDeltaEvent,
    ResponseTextDeltaEvent,
)
from pydantic import BaseModel
from pydantic_core import to_json

from chatlane_client.api.front_end_tools import FrontEndTools
from chatlane_client.errors import ChatlaneClientError, TurnFailedError
from chatlane_client.frameworks.shared.approvals import denial_of
from chatlane_client.frameworks.shared.display import Display
from chatlane_client.frameworks.shared.failures import failure_of
from chatlane_client.frameworks.shared.files import PDF, LoadedFile, files_of
from chatlane_client.frameworks.shared.front_end import result_for_model
from chatlane_client.frameworks.shared.kept_calls import KeptCalls
from chatlane_client.frameworks.shared.kept_servers import KeptServer
from chatlane_client.frameworks.shared.options import TurnOptions, instructions_of
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
    with_text,
)
from chatlane_client.turn import Answer, Handler, NoReply, Reply, Turn
from chatlane_schemas import ModelOverride, Part, Role, TranscriptRow, TurnMessage
from chatlane_schemas.content.prompts import prompt_of

ContextT = TypeVar("ContextT")
Item: TypeAlias = Mapping[str, Any]


def turn_handler(
    agent: Agent[ContextT],
    *,
    context_of: Callable[[Turn], ContextT] | None = None,
    model_of: Callable[[ModelOverride], Model | str] | None = None,
    run_config: RunConfig | None = None,
    max_turns: int = 10,
    options: TurnOptions | None = None,
    has_front_end_tools: bool = False,
) -> Handler:
    """Return a handler that answers turns with an agent.

    * Tools with `needs_approval` are asked in the chat, as a permission.
    * Results of function tools that are JSON are kept: another attempt at the turn does not call
      these tools with these arguments again. This holds for the agent and for those in its
      `handoffs`, but not for tools of MCP servers and for agents as tools.
    * Messages that arrive during a turn enter the next request to the model if the busy mode is
      `steer`.
    * A stopped turn is answered with the text so far.
    * While the model is away, or its key or name is wrong, the turn waits. A request that the
      provider refuses fails the turn.

    Args:
        agent: The agent; handoffs to other agents last until the end of the turn.
        context_of: Returns the context of a run.
        model_of: Returns the model for the choice of a person; without it, the choice has no effect.
        run_config: Configuration of each run. Traces have no content unless it says so.
        max_turns: How often a run may ask the model.
        options: Limits and formats.
        has_front_end_tools: The model may call the tools of the front end of a turn. The front end
            writes their descriptions, and their names have to differ from those of the agent's tools.
            Agents to which it hands off do not have them.
    """
    config = run_config or RunConfig(trace_include_sensitive_data=False)
    given = options or TurnOptions()
    return _Answering(
        agent, context_of, model_of, config, max_turns, given, has_front_end_tools
    ).answer


def front_end_tools(turn: Turn) -> list[FunctionTool]:
    """Return the tools of the front end of a turn, for one run."""
    tools = FrontEndTools(turn)

    def called(name: str) -> Callable[[ToolContext[Any], str], Awaitable[str]]:
        async def call(_: ToolContext[Any], arguments: str) -> str:
            return await result_for_model(tools, name, ToolCall("", name, arguments).values())

        return call

    return [
        FunctionTool(
            name=tool.name,
            description=tool.description,
            params_json_schema=tool.schema_of_arguments(),
            on_invoke_tool=called(tool.name),
            strict_json_schema=False,
        )
        for tool in tools.declared.values()
    ]


def items_of(rows: Iterable[Row]) -> list[TResponseInputItem]:
    """Return rows of a transcript as input of a model, oldest first.

    Rows of people have the header of `prompt_of`. Rows without content are left out.
    """
    return [item for row in rows for item in _items_of(row)]  # type: ignore[misc]


def rows_of(items: Iterable[Item]) -> list[TranscriptRow]:
    """Return items of a response as rows of a transcript, oldest first.

    Messages of people and calls of tools that run at the provider are left out.
    """
    rows: list[TranscriptRow] = []
    response, names = _Response(), dict[str, str]()
    for item in items:
        match item.get("type", "message"):
            case "reasoning":
                rows += response.ended_before_new_text()
                response.thoughts.append({**item})
            case "message" if item.get("role") == "assistant":
                rows += response.ended_before_new_text()
                response.text += _text_of(item.get("content"))
            case "function_call":
                call = ToolCall(item["call_id"], item["name"], item["arguments"] or "{}")
                names[call.id] = call.name
                response.calls.append(call)
            case "function_call_output":
                rows += response.ended()
                name = names.get(item["call_id"], "tool")
                rows.append(tool_row(item["call_id"], name, _text_of(item["output"])))
            case _:
                pass
    return stored_rows([*rows, *response.ended()])


class _Response:
    """One response of a model, in several items."""

    def __init__(self) -> None:
        self.text = ""
        self.calls: list[ToolCall] = []
        self.thoughts: list[dict[str, Any]] = []

    def ended(self) -> list[TranscriptRow]:
        """Return the response as a row, if there is any, and begin the next one."""
        words = (part for thought in self.thoughts for part in thought.get("summary") or ())
        reasoning = reasoning_of("\n".join(part["text"] for part in words), self.thoughts)
        row = assistant_row(self.text, self.calls, reasoning)
        self.text, self.calls, self.thoughts = "", [], []
        return [row] if row is not None else []

    def ended_before_new_text(self) -> list[TranscriptRow]:
        """End the response if it has calls: text comes before them."""
        return self.ended() if self.calls else []


def _text_of(content: Any) -> str:  # noqa: ANN401 - text, or parts of several kinds
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return json.dumps(content, ensure_ascii=False, default=str)
    return "".join(str(part.get("text") or part.get("refusal") or "") for part in content)


def _items_of(row: Row) -> Iterator[dict[str, Any]]:
    if row.role is Role.ASSISTANT:
        if row.reasoning is not None:
            # Without its encrypted content, an item is known to the provider for a while only.
            yield from (it for it in row.reasoning.data or () if it.get("encrypted_content"))
        if row.content:
            yield {"role": "assistant", "content": row.content}
        for call in calls_of(row):
            yield {
                "type": "function_call",
                "call_id": call.id,
                "name": call.name,
                "arguments": call.arguments,
            }
    elif row.role is Role.TOOL:
        yield {
            "type": "function_call_output",
            "call_id": row.tool_call_id or "",
            "output": row.content or "",
        }
    elif row.role is Role.SYSTEM:
        yield {"role": "system", "content": row.content or ""}
    elif text := prompt_text(row):
        yield {"role": "user", "content": text}


@dataclass(frozen=True, slots=True)
class _Answering:
    """Answers turns with an agent."""

    agent: Agent[Any]
    context_of: Callable[[Turn], Any] | None
    model_of: Callable[[ModelOverride], Model | str] | None
    config: RunConfig
    max_turns: int
    options: TurnOptions
    has_front_end_tools: bool

    async def answer(self, turn: Turn) -> Answer:
        """Run the agent for a turn."""
        given = front_end_tools(turn) if self.has_front_end_tools else []
        run = _Run(turn, self.agent, self.max_turns, self.options, given)
        context = self.context_of(turn) if self.context_of is not None else None
        try:
            return await run.answer(context, self._config(turn))
        except asyncio.CancelledError:
            if (answer := run.unfinished()) is None:
                raise
            return answer
        except ChatlaneClientError:
            raise
        except AgentsException as exc:
            # Of the SDK itself: too many requests to the model, or a guardrail.
            is_worth_repeating = isinstance(exc, ModelBehaviorError)
            name = type(exc).__name__
            raise TurnFailedError(name, retry=is_worth_repeating, transcript=run.rows) from exc
        except Exception as exc:
            raise failure_of(exc, run.rows) from exc

    def _config(self, turn: Turn) -> RunConfig:
        if self.model_of is None or turn.model_override is None:
            return self.config
        return replace(self.config, model=self.model_of(turn.model_override))


class _Run:
    """One run of an agent for a turn."""

    def __init__(
        self,
        turn: Turn,
        agent: Agent[Any],
        max_turns: int,
        options: TurnOptions,
        front_end_tools: Sequence[FunctionTool],
    ) -> None:
        self._turn = turn
        self._agent = _keeping(agent, KeptCalls(turn), {})
        # They keep what they return themselves.
        self._agent.tools = [*self._agent.tools, *front_end_tools]
        self._max_turns = max_turns
        self._options = options
        self._display = Display(turn)
        self._result: RunResultStreaming | None = None
        # What was written meanwhile, each with the number of items before it.
        self._taken: list[tuple[int, TResponseInputItem]] = []

    @property
    def rows(self) -> list[TranscriptRow]:
        """The rows of the run so far."""
        if self._result is None:
            return []
        made = (
            item.to_input_item()
            for item in self._result.new_items
            if not isinstance(item, ToolApprovalItem)
        )
        return rows_of(made)

    async def answer(self, context: object, config: RunConfig) -> Answer:
        """Run the agent to its end."""
        filtered = self._filter(config)
        given: list[TResponseInputItem] | RunState[Any] = await self._input()
        while True:
            self._result = result = Runner.run_streamed(
                self._agent,
                given,
                context=None if isinstance(given, RunState) else context,
                max_turns=self._max_turns,
                run_config=filtered,
            )
            try:
                async for event in result.stream_events():
                    await self._show(event)
            except asyncio.CancelledError:
                result.cancel()
                raise
            if not result.interruptions:
                break
            given = result.to_state()
            for item in result.interruptions:
                await self._decide(given, item)
        output = result.final_output
        parts = [] if output is None or output == "" else [self._part(output)]
        return answer_of(parts, self.rows, self._counts())

    def unfinished(self) -> Answer | None:
        """Return the answer of a cancelled run, or None if it has none."""
        rows, text = self.rows, self._display.text
        if self._turn.cancel_reason is not None and text:
            rows = with_text(rows, text)
            parts = [self._options.part(text)]
            return Reply(parts=parts, transcript=rows, **self._counts())
        if (self._turn.cancel_reason is not None or self._turn.is_stopping) and rows:
            return NoReply(transcript=rows, **self._counts())
        return None

    async def _input(self) -> list[TResponseInputItem]:
        history = items_of(await self._turn.history(limit=self._options.history_rows))
        instructions = instructions_of(self._turn)
        opening: list[TResponseInputItem] = []
        if instructions:
            opening = [{"role": "system", "content": instructions}]
        prompt = await self._prompt(self._turn.messages, self._turn.prompt or "(nothing)")
        earlier = [*self._turn.earlier_rows]
        # The model answers again.
        while earlier and earlier[-1].role is Role.ASSISTANT:
            earlier.pop()
        return [*opening, *history, prompt, *items_of(earlier)]

    async def _prompt(self, messages: Sequence[TurnMessage], text: str) -> TResponseInputItem:
        files = await files_of(messages, self._options)
        if not files:
            return {"role": "user", "content": text}
        content = [{"type": "input_text", "text": text}, *(_content(file) for file in files)]
        return cast("TResponseInputItem", {"role": "user", "content": content})

    def _filter(self, config: RunConfig) -> RunConfig:
        """Return the configuration with a filter that adds what was written meanwhile."""
        before = config.call_model_input_filter

        async def add(data: CallModelData[Any]) -> ModelInputData:
            items = [*data.model_data.input]
            if self._result is not None and (taken := await self._turn.take_steered()):
                self._taken.append((len(items), await self._prompt(taken, prompt_of(taken))))
            for place, (position, item) in enumerate(self._taken):
                items.insert(position + place, item)
            added = replace(data.model_data, input=items)
            if before is None:
                return added
            filtered = before(replace(data, model_data=added))
            return filtered if isinstance(filtered, ModelInputData) else await filtered

        return replace(config, call_model_input_filter=add)

    async def _show(self, event: Any) -> None:  # noqa: ANN401 - one of many kinds
        if event.type == "raw_response_event":
            match event.data:
                case ResponseTextDeltaEvent(delta=text):
                    await self._display.show_text(text)
                case (
                    ResponseReasoningTextDeltaEvent(delta=text)
                    | ResponseReasoningSummaryTextDeltaEvent(delta=text)
                ):
                    await self._display.show_thought(text)
                case _ if event.data.type == "response.created":
                    self._display.begin_response()
                case _:
                    pass
        elif event.type == "run_item_stream_event" and event.name in {"tool_called", "tool_output"}:
            raw: Any = event.item.raw_item
            item: Item = raw.model_dump() if isinstance(raw, BaseModel) else raw
            if item.get("type") == "function_call":
                await self._display.show_call(item["call_id"], item["name"])
            elif item.get("type") == "function_call_output":
                await self._display.show_result(item["call_id"], _text_of(item["output"]))

    async def _decide(self, state: RunState[Any], item: ToolApprovalItem) -> None:
        name = item.tool_name or ""
        given = ToolCall("", name, item.arguments or "{}").values()
        arguments = json.dumps(given, ensure_ascii=False)
        denial = await denial_of(self._turn, name, arguments, self._options)
        if denial is None:
            state.approve(item)
        else:
            state.reject(item, rejection_message=denial)

    def _part(self, output: object) -> Part:
        if isinstance(output, Part):
            return output
        text = output if isinstance(output, str) else to_json(output, indent=2).decode()
        return self._options.part(text)

    def _counts(self) -> dict[str, Any]:
        """Return usage and gauges as fields of an answer."""
        if self._result is None:
            return {}
        used = self._result.context_wrapper.usage
        details = used.input_tokens_details
        calls = sum(len(row.tool_calls or ()) for row in self.rows)
        counts = {
            "requests": used.requests,
            "tool_calls": calls,
            "input_tokens": used.input_tokens,
            "output_tokens": used.output_tokens,
            "cache_read_tokens": getattr(details, "cached_tokens", 0) or 0,
        }
        gauges = {}
        if entries := used.request_usage_entries:
            last = entries[-1]
            gauges = {
                "context_tokens": last.input_tokens + last.output_tokens,
                "last_prompt_tokens": last.input_tokens,
            }
        return {"usage": {name: it for name, it in counts.items() if it}, "gauges": gauges}


def _keeping(agent: Agent[Any], calls: KeptCalls, known: dict[int, Agent[Any]]) -> Agent[Any]:
    """Return an agent, and the agents that it hands off to, whose tools are steps.

    Args:
        agent: The agent.
        calls: The calls of the attempt.
        known: The result for each agent so far, by its identity; agents may hand off in a circle.
    """
    if (kept := known.get(id(agent))) is not None:
        return kept
    tools = [_kept(tool, calls) if isinstance(tool, FunctionTool) else tool for tool in agent.tools]
    servers = [KeptServer(server, calls) for server in agent.mcp_servers]
    known[id(agent)] = kept = agent.clone(tools=tools, mcp_servers=servers)
    kept.handoffs = [
        _keeping(other, calls, known) if isinstance(other, Agent) else other
        for other in agent.handoffs
    ]
    return kept


def _kept(tool: FunctionTool, calls: KeptCalls) -> FunctionTool:
    origin = get_function_tool_origin(tool)
    if origin is not None and origin.type is not ToolOriginType.FUNCTION:
        # A nested run may stop for an approval, and its result is no result then.
        return tool
    # The SDK makes a text of an error inside of the tool. An error is not to be kept.
    raising = set_function_tool_failure_error_function(copy(tool), None)

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:  # noqa: ANN401 - what a tool returns
        try:
            return await calls.run(
                tool.name, arguments, lambda: raising.on_invoke_tool(context, arguments)
            )
        except ChatlaneClientError:
            raise
        except Exception as exc:
            text = await maybe_invoke_function_tool_failure_error_function(
                function_tool=tool, context=context, error=exc
            )
            if text is None:
                raise
            return text

    kept = copy(tool)
    kept.on_invoke_tool = invoke
    return kept


def _content(file: LoadedFile) -> dict[str, Any]:
    link = f"data:{file.media_type};base64,{base64.b64encode(file.data).decode()}"
    if file.media_type == PDF:
        return {"type": "input_file", "filename": file.name or "file.pdf", "file_data": link}
    return {"type": "input_image", "image_url": link, "detail": "auto"}
