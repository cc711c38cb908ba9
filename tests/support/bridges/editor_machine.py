"""The files and the terminal behind a test's editor: real files and real processes."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.support.bridges.plain_editor import PlainEditor

ABLE: Final[dict[str, Any]] = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
}


def chosen(option: str) -> dict[str, Any]:
    """Return the outcome of a permission request."""
    return {"outcome": {"outcome": "selected", "optionId": option}}


@dataclass
class EditorMachine:
    """Answers the requests that a bridge makes of an editor.

    Attributes:
        permission: Result of each permission request; None leaves it open.
        running: The processes of its terminals that are not released.
    """

    editor: PlainEditor
    permission: dict[str, Any] | None = None
    running: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    _output: dict[str, bytes] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __call__(self, request: dict[str, Any]) -> None:
        """Answer a request later, as an editor does."""
        task = asyncio.create_task(self._answer(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: dict[str, Any]) -> None:
        params = request["params"]
        try:
            match request["method"]:
                case "session/request_permission":
                    result = self.permission
                case "fs/read_text_file":
                    result = {"content": _lines(params)}
                case "fs/write_text_file":
                    result = _write(params)
                case method:
                    result = await self._terminal(method.removeprefix("terminal/"), params)
        except OSError as exc:
            self.editor.refuse(request, type(exc).__name__)
            return
        if result is not None:
            self.editor.reply(request, result)

    async def _terminal(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "create":
            process = await asyncio.create_subprocess_exec(
                params["command"],
                *params["args"],
                cwd=params.get("cwd"),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            self.running[f"terminal-{process.pid}"] = process
            return {"terminalId": f"terminal-{process.pid}"}
        terminal_id = params["terminalId"]
        process = self.running[terminal_id]
        if method in {"kill", "release"}:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if method == "release":
                del self.running[terminal_id]
            return {}
        if method == "wait_for_exit":
            assert process.stdout is not None
            self._output[terminal_id] = await process.stdout.read()
            await process.wait()
            return {"exitCode": process.returncode}
        output = self._output.get(terminal_id, b"").decode()
        return {
            "output": output,
            "truncated": False,
            "exitStatus": {"exitCode": max(process.returncode or 0, 0)},
        }


def _write(params: dict[str, Any]) -> dict[str, Any]:
    Path(params["path"]).write_text(params["content"], "utf-8")
    return {}


def _lines(params: dict[str, Any]) -> str:
    lines = Path(params["path"]).read_text("utf-8").splitlines(keepends=True)
    first = params.get("line", 1) - 1
    return "".join(lines[first : first + params.get("limit", len(lines))])
