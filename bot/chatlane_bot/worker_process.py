"""The process of a bot's worker: `python -m chatlane_bot.worker_process FILE`."""

import asyncio
import os
import sys
from pathlib import Path

from chatlane.garbage import collect_rarely_from_the_start


def main(arguments: list[str]) -> int:
    """Serve the bot that a bot.toml describes."""
    # Before its libraries are imported, which takes seconds.
    collect_rarely_from_the_start()
    from chatlane_bot.bot_config import BotConfigError, read_bot_config
    from chatlane_bot.model_worker import serve

    try:
        asyncio.run(serve(read_bot_config(Path(arguments[0])), os.environ, has_health=False))
    except BotConfigError as exc:
        sys.stderr.write(f"{exc}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
