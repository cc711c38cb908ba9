"""`chatlane dev`: run the stack of the demo until it is stopped, with a live log."""

import asyncio
import fcntl
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from chatlane.cli.shared.terminal import typed_lines
from chatlane.config.settings import SettingsError
from chatlane_devkit.demo.console import ConsoleOutput
from chatlane_devkit.demo.stack import Stack, open_stack
from chatlane_devkit.demo.stack_config import check_user_config
from chatlane_devkit.demo.stack_console import CONSOLE, ConsoleAddress, start_console
from chatlane_devkit.demo.traffic import follow_traffic
from chatlane_devkit.dev.eraser import ERASER, erasure_config, start_eraser
from chatlane_devkit.platforms.telegram import open_telegram_server
from chatlane_devkit.platforms.telegram.terminal import TelegramTerminal, account_of, adapter_of
from chatlane_servers.binaries import server_directory
from chatlane_servers.processes import ServerStartError
from chatlane_servers.programs import cancel_on_stop_signals, follow

# `chatlane chat` and `chatlane sessions` look here by default.
STATE_FILE: Final = Path(".chatlane/dev.toml")
_LOCK_FILE: Final = Path(".chatlane/dev.lock")

_THINK: Final = timedelta(milliseconds=300)
_COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "red")
_WATCH: Final = timedelta(milliseconds=500)
_PRIVATE: Final = 0o600


def main(
    user_config: Path | None = None, *, has_workers: bool = True, has_telegram: bool = False
) -> int:
    """Run until SIGINT or SIGTERM and return the exit code."""
    narrator = ConsoleOutput(Console())
    try:
        if user_config is not None:
            check_user_config(user_config)
        with _locked_directory():
            run = _run_with_telegram if has_telegram else _run
            asyncio.run(run(narrator, user_config, has_workers=has_workers))
    except SettingsError as error:
        for problem in error.problems:
            narrator.tell(problem)
        return 2
    except (ServerStartError, _DirectoryInUseError) as error:
        narrator.tell(str(error))
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        narrator.tell("stopped")
    return 0


async def _run(narrator: ConsoleOutput, user_config: Path | None, *, has_workers: bool) -> None:
    cancel_on_stop_signals()
    with server_directory() as directory:
        async with open_stack(
            directory,
            narrator.tell,
            think=_THINK,
            user_config=user_config,
            has_workers=has_workers,
            more_config=erasure_config(),
        ) as stack:
            with _state_file(stack.config):
                console = await start_console(stack)
                await start_eraser(stack)
                _welcome(narrator, stack, console)
                await _show_logs(narrator, stack)


async def _run_with_telegram(
    narrator: ConsoleOutput, user_config: Path | None, *, has_workers: bool
) -> None:
    """Run the stack with a bot on an emulated Telegram, until the end of the input."""
    cancel_on_stop_signals()
    with server_directory() as directory:
        async with (
            open_telegram_server() as telegram,
            open_stack(
                directory,
                narrator.tell,
                think=_THINK,
                user_config=user_config,
                has_workers=has_workers,
                more_config=account_of(telegram) + erasure_config(),
            ) as stack,
        ):
            adapter = adapter_of(telegram, stack.nats.url, directory)
            stack.programs[adapter.name] = adapter
            adapter.start()
            with _state_file(stack.config):
                console = await start_console(stack)
                await start_eraser(stack)
                _welcome(narrator, stack, console)
                narrator.console.print(f"Logs are in {directory}", highlight=False, soft_wrap=True)
                watching = asyncio.create_task(_watch(narrator, stack))
                try:
                    await TelegramTerminal(telegram, sys.stdout).talk(typed_lines(sys.stdin))
                finally:
                    watching.cancel()


class _DirectoryInUseError(Exception):
    """Another `chatlane dev` runs in this directory."""


@contextmanager
def _locked_directory() -> Iterator[None]:
    """Let one `chatlane dev` run per directory; the lock ends with its process.

    Raises:
        _DirectoryInUseError: Another one runs here.
    """
    _LOCK_FILE.parent.mkdir(exist_ok=True)
    with _LOCK_FILE.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _DirectoryInUseError(
                "another `chatlane dev` runs in this directory: stop it first, or start this one "
                "in another directory"
            ) from error
        yield


