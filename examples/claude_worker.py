"""A turn worker around the Claude Agent SDK: it may read files of a directory, and asks for all else.

It needs the credentials of the Claude CLI, for example ANTHROPIC_API_KEY.
"""

import asyncio
import signal
from contextlib import suppress
from os import environ

from claude_agent_sdk import ClaudeAgentOptions

from chatlane_client import TurnWorker, open_connection
from chatlane_client.frameworks.claude import turn_handler

NATS_URL = environ.get("NATS_URL", "nats://127.0.0.1:4222")
AGENT = environ.get("AGENT", "main")

options = ClaudeAgentOptions(
    system_prompt="You answer questions about the files of this directory. Answer briefly.",
    allowed_tools=["Read", "Glob", "Grep"],
    cwd=environ.get("FILES", "."),
    # Nothing but what is written here: no settings of the person who runs it.
    setting_sources=[],
    max_turns=20,
)


async def main() -> None:
    """Serve turns until SIGTERM or Ctrl-C, then finish the running ones."""
    async with open_connection(NATS_URL, name="claude worker") as client:
        worker = TurnWorker(client, AGENT, turn_handler(options), slots=4, principal=AGENT)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
        await worker.run()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
