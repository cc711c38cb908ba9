"""SIGKILL of the adapter, the router, NATS and Postgres while 50 chats of Telegram talk."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chatlane_client import Answer, Turn
from chatlane_devkit.platforms.telegram import Chat, TelegramServer, open_telegram_server
from tests.acceptance.adapters.kills import CHATS, PATIENCE, ROUNDS, kills_by_round, numbers_in
from tests.acceptance.conftest import ReportLine
from tests.support.eventually import eventually
from tests.support.platforms.adapter_stage import AdapterStage, open_adapter_stage
from tests.support.servers.backends import RunningPostgres, RunningServer

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.untimed,
    pytest.mark.slow,
    pytest.mark.timeout(240),
]


async def repeat(turn: Turn) -> Answer:
    """Answer with what was said; a turn may answer several messages."""
    return "\n".join(message.text or "" for message in turn.messages)


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with open_telegram_server() as server:
        yield server


@pytest.fixture
async def stage(
    telegram: TelegramServer,
    nats_server: RunningServer,
    own_database_url: str,
    tmp_path: Path,
) -> AsyncIterator[AdapterStage]:
    async with open_adapter_stage(
        tmp_path,
        nats_server.url,
        own_database_url,
        platform="telegram",
        variables={
            "api_url": telegram.url,
            "token": telegram.token,
            "per_second": "200",
            "per_chat_per_second": "20",
        },
        answer=repeat,
    ) as opened:
        yield opened


async def test_500_messages_survive_every_kill_in_order(
    telegram: TelegramServer,
    stage: AdapterStage,
    nats_server: RunningServer,
    own_postgres: RunningPostgres,
    report_line: ReportLine,
) -> None:
    """Telegram has no idempotency key: what a killed adapter was sending may be there twice."""
    chats = [telegram.people.private_chat(f"Person {number}") for number in range(CHATS)]
    kills = kills_by_round(stage.adapter, stage.router, nats_server, own_postgres)
    for number in range(ROUNDS):
        before = shown(chats)
        for chat in chats:
            telegram.people.write(chat.id, f"message-{number}")
        await eventually(lambda before=before: shown(chats) > before, PATIENCE)  # type: ignore[misc]
        if number in kills:
            await kills[number]()

    def has_all() -> bool:
        missing = [it.id for it in chats if set(numbers_in(it.said)) != set(range(ROUNDS))]
        assert not missing, missing
        return True

    await eventually(has_all, PATIENCE)
    doubles = 0
    for chat in chats:
        # Each answer once, at the place of its first copy.
        assert numbers_in(list(dict.fromkeys(chat.said))) == list(range(ROUNDS)), chat.id
        doubles += (doubled := len(chat.said) - len(set(chat.said)))
        assert doubled <= 3, "in a chat, one message at most for each kill of the adapter"
    marked = len(stage.adapter.events("piece_may_be_repeated"))
    assert doubles <= marked
    report_line(f"{doubles} messages are shown twice, {marked} were marked as perhaps sent before")


def shown(chats: list[Chat]) -> int:
    return sum(len(chat.texts) for chat in chats)