@contextmanager
def _state_file(config: Path) -> Iterator[None]:
    """Let commands in this directory find the stack while it runs."""
    # It holds the password of the database.
    STATE_FILE.touch(mode=_PRIVATE)
    STATE_FILE.write_text(config.read_text("utf-8"), "utf-8")
    try:
        yield
    finally:
        STATE_FILE.unlink(missing_ok=True)


def _welcome(narrator: ConsoleOutput, stack: Stack, console: ConsoleAddress) -> None:
    command = _command()
    health = next(iter(stack.health_ports.values()))
    narrator.headline("Running; Ctrl-C stops it")
    for name, url in (
        ("NATS", stack.nats.url),
        ("Postgres", stack.dsn),
        ("console", console.url),
        ("sign in", console.link),
    ):
        narrator.console.print(f"  {name:<9} {url}", highlight=False, soft_wrap=True)
    narrator.console.print("\nTo try in another terminal, in this directory:\n")
    for line in (
        *_chat_lines(stack, command),
        f"{command} sessions",
        *([] if _has_workers(stack) else [_worker_line(stack)]),
        f"curl http://127.0.0.1:{health}/metrics",
        *_kill_lines(stack),
    ):
        narrator.console.print(f"  [bold]{escape(line)}[/]", highlight=False, soft_wrap=True)
    narrator.console.print()


def _chat_lines(stack: Stack, command: str) -> list[str]:
    """Return the command that talks to an agent, if the configuration declares a terminal."""
    terminal = stack.settings.platforms.get("terminal")
    if terminal is None or not terminal.accounts:
        return []
    account = "local" if "local" in terminal.accounts else next(iter(terminal.accounts))
    return [f"{command} chat --as ann" + ("" if account == "local" else f" --account {account}")]


def _worker_line(stack: Stack) -> str:
    agents = [name for name, agent in stack.settings.agents.items() if agent.delivery == "turns"]
    agent = "main" if "main" in agents or not agents else agents[0]
    variable = "" if agent == "main" else f"AGENT={agent} "
    python = _beside_here(Path(sys.executable))
    return f"NATS_URL={stack.nats.url} {variable}{python} examples/worker.py"


def _kill_lines(stack: Stack) -> list[str]:
    """Return the command that kills a router, so that the other one takes over."""
    pids = [stack.programs[name].pid for name in stack.health_ports]
    return [f"kill -9 {pids[0]}   # a router: the other one takes over"] if pids else []


def _has_workers(stack: Stack) -> bool:
    return bool(stack.programs.keys() - stack.health_ports.keys() - {CONSOLE, ERASER})


def _command() -> str:
    """Return the chatlane command as the user types it in this directory."""
    beside_python = Path(sys.executable).with_name("chatlane")
    on_path = shutil.which("chatlane")
    if on_path is not None and Path(on_path).resolve() == beside_python.resolve():
        return "chatlane"
    return _beside_here(beside_python)


def _beside_here(program: Path) -> str:
    """Return a path as the user types it in this directory."""
    here = Path.cwd()
    return str(program.relative_to(here) if program.is_relative_to(here) else program)


async def _show_logs(narrator: ConsoleOutput, stack: Stack) -> None:
    """Print the traffic and the logs of the programs, until cancelled."""
    show = partial(_print_line, narrator.console)
    async with asyncio.TaskGroup() as tasks:
        _ = tasks.create_task(_watch(narrator, stack))
        _ = tasks.create_task(follow_traffic(stack.nats.url, partial(show, "chat", "bold")))
        for number, (name, program) in enumerate(stack.programs.items()):
            colour = _COLOURS[number % len(_COLOURS)]
            _ = tasks.create_task(follow(program.log_path, partial(show, name, colour)))


def _print_line(console: Console, name: str, style: str, line: str) -> None:
    text = Text.assemble((f"{name:>10}", style), " │ ", Text.from_ansi(line))
    console.print(text, highlight=False, soft_wrap=True)


async def _watch(narrator: ConsoleOutput, stack: Stack) -> None:
    """Report each program that ended by itself, once."""
    running = set(stack.programs)
    while True:
        for name in sorted(running):
            if not stack.programs[name].is_running:
                running.discard(name)
                narrator.tell(f"{name} has ended")
        await asyncio.sleep(_WATCH.total_seconds())
