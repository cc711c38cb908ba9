"""A turn worker whose answers come from a graph of LangGraph, with a tool that needs an approval."""

import asyncio
import json
import signal
from contextlib import suppress
from os import environ
from typing import Any

from langchain_core.messages import AIMessage, convert_to_openai_messages
from langchain_core.tools import BaseTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt
from openai import AsyncOpenAI

from chatlane_client import TurnWorker, open_connection
from chatlane_client.frameworks.langgraph import turn_handler

NATS_URL = environ.get("NATS_URL", "nats://127.0.0.1:4222")
AGENT = environ.get("AGENT", "main")
MODEL = environ.get("LLM_MODEL", "llama3.2")
INSTRUCTIONS = "You keep the calendar of a small office. Answer briefly."

booked: list[str] = []


@tool
def free_rooms(day: str) -> list[str]:
    """Return the rooms that are free on a day."""
    return [room for room in ("north", "south") if f"{room} on {day}" not in booked]


@tool
def book(room: str, day: str) -> str:
    """Book a room for a day; the person has to allow it."""
    asked = {"question": f"Book {room} on {day}?", "options": ["Yes", "No"]}
    if interrupt(asked) != "Yes":
        return "the person does not want it"
    booked.append(f"{room} on {day}")
    return "booked"


TOOLS: list[BaseTool] = [free_rooms, book]


async def ask_model(state: MessagesState) -> dict[str, Any]:
    """Ask the model; with a package such as langchain-openai this is `await model.ainvoke(...)`."""
    system = {"role": "system", "content": INSTRUCTIONS}
    completion = await endpoint.chat.completions.create(
        model=MODEL,
        messages=[system, *convert_to_openai_messages(state["messages"])],
        tools=[convert_to_openai_tool(it) for it in TOOLS],
    )
    said = completion.choices[0].message
    calls = [
        {"id": it.id, "name": it.function.name, "args": json.loads(it.function.arguments or "{}")}
        for it in said.tool_calls or ()
    ]
    return {"messages": [AIMessage(said.content or "", tool_calls=calls)]}


endpoint = AsyncOpenAI(
    base_url=environ.get("LLM_BASE_URL", "http://127.0.0.1:11434/v1"),
    api_key=environ.get("LLM_API_KEY", "none"),
)
builder = StateGraph(MessagesState)
builder.add_node("model", ask_model)
builder.add_node("tools", ToolNode(TOOLS))
builder.add_edge(START, "model")
builder.add_conditional_edges("model", tools_condition)
builder.add_edge("tools", "model")
graph = builder.compile()


async def main() -> None:
    """Serve turns until SIGTERM or Ctrl-C, then finish the running ones."""
    async with open_connection(NATS_URL, name="graph worker") as client:
        worker = TurnWorker(client, AGENT, turn_handler(graph), slots=8, principal=AGENT)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
        await worker.run()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
