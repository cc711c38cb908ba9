"""A bot around a graph of LangGraph: each chat is a thread of a checkpointer in Postgres.

LangGraph leaves to its user how a message reaches a thread once. The id of the message is the id of
the message in the state, and updates are confirmed when they are answered.
"""

import asyncio
from os import environ
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import START, MessagesState, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from tests.benchmarks.comparison.programs.chat_api import (
    THINK_SECONDS,
    Update,
    answer_to,
    connect,
    poll,
    send,
)


class State(MessagesState):
    """A chat, and the answer that is sent next."""

    answer: str


async def main() -> None:
    """Answer until killed."""
    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    pool: AsyncConnectionPool[Any] = AsyncConnectionPool(
        environ["DATABASE_URL"],
        max_size=20,
        kwargs=settings,
        check=AsyncConnectionPool.check_connection,
        open=False,
    )
    async with connect() as http, pool:

        async def think(state: State) -> dict[str, Any]:
            heard = [it for it in state["messages"] if isinstance(it, HumanMessage)]
            await asyncio.sleep(THINK_SECONDS)
            return {"answer": answer_to(len(heard) - 1, heard[-1].id or "")}

        async def reply(state: State, config: RunnableConfig) -> dict[str, Any]:
            await send(http, config["configurable"]["thread_id"], state["answer"])
            return {"messages": [AIMessage(state["answer"], id=f"re-{state['messages'][-1].id}")]}

        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        builder = StateGraph(State)
        builder.add_node("think", think)
        builder.add_node("reply", reply)
        builder.add_edge(START, "think")
        builder.add_edge("think", "reply")
        graph = builder.compile(checkpointer=saver)

        async def take(update: Update) -> None:
            config: RunnableConfig = {"configurable": {"thread_id": update["chat"]}}
            state = await graph.aget_state(config)
            if state.next:
                # The process was killed in the middle.
                await graph.ainvoke(None, config, durability="sync")
                state = await graph.aget_state(config)
            ids = {it.id for it in state.values.get("messages", ())}
            if f"re-{update['message_id']}" not in ids:
                message = HumanMessage(update["text"], id=update["message_id"])
                given: Any = {"messages": [message]}
                await graph.ainvoke(given, config, durability="sync")

        await poll(http, take)


if __name__ == "__main__":
    asyncio.run(main())
