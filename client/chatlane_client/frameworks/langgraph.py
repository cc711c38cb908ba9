"""Answer turns with a graph of LangGraph.

    graph = builder.compile()
    worker = TurnWorker(client, "main", turn_handler(graph), principal="main")

The state of the graph has a channel `messages`, as `MessagesState` and the agents of LangChain have.
The transcript is the memory: each turn is a thread of its own, named by the id of the turn.
"""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Interrupt
from pydantic_core import from_json, to_json
from typing_extensions import override

from chatlane_client.api.front_end_tools import FrontEndTools
from chatlane_client.errors import ChatlaneClientError
from chatlane_client.frameworks.shared.approvals import denial_of
from chatlane_client.frameworks.shared.display import Display
from chatlane_client.frameworks.shared.failures import failure_of
from chatlane_client.frameworks.shared.files import PDF, LoadedFile, files_of
from chatlane_client.frameworks.shared.front_end import result_for_model
from chatlane_client.frameworks.shared.options import TurnOptions, instructions_of
from chatlane_client.frameworks.shared.rows import (
    Row,
    answer_of,
    assistant_row,
    calls_of,
    new_rows,
    prompt_text,
    reasoning_of,
    stored_rows,
    tool_row,
    with_text,
)
from chatlane_client.frameworks.shared.rows import ToolCall as StoredCall
from chatlane_client.turn import Answer, Handler, NoReply, Reply, Turn
from chatlane_schemas import Role, TranscriptRow, TurnMessage
from chatlane_schemas.content.prompts import prompt_of

Graph: TypeAlias = CompiledStateGraph[Any, Any, Any, Any]
Answerer: TypeAlias = Callable[[Turn, Any], Awaitable[Any]]

# Messages of the transcript; the graph made all others.
_OURS: Final = "chatlane-"
_THOUGHTS: Final = {"thinking", "redacted_thinking", "reasoning"}


def turn_handler(
    graph: Graph | Callable[[Turn], Graph],
    *,
    config_of: Callable[[Turn], RunnableConfig] | None = None,
    answer_interrupt: Answerer | None = None,
    options: TurnOptions | None = None,
    shared_channels: Collection[str] = (),
) -> Handler:
    """Return a handler that answers turns with a graph.

    * `interrupt(value)` asks the person, and returns the answer. Requests of LangChain's
      human-in-the-loop middleware are asked as permissions.
    * Messages that arrive during a turn enter the state after the tools of a step, if the busy mode
      is `steer`.
    * A stopped turn is answered with the text so far.
    * With a checkpointer that outlives the process, another attempt goes on after the last step
      that ended.

    Args:
        graph: A compiled graph, or a function that returns the graph of a turn, such as one with its
            `front_end_tools`. A graph without a checkpointer gets one in memory, for interrupts.
        config_of: Returns configuration of a run, such as the model that a person chose
            (`turn.model_override`).
        answer_interrupt: Answers interrupts, instead of a question in the chat.
        options: Limits and formats.
        shared_channels: Channels of the graph that the front end shares: a run begins with their
            values in its state, and the front end gets the values after each step. The front end may
            put anything into them.
    """
    answerer = answer_interrupt or _asked(options or TurnOptions())
    return _Answering(graph, config_of, answerer, options, tuple(shared_channels)).answer


def front_end_tools(turn: Turn) -> list[BaseTool]:
    """Return the tools of the front end of a turn, for the graph of this turn."""
    tools = FrontEndTools(turn)

    def called(name: str) -> Callable[..., Awaitable[str]]:
        async def call(**arguments: Any) -> str:  # noqa: ANN401 - by the schema of the front end
            return await result_for_model(tools, name, arguments)

        return call

    return [
        _FrontEndTool(
            name=tool.name,
            description=tool.description,
            args_schema=tool.schema_of_arguments(),
            coroutine=called(tool.name),
        )
        for tool in tools.declared.values()
    ]


def messages_of(rows: Iterable[Row]) -> list[AnyMessage]:
    """Return rows of a transcript as messages of a model, oldest first.

    Rows of people have the header of `prompt_of`. Rows without content are left out.
    """
    return [
        message
        for place, row in enumerate(rows)
        if (message := _message_of(row, f"{_OURS}row-{getattr(row, 'seq', place)}")) is not None
    ]


