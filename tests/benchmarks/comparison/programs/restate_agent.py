"""Answers messages with a virtual object of Restate, one for each chat."""

import asyncio
from os import environ

import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

from tests.benchmarks.comparison.programs.chat_api import (
    THINK_SECONDS,
    Update,
    answer_to,
    connect,
    send,
)

chats = restate.VirtualObject("Chat")
http = connect()


async def think() -> None:
    """Take the time of a model."""
    await asyncio.sleep(THINK_SECONDS)


async def reply(chat: str, text: str) -> None:
    """Send a message to a chat."""
    await send(http, chat, text)


@chats.handler()
async def hear(ctx: restate.ObjectContext, update: Update) -> None:
    """Answer a message."""
    heard = await ctx.get("heard", type_hint=list[str]) or []
    await ctx.run_typed("think", think)
    ctx.set("heard", [*heard, update["text"]][-100:])
    text = answer_to(len(heard), update["message_id"])
    await ctx.run_typed("reply", reply, chat=update["chat"], text=text)


if __name__ == "__main__":
    settings = Config.from_mapping(bind=[environ["HANDLERS"]], loglevel="WARNING")
    asyncio.run(serve(restate.app([chats]), settings))
