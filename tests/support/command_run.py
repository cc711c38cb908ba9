"""Run a command as a person does: read its output, write to its input, stop it."""

import asyncio
import contextlib
import os
import secrets
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import psutil

from chatlane_servers.binaries import server_directory
from tests.support.eventually import eventually

STARTED_WITHIN: Final = timedelta(seconds=60)
# Every process of a run inherits this variable, so a test finds all of them.
MARK: Final = "COMMAND_TEST_RUN"


@dataclass
class CommandRun:
    """A running command and its output.

    Attributes:
        temporary: The directory for its temporary files.
    """

    process: asyncio.subprocess.Process
    temporary: Path
    mark: str
    output: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.output)

    async def read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.output.append(line.decode())

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    async def until_printed(self, words: str) -> None:
        def is_printed_or_over() -> bool:
            return words in self.text or self.process.returncode is not None

        await eventually(is_printed_or_over, timeout=STARTED_WITHIN)
        assert words in self.text, self.text

    def processes(self) -> list[str]:
        """Return the command lines of the processes of this run that still run."""
        lines = map(self._line_of, psutil.process_iter())
        return [line for line in lines if line is not None]

    def _line_of(self, process: psutil.Process) -> str | None:
        # A process may end between the listing and the question.
        with contextlib.suppress(psutil.Error):
            is_alive = process.status() != psutil.STATUS_ZOMBIE
            if is_alive and process.environ().get(MARK) == self.mark:
                return " ".join(process.cmdline())
        return None

    async def until_nothing_is_left(self) -> None:
        await eventually(lambda: self.processes() == [], timeout=STARTED_WITHIN)


@asynccontextmanager
async def started(
    directory: Path,
    *arguments: str,
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[CommandRun]:
    """Start Python with arguments and without a terminal; kill it at the end of the block."""
    mark = secrets.token_hex(8)
    with server_directory() as temporary:
        process = await asyncio.create_subprocess_exec(
            python,
            *arguments,
            cwd=directory,
            env={
                **os.environ,
                MARK: mark,
                "COLUMNS": "200",
                "TMPDIR": str(temporary),
                **(environment or {}),
            },
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        run = CommandRun(process, temporary, mark)
        reading = asyncio.create_task(run.read())
        try:
            yield run
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await run.until_nothing_is_left()
            await reading
