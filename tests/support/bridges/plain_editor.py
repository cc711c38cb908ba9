"""An editor of a few lines: JSON-RPC over the pipes of a bridge, without the SDK."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from chatlane_bridges.acp.bridge import serve_streams
from chatlane_bridges.acp.settings import EditorOptions, EditorSettings
from tests.support.eventually import eventually

CLIENT_ABLE: Final = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
_LINE_LIMIT: Final = 16 * 1024 * 1024
_ROOT: Final = Path(__file__).parents[3]

Asked = Callable[[dict[str, Any]], dict[str, Any] | None]


class RpcError(Exception):
    """The answer to a request is an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        self.code: int = error["code"]
        super().__init__(f"{self.code}: {error['message']}")


class PlainEditor:
    """Speaks the protocol with one bridge.

    Attributes:
        updates: All updates so far, as they came.
        requests: Requests of the bridge so far.
        answer: Returns the result of a request of the bridge; None answers it later or never.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.updates: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.answer: Asked = lambda _: None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0
        self._reading = asyncio.create_task(self._read())

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
        """Send a request and return its result."""
        return await self.start(method, **params)

    def start(self, method: str, **params: Any) -> asyncio.Future[dict[str, Any]]:  # noqa: ANN401 - any JSON
        """Send a request whose result is awaited later."""
        self._last_id += 1
        future = self._waiting[self._last_id] = asyncio.get_running_loop().create_future()
        self._send({"id": self._last_id, "method": method, "params": params})
        return future

    def tell(self, method: str, **params: Any) -> None:  # noqa: ANN401 - any JSON
        """Send a notification."""
        self._send({"method": method, "params": params})

    def reply(self, request: dict[str, Any], result: dict[str, Any]) -> None:
        """Answer a request of the bridge."""
        self._send({"id": request["id"], "result": result})

    def refuse(self, request: dict[str, Any], message: str) -> None:
        """Answer a request of the bridge with an error."""
        self._send({"id": request["id"], "error": {"code": -32603, "message": message}})

    async def initialize(self, **able: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
        """Begin to speak."""
        return await self.ask(
            "initialize", protocolVersion=1, clientCapabilities={**CLIENT_ABLE, **able}
        )

    async def open(self, cwd: str = "/srv/project") -> str:
        """Open a session and return its id."""
        opened = await self.ask("session/new", cwd=cwd, mcpServers=[])
        return str(opened["sessionId"])

    def prompt(self, session_id: str, text: str) -> asyncio.Future[dict[str, Any]]:
        """Send a prompt of text."""
        blocks = [{"type": "text", "text": text}]
        return self.start("session/prompt", sessionId=session_id, prompt=blocks)

    def kinds(self) -> list[str]:
        """Return the kinds of the updates so far."""
        return [update["sessionUpdate"] for update in self.updates]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the updates of a kind."""
        return [update for update in self.updates if update["sessionUpdate"] == kind]

    def said(self, kind: str = "agent_message_chunk") -> list[str]:
        """Return the messages of a kind, each with all of its parts."""
        messages: dict[str, str] = {}
        for update in self.of(kind):
            text = update["content"].get("text", update["content"].get("uri", ""))
            messages[update["messageId"]] = messages.get(update["messageId"], "") + text
        return [*messages.values()]

    async def until_asked(self, method: str, count: int = 1) -> dict[str, Any]:
        """Wait for a request of the bridge."""

        def found() -> list[dict[str, Any]]:
            of_method = [it for it in self.requests if it["method"] == method]
            return of_method if len(of_method) >= count else []

        return (await eventually(found))[count - 1]

    async def close(self) -> None:
        """Close the pipe, as an editor that quits, and wait until the bridge closes its end."""
        self.end()
        await asyncio.wait({self._reading})
        self._writer.close()
        with suppress(ConnectionError, BrokenPipeError):
            await self._writer.wait_closed()

    def stop_reading(self) -> None:
        """Leave the pipe to another client."""
        self._reading.cancel()

    def end(self) -> None:
        """Say that nothing follows."""
        if not self._writer.is_closing() and self._writer.can_write_eof():
            self._writer.write_eof()

    def _send(self, message: dict[str, Any]) -> None:
        self._writer.write(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")

    async def _read(self) -> None:
        while line := await self._reader.readline():
            self._hear(json.loads(line))
        for future in self._waiting.values():
            if not future.done():
                future.cancel()

    def _hear(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            future = self._waiting.pop(message["id"])
            if future.done():
                return
            if "error" in message:
                future.set_exception(RpcError(message["error"]))
            else:
                future.set_result(message["result"])
        elif message["method"] == "session/update":
            self.updates.append(message["params"]["update"])
        else:
            self.requests.append(message)
            if (result := self.answer(message)) is not None:
                self.reply(message, result)


@dataclass(frozen=True, slots=True)
class BridgeProcess:
    """A bridge as an editor starts it."""

    process: asyncio.subprocess.Process
    editor: PlainEditor

    async def kill(self) -> None:
        """Kill the bridge, if it runs."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self.editor.close()


class Editors:
    """Starts bridges with an editor each."""

    def __init__(self, nats_url: str, log: Path) -> None:
        self.nats_url = nats_url
        self.log = log

    @asynccontextmanager
    async def open(
        self,
        settings: EditorSettings | None = None,
        *,
        offered: EditorOptions | None = None,
        person: str = "ann",
        **able: Any,  # noqa: ANN401 - any JSON
    ) -> AsyncIterator[PlainEditor]:
        """Run a bridge in this process, with an editor that has begun to speak.

        A process of its own takes seconds to start.
        """
        settings = settings or EditorSettings(nats_url=self.nats_url, person=person)
        here, there = socket.socketpair()
        served = await asyncio.open_connection(sock=there, limit=_LINE_LIMIT)
        serving = asyncio.create_task(serve_streams(settings, offered or EditorOptions(), *served))
        editor = PlainEditor(*await asyncio.open_connection(sock=here, limit=_LINE_LIMIT))
        try:
            await editor.initialize(**able)
            yield editor
        finally:
            editor.end()
            async with asyncio.timeout(30):
                await serving
            served[1].close()
            await editor.close()

    async def start(self, *arguments: str) -> BridgeProcess:
        """Start `chatlane acp` as a process, with its log in a file."""
        with self.log.open("ab") as err:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "chatlane", "acp", "--nats", self.nats_url, "--as", "ann"),
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=err,
                cwd=_ROOT,
                limit=_LINE_LIMIT,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        return BridgeProcess(process, PlainEditor(process.stdout, process.stdin))
