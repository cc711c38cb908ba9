"""A bot on the emulated Telegram and the emulated model, as the page for Telegram describes it."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from chatlane_servers.binaries import server_directory
from tests.acceptance.bot.bot_scene import parts_of, stopped
from tests.support.command_run import CommandRun, started
from tests.support.eventually import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.timeout(240)]

BOT = ("-m", "chatlane", "bot", "--config", "emulated.toml", "--data", "bot")


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that the server's own user may enter."""
    with server_directory() as path:
        yield path


async def test_a_bot_that_is_killed_answers_what_was_written_meanwhile(directory: Path) -> None:
    async with started(directory, "-m", "chatlane", "emulate") as telegram:
        await telegram.until_printed("You are Ann")
        async with started(directory, *BOT) as bot:
            await bot.until_printed("answers on telegram")
            await answered(telegram, "hello")
            assert "adapter" in parts_of(bot)
            bot.process.kill()
            await bot.process.wait()
            await bot.until_nothing_is_left()
        telegram.say("written meanwhile")
        async with started(directory, *BOT) as bot:
            await until_said(telegram, "written meanwhile")
            await answered(telegram, "and now")
            await stopped(bot)
        assert telegram.process.stdin is not None
        telegram.process.stdin.close()
        assert await telegram.process.wait() == 0
    assert "Traceback" not in telegram.text


async def answered(telegram: CommandRun, words: str) -> None:
    telegram.say(words)
    await until_said(telegram, words)


async def until_said(telegram: CommandRun, words: str) -> None:
    said = f"bot> You said: {words}"
    await eventually(lambda: said in telegram.text, timeout=timedelta(seconds=100))


async def test_a_file_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    config = tmp_path / "emulated.toml"
    config.write_text('platform = "discord"\n', "utf-8")
    async with started(tmp_path, "-m", "chatlane", "emulate") as telegram:
        assert await telegram.process.wait() == 2
    assert "is there already" in telegram.text
    assert config.read_text("utf-8") == 'platform = "discord"\n'
