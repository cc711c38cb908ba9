"""An agent that repeats each message: `#<number in the transcript> heard: <text>`.

It is an ordinary turn worker, built on the client; it needs no devkit.
"""

import asyncio
import signal
from collections.abc import Iterable
from datetime import timedelta
from functools import partial

from nats.aio.client import Client

from chatlane_client.transport.process_name import process_name
from chatlane_client.turn import Turn
from chatlane_client.worker import TurnWorker
from chatlane_schemas import Attachment, TurnMessage


def heard(seq: int, text: str | None, attachments: Iterable[Attachment] = ()) -> str:
    """Return the answer to one message; files are listed by name."""
    files = [f"[{attachment.name or attachment.media_type}]" for attachment in attachments]
    return f"#{seq} heard: {' '.join([*([text] if text else []), *files])}"


def echo(messages: Iterable[TurnMessage]) -> str:
    """Return the answer to a turn, one line or more per message."""
    return "\n".join(heard(message.seq, message.text, message.attachments) for message in messages)


async def think_and_echo(think: timedelta, turn: Turn) -> str:
    """Wait as long as an agent would think, then answer a turn."""
    await asyncio.sleep(think.total_seconds())
    return echo(turn.messages)


async def serve(
    client: Client,
    *,
    agent: str = "main",
    principal: str | None = None,
    slots: int = 8,
    think: timedelta = timedelta(0),
    name: str | None = None,
) -> None:
    """Serve the turns of an agent until SIGTERM or SIGINT, and finish those in progress.

    Args:
        client: An open connection.
        agent: The agent whose turns it answers.
        principal: The name that the connection's permissions are bound to; by default the agent's.
        slots: Number of turns at the same time.
        think: Time that an answer takes.
        name: Shown as the worker of a turn.
    """
    worker = TurnWorker(
        client,
        agent,
        partial(think_and_echo, think),
        slots=slots,
        principal=principal or agent,
        name=name or process_name(),
    )
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, worker.stop)
    await worker.run()
