"""Run `chatlane` as a copy of a process that has imported it, with pipes as its streams."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Final, Protocol

from typing_extensions import override

from tests.support.service.forked_process import CONTEXT, become, preload

_STREAMS: Final = 3


class CommandProcess(Protocol):
    """The part of `asyncio.subprocess.Process` that tests use."""

    @property
    def stdin(self) -> asyncio.StreamWriter | None: ...

    @property
    def stdout(self) -> asyncio.StreamReader | None: ...

    @property
    def stderr(self) -> asyncio.StreamReader | None: ...

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def send_signal(self, signal: int, /) -> None: ...

    def kill(self) -> None: ...

    async def wait(self) -> int: ...

    async def communicate(self, typed: bytes = b"", /) -> tuple[bytes, bytes]: ...


class _Descriptor:
    """A file descriptor that the new process inherits when it is pickled."""

    def __init__(self, number: int) -> None:
        self.number = number

    @override
    def __reduce__(self) -> tuple[object, ...]:
        return _received, (DupFd(self.number),)


class _Duplicate(Protocol):
    def detach(self) -> int: ...


def _received(duplicate: _Duplicate) -> int:
    return duplicate.detach()


class ForkedCommand:
    """One run of `chatlane`, with pipes as its streams."""

    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process
        self._ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(process.sentinel, self._end, loop, process.sentinel)

    def _end(self, loop: asyncio.AbstractEventLoop, sentinel: int) -> None:
        loop.remove_reader(sentinel)
        self._process.join()
        self._ended.set()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode if self._ended.is_set() else None

    def send_signal(self, signal: int, /) -> None:
        # It is waited for by the process it was copied from, so its id may be free already.
        if not self._ended.is_set() and self._process.exitcode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        await self._ended.wait()
        assert self._process.exitcode is not None
        return self._process.exitcode

    async def communicate(self, typed: bytes = b"", /) -> tuple[bytes, bytes]:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write(typed))
            out, err = tasks.create_task(self.stdout.read()), tasks.create_task(self.stderr.read())
        await self.wait()
        return out.result(), err.result()

    async def _write(self, text: bytes) -> None:
        # It may end without having read everything.
        with suppress(ConnectionError):
            self.stdin.write(text)
            await self.stdin.drain()
        self.stdin.close()
        with suppress(ConnectionError):
            await self.stdin.wait_closed()


async def start_forked(
    arguments: Sequence[str], *, directory: Path, environment: Mapping[str, str]
) -> ForkedCommand:
    """Run `chatlane` with arguments in a directory.

    Args:
        arguments: Without the name of the program.
        directory: Its working directory.
        environment: All of it.
    """
    preload(arguments)
    theirs, ours = _pipes()
    process = CONTEXT.Process(
        target=_become,
        args=(tuple(map(_Descriptor, theirs)), list(arguments), directory, dict(environment)),
    )
    process.start()
    for number in theirs:
        os.close(number)
    command = ForkedCommand(process)
    command.stdin = await _writer(ours[0])
    command.stdout, command.stderr = [await _reader(number) for number in ours[1:]]
    return command


def _pipes() -> tuple[list[int], list[int]]:
    """Return the ends of three pipes that the command gets, and those that are kept."""
    pairs = [os.pipe() for _ in range(_STREAMS)]
    (their_in, our_in), *outputs = pairs
    return [their_in, *(end for _, end in outputs)], [our_in, *(end for end, _ in outputs)]


async def _reader(number: int) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(number, "rb", 0)
    )
    return reader


async def _writer(number: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(number, "wb", 0)
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)


def _become(
    streams: tuple[int, ...], arguments: list[str], directory: Path, environment: dict[str, str]
) -> None:
    os.chdir(directory)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # Until here it is the empty one that every copy begins with.
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as the process lives
    become(["-m", "chatlane", *arguments], environment)
