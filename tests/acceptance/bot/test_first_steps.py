"""The first steps of the README, word for word, with an emulated Telegram and a model endpoint."""

import shlex
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Final

import pytest

from chatlane_devkit.platforms.telegram import Chat, open_telegram_server
from chatlane_servers.toml_text import toml_text
from tests.acceptance.bot.bot_scene import open_bot_scene, parts_of, stopped
from tests.support.command_run import started
from tests.support.eventually import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.timeout(240)]

README: Final = Path(__file__).parents[3] / "README.md"
TEN_MINUTES: Final = timedelta(minutes=10)


def first_steps(token: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables and the command of the first block of the README."""
    block = README.read_text("utf-8").partition("```sh\n")[2].partition("```")[0]
    set_up, export, command = block.splitlines()
    assert set_up == "make setup"
    variable, _, key = export.removeprefix("export ").partition("=")
    program, *arguments = shlex.split(command.replace("TOKEN", token))
    assert program == ".venv/bin/chatlane"
    return {variable: key}, ["-m", "chatlane", *arguments]


async def until_said(chat: Chat, words: str) -> None:
    await eventually(lambda: count(chat, words) > 0, timeout=timedelta(seconds=90))


def count(chat: Chat, words: str) -> int:
    return sum(words in (text or "") for text in chat.texts)


async def test_a_telegram_bot_answers_within_minutes_and_survives_the_death_of_all_of_it() -> None:
    async with open_bot_scene() as scene, open_telegram_server() as telegram:
        variables, command = first_steps(telegram.token)
        # What a person on the internet does not need: where the two emulated services are.
        variables["OPENAI_BASE_URL"] = scene.model.url
        emulated = scene.directory / "emulated.toml"
        emulated.write_text(toml_text({"adapter": {"api_url": telegram.url}}), "utf-8")
        more = ["--data", str(scene.data), "--config", str(emulated)]
        chat = telegram.people.private_chat("Ann")
        begin = monotonic()
        async with started(scene.directory, *command, *more, environment=variables) as run:
            telegram.people.write(chat.id, "Hello bot")
            await until_said(chat, "You said: Hello bot (after 0 messages)")
            assert monotonic() - begin < TEN_MINUTES.total_seconds()
            servers = {"nats-server", "postgres"}
            assert servers | {"router", "worker", "console", "eraser", "adapter"} == {
                *parts_of(run)
            }

            telegram.people.photo(chat.id, "What is this?")
            await until_said(chat, "What is this?")
            shown = scene.model.requests[-1]["messages"][-1]["content"]
            assert "data:image/jpeg;base64," in str(shown), "the model sees the photo"

            telegram.people.write(chat.id, "in the middle")
            updates = telegram.world.updates
            await eventually(lambda: updates.confirmed >= updates.newest)
            run.process.kill()
            await run.process.wait()
            await run.until_nothing_is_left()
            telegram.people.write(chat.id, "written meanwhile")

        again = ["-m", "chatlane", "bot", "--data", str(scene.data)]
        async with started(scene.directory, *again, environment=variables) as run:
            await until_said(chat, "written meanwhile")
            telegram.people.write(chat.id, "And now?")
            await until_said(chat, "And now?")
            await stopped(run)
        for words in ("Hello bot", "in the middle", "written meanwhile", "And now?"):
            # Telegram has no ids for sends: one that was on its way at a kill may come twice.
            assert 1 <= count(chat, words) <= 2, chat.texts
        assert telegram.token not in run.text
        logs = "".join(path.read_text("utf-8") for path in (scene.data / "logs").glob("*.log"))
        assert telegram.token not in logs
        assert "written meanwhile" not in logs
