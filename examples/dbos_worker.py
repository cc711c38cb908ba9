"""A turn worker whose turns are workflows of DBOS: each step runs once, whatever is killed.

The id of the turn is the id of the workflow. chatlane notices that a worker died, so DBOS needs no
service that does: the next attempt at the turn resumes the workflow where it was.
"""

import asyncio
import signal
from contextlib import suppress
from os import environ
from uuid import uuid4

import httpx
from dbos import DBOS, SetWorkflowID

from chatlane_client import Turn, TurnWorker, open_connection

NATS_URL = environ.get("NATS_URL", "nats://127.0.0.1:4222")
AGENT = environ.get("AGENT", "main")
DATABASE_URL = environ.get("DBOS_SYSTEM_DATABASE_URL", "sqlite:///dbos.sqlite")
BASE_URL = environ.get("LLM_BASE_URL", "http://127.0.0.1:11434/v1")
MODEL = environ.get("LLM_MODEL", "llama3.2")


@DBOS.step(retries_allowed=True)
async def ask_model(instructions: str, text: str) -> str:
    """Return what the model answers; DBOS keeps it."""
    said = [{"role": "system", "content": instructions}, {"role": "user", "content": text}]
    async with httpx.AsyncClient(base_url=BASE_URL, timeout=120) as http:
        body = {"model": MODEL, "messages": said}
        response = await http.post("/chat/completions", json=body)
        return str(response.raise_for_status().json()["choices"][0]["message"]["content"])


@DBOS.workflow()
async def write_answer(prompt: str) -> str:
    """Answer in two steps."""
    plan = await ask_model("Plan the answer.", prompt)
    return await ask_model("Write the answer.", f"{prompt}\n\nPlan: {plan}")


async def answer(turn: Turn) -> str:
    """Start the workflow of a turn, or resume it, and return its result."""
    workflow = str(turn.id)
    if turn.attempt > 1 and await DBOS.get_workflow_status_async(workflow):
        handle = await DBOS.resume_workflow_async(workflow)
    else:
        with SetWorkflowID(workflow):
            handle = await DBOS.start_workflow_async(write_answer, turn.prompt)
    try:
        return str(await handle.get_result())
    except asyncio.CancelledError:
        # If the lease was lost, another attempt resumes the workflow.
        if turn.cancel_reason is not None:
            await DBOS.cancel_workflow_async(workflow)
        raise


async def main() -> None:
    """Serve turns until SIGTERM or Ctrl-C, then finish the running ones."""
    # A process of its own name recovers no workflows when it starts: the attempts at their turns
    # resume them. A fixed version lets any copy of this program resume them.
    name = f"worker-{uuid4()}"
    config = {"name": "dbos-worker", "system_database_url": DATABASE_URL, "log_level": "WARNING"}
    DBOS(config={**config, "executor_id": name, "application_version": "1"})
    async with open_connection(NATS_URL, name="dbos worker") as client:
        await asyncio.to_thread(DBOS.launch)
        worker = TurnWorker(client, AGENT, answer, slots=8, principal=AGENT)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
        await worker.run()
        await asyncio.to_thread(DBOS.destroy)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
