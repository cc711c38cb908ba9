"""A language model that needs no model: an endpoint that speaks `/v1/chat/completions`.

It repeats what the last message says, in pieces if the client streams. A line `call NAME {...}`
becomes a call of that tool, after the words before it. `python -m chatlane_devkit.model_endpoint PORT` runs it alone.
"""

import asyncio
import json
import re
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

_CALL: Final = re.compile(r"^call ([a-zA-Z0-9_-]+) (\{.*\})$", re.MULTILINE)
_LOOPBACK: Final = "127.0.0.1"


@dataclass(slots=True)
class ModelEndpoint:
    """The endpoint and what it was asked.

    Attributes:
        url: Base address, with `/v1`.
        requests: Bodies of the requests, oldest first.
        refusals: Answers to the next requests, instead of the model's: status and headers.
        pause: Seconds between two pieces of a streamed answer.
        tool_pause: Seconds before an answer about the result of a tool.
    """

    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    refusals: deque[tuple[int, dict[str, str]]] = field(default_factory=deque)
    pause: float = 0.0
    tool_pause: float = 0.0

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Answer a request for a completion."""
        body: dict[str, Any] = await request.json()
        self.requests.append(body)
        if self.refusals:
            status, headers = self.refusals.popleft()
            error = {"error": {"message": "refused", "type": "server_error"}}
            return web.json_response(error, status=status, headers=headers)
        if body["messages"][-1]["role"] == "tool":
            await asyncio.sleep(self.tool_pause)
        message = message_of(body["messages"])
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        if not body.get("stream"):
            return web.json_response(_document(body, "message", message, reason))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in _pieces(message):
            await response.write(_event(_document(body, "delta", piece)))
            await asyncio.sleep(self.pause)
        await response.write(_event(_document(body, "delta", {}, reason)) + b"data: [DONE]\n\n")
        await response.write_eof()
        return response


@asynccontextmanager
async def open_model_endpoint(port: int = 0, host: str = _LOOPBACK) -> AsyncIterator[ModelEndpoint]:
    """Serve an endpoint for the length of the block."""
    endpoint = ModelEndpoint()
    application = web.Application(client_max_size=64 * 1024 * 1024)
    application.add_routes([web.post("/v1/chat/completions", endpoint.complete)])
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        endpoint.url = f"http://{host}:{runner.addresses[0][1]}/v1"
        yield endpoint
    finally:
        await runner.cleanup()


def message_of(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the message of the model after these messages."""
    last = messages[-1]
    if last["role"] == "tool":
        return {"role": "assistant", "content": f"The tool says: {_text(last)}"}
    text = _text(last)
    offered = _CALL.search(text)
    if offered is not None:
        function = {"name": offered[1], "arguments": offered[2]}
        call = {"id": f"call-{len(messages)}", "type": "function", "function": function}
        words = text[: offered.start()].strip() or None
        return {"role": "assistant", "content": words, "tool_calls": [call]}
    before = sum(message["role"] == "user" for message in messages) - 1
    return {"role": "assistant", "content": f"You said: {text} (after {before} messages)"}


def _text(message: dict[str, Any]) -> str:
    """Return the text of a message; files are listed by their type."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return " ".join(str(part.get("text") or f"[{part['type']}]") for part in content)


def _pieces(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a message word by word, and its calls in two pieces each."""
    for number, word in enumerate((message["content"] or "").split(" ")):
        yield {"role": "assistant", "content": word if number == 0 else f" {word}"}
    for index, call in enumerate(message.get("tool_calls", ())):
        named = {**call["function"], "arguments": ""}
        yield {"tool_calls": [{**call, "index": index, "function": named}]}
        arguments = {"arguments": call["function"]["arguments"]}
        yield {"tool_calls": [{"index": index, "function": arguments}]}


def _document(
    body: dict[str, Any], kind: str, message: dict[str, Any], reason: str | None = None
) -> dict[str, Any]:
    """Return a completion, or a chunk of one; the last one has a reason and the usage."""
    document: dict[str, Any] = {
        "id": "completion",
        "object": "chat.completion" if kind == "message" else "chat.completion.chunk",
        "created": 0,
        "model": body["model"],
        "choices": [{"index": 0, kind: message, "finish_reason": reason}],
    }
    if reason is not None:
        document["usage"] = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return document


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


async def _serve(port: int) -> None:
    async with open_model_endpoint(port) as endpoint:
        sys.stdout.write(f"{endpoint.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(_serve(int(sys.argv[1]) if sys.argv[1:] else 0))
    except KeyboardInterrupt:
        sys.exit(0)
