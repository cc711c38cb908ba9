"""A terminal as the client of a person on the emulated Telegram."""

import asyncio
from collections.abc import AsyncIterable
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

from chatlane.observability.logs import without_controls
from chatlane_devkit.platforms.telegram.chats import text_or_caption
from chatlane_devkit.platforms.telegram.server import TelegramServer
from chatlane_devkit.platforms.telegram.wire import Json
from chatlane_servers.programs import Program

ACCOUNT: Final = "emulated"
_PERSON: Final = "Ann"
_LONGEST_WAIT: Final = 30.0
_ANSWERED_WITHIN: Final = 60.0
# After the end of the input: how long nothing more may come after an answer.
_QUIET: Final = 3.0
_SHOWN: Final = frozenset({"sent", "edited"})


def account_of(telegram: TelegramServer) -> str:
    """Return the lines of chatlane.toml that declare the bot."""
    bot = telegram.world.bot
    return (
        f"\n[platforms.telegram.accounts.{ACCOUNT}]\n"
        f'own_ids = ["{bot["id"]}"]\nbot_name = "{bot["username"]}"\n'
    )


def adapter_of(telegram: TelegramServer, nats_url: str, directory: Path) -> Program:
    """Return the adapter of the bot, not started yet."""
    settings = {
        "NATS_URL": nats_url,
        "ACCOUNT": ACCOUNT,
        "API_URL": telegram.url,
        "TOKEN": telegram.token,
    }
    return Program(
        "telegram adapter",
        ["-m", "chatlane", "adapter", "telegram"],
        directory,
        {f"CHATLANE_ADAPTER_{name}": value for name, value in settings.items()},
    )


class TelegramTerminal:
    """Writes lines into a private chat with the bot, and prints what the bot shows there."""

    def __init__(self, telegram: TelegramServer, out: TextIO) -> None:
        self._world = telegram.world
        self._people = telegram.people
        self._chat = telegram.people.private_chat(_PERSON)
        self._out = out
        self._buttons: dict[str, int] = {}

    async def talk(self, lines: AsyncIterable[str]) -> None:
        """Chat until the lines end, and until no answer comes any more.

        A line that is the label of a button presses it; any other line is a message.
        """
        self._print(f"You are {_PERSON} in a private chat with the bot; Ctrl-D ends.")
        showing = asyncio.create_task(self._show())
        try:
            async for line in lines:
                if text := line.strip():
                    self._act(text)
            await self._until_answered()
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)

    async def _until_answered(self) -> None:
        """Return once the newest message is one of the bot and nothing follows it, or give up."""
        messages, own = self._chat.messages, self._chat.own
        with suppress(TimeoutError):
            async with asyncio.timeout(_ANSWERED_WITHIN):
                while messages and next(reversed(messages)) not in own:
                    await self._world.changes_after(self._newest, _QUIET)
                while await self._world.changes_after(self._newest, _QUIET):
                    pass

    @property
    def _newest(self) -> int:
        changes = self._world.changes
        number: int = changes[-1]["number"] if changes else 0
        return number

    def _act(self, text: str) -> None:
        if (message_id := self._buttons.pop(text, None)) is not None:
            self._people.press(self._chat.id, message_id, text)
        else:
            self._people.write(self._chat.id, text)

    async def _show(self) -> None:
        """Print the messages and edits of the bot, until cancelled."""
        number = self._newest
        while True:
            for change in await self._world.changes_after(number, _LONGEST_WAIT):
                number = change["number"]
                if change["what"] in _SHOWN and change["chat_id"] == self._chat.id:
                    self._show_message(change["message"], is_edit=change["what"] == "edited")

    def _show_message(self, message: Json, *, is_edit: bool) -> None:
        text = without_controls(text_or_caption(message) or "", keep="\n\t")
        rows = message.get("reply_markup", {}).get("inline_keyboard", [])
        labels = [it["text"] for row in rows for it in row if "callback_data" in it]
        self._buttons |= dict.fromkeys(labels, message["message_id"])
        buttons = "".join(f" [{without_controls(it)}]" for it in labels)
        self._print(f"bot{' (edited)' if is_edit else ''}> {text}{buttons}")

    def _print(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()
