"""Calls of running turns to the files and the terminal of the editor."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from shlex import join
from typing import Any, Final
from uuid import UUID

from acp.exceptions import RequestError

from chatlane_bridges.acp import updates
from chatlane_bridges.acp.conversation import Conversation
from chatlane_bridges.acp.questions import reply
from chatlane_bridges.acp.session_options import directories_of
from chatlane_client import ConflictingRequestError, SessionNotFoundError
from chatlane_schemas.content.editor_calls import (
    LARGEST_CALL,
    EditorCall,
    EditorError,
    EditorMethod,
    EditorResult,
)
from chatlane_schemas.live_turns import StepState
from chatlane_schemas.questions import OpenQuestionView

_CAPABILITIES: Final = {
    EditorMethod.READ_TEXT_FILE: "fs.readTextFile",
    EditorMethod.WRITE_TEXT_FILE: "fs.writeTextFile",
    EditorMethod.RUN_COMMAND: "terminal",
}
_KINDS: Final = {
    EditorMethod.READ_TEXT_FILE: "read",
    EditorMethod.WRITE_TEXT_FILE: "edit",
    EditorMethod.RUN_COMMAND: "execute",
}
_OPTIONS: Final = (
    {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
    {"optionId": "always", "name": "Always in this conversation", "kind": "allow_always"},
    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
)
_TIMEOUT: Final = timedelta(minutes=2)
_RELEASED_WITHIN: Final = timedelta(seconds=5)


class CallDialog:
    """One call of a turn: asks the person if need be, and sends the result to the turn."""

    def __init__(
        self, conversation: Conversation, question: OpenQuestionView, call: EditorCall
    ) -> None:
        """Create it; `has_answer` says whether the result is on its way to the turn."""
        self._conversation = conversation
        self._editor = conversation.editor
        self._question_id = question.question_id
        self._call = call
        self._tool_id = f"call-{question.question_id}"
        self.has_answer = False

    async def run(self, target: UUID) -> None:
        """Make the call and answer the question; a dismissed permission stops the turn."""
        try:
            result = await self._result(target)
        except RequestError as exc:
            result = _error(EditorError.FAILED, str(exc))
        if result is None:
            await self._conversation.stop()
            return
        self.has_answer = True
        state = StepState.DONE if result.error is None else StepState.FAILED
        try:
            await reply(self._conversation.service, target, self._question_id, _as_text(result))
        except (ConflictingRequestError, SessionNotFoundError):
            # Another editor was faster, its time is over, or its attempt has ended.
            state = StepState.FAILED
        await self.close(state)

    async def close(self, state: StepState) -> None:
        """Show that the call is over."""
        await self._conversation.show([updates.tool_change(self._tool_id, state=state)])

    async def _result(self, target: UUID) -> EditorResult | None:
        await self._conversation.show([self._shown("tool_call", "pending")])
        problem = self._problem()
        if problem is not None:
            return problem
        if not await self._is_free(target):
            allowed = await self._permission()
            if allowed is None:
                return None
            if not allowed:
                return _error(EditorError.REFUSED, "the person did not allow it")
        await self._conversation.show([self._shown("tool_call_update", "in_progress")])
        match self._call.method:
            case EditorMethod.READ_TEXT_FILE:
                return EditorResult(content=await self._read(self._call.line, self._call.limit))
            case EditorMethod.WRITE_TEXT_FILE:
                params = {"path": self._call.path, "content": self._call.content or ""}
                await self._ask("fs_write_text_file", params)
                return EditorResult()
            case EditorMethod.RUN_COMMAND:
                return await self._run_command()

    def _problem(self) -> EditorResult | None:
        """Return why the editor cannot be called."""
        call = self._call
        if call.method not in self._editor.methods:
            missing = _CAPABILITIES[call.method]
            return _error(EditorError.UNSUPPORTED, f"the editor has not announced {missing}")
        is_command = call.method is EditorMethod.RUN_COMMAND
        if is_command and call.command is None:
            return _error(EditorError.FAILED, "the call has no command")
        path = call.cwd if is_command else call.path or ""
        if path is not None and not Path(path).is_absolute():
            return _error(EditorError.FAILED, "the path is not absolute")
        return None

    async def _is_free(self, target: UUID) -> bool:
        """Return whether the call needs no permission: it reads below the session's directories."""
        if self._call.method in self._conversation.allowed:
            return True
        if self._call.method is not EditorMethod.READ_TEXT_FILE or self._call.path is None:
            return False
        session = await self._conversation.service.sessions.get(target)
        directories = [*([] if session.cwd is None else [session.cwd]), *directories_of(session)]
        return _is_below(self._call.path, directories)

    async def _permission(self) -> bool | None:
        """Ask the person; return None if the person dismisses the request."""
        call = self._shown("tool_call_update", "pending")
        del call["sessionUpdate"]
        if self._call.method is EditorMethod.WRITE_TEXT_FILE:
            call["content"] = [await self._diff()]
        params = {"toolCall": call, "options": _OPTIONS}
        outcome = (await self._ask("session_request_permission", params)).get("outcome") or {}
        chosen = outcome.get("optionId") if outcome.get("outcome") == "selected" else None
        if chosen == "always":
            self._conversation.allowed.add(self._call.method)
        return None if chosen is None else chosen in {"allow", "always"}

    async def _diff(self) -> dict[str, Any]:
        former: str | None = None
        if EditorMethod.READ_TEXT_FILE in self._editor.methods:
            with suppress(RequestError):
                former = await self._read()
        changed = {"type": "diff", "path": self._call.path, "newText": self._call.content or ""}
        return changed if former is None else {**changed, "oldText": former}

    async def _read(self, line: int | None = None, limit: int | None = None) -> str:
        params: dict[str, Any] = {"path": self._call.path}
        params |= {} if line is None else {"line": line}
        params |= {} if limit is None else {"limit": limit}
        return str((await self._ask("fs_read_text_file", params)).get("content") or "")

    async def _run_command(self) -> EditorResult:
        call = self._call
        params: dict[str, Any] = {"command": call.command, "args": [*call.arguments]}
        params |= {} if call.cwd is None else {"cwd": call.cwd}
        params["outputByteLimit"] = call.output_limit_bytes or LARGEST_CALL
        terminal = await self._ask("terminal_create", params)
        ours = {"terminalId": terminal.get("terminalId")}
        try:
            shown = {
                "sessionUpdate": "tool_call_update",
                "toolCallId": self._tool_id,
                "content": [{"type": "terminal", **ours}],
            }
            await self._conversation.show([shown])
            seconds = _TIMEOUT.total_seconds() if not call.timeout_ms else call.timeout_ms / 1000
            is_timed_out = False
            try:
                await asyncio.wait_for(self._ask("terminal_wait_for_exit", ours), seconds)
            except TimeoutError:
                is_timed_out = True
                await self._ask("terminal_kill", ours)
            output = await self._ask("terminal_output", ours)
        finally:
            # It kills the command if this call was cancelled.
            with suppress(RequestError, ConnectionError, TimeoutError):
                async with asyncio.timeout(_RELEASED_WITHIN.total_seconds()):
                    await self._ask("terminal_release", ours)
        status = output.get("exitStatus") or {}
        return EditorResult(
            output=str(output.get("output") or ""),
            truncated=bool(output.get("truncated")),
            exit_code=status.get("exitCode"),
            signal=status.get("signal"),
            timed_out=is_timed_out,
        )

    async def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return await self._editor.request(method, {"sessionId": self._conversation.key, **params})

    def _shown(self, kind: str, status: str) -> dict[str, Any]:
        call = self._call
        verb = "Read" if call.method is EditorMethod.READ_TEXT_FILE else "Write"
        title = f"{verb} {call.path}"
        if call.method is EditorMethod.RUN_COMMAND:
            title = f"Run {join([call.command or '', *call.arguments])}"
            title += "" if call.cwd is None else f" in {call.cwd}"
        shown: dict[str, Any] = {
            "sessionUpdate": kind,
            "toolCallId": self._tool_id,
            "title": title,
            "kind": _KINDS[call.method],
            "status": status,
        }
        if call.path is not None:
            shown["locations"] = [{"path": call.path}]
        return shown


def _is_below(path: str, directories: list[str]) -> bool:
    # Links lead out of a directory, so they are followed first.
    whole = Path(path).resolve()
    return any(whole.is_relative_to(Path(directory).resolve()) for directory in directories)


def _error(error: EditorError, message: str) -> EditorResult:
    return EditorResult(error=error, message=message)


def _as_text(result: EditorResult) -> str:
    """Return a result as JSON text that fits into a message."""
    text = result.model_dump_json(exclude_none=True)
    if len(text.encode()) <= LARGEST_CALL:
        return text
    if result.output is None:
        message = f"the file has more than {LARGEST_CALL} bytes: read it in parts"
        return _as_text(_error(EditorError.FAILED, message))
    half = result.output[len(result.output) // 2 :]
    return _as_text(result.model_copy(update={"output": half, "truncated": True}))