def rows_of(messages: Iterable[BaseMessage]) -> list[TranscriptRow]:
    """Return the messages of a model and its tools as rows of a transcript, oldest first.

    Messages of people and of the system are left out: the transcript has them.
    """
    rows: list[TranscriptRow] = []
    for message in messages:
        match message:
            case AIMessage():
                calls = [
                    StoredCall(call["id"] or "", call["name"], json.dumps(call["args"]))
                    for call in message.tool_calls
                ]
                row = assistant_row(str(message.text), calls, _reasoning(message))
                rows += [row] if row is not None else []
            case ToolMessage():
                name = message.name or "tool"
                rows.append(tool_row(message.tool_call_id, name, str(message.text)))
            case _:
                pass
    return stored_rows(rows)


def _message_of(row: Row, message_id: str) -> AnyMessage | None:
    if row.role is Role.ASSISTANT:
        thoughts = [*(row.reasoning.data or ())] if row.reasoning is not None else []
        text = row.content or ""
        texts: list[str | dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        calls = [ToolCall(name=call.name, args=call.values(), id=call.id) for call in calls_of(row)]
        if not (text or calls):
            return None
        content = [*thoughts, *texts] if thoughts else text
        return AIMessage(content=content, tool_calls=calls, id=message_id)
    if row.role is Role.TOOL:
        return ToolMessage(
            content=row.content or "",
            tool_call_id=row.tool_call_id or "",
            name=row.tool_name,
            id=message_id,
        )
    if row.role is Role.SYSTEM:
        return SystemMessage(content=row.content or "", id=message_id)
    text = prompt_text(row)
    return HumanMessage(content=text, id=message_id) if text else None


def _thoughts(message: AIMessage) -> list[dict[str, Any]]:
    if isinstance(message.content, str):
        return []
    blocks = (block for block in message.content if isinstance(block, dict))
    return [block for block in blocks if block.get("type") in _THOUGHTS]


def _thought_text(block: dict[str, Any]) -> str:
    return str(block.get("thinking") or block.get("reasoning") or "")


def _reasoning(message: AIMessage) -> Any:  # noqa: ANN401 - of the contract
    thoughts = _thoughts(message)
    text = "\n".join(words for block in thoughts if (words := _thought_text(block)))
    return reasoning_of(
        text or str(message.additional_kwargs.get("reasoning_content", "")), thoughts
    )


def _asked(options: TurnOptions) -> Answerer:
    """Return the function that asks the person about interrupts."""

    async def answer(turn: Turn, value: Any) -> Any:  # noqa: ANN401 - any value may interrupt
        if isinstance(value, dict) and isinstance(value.get("action_requests"), list):
            return {"decisions": [await _decision(turn, it) for it in value["action_requests"]]}
        text, choices = value, ()
        if isinstance(value, dict) and isinstance(value.get("question"), str):
            text, choices = value["question"], tuple(value.get("options", ()))
        elif not isinstance(value, str):
            text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
        answered = await turn.ask(text, choices, within=options.approve_within)
        return answered.value

    async def _decision(turn: Turn, request: dict[str, Any]) -> dict[str, str]:
        arguments = json.dumps(request.get("args", {}), ensure_ascii=False, default=str)
        denial = await denial_of(turn, str(request.get("name", "")), arguments, options)
        if denial is None:
            return {"type": "approve"}
        return {"type": "reject", "message": denial}

    return answer


@dataclass(frozen=True, slots=True)
class _Answering:
    """Answers turns with a graph."""

    graph: Graph | Callable[[Turn], Graph]
    config_of: Callable[[Turn], RunnableConfig] | None
    answer_interrupt: Answerer
    given_options: TurnOptions | None
    shared_channels: tuple[str, ...]

    async def answer(self, turn: Turn) -> Answer:
        """Run the graph for a turn."""
        options = self.given_options or TurnOptions()
        graph = self.graph
        if not isinstance(graph, CompiledStateGraph):
            graph = graph(turn)
        if graph.checkpointer in (None, False):
            graph = graph.copy(update={"checkpointer": InMemorySaver()})
        config, shared = self._config(turn), _SharedChannels(turn, self.shared_channels)
        run = _Run(turn, graph, config, options, self.answer_interrupt, shared=shared)
        try:
            return await run.answer()
        except asyncio.CancelledError:
            if (answer := await run.unfinished()) is None:
                raise
            return answer
        except ChatlaneClientError:
            raise
        except Exception as exc:
            raise failure_of(exc, await run.rows()) from exc

    def _config(self, turn: Turn) -> RunnableConfig:
        config: RunnableConfig = self.config_of(turn) if self.config_of is not None else {}
        thread = {"thread_id": str(turn.id)}
        return {**config, "configurable": {**config.get("configurable", {}), **thread}}


class _FrontEndTool(StructuredTool):
    """A tool whose arguments may have any names, also those that LangChain gives to functions."""

    coroutine: Callable[..., Awaitable[Any]]  # type: ignore[mutable-override]

    @override
    async def _arun(self, *args: Any, **kwargs: Any) -> Any:
        return await self.coroutine(*args, **kwargs)


class _SharedChannels:
    """The channels of a graph that the front end of a turn shares."""

    def __init__(self, turn: Turn, names: Sequence[str]) -> None:
        self._names = names
        self._front_end = FrontEndTools(turn)
        self._is_followed = self._front_end.has_state

    def values(self) -> dict[str, Any]:
        """Return the values that the front end has in them."""
        state = self._front_end.state
        return {name: state[name] for name in self._names if name in state}

    async def show(self, values: Mapping[str, Any]) -> None:
        """Give the front end what has changed in them, unless the person has left it.

        Raises:
            FrontEndCallError: It is no JSON, or too large.
        """
        if not self._is_followed:
            return
        shared = {name: values[name] for name in self._names if name in values}
        before = self._front_end.state
        after = {**before, **from_json(to_json(shared, fallback=str))}
        if after != before:
            self._is_followed = await self._front_end.set_state(after)


class _Run:
    """One run of a graph for a turn."""

    def __init__(
        self,
        turn: Turn,
        graph: Graph,
        config: RunnableConfig,
        options: TurnOptions,
        answer_interrupt: Answerer,
        *,
        shared: _SharedChannels,
    ) -> None:
        self._turn = turn
        self._graph = graph
        self._config = config
        self._options = options
        self._answer_interrupt = answer_interrupt
        self._shared = shared
        self._display = Display(turn)
        self._responding: str | None = None
        self._last_nodes: list[str] = []

    async def answer(self) -> Answer:
        """Run the graph to its end, step by step."""
        state = await self._graph.aget_state(self._config)
        given: Any = None
        if not state.values:
            given = {**self._shared.values(), "messages": await self._input()}
        while given is not None or state.next:
            if given is None and state.interrupts:
                given = Command(resume=await self._answers(state.interrupts))
            await self._step(given)
            given, state = None, await self._graph.aget_state(self._config)
            await self._shared.show(state.values)
            if state.next and not state.interrupts:
                await self._take_in(state.values["messages"])
        produced = _produced(state.values["messages"])
        answers = [message for message in produced if isinstance(message, AIMessage)]
        text = str(answers[-1].text) if answers else ""
        parts = [self._options.part(text)] if text else []
        return answer_of(parts, self._rows_of(produced), _counts(answers))

    async def rows(self) -> list[TranscriptRow]:
        """Return the steps of the graph so far, as rows."""
        state = await self._graph.aget_state(self._config)
        return self._rows_of(_produced(state.values.get("messages", ())))

    def _rows_of(self, produced: Iterable[BaseMessage]) -> list[TranscriptRow]:
        # A thread that goes on has what the attempt before has already returned.
        return new_rows(rows_of(produced), self._turn.earlier_rows)

    async def unfinished(self) -> Answer | None:
        """Return the answer of a cancelled run, or None if it has none."""
        rows, text = await self.rows(), self._display.text
        if self._turn.cancel_reason is not None and text:
            return Reply(parts=[self._options.part(text)], transcript=with_text(rows, text))
        if (self._turn.cancel_reason is not None or self._turn.is_stopping) and rows:
            return NoReply(transcript=rows)
        return None

    async def _input(self) -> list[AnyMessage]:
        history = messages_of(await self._turn.history(limit=self._options.history_rows))
        instructions = instructions_of(self._turn)
        opening = [SystemMessage(content=instructions, id=f"{_OURS}chat")] if instructions else []
        prompt = await self._prompt(self._turn.messages, self._turn.prompt or "(nothing)")
        earlier = messages_of(self._turn.earlier_rows)
        for place, message in enumerate(earlier):
            message.id = f"{_OURS}earlier-{place}"
        # The model answers again.
        while earlier and isinstance(earlier[-1], AIMessage):
            earlier.pop()
        return [*opening, *history, prompt, *earlier]

    async def _prompt(self, messages: Sequence[TurnMessage], text: str) -> HumanMessage:
        files = await files_of(messages, self._options)
        content = [{"type": "text", "text": text}, *(_block(file) for file in files)]
        return HumanMessage(
            content=content if files else text,  # type: ignore[arg-type]
            id=f"{_OURS}prompt-{messages[-1].seq}",
        )

    async def _step(self, given: Any) -> None:  # noqa: ANN401 - state or command
        """Run the next step, and show what happens."""
        streamed = self._graph.astream(
            given, self._config, stream_mode=["messages", "updates"], interrupt_after="*"
        )
        async for mode, data in streamed:
            updates: Any = data
            if mode == "messages":
                await self._show(updates[0])
            elif nodes := [name for name in updates if not name.startswith("__")]:
                self._last_nodes = nodes

    async def _show(self, message: BaseMessage) -> None:
        if isinstance(message, ToolMessage):
            is_done = message.status == "success"
            text = str(message.text)
            await self._display.show_result(message.tool_call_id, text, is_done=is_done)
        elif isinstance(message, AIMessage):
            if message.id != self._responding:
                self._responding = message.id
                self._display.begin_response()
            for block in _thoughts(message):
                await self._display.show_thought(_thought_text(block))
            await self._display.show_text(str(message.text))
            calls = message.tool_call_chunks if isinstance(message, AIMessageChunk) else []
            for call in calls or message.tool_calls:
                # Only the first chunk of a call has its name.
                if call["name"]:
                    await self._display.show_call(call["id"] or "", call["name"])

    async def _answers(self, interrupts: Sequence[Interrupt]) -> dict[str, Any]:
        return {it.id: await self._answer_interrupt(self._turn, it.value) for it in interrupts}

    async def _take_in(self, messages: Sequence[BaseMessage]) -> None:
        """Add what was written meanwhile to the state; a model wants results before it."""
        if len(self._last_nodes) != 1 or not isinstance(messages[-1], ToolMessage):
            return
        if taken := await self._turn.take_steered():
            prompt = await self._prompt(taken, prompt_of(taken))
            update = {"messages": [prompt]}
            await self._graph.aupdate_state(self._config, update, as_node=self._last_nodes[0])


def _produced(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    return [message for message in messages if not (message.id or "").startswith(_OURS)]


def _block(file: LoadedFile) -> dict[str, Any]:
    data = base64.b64encode(file.data).decode()
    kind = "file" if file.media_type == PDF else "image"
    named = {"filename": file.name or "file.pdf"} if kind == "file" else {}
    return {"type": kind, "base64": data, "mime_type": file.media_type, **named}


def _counts(said: Sequence[AIMessage]) -> dict[str, Any]:
    """Return usage and gauges as fields of an answer."""
    usage = {"requests": len(said), "tool_calls": sum(len(it.tool_calls) for it in said)}
    for message in said:
        for name, count in _used(message):
            usage[name] = usage.get(name, 0) + count
    gauges = {}
    if said and (last := said[-1].usage_metadata):
        gauges = {
            "context_tokens": last["input_tokens"] + last["output_tokens"],
            "last_prompt_tokens": last["input_tokens"],
        }
    return {"usage": {name: count for name, count in usage.items() if count}, "gauges": gauges}


def _used(message: AIMessage) -> Iterator[tuple[str, int]]:
    if (used := message.usage_metadata) is not None:
        details = used.get("input_token_details", {})
        yield "input_tokens", used["input_tokens"]
        yield "output_tokens", used["output_tokens"]
        yield "cache_read_tokens", details.get("cache_read", 0)
        yield "cache_write_tokens", details.get("cache_creation", 0)
