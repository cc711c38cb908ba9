"""A bot of Telegram with a webhook: a process receives while another one delivers."""

from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

import httpx
import pytest

from chatlane_client import Answer, Turn
from chatlane_devkit.platforms.telegram import Chat, TelegramServer, open_telegram_server
from chatlane_servers.embedded import free_port
from tests.support.eventually import eventually
from tests.support.platforms.adapter_stage import AdapterStage, open_adapter_stage
from tests.support.servers.backends import RunningServer

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.untimed,
    pytest.mark.slow,
    pytest.mark.timeout(240),
]

SECRET: Final = "a-secret_of-our-webhook"  # noqa: S105 - of this test
SECRET_HEADER: Final = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105 - name of a header
PATIENCE: Final = timedelta(seconds=60)


async def repeated(turn: Turn) -> Answer:
    return f"heard {turn.text}"


def webhook_at(port: int) -> dict[str, str]:
    """Return the settings of a process that receives on a port."""
    return {"webhook_url": f"http://127.0.0.1:{port}/hook", "webhook_port": str(port)}


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with open_telegram_server() as server:
        yield server


@pytest.fixture
async def stage(
    telegram: TelegramServer, nats_server: RunningServer, database_url: str, tmp_path: Path
) -> AsyncIterator[AdapterStage]:
    variables = {"api_url": telegram.url, "token": telegram.token, "webhook_secret": SECRET}
    async with open_adapter_stage(
        tmp_path,
        nats_server.url,
        database_url,
        platform="telegram",
        variables={**variables, "per_chat_per_second": "20", **webhook_at(free_port())},
        answer=repeated,
    ) as opened:
        yield opened


def has_said(chat: Chat, *texts: str) -> bool:
    return chat.said == [f"heard {text}" for text in texts]


def is_set(telegram: TelegramServer, url: str) -> bool:
    webhook = telegram.world.updates.webhook
    return webhook is not None and webhook["url"] == url


async def test_updates_are_received_and_answered_by_different_processes(
    telegram: TelegramServer, stage: AdapterStage
) -> None:
    first = stage.variables["CHATLANE_ADAPTER_WEBHOOK_URL"]
    await eventually(partial(is_set, telegram, first), PATIENCE)
    chat = telegram.people.private_chat("Ann")
    telegram.people.write(chat.id, "one")
    await eventually(partial(has_said, chat, "one"), PATIENCE)

    port = free_port()
    its = {f"CHATLANE_ADAPTER_{name.upper()}": it for name, it in webhook_at(port).items()}
    second = stage.another_adapter("receiver", **its)
    second.start()
    try:
        url = its["CHATLANE_ADAPTER_WEBHOOK_URL"]
        await eventually(partial(is_set, telegram, url), PATIENCE)
        update = {"update_id": 999, "message": {"chat": {"id": chat.id, "type": "private"}}}
        async with httpx.AsyncClient(trust_env=False) as client:
            for secret in ({}, {SECRET_HEADER: "another"}):
                answer = await client.post(url, json=update, headers=secret)
                assert answer.status_code == httpx.codes.UNAUTHORIZED
        # The first process has the lease and delivers; Telegram calls the second one.
        telegram.people.write(chat.id, "two")
        await eventually(partial(has_said, chat, "one", "two"), PATIENCE)

        await second.kill()
        telegram.people.write(chat.id, "three")
        await eventually(lambda: telegram.world.updates.failures > 0, PATIENCE)
        second.start()
        await eventually(partial(has_said, chat, "one", "two", "three"), PATIENCE)

        await stage.adapter.kill()
        telegram.people.write(chat.id, "four")
        await eventually(lambda: chat.said[-1] == "heard four", PATIENCE)
        # It may have ended before it could say that the third answer was sent.
        repeats = ["heard three"] * (len(chat.said) - 4)
        assert len(repeats) <= 1
        said = ("one", "two", "three")
        assert chat.said == [*(f"heard {text}" for text in said), *repeats, "heard four"]
    finally:
        await second.stop()
