"""A terminal writes into the emulated Telegram, and shows what the bot does."""

import io
from collections.abc import AsyncIterator
from typing import Any

import httpx

from chatlane_devkit.platforms.telegram import open_telegram_server
from chatlane_devkit.platforms.telegram.terminal import TelegramTerminal
from tests.support.eventually import eventually


async def test_lines_are_messages_and_labels_press_buttons() -> None:
    async with open_telegram_server() as telegram, httpx.AsyncClient(trust_env=False) as http:
        out = io.StringIO()

        async def call(method: str, **body: Any) -> Any:  # noqa: ANN401 - of the Bot API
            url = f"{telegram.url}/bot{telegram.token}/{method}"
            return (await http.post(url, json=body)).json()["result"]

        async def lines() -> AsyncIterator[str]:
            yield "hello\n"
            [written] = await call("getUpdates", timeout=5)
            chat_id = written["message"]["chat"]["id"]
            keyboard = {"inline_keyboard": [[{"text": "Yes", "callback_data": "y"}]]}
            sent = await call("sendMessage", chat_id=chat_id, text="Sure?", reply_markup=keyboard)
            await eventually(lambda: "bot> Sure? [Yes]" in out.getvalue())
            yield "Yes\n"
            offset = written["update_id"] + 1
            [pressed] = await call("getUpdates", timeout=5, offset=offset)
            assert pressed["callback_query"]["data"] == "y"
            edited = {"message_id": sent["message_id"], "text": "done"}
            await call("editMessageText", chat_id=chat_id, **edited)

        await TelegramTerminal(telegram, out).talk(lines())
        assert out.getvalue().endswith("bot> Sure? [Yes]\nbot (edited)> done\n")
