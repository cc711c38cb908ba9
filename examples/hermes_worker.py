"""A turn worker around hermes-agent: its `AIAgent` answers, chatlane keeps the conversation.

Run it with the Python environment of hermes-agent, after `pip install` of chatlane-client there.
Tools, memory, skills and credentials stay as they are configured for hermes-agent.
"""

import asyncio
import signal
from os import environ

from run_agent import AIAgent

from chatlane_client import Turn, TurnFailedError, TurnWorker, open_connection, prompt_of
from chatlane_schemas import Role

NATS_URL = environ.get("NATS_URL", "nats://127.0.0.1:4222")
AGENT = environ.get("AGENT", "main")
SLOTS = int(environ.get("SLOTS", "4"))
MODEL = environ.get("HERMES_MODEL", "")
HISTORY_ROWS = int(environ.get("HERMES_HISTORY_ROWS", "200"))


async def answer(turn: Turn) -> str:
    """Answer a turn with a new `AIAgent`; `/stop` interrupts it."""
    chosen = turn.model_override.model if turn.model_override else None
    agent = AIAgent(
        model=chosen or MODEL,
        session_id=str(turn.session_id),
        platform=turn.source.platform,
        ephemeral_system_prompt=turn.prompt_context,
        quiet_mode=True,
    )
    history = await conversation(turn)
    try:
        # AIAgent blocks, so it runs in a thread of its own.
        outcome = await asyncio.to_thread(
            agent.run_conversation, turn.prompt, conversation_history=history
        )
    except asyncio.CancelledError:
        agent.interrupt()
        raise
    if not outcome.get("final_response"):
        raise TurnFailedError("the agent returned no answer", retry=True)
    return str(outcome["final_response"])


async def conversation(turn: Turn) -> list[dict[str, str]]:
    """Return what people and the agent said before this turn."""
    rows = await turn.history(limit=HISTORY_ROWS)
    spoken = [row for row in rows if row.role in (Role.USER, Role.ASSISTANT)]
    return [
        {"role": row.role.value, "content": text} for row in spoken if (text := prompt_of([row]))
    ]


async def main() -> None:
    """Serve turns until SIGTERM or Ctrl-C, then finish the running ones."""
    async with open_connection(NATS_URL, name="hermes worker") as client:
        worker = TurnWorker(client, AGENT, answer, slots=SLOTS, principal=AGENT)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
        await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
