"""A turn worker that asks a language model, over any endpoint that speaks `/chat/completions`.

What was said before comes from the session API, so nothing is kept here. The answer is streamed while
it is written and sent to the chat when it is complete. The model sees images, and calls the tools in
`TOOLS`; if one model is away, the next one answers. Copy it, and change tools and instructions.
"""

import asyncio
import base64
import json
import secrets
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from os import environ
from typing import Any
from zoneinfo import ZoneInfo

import httpx

from chatlane_client import (
    AgentUnavailableError,
    Answer,
    NoReply,
    Reply,
    Turn,
    TurnFailedError,
    TurnWorker,
    open_connection,
    prompt_of,
)
from chatlane_client.frameworks.shared.failures import status_failure
from chatlane_client.frameworks.shared.files import load_file
from chatlane_client.frameworks.shared.kept_calls import KeptCalls
from chatlane_client.frameworks.shared.options import TurnOptions, instructions_of
from chatlane_client.frameworks.shared.rows import with_text
from chatlane_schemas import LivePiece, PieceKind, Role, StepState, TranscriptRow
from chatlane_schemas.session_api.transcripts import TranscriptEntry

NATS_URL = environ.get("NATS_URL", "nats://127.0.0.1:4222")
AGENT = environ.get("AGENT", "main")
SLOTS = int(environ.get("SLOTS", "8"))
BASE_URL = environ.get("LLM_BASE_URL", "http://127.0.0.1:11434/v1")
API_KEY = environ.get("LLM_API_KEY", "")
# Several, separated by commas: the next one answers if one is away.
MODELS = [name.strip() for name in environ.get("LLM_MODEL", "llama3.2").split(",")]
INSTRUCTIONS = environ.get("LLM_INSTRUCTIONS", "You are a helpful assistant. Answer briefly.")
HISTORY_ROWS = int(environ.get("LLM_HISTORY_ROWS", "40"))
# Files are not fetched from private addresses unless a store in your network has them.
FILES = TurnOptions(has_local_files=environ.get("LLM_LOCAL_FILES") == "yes")
MAX_ROUNDS = 8

Message = dict[str, Any]


async def current_time(zone: str = "UTC") -> str:
    """Return the time in a zone."""
    return datetime.now(ZoneInfo(zone)).isoformat(timespec="minutes")


async def roll_dice(sides: int = 6) -> str:
    """Return a random number."""
    return str(secrets.randbelow(sides) + 1)


Tool = Callable[..., Awaitable[str]]
# What a tool returns is kept as a step of the turn (`Turn.step`): after a kill the next attempt does
# not call it again. A tool that is killed while it runs is called again.
TOOLS: dict[str, tuple[Tool, str, Message]] = {
    "current_time": (current_time, "The time in a zone.", {"zone": {"type": "string"}}),
    "roll_dice": (roll_dice, "A random number from 1 on.", {"sides": {"type": "integer"}}),
}


