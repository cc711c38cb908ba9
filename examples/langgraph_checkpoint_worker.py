"""A turn worker around a graph of LangGraph with a checkpointer: a killed turn goes on.

The id of the turn is the id of the thread, so another attempt goes on after the last node that
ended. The conversation itself stays in the transcript of chatlane.
"""

import asyncio
import signal
from contextlib import suppress
from os import environ
from typing import Any

import httpx
from langchain_core.messages import AIMessage, convert_to_openai_messages
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import START, MessagesState, StateGraph

from chatlane_client import TurnWorker, open_connection
from chatlane_client.frameworks.langgraph import turn_handler

NATS_URL = environ.get("NATS_URL", "nats://127.0.0.1:4222")
AGENT = environ.get("AGENT", "main")
DATABASE_URL = environ.get("CHECKPOINT_DATABASE_URL", "postgresql://127.0.0.1/checkpoints")
BASE_URL = environ.get("LLM_BASE_URL", "http://127.0.0.1:11434/v1")
MODEL = environ.get("LLM_MODEL", "llama3.2")


async def ask_model(instructions: str, state: MessagesState) -> dict[str, Any]:
    """Return the state with the answer of the model."""
    said = [{"role": "system", "content": instructions}]
    said += convert_to_openai_messages(state["messages"])
    async with httpx.AsyncClient(base_url=BASE_URL, timeout=120) as http:
        body = {"model": MODEL, "messages": said}
        response = await http.post("/chat/completions", json=body)
        text = response.raise_for_status().json()["choices"][0]["message"]["content"]
    return {"messages": [AIMessage(text)]}


async def plan(state: MessagesState) -> dict[str, Any]:
    """Plan the answer."""
    return await ask_model("Plan the answer.", state)


async def write(state: MessagesState) -> dict[str, Any]:
    """Write the answer."""
    return await ask_model("Write the answer.", state)


builder = StateGraph(MessagesState)
builder.add_node("plan", plan)
builder.add_node("write", write)
builder.add_edge(START, "plan")
builder.add_edge("plan", "write")


async def main() -> None:
    """Serve turns until SIGTERM or Ctrl-C, then finish the running ones."""
    async with (
        AsyncPostgresSaver.from_conn_string(DATABASE_URL) as saver,
        open_connection(NATS_URL, name="graph worker") as client,
    ):
        await saver.setup()
        graph = builder.compile(checkpointer=saver)
        worker = TurnWorker(client, AGENT, turn_handler(graph), slots=8, principal=AGENT)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
        await worker.run()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
