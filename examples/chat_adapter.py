"""A whole adapter: topics, edits, reactions, photos, albums, buttons, typing, drafts, rate limits.

Its platform is made up; `chat_platform.py` has the calls that the library of a real one would have.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import environ
from typing import Any

import aiohttp
from chat_platform import MAX_TEXT, BlockedError, ChatPlatform, RefusedError, TooManyRequestsError

from chatlane_client import (
    AdapterClient,
    ChatGone,
    Piece,
    RateBudget,
    RetryAfter,
    TextLimit,
    Undeliverable,
    chat_of,
    deleted,
    edited,
    open_connection,
    pressed,
    reacted,
)
from chatlane_schemas import Attachment, Chat, DeliveryFailure, InboundEvent, Sender, Source
from chatlane_schemas.content.elements import Press

LIMIT = TextLimit(MAX_TEXT, "utf16")


@contextmanager
def refusals() -> Iterator[None]:
    """Raise what the platform says in the terms of chatlane."""
    try:
        yield
    except TooManyRequestsError as error:
        raise RetryAfter(error.seconds) from error
    except BlockedError as error:
        raise ChatGone(str(error), failure=DeliveryFailure.BLOCKED) from error
    except RefusedError as error:
        raise Undeliverable(str(error)) from error


@dataclass
class Bot:
    """Sends what chatlane says; `send`, `edit` and `delete` also serve drafts."""

    platform: ChatPlatform

    async def deliver(self, piece: Piece) -> str | None:
        """Send or edit one message, and return the platform's id of it."""
        target, buttons = piece.message.target, [it.model_dump() for it in piece.buttons]
        if piece.edits is not None:
            await self.edit(target, piece.edits, piece.text, buttons=buttons)
            return piece.edits
        photos = [file.url for file in piece.attachments]
        more = {"reply_to": piece.reply_to, "photos": photos, "buttons": buttons}
        return await self._post(target, piece.text, **more)

    async def send(self, target: Source, text: str, *, key: str, may_be_sent: bool) -> str:
        """Send the first text of a draft and return its id."""
        if may_be_sent:
            raise Undeliverable(f"the platform knows no key such as {key}")
        return await self._post(target, text)

    async def _post(self, target: Source, text: str | None, **more: object) -> str:
        with refusals():
            its = {"topic": target.thread_id, **more}
            return await self.platform.send(chat_of(target), text, **its)

    async def edit(self, target: Source, message_id: str, text: str | None, **more: object) -> None:
        """Replace the content of a message."""
        with refusals():
            await self.platform.edit(chat_of(target), message_id, text, **more)

    async def delete(self, target: Source, message_id: str) -> None:
        """Delete a message."""
        await self.platform.delete(chat_of(target), message_id)

    async def show_typing(self, target: Source) -> None:
        """Show that an answer is being written."""
        await self.platform.show_typing(chat_of(target), target.thread_id)

    async def receive(self, adapter: AdapterClient) -> None:
        """Publish what happens on the platform, and confirm it once it is stored."""
        after = 0
        while True:
            for update in await self.platform.updates(after):
                await adapter.publish(event_of(adapter, update), waits_for_room=True)
                after = update["id"]


def event_of(adapter: AdapterClient, update: dict[str, Any]) -> InboundEvent:
    """Return an update of the platform as an event."""
    message = update["message"]
    event = adapter.event(
        message_id=message["id"],
        chat=Chat(**message["chat"]),
        thread_id=message["topic"],
        sender=Sender(**update["sender"]),
        reply_to=message["reply_to"],
        text=message["text"],
        attachments=[Attachment(url=url, media_type="image/png") for url in message["photos"]],
        album_id=message["album"],
    )
    if update["kind"] == "edit":
        return edited(event, version=message["version"])
    if update["kind"] == "delete":
        return deleted(event)
    if update["kind"] == "reaction":
        return reacted(event, update["value"], event_id=update["id"])
    if update["kind"] == "press":
        return pressed(event, Press(value=update["value"]), event_id=update["id"])
    return event


async def main() -> None:
    """Serve one account until SIGTERM."""
    secured = {it: environ.get(it.upper()) for it in ("principal", "nkey_seed_file", "tls_ca_file")}
    async with (
        aiohttp.ClientSession(environ["CHAT_URL"]) as http,
        open_connection(environ["NATS_URL"], name="chat adapter", **secured) as client,
    ):
        bot = Bot(ChatPlatform(http))
        budget = RateBudget(per_second=30, per_chat_per_second=20)
        names = {"platform": environ["PLATFORM"], "account": environ["ACCOUNT"]}
        adapter = AdapterClient(client, **names, budget=budget)
        await adapter.run(
            adapter.deliver_pieces(bot.deliver, limit=LIMIT),
            adapter.show_typing(bot.show_typing),
            adapter.show_drafts(bot, limit=LIMIT),
            adapter.close_questions(bot.edit),
            adapter.run_leased(lambda: bot.receive(adapter)),
        )


if __name__ == "__main__":
    asyncio.run(main())