class Model:
    """A language model behind an HTTP endpoint."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def answer(self, turn: Turn) -> Answer:
        """Answer a turn; a stopped turn is answered with the text so far.

        A refusal of the model fails the turn. While all models are away, the turn waits.
        """
        talk = Talk(turn, await conversation(turn))
        try:
            for _ in range(MAX_ROUNDS):
                await self._respond(turn, talk)
                if not talk.calls:
                    return talk.reply()
                await talk.run_tools()
        except asyncio.CancelledError:
            if turn.cancel_reason is None or not (talk.text or talk.rows):
                raise
            return talk.reply()
        raise TurnFailedError("the model called tools without an end", transcript=talk.rows)

    async def _respond(self, turn: Turn, talk: "Talk") -> None:
        """Stream one response of the first model that is there."""
        chosen = turn.model_override.model if turn.model_override is not None else None
        models = [name for name in (chosen, *MODELS) if name]
        for place, name in enumerate(models):
            talk.begin_response()
            try:
                await self._stream(name, talk)
            except AgentUnavailableError:
                # What people have seen already stays the beginning of the answer.
                if place == len(models) - 1 or talk.text:
                    raise
            else:
                return

    async def _stream(self, name: str, talk: "Talk") -> None:
        """Take the response of a model piece by piece, from server-sent events.

        Raises:
            AgentUnavailableError: The model is away or unknown, or has too much to do.
            TurnFailedError: It refuses the request, or says nothing.
        """
        body = {
            "model": name,
            "messages": talk.messages,
            "tools": described(),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        try:
            async with self._http.stream("POST", "/chat/completions", json=body) as response:
                check(response)
                async for line in response.aiter_lines():
                    data = line.removeprefix("data:").strip()
                    if line.startswith("data:") and data != "[DONE]":
                        await talk.take(json.loads(data))
        except httpx.TransportError as exc:
            raise AgentUnavailableError(f"the model is away: {type(exc).__name__}") from exc
        if not talk.text and not talk.calls:
            raise TurnFailedError("the model said nothing", retry=True)


class Talk:
    """What a turn's model was told and has answered.

    Attributes:
        messages: In the shape of the endpoint.
        rows: What model and tools said, as rows of the transcript.
        text: Text of the present response.
        calls: Its calls of tools.
    """

    def __init__(self, turn: Turn, messages: list[Message]) -> None:
        self._turn = turn
        self.messages = messages
        self.rows: list[TranscriptRow] = []
        self.text = ""
        self.calls: list[Message] = []
        self._usage: dict[str, int] = {}
        self._kept = KeptCalls(turn)

    def begin_response(self) -> None:
        """Forget the response before."""
        self.text, self.calls = "", []

    async def take(self, event: Message) -> None:
        """Take one event of a streamed response."""
        usage = event.get("usage") or {}
        for name, count in (
            ("input_tokens", "prompt_tokens"),
            ("output_tokens", "completion_tokens"),
        ):
            self._usage[name] = self._usage.get(name, 0) + (usage.get(count) or 0)
        delta = (event.get("choices") or [{}])[0].get("delta") or {}
        if piece := delta.get("content"):
            self.text += piece
            await self._turn.delta(piece)
        for part in delta.get("tool_calls") or ():
            while len(self.calls) <= part["index"]:
                named = {"name": "", "arguments": ""}
                self.calls.append({"id": "", "type": "function", "function": named})
            call = self.calls[part["index"]]
            call["id"] = part.get("id") or call["id"]
            for field in ("name", "arguments"):
                call["function"][field] += (part.get("function") or {}).get(field) or ""

    async def run_tools(self) -> None:
        """Run the tools that the response calls, and tell the model what they returned."""
        asked = TranscriptRow(role=Role.ASSISTANT, content=self.text or None, tool_calls=self.calls)
        self._add(asked)
        for call in self.calls:
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            await self._show(call["id"], name, StepState.RUNNING)
            result = await self._kept.run(name, arguments, partial(run, name, arguments))
            await self._show(call["id"], name, StepState.DONE)
            self._add(
                TranscriptRow(
                    role=Role.TOOL, content=result, tool_call_id=call["id"], tool_name=name
                )
            )

    def reply(self) -> Answer:
        """Return the text of the last response as the answer; it may have no text if it is stopped."""
        if not self.text:
            return NoReply(transcript=self.rows, usage=self._usage)
        rows = with_text(self.rows, self.text)
        return Reply(parts=[self.text], transcript=rows, usage=self._usage)

    def _add(self, row: TranscriptRow) -> None:
        self.rows.append(row)
        self.messages.append(message_of(row))

    async def _show(self, call_id: str, name: str, state: StepState) -> None:
        await self._turn.show(
            LivePiece(kind=PieceKind.TOOL_CALL, tool_id=call_id, tool_name=name, state=state)
        )


async def run(name: str, arguments: str) -> str:
    """Return what a tool returns; an error is told to the model, which may try something else."""
    if name not in TOOLS:
        return f"there is no tool {name}"
    try:
        return await TOOLS[name][0](**json.loads(arguments or "{}"))
    except Exception as exc:  # noqa: BLE001 - whatever a tool raises
        return f"the tool failed: {type(exc).__name__}"


def described() -> list[Message]:
    """Return the tools in the shape of the endpoint."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": description,
                "parameters": {"type": "object", "properties": properties},
            },
        }
        for name, (_, description, properties) in TOOLS.items()
    ]


def check(response: httpx.Response) -> None:
    """Check the status of a response.

    Raises:
        AgentUnavailableError: Another model, or this one later, can answer.
        TurnFailedError: The request is refused, and would be again.
    """
    if response.is_error:
        seconds = response.headers.get("retry-after", "")
        pause = timedelta(seconds=min(int(seconds[:9]), 3600)) if seconds.isdecimal() else None
        raise status_failure("the model answered", response.status_code, (), pause)


async def conversation(turn: Turn) -> list[Message]:
    """Return what the model is told: the instructions, what was said before, and the turn."""
    # The context stays the same from turn to turn, so a model's cache of the prompt stays good.
    instructions = "\n\n".join(filter(None, (INSTRUCTIONS, instructions_of(turn))))
    system = {"role": Role.SYSTEM.value, "content": instructions}
    history = whole([*await turn.history(limit=HISTORY_ROWS)])
    images = [
        loaded
        for message in turn.messages
        for file in message.attachments
        if file.media_type.startswith("image/") and (loaded := await load_file(file, FILES))
    ]
    content: str | list[Message] = turn.prompt
    if images:
        links = (
            f"data:{file.media_type};base64,{base64.b64encode(file.data).decode()}"
            for file in images
        )
        shown = ({"type": "image_url", "image_url": {"url": link}} for link in links)
        content = [{"type": "text", "text": turn.prompt}, *shown]
    return [system, *map(message_of, history), {"role": Role.USER.value, "content": content}]


def whole(rows: Sequence[TranscriptEntry]) -> list[TranscriptEntry]:
    """Return rows without results at their beginning, whose calls are too old to be among them."""
    first = next((place for place, row in enumerate(rows) if row.role is not Role.TOOL), len(rows))
    return [row for row in rows[first:] if row.content or row.tool_calls or prompt_of([row])]


def message_of(row: TranscriptEntry | TranscriptRow) -> Message:
    """Return a row of the transcript in the shape of the endpoint."""
    text = prompt_of([row]) if isinstance(row, TranscriptEntry) else row.content
    message: Message = {"role": row.role.value, "content": text or ""}
    if row.tool_calls:
        message["tool_calls"] = list(row.tool_calls)
    if row.tool_call_id is not None:
        message["tool_call_id"] = row.tool_call_id
    return message


async def main() -> None:
    """Serve turns until SIGTERM or Ctrl-C, and finish what is begun."""
    headers = {"Authorization": f"Bearer {API_KEY}"} if API_KEY else {}
    async with (
        httpx.AsyncClient(base_url=BASE_URL, headers=headers, timeout=120) as http,
        open_connection(NATS_URL, name="model worker") as client,
    ):
        worker = TurnWorker(client, AGENT, Model(http).answer, slots=SLOTS, principal=AGENT)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
        await worker.run()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
