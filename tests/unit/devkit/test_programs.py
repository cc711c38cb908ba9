"""Programs of ours run under a name, end when told to, and say why when they end by themselves."""

import asyncio
import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from chatlane_servers.conditions import until
from chatlane_servers.processes import ServerStartError
from chatlane_servers.programs import LogTail, Program, cancel_on_stop_signals, follow
from tests.support.eventually import eventually

PATIENCE = timedelta(seconds=10)
SLEEP = "import time; print('up', flush=True); time.sleep(60)"


def started(tmp_path: Path, code: str) -> Program:
    program = Program("router 1", ["-c", code], tmp_path, {"WHO": "me"})
    program.start()
    return program


async def until_ended(program: Program) -> None:
    async def has_ended() -> bool:
        return not program.is_running

    await until(has_ended, PATIENCE)


async def test_a_killed_program_can_be_started_again(tmp_path: Path) -> None:
    program = started(tmp_path, SLEEP)
    first = program.pid
    assert first is not None
    await program.kill()
    assert not program.is_running
    program.start()
    try:
        assert program.pid not in {None, first}
    finally:
        await program.stop()
    assert program.pid is None


async def test_starting_what_runs_changes_nothing(tmp_path: Path) -> None:
    program = started(tmp_path, SLEEP)
    pid = program.pid
    program.start()
    try:
        assert program.pid == pid
    finally:
        await program.kill()


async def test_a_program_that_ends_by_itself_shows_its_last_words(tmp_path: Path) -> None:
    program = started(tmp_path, "print('no such table'); raise SystemExit(3)")
    await until_ended(program)
    with pytest.raises(ServerStartError, match=r"router 1 .* exit code 3\nno such table"):
        program.require_running()
    with pytest.raises(ServerStartError):
        program.require_success()


async def test_an_end_with_code_0_is_a_success(tmp_path: Path) -> None:
    program = started(tmp_path, "pass")
    await until_ended(program)
    program.require_success()


async def test_settings_meant_for_others_do_not_reach_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHATLANE_NATS__URL", "nats://elsewhere")
    code = "import os; print(os.environ['WHO'], 'CHATLANE_NATS__URL' in os.environ)"
    program = started(tmp_path, code)
    await until_ended(program)
    assert program.log_path.read_text("utf-8") == "me False\n"


async def test_a_log_is_followed_from_now_on_line_by_line(tmp_path: Path) -> None:
    path, told = tmp_path / "log", list[str]()
    path.write_bytes(b"from before\n")
    following = asyncio.create_task(follow(path, told.append))
    await asyncio.sleep(0)
    with path.open("ab") as log:
        log.write(b"one\ntw")
    await eventually(lambda: told == ["one"])
    with path.open("ab") as log:
        log.write(b"o\n\xff\n")
    await eventually(lambda: told == ["one", "two", "\ufffd"])
    following.cancel()


def test_a_log_that_is_not_there_yet_has_no_lines(tmp_path: Path) -> None:
    assert LogTail(tmp_path / "log").new_lines() == []


async def test_waiting_has_an_end() -> None:
    async def never() -> bool:
        return False

    with pytest.raises(TimeoutError):
        await until(never, timedelta(milliseconds=30))


async def test_sigterm_cancels_the_task() -> None:
    async def work() -> None:
        cancel_on_stop_signals()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    try:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(work())
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)
