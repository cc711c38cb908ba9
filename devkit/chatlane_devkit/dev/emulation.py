"""An emulated Telegram and a language model for a bot that runs by itself.

With `chatlane dev` everything is in one process. Here the bot is one of its own, so that it can be
killed and started again as on a server.
"""

import asyncio
import sys
from pathlib import Path
from typing import Final

from chatlane.cli.shared.terminal import typed_lines
from chatlane_devkit.model_endpoint import ModelEndpoint, open_model_endpoint
from chatlane_devkit.platforms.telegram import TelegramServer, open_telegram_server
from chatlane_devkit.platforms.telegram.terminal import TelegramTerminal
from chatlane_servers.programs import cancel_on_stop_signals
from chatlane_servers.toml_text import toml_text

_FIRST_LINE: Final = "# Written by `chatlane emulate`, which overwrites it.\n"


def main(config: Path) -> int:
    """Run until the end of the input, SIGINT or SIGTERM, and return the exit code."""
    if config.exists() and not config.read_text("utf-8").startswith(_FIRST_LINE):
        sys.stderr.write(f"{config} is there already: name another file with --config\n")
        return 2
    try:
        asyncio.run(_run(config))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.stdout.write("stopped\n")
    return 0


async def _run(config: Path) -> None:
    cancel_on_stop_signals()
    async with open_telegram_server() as telegram, open_model_endpoint() as model:
        _write(config, telegram, model)
        sys.stdout.write(f"Start the bot in another terminal: chatlane bot --config {config}\n")
        await TelegramTerminal(telegram, sys.stdout).talk(typed_lines(sys.stdin))


def _write(config: Path, telegram: TelegramServer, model: ModelEndpoint) -> None:
    """Write the bot.toml of a bot on both."""
    tables = {
        "platform": "telegram",
        "model": {"name": "openai:emulated", "base_url": model.url},
        "adapter": {"token": telegram.token, "api_url": telegram.url},
    }
    config.write_text(_FIRST_LINE + toml_text(tables), "utf-8")
