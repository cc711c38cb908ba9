"""A CLI of Claude that follows a script, in place of the process that the SDK starts."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, Transport
from typing_extensions import override

Frames = AsyncIterator[dict[str, Any]]


class FakeClaude(Transport):
    """Answers a prompt with the frames of a script.

    Attributes:
        prompts: Contents of the prompts that it was given.
        options: The options of the run.
    """

    def __init__(
        self, script: Callable[["FakeClaude"], Frames], options: ClaudeAgentOptions
    ) -> None:
        self.prompts: list[Any] = []
        self.options = options
        self._script = script
        self._frames: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._replies: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._hooks: dict[str, Any] = {}
        self._acting: asyncio.Task[None] | None = None

    @override
    async def connect(self) -> None:
        pass

    @override
    async def write(self, data: str) -> None:
        frame = json.loads(data)
        if frame["type"] == "control_request":
            self._hooks = frame["request"].get("hooks") or self._hooks
            answer = {"subtype": "success", "request_id": frame["request_id"], "response": {}}
            await self._frames.put({"type": "control_response", "response": answer})
        elif frame["type"] == "control_response":
            self._replies.pop(frame["response"]["request_id"]).set_result(frame["response"])
        else:
            self.prompts.append(frame["message"]["content"])
            self._acting = asyncio.create_task(self._act())

    @override
    async def read_messages(self) -> Frames:
        while (frame := await self._frames.get()) is not None:
            yield frame

    @override
    async def close(self) -> None:
        if self._acting is not None:
            self._acting.cancel()
        await self._frames.put(None)

    @override
    def is_ready(self) -> bool:
        return True

    @override
    async def end_input(self) -> None:
        pass

    async def request(self, subtype: str, **fields: object) -> dict[str, Any]:
        """Ask the SDK something, as the CLI does, and return its answer."""
        request_id = f"request-{len(self._replies) + 1}-{subtype}"
        reply = self._replies[request_id] = asyncio.get_running_loop().create_future()
        request = {"subtype": subtype, **fields}
        await self._frames.put(
            {"type": "control_request", "request_id": request_id, "request": request}
        )
        response = await reply
        answer: dict[str, Any] = response.get("response") or {}
        return answer

    async def call_tool(self, server: str, name: str, arguments: dict[str, Any]) -> str:
        """Call a tool of this process over the control channel, and return its text."""
        begun = {"protocolVersion": "2025-06-18", "capabilities": {}}
        begun |= {"clientInfo": {"name": "fake", "version": "1"}}
        await self._tell_server(server, "initialize", begun)
        await self._tell_server(server, "notifications/initialized", None)
        called = {"name": name, "arguments": arguments}
        answer = await self._tell_server(server, "tools/call", called)
        return "".join(part["text"] for part in answer["result"]["content"])

    async def _tell_server(
        self, server: str, method: str, params: dict[str, Any] | None
    ) -> dict[str, Any]:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        message |= {} if params is None else {"id": method, "params": params}
        answer = await self.request("mcp_message", server_name=server, message=message)
        told: dict[str, Any] = answer["mcp_response"]
        return told

    async def after_tool(self) -> dict[str, Any]:
        """Call the hook that follows a tool, and return what it says."""
        [hook] = self._hooks["PostToolUse"]
        [callback] = hook["hookCallbackIds"]
        return await self.request(
            "hook_callback", callback_id=callback, input={}, tool_use_id="call-1"
        )

    async def end(self) -> None:
        """End as a process that dies."""
        await self._frames.put(None)

    async def _act(self) -> None:
        async for frame in self._script(self):
            await self._frames.put(frame)


def streamed(words: Iterable[str]) -> list[dict[str, Any]]:
    """Return the frames of a response while it is written."""
    events = [{"type": "message_start"}] + [
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": word}}
        for word in words
    ]
    return [
        {"type": "stream_event", "uuid": "u", "session_id": "s", "event": event} for event in events
    ]


def assistant(*blocks: dict[str, Any], error: str | None = None) -> dict[str, Any]:
    """Return a response."""
    message = {"role": "assistant", "model": "fake", "content": [*blocks]}
    return {"type": "assistant", "message": message, **({"error": error} if error else {})}


def tool_result(call_id: str, content: str) -> dict[str, Any]:
    """Return the result of a tool."""
    block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return {"type": "user", "message": {"role": "user", "content": [block]}}


def result(text: str, **fields: object) -> dict[str, Any]:
    """Return the end of a run."""
    return {
        "type": "result",
        "subtype": "success",
        "duration_ms": 1,
        "duration_api_ms": 1,
        "is_error": False,
        "num_turns": 1,
        "session_id": "s",
        "result": text,
        **fields,
    }
