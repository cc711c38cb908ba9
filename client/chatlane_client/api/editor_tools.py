"""Use the files and the terminal of the editor in which the person of a turn writes."""

from collections.abc import Sequence
from datetime import timedelta
from shlex import join
from typing import Final, NamedTuple

from pydantic import ValidationError

from chatlane_client.errors import EditorCallError, InvalidAnswerError
from chatlane_client.turn import Turn
from chatlane_schemas.content.editor_calls import EditorCall, EditorMethod, EditorResult

_WITHIN: Final = timedelta(minutes=5)
_KILL_AFTER: Final = timedelta(minutes=2)
_OUTPUT_BYTES: Final = 32 * 1024


class CommandResult(NamedTuple):
    """The result of a command.

    Attributes:
        output: The end of its output, stdout and stderr together.
        exit_code: None if a signal ended it.
        signal: The signal that ended it.
        is_truncated: Whether the beginning of the output is missing.
        is_timed_out: Whether it was killed because it took too long.
    """

    output: str
    exit_code: int | None
    signal: str | None = None
    is_truncated: bool = False
    is_timed_out: bool = False


class EditorTools:
    """Calls the editor of a turn, one call at a time.

    The editor asks its person before it writes a file, runs a command, or reads a file outside the
    directories of the session. A call of an attempt that was lost is made again by the next one,
    unless it is the step of a turn: `await turn.step("test", run_tests)`.
    """

    def __init__(self, turn: Turn, *, within: timedelta = _WITHIN) -> None:
        """Create it.

        Args:
            turn: The turn.
            within: Time for a call, with the permission of the person.
        """
        self._turn = turn
        self._within = within

    async def read_text_file(
        self, path: str, *, line: int | None = None, limit: int | None = None
    ) -> str:
        """Return a text file as the editor has it, with changes that are not saved.

        Args:
            path: Absolute path.
            line: First line, from 1.
            limit: Most lines. A file of more than 120 KiB has to be read in parts.

        Raises:
            EditorCallError: The editor does not do it; the error says why.
        """
        method = EditorMethod.READ_TEXT_FILE
        result = await self._call(EditorCall(method=method, path=path, line=line, limit=limit))
        return result.content or ""

    async def write_text_file(self, path: str, content: str) -> None:
        """Write a text file of at most 120 KiB.

        Raises:
            EditorCallError: The editor does not do it; the error says why.
        """
        method = EditorMethod.WRITE_TEXT_FILE
        await self._call(EditorCall(method=method, path=path, content=content))

    async def run_command(
        self,
        command: str,
        arguments: Sequence[str] = (),
        *,
        cwd: str | None = None,
        kill_after: timedelta = _KILL_AFTER,
        output_limit_bytes: int = _OUTPUT_BYTES,
    ) -> CommandResult:
        """Run a program in a terminal of the editor and wait until it ends.

        Args:
            command: The program; no shell reads it.
            arguments: Its arguments.
            cwd: Absolute path of its directory; by default that of the session.
            kill_after: Time after which it is killed.
            output_limit_bytes: Most bytes of output to return, at most 120 KiB.

        Raises:
            EditorCallError: The editor does not do it; the error says why.
        """
        call = EditorCall(
            method=EditorMethod.RUN_COMMAND,
            command=command,
            arguments=tuple(arguments),
            cwd=cwd,
            timeout_ms=int(kill_after.total_seconds() * 1000),
            output_limit_bytes=output_limit_bytes,
        )
        result = await self._call(call, more=kill_after)
        return CommandResult(
            result.output or "",
            result.exit_code,
            result.signal,
            is_truncated=result.truncated,
            is_timed_out=result.timed_out,
        )

    async def _call(self, call: EditorCall, more: timedelta = timedelta()) -> EditorResult:
        answer = await self._turn.call_editor(call, _words(call), within=self._within + more)
        if answer.value is None:
            raise EditorCallError("no editor has answered in time")
        try:
            result = EditorResult.model_validate_json(answer.value)
        except ValidationError as exc:
            raise InvalidAnswerError("turn.answer", "no result of a call") from exc
        if result.error is not None:
            raise EditorCallError(result.message or "the editor gave no reason", result.error)
        return result


def _words(call: EditorCall) -> str:
    if call.command is not None:
        return f"Run {join([call.command, *call.arguments])}"
    verb = "Read" if call.method is EditorMethod.READ_TEXT_FILE else "Write"
    return f"{verb} {call.path}"
