"""The adapter that all compared systems share: it fetches updates of the platform and sends messages.

The platform keeps an update until a request with a higher offset confirms it, as Telegram does.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from os import environ
from typing import TypedDict

import httpx

PLATFORM_URL = environ["PLATFORM_URL"]
THINK_SECONDS = float(environ["THINK_SECONDS"])


class Update(TypedDict):
    """A message that a person wrote. A platform may repeat it under another id of the update."""

    id: int
    chat: str
    message_id: str
    text: str


Take = Callable[[Update], Awaitable[None]]


def answer_to(known: int, *message_ids: str) -> str:
    """Return an answer: how many earlier messages the agent knows, and what it answers."""
    return " ".join((str(known), *message_ids))


def connect() -> httpx.AsyncClient:
    """Return a connection to the platform."""
    return httpx.AsyncClient(base_url=PLATFORM_URL, timeout=60, trust_env=False)


async def send(http: httpx.AsyncClient, chat: str, text: str) -> None:
    """Send a message to a chat."""
    (await http.post("/send_message", json={"chat": chat, "text": text})).raise_for_status()


async def poll(http: httpx.AsyncClient, take: Take) -> None:
    """Fetch updates until cancelled; they are confirmed when `take` has returned for all of them.

    Updates of one chat are taken one after the other.
    """

    async def take_all(updates: list[Update]) -> None:
        for update in updates:
            await take(update)

    offset = 0
    while True:
        response = await http.post("/get_updates", json={"offset": offset})
        by_chat: dict[str, list[Update]] = defaultdict(list)
        for update in response.raise_for_status().json():
            by_chat[update["chat"]].append(update)
            offset = update["id"] + 1
        await asyncio.gather(*map(take_all, by_chat.values()))
