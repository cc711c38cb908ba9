"""Answer turns with the Claude Agent SDK.

    options = ClaudeAgentOptions(system_prompt="Answer briefly.", allowed_tools=["Read"])
    worker = TurnWorker(client, "main", turn_handler(options), principal="main")

Each turn is a session of its own of the Claude CLI. What was said before is part of its prompt, as
text, so any worker can answer any turn.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from http import HTTPStatus
from typing import Any, Final

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    Message,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    SdkMcpTool,
    StreamEvent,
    TextBlock,
    ThinkingBlock,
    ToolPermissionContext,
    ToolResultBlock,
    ToolUseBlock,
    Transport,
    UserMessage,
    create_sdk_mcp_server,
)
from claude_agent_sdk.types import PermissionResult

from chatlane_client.api.front_end_tools import FrontEndTools
from chatlane_client.errors import AgentUnavailableError, ChatlaneClientError, TurnFailedError
from chatlane_client.frameworks.shared.approvals import denial_of
from chatlane_client.frameworks.shared.display import Display
from chatlane_client.frameworks.shared.failures import OPERATOR_PAUSE, failure_of, status_failure
from chatlane_client.frameworks.shared.files import PDF, LoadedFile, files_of
from chatlane_client.frameworks.shared.front_end import result_for_model
from chatlane_client.frameworks.shared.kept_calls import KeptCalls
from chatlane_client.frameworks.shared.options import TurnOptions, instructions_of
from chatlane_client.frameworks.shared.rows import (
    Row,
    ToolCall,
    answer_of,
    assistant_row,
    calls_of,
    reasoning_of,
    stored_rows,
    tool_row,
    with_text,
)
from chatlane_client.turn import Answer, Handler, NoReply, Reply, Turn
from chatlane_schemas import ModelOverride, Role, TranscriptRow
from chatlane_schemas.content.prompts import prompt_of
from chatlane_schemas.session_api.transcripts import TranscriptEntry

_MAX_RESULT_CHARACTERS: Final = 2_000
_TOOL_SERVER: Final = "turn"
_FRONT_END_SERVER: Final = "front_end"
_FRONT_END_PREFIX: Final = f"mcp__{_FRONT_END_SERVER}__"
_ASK_TOOL: Final = "AskUserQuestion"
_MAX_SCHEMA_DEPTH: Final = 20
_SCHEMA_PARTS: Final = frozenset({"items", "additionalProperties"})
_SCHEMA_LISTS: Final = frozenset({"anyOf", "oneOf", "allOf"})
_SCHEMA_VALUES: Final = frozenset(
    (
        *("type", "title", "description", "enum", "const", "default", "required"),
        *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
    )
)
_STATUS_OF_ERROR: Final = {
    "authentication_failed": HTTPStatus.UNAUTHORIZED,
    "billing_error": HTTPStatus.PAYMENT_REQUIRED,
    "rate_limit": HTTPStatus.TOO_MANY_REQUESTS,
    "invalid_request": HTTPStatus.BAD_REQUEST,
    "server_error": HTTPStatus.SERVICE_UNAVAILABLE,
}


def turn_handler(
    options: ClaudeAgentOptions | None = None,
    *,
    model_of: Callable[[ModelOverride], str] | None = None,
    transport_of: Callable[[ClaudeAgentOptions], Transport] | None = None,
    tools: Sequence[SdkMcpTool[Any]] = (),
    turn_options: TurnOptions | None = None,
    has_front_end_tools: bool = False,
) -> Handler:
    """Return a handler that answers turns with the Claude Agent SDK.

    * Tools that the options do not allow are asked in the chat, as a permission; questions of the
      model are asked with their options.
    * Messages that arrive during a turn reach the model with the result of the next tool, if the
      busy mode is `steer`.
    * A stopped turn is answered with the text so far.
    * While the model is away, or its key is wrong, the turn waits. A request that the provider
      refuses fails the turn.

    Args:
        options: Options of each run. `can_use_tool` of the options is replaced.
        model_of: Returns the model for the choice of a person; without it, the choice has no effect.
        transport_of: Returns what runs the CLI, for example on another machine.
        tools: Functions of this process as tools, made by `claude_agent_sdk.tool`. The model calls
            them `mcp__turn__` and their name. Their results are kept: another attempt at the turn
            does not call them with the same arguments again.
        turn_options: Limits and formats.
        has_front_end_tools: The model may call the tools of the front end of a turn without approval,
            as `mcp__front_end__` and their name. The front end writes their descriptions.
    """
    given = options or ClaudeAgentOptions()
    if tools or has_front_end_tools:
        if not isinstance(given.mcp_servers, dict):
            raise ValueError("tools cannot be added to a file of MCP servers: pass a dict of them")
        if has_front_end_tools and _FRONT_END_SERVER in given.mcp_servers:
            raise ValueError(f"{_FRONT_END_SERVER}: the tools of front ends need this server name")
    limits = turn_options or TurnOptions()
    return _Answering(
        given, model_of, transport_of, tuple(tools), limits, has_front_end_tools
    ).answer


def front_end_tools(turn: Turn) -> list[SdkMcpTool[Any]]:
    """Return the tools of the front end of a turn, for one run."""
    tools = FrontEndTools(turn)

    def called(name: str) -> Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]:
        async def call(arguments: dict[str, Any]) -> dict[str, Any]:
            text = await result_for_model(tools, name, arguments)
            return {"content": [{"type": "text", "text": text}]}

        return call

    return [
        SdkMcpTool(
            name=tool.name,
            description=tool.description,
            input_schema=_checkable(tool.schema_of_arguments()),
            handler=called(tool.name),
        )
        for tool in tools.declared.values()
    ]


def _checkable(schema: object, depth: int = 0) -> Any:  # noqa: ANN401 - JSON
    """Return the part of a schema by which the SDK can check arguments.

    The front end wrote the schema. A reference may name any address, and a pattern may take for ever.
    """
    if not isinstance(schema, dict):
        return schema if isinstance(schema, bool) else {}
    if depth > _MAX_SCHEMA_DEPTH:
        return {}
    kept: dict[str, Any] = {key: value for key, value in schema.items() if key in _SCHEMA_VALUES}
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            kept[key] = {name: _checkable(it, depth + 1) for name, it in value.items()}
        elif key in _SCHEMA_PARTS:
            kept[key] = _checkable(value, depth + 1)
        elif key in _SCHEMA_LISTS and isinstance(value, list):
            kept[key] = [_checkable(it, depth + 1) for it in value]
    return kept


def history_text(rows: Iterable[Row]) -> str:
    """Return rows of a transcript as text for a prompt, oldest first.

    Only headers begin a line with a bracket: no person can write words of the model.
    """
    return "\n".join(line for row in rows for line in _said(row))


def rows_of(messages: Iterable[Message]) -> list[TranscriptRow]:
    """Return messages of a run as rows of a transcript, oldest first.

    Prompts are left out: the transcript has the messages of people. So are messages of subagents.
    """
    rows: list[TranscriptRow] = []
    names: dict[str, str] = {}
    for message in messages:
        if isinstance(message, AssistantMessage) and message.parent_tool_use_id is None:
            row = _assistant_row(message)
            rows += [row] if row is not None else []
            names |= {call.id: call.name for it in rows[-1:] for call in calls_of(it)}
        elif isinstance(message, UserMessage) and message.parent_tool_use_id is None:
            rows += [
                tool_row(it.tool_use_id, names.get(it.tool_use_id, "tool"), _result_text(it))
                for it in _results(message)
            ]
    return stored_rows(rows)


def _said(row: Row) -> list[str]:
    content = row.content or ""
    if row.role is Role.ASSISTANT:
        parts = [f"[you] {_indented(content)}"] if content else []
        return parts + [f"[you called {it.name}] {_indented(it.arguments)}" for it in calls_of(row)]
    if row.role is Role.TOOL:
        kept = content[:_MAX_RESULT_CHARACTERS]
        return [f"[result of {row.tool_name or 'tool'}] {_indented(kept)}"]
    if row.role is Role.SYSTEM:
        return [f"[note] {_indented(content)}"] if content else []
    text = prompt_of([row]) if isinstance(row, TranscriptEntry) else content and f" {content}"
    # A text without a sender has no header; one that begins with a bracket is indented.
    return [text if text.startswith("[") else f"[person] {text}"] if text else []


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _assistant_row(message: AssistantMessage) -> TranscriptRow | None:
    text = "".join(it.text for it in message.content if isinstance(it, TextBlock))
    calls = [
        ToolCall(it.id, _tool_name(it), json.dumps(it.input, ensure_ascii=False))
        for it in message.content
        if isinstance(it, ToolUseBlock)
    ]
    thoughts = [it for it in message.content if isinstance(it, ThinkingBlock)]
    data = [
        {"type": "thinking", "thinking": it.thinking, "signature": it.signature} for it in thoughts
    ]
    words = "\n".join(it.thinking for it in thoughts if it.thinking)
    return assistant_row(text, calls, reasoning_of(words, data))


def _tool_name(call: ToolUseBlock) -> str:
    """Return the name of a tool; the front end knows its tools by their own."""
    return call.name.removeprefix(_FRONT_END_PREFIX)


def _results(message: UserMessage) -> list[ToolResultBlock]:
    if isinstance(message.content, str):
        return []
    return [it for it in message.content if isinstance(it, ToolResultBlock)]


def _result_text(block: ToolResultBlock) -> str:
    if isinstance(block.content, str):
        return block.content
    return "".join(str(it.get("text") or f"[{it.get('type')}]") for it in block.content or ())


@dataclass(frozen=True, slots=True)
class _Answering:
    """Answers turns with a session of the CLI each."""

    options: ClaudeAgentOptions
    model_of: Callable[[ModelOverride], str] | None
    transport_of: Callable[[ClaudeAgentOptions], Transport] | None
    tools: tuple[SdkMcpTool[Any], ...]
    turn_options: TurnOptions
    has_front_end_tools: bool

    async def answer(self, turn: Turn) -> Answer:
        """Run the CLI for a turn."""
        tools = front_end_tools(turn) if self.has_front_end_tools else []
        run = _Run(turn, self.turn_options, {f"{_FRONT_END_PREFIX}{tool.name}" for tool in tools})
        options = self._with_tools(self._with_model(turn), KeptCalls(turn))
        options = run.settings(_with_front_end(options, tools))
        transport = self.transport_of(options) if self.transport_of is not None else None
        try:
            return await run.answer(ClaudeSDKClient(options, transport))
        except asyncio.CancelledError:
            if (answer := run.unfinished()) is None:
                raise
            return answer
        except ChatlaneClientError:
            raise
        except Exception as exc:
            raise failure_of(exc, run.rows) from exc

    def _with_tools(self, options: ClaudeAgentOptions, calls: KeptCalls) -> ClaudeAgentOptions:
        if not self.tools or not isinstance(options.mcp_servers, dict):
            return options
        kept = [replace(tool, handler=_kept(tool, calls)) for tool in self.tools]
        server = create_sdk_mcp_server(_TOOL_SERVER, tools=kept)
        return replace(options, mcp_servers={**options.mcp_servers, _TOOL_SERVER: server})

    def _with_model(self, turn: Turn) -> ClaudeAgentOptions:
        if self.model_of is None or turn.model_override is None:
            return self.options
        return replace(self.options, model=self.model_of(turn.model_override))


def _with_front_end(
    options: ClaudeAgentOptions, tools: list[SdkMcpTool[Any]]
) -> ClaudeAgentOptions:
    # They keep what they return themselves.
    if not tools or not isinstance(options.mcp_servers, dict):
        return options
    server = create_sdk_mcp_server(_FRONT_END_SERVER, tools=tools)
    return replace(options, mcp_servers={**options.mcp_servers, _FRONT_END_SERVER: server})


class _Run:
    """One session of the CLI for a turn."""

    def __init__(self, turn: Turn, options: TurnOptions, of_front_end: Container[str]) -> None:
        self._turn = turn
        self._options = options
        self._of_front_end = of_front_end
        self._display = Display(turn)
        self._messages: list[Message] = []

    @property
    def rows(self) -> list[TranscriptRow]:
        """The rows of the run so far."""
        return rows_of(self._messages)

    def settings(self, options: ClaudeAgentOptions) -> ClaudeAgentOptions:
        """Return the options of the run."""
        hooks = {**(options.hooks or {})}
        hooks["PostToolUse"] = [*hooks.get("PostToolUse", []), HookMatcher(hooks=[self._take_in])]
        return replace(
            options,
            can_use_tool=self._decide,
            hooks=hooks,
            include_partial_messages=True,
            system_prompt=_with_context(options.system_prompt, instructions_of(self._turn)),
        )

    async def answer(self, client: ClaudeSDKClient) -> Answer:
        """Run to the end."""
        content = await self._content()
        async with client:
            await client.query(_prompt(content))
            async for message in client.receive_response():
                self._messages.append(message)
                await self._show(message)
        return self._answer_of(self._messages[-1])

    def unfinished(self) -> Answer | None:
        """Return the answer of a cancelled run, or None if it has none."""
        rows, text = self.rows, self._display.text
        if self._turn.cancel_reason is not None and text:
            rows = with_text(rows, text)
            return Reply(parts=[self._options.part(text)], transcript=rows)
        if (self._turn.cancel_reason is not None or self._turn.is_stopping) and rows:
            return NoReply(transcript=rows)
        return None

    async def _content(self) -> list[dict[str, Any]]:
        """Return the prompt: what was said before, the messages of the turn, and their files."""
        text = self._turn.prompt or "(nothing)"
        history = history_text(await self._turn.history(limit=self._options.history_rows))
        if history:
            text = f"The conversation so far:\n\n{history}\n\nAnswer this now:\n\n{text}"
        if earlier := history_text(self._turn.earlier_rows):
            text += f"\n\nYou began to answer and were interrupted. So far:\n\n{earlier}"
        files = await files_of(self._turn.messages, self._options)
        return [*(_block(file) for file in files), {"type": "text", "text": text}]

    async def _show(self, message: Message) -> None:
        if isinstance(message, StreamEvent) and message.parent_tool_use_id is None:
            event = message.event
            delta = event.get("delta") or {}
            if event.get("type") == "message_start":
                self._display.begin_response()
            elif delta.get("type") == "text_delta":
                await self._display.show_text(delta.get("text"))
            elif delta.get("type") == "thinking_delta":
                await self._display.show_thought(delta.get("thinking"))
        elif isinstance(message, AssistantMessage):
            for block in message.content:
                if isinstance(block, ToolUseBlock):
                    await self._display.show_call(block.id, _tool_name(block))
        elif isinstance(message, UserMessage):
            for result in _results(message):
                is_done = not result.is_error
                text = _result_text(result)
                await self._display.show_result(result.tool_use_id, text, is_done=is_done)

    async def _take_in(self, *_: object) -> Any:  # noqa: ANN401 - a hook of the SDK
        """Give the model what was written meanwhile, with the result of a tool."""
        taken = await self._turn.take_steered()
        if not taken:
            return {}
        context = f"Meanwhile the person wrote:\n{prompt_of(taken)}"
        return {
            "hookSpecificOutput": {
                "hookEventName": "PostToolUse",
                "additionalContext": context,
            }
        }

    async def _decide(
        self, name: str, given: dict[str, Any], _: ToolPermissionContext
    ) -> PermissionResult:
        if name == _ASK_TOOL:
            answers = {
                question["question"]: await self._ask(question)
                for question in given.get("questions", ())
            }
            return PermissionResultAllow(updated_input={**given, "answers": answers})
        if name in self._of_front_end:
            return PermissionResultAllow(updated_input=given)
        arguments = json.dumps(given, ensure_ascii=False)
        denial = await denial_of(self._turn, name, arguments, self._options)
        if denial is None:
            return PermissionResultAllow(updated_input=given)
        return PermissionResultDeny(message=denial)

    async def _ask(self, question: dict[str, Any]) -> str:
        choices = [str(option["label"]) for option in question.get("options", ())]
        text, within = question["question"], self._options.approve_within
        answer = await self._turn.ask(text, choices, within=within)
        return answer.value or "(no answer)"

    def _answer_of(self, result: Message) -> Answer:
        if not isinstance(result, ResultMessage):
            raise TurnFailedError("the run has no result", retry=True, transcript=self.rows)
        if result.is_error:
            raise self._failure(result)
        text = result.result or self._display.text
        parts = [self._options.part(text)] if text else []
        return answer_of(parts, self.rows, _counts(result, self.rows))

    def _failure(self, result: ResultMessage) -> Exception:
        """Return the error of a run in the terms of chatlane; texts may quote messages."""
        errors = [it.error for it in self._messages if isinstance(it, AssistantMessage) if it.error]
        status = result.api_error_status or _STATUS_OF_ERROR.get(errors[-1] if errors else "")
        if status is not None:
            return status_failure("Claude", status, self.rows)
        if errors:
            return AgentUnavailableError(
                f"Claude: {errors[-1]}", again_in=OPERATOR_PAUSE, transcript=self.rows
            )
        return TurnFailedError(f"Claude: {result.subtype}", transcript=self.rows)


def _kept(tool: SdkMcpTool[Any], calls: KeptCalls) -> Callable[[Any], Awaitable[dict[str, Any]]]:
    """Return a tool whose calls are steps of the turn."""

    async def call(arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - as the tool declares it
        named = json.dumps(arguments, ensure_ascii=False, sort_keys=True)
        result: dict[str, Any] = await calls.run(tool.name, named, lambda: tool.handler(arguments))
        return result

    return call


def _with_context(prompt: Any, context: str | None) -> Any:  # noqa: ANN401 - one of four types
    """Return a system prompt with the context of the chat."""
    if context is None:
        return prompt
    if prompt is None or isinstance(prompt, str):
        return f"{prompt}\n\n{context}" if prompt else context
    key = {"preset": "append", "custom": "prompt"}.get(prompt.get("type", ""))
    if key is None:
        # A file of the CLI; its text is not known here.
        return prompt
    before = prompt.get(key)
    return {**prompt, key: f"{before}\n\n{context}" if before else context}


async def _prompt(content: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    message = {"role": "user", "content": content}
    yield {"type": "user", "message": message, "parent_tool_use_id": None}


def _block(file: LoadedFile) -> dict[str, Any]:
    data = base64.b64encode(file.data).decode()
    kind = "document" if file.media_type == PDF else "image"
    source = {"type": "base64", "media_type": file.media_type, "data": data}
    return {"type": kind, "source": source}


def _counts(result: ResultMessage, rows: list[TranscriptRow]) -> dict[str, Any]:
    """Return usage and costs as fields of an answer."""
    used = result.usage or {}
    counts = {
        "requests": result.num_turns,
        "tool_calls": sum(len(row.tool_calls or ()) for row in rows),
        "input_tokens": used.get("input_tokens"),
        "output_tokens": used.get("output_tokens"),
        "cache_read_tokens": used.get("cache_read_input_tokens"),
        "cache_write_tokens": used.get("cache_creation_input_tokens"),
    }
    cost = result.total_cost_usd
    costs = {"cost_usd": Decimal(str(cost))} if cost else {}
    return {"usage": {name: it for name, it in counts.items() if it}, "costs": costs}
