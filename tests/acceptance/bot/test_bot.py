"""`chatlane bot`: servers, router and language-model worker from one command."""

import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from chatlane_servers.embedded import open_nats, open_postgres
from chatlane_servers.toml_text import toml_text
from tests.acceptance.bot.bot_scene import (
    BotScene,
    command,
    open_bot_scene,
    parts_of,
    stopped,
)
from tests.support.eventually import eventually

# The quick test of what a bot promises is in test_first_steps.py.
pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.untimed,
    pytest.mark.slow,
    pytest.mark.timeout(240),
]

TOOLS: Final = Path(__file__).with_name("tool_server.py")


@pytest.fixture
async def scene() -> AsyncIterator[BotScene]:
    async with open_bot_scene() as its:
        yield its


async def test_a_person_talks_to_the_bot_in_its_terminal_and_later_again(scene: BotScene) -> None:
    first = "--model", "openai:fake", "--base-url", scene.model.url
    async with scene.bot(*first) as run:
        run.say("hello")
        await run.until_printed("main> You said: hello (after 0 messages)")
        await stopped(run)

    # It knows what it is, and the conversation goes on.
    async with scene.bot() as run:
        run.say("again")
        await run.until_printed("main> You said: again (after 1 messages)")
        await stopped(run)


async def test_the_conversation_of_the_terminal_is_in_the_console(scene: BotScene) -> None:
    config = scene.directory / "bot.toml"
    model = {"name": "openai:fake", "base_url": scene.model.url}
    config.write_text(toml_text({"titles": True, "model": model}))
    async with scene.bot("--config", str(config)) as run:
        run.say("hello")
        await run.until_printed("main> You said: hello")
        [link] = re.findall(r"^  console +(\S+)$", run.text, re.MULTILINE)
        url = link.partition("/sign-in")[0]
        async with httpx.AsyncClient(base_url=url, follow_redirects=True) as browser:
            assert (await browser.get("/api/v1/sessions")).status_code == httpx.codes.UNAUTHORIZED
            assert (await browser.get(link)).is_success
            [session] = (await browser.get("/api/v1/sessions")).json()["sessions"]
            rows = (await browser.get(f"/api/v1/sessions/{session['id']}/rows")).json()["rows"]
            assert [row["content"] for row in rows] == [
                "hello",
                "You said: hello (after 0 messages)",
            ]

            async def is_titled() -> bool:
                view = (await browser.get(f"/api/v1/sessions/{session['id']}")).json()
                return bool(view["title_source"] == "model" and "hello" in view["title"])

            await eventually(is_titled)
        await stopped(run)
    assert link.partition("token=")[2] not in scene.logs()


async def test_tools_of_mcp_servers_run_and_some_of_them_after_an_approval(
    scene: BotScene,
) -> None:
    tool = {"command": sys.executable, "args": [str(TOOLS)]}
    described = {
        "model": {"name": "openai:fake", "base_url": scene.model.url},
        "tools": [{"name": "free", **tool}, {"name": "careful", **tool, "approval": True}],
    }
    bot_toml = scene.directory / "bot.toml"
    bot_toml.write_text(toml_text(described), "utf-8")
    async with scene.bot("--config", str(bot_toml), "--no-chat") as run, scene.person() as ann:
        await ann.write('call free_add {"a": 2, "b": 3}')
        await ann.until_answered("The tool says: 5")

        await ann.write('call careful_add {"a": 4, "b": 5}')
        await ann.until_answered('Allow careful_add {"a": 4, "b": 5}?')
        await ann.write("Allow")
        await ann.until_answered("The tool says: 9")

        await ann.write('call careful_add {"a": 6, "b": 7}')
        await ann.until_answered('Allow careful_add {"a": 6, "b": 7}?')
        await ann.write("Deny")
        await ann.until_answered("did not allow it")
        assert ann.count("The tool says: 13") == 0
        await stopped(run)


async def test_a_model_that_is_away_costs_no_message(scene: BotScene) -> None:
    # The library asks three times.
    scene.model.refusals.extend([(503, {"retry-after-ms": "1"})] * 3)
    async with scene.bot(*scene.new_bot()) as run, scene.person() as ann:
        await ann.write("are you there?")
        await ann.until_answered("You said: are you there?")
        await stopped(run)
    assert len(scene.model.requests) > 3


async def test_each_part_is_killed_and_each_message_is_answered_once(scene: BotScene) -> None:
    scene.model.pause = 0.02
    async with scene.bot(*scene.new_bot()) as run, scene.person() as ann:
        for number, (name, pid) in enumerate(parts_of(run).items()):
            await ann.write(f"one {number}.")
            os.kill(pid, signal.SIGKILL)
            await run.until_printed(f"{name} has ended")
            await ann.write(f"two {number}.")
            await ann.until_answered(f"two {number}.")
        count = len(parts_of(run))
        await stopped(run)
    assert count == 6
    for number in range(count):
        assert ann.count(f"one {number}.") == 1, ann.answers
        assert ann.count(f"two {number}.") == 1, ann.answers


async def test_the_whole_bot_is_killed_and_the_conversation_goes_on(scene: BotScene) -> None:
    scene.model.pause = 0.3
    async with scene.bot(*scene.new_bot()) as run, scene.person() as ann:
        await ann.write("the first")
        await ann.until_answered("the first")
        before = len(scene.model.requests)
        await ann.write("the second one of all the messages")
        await eventually(lambda: len(scene.model.requests) > before)
        run.process.kill()
        await run.process.wait()
        await run.until_nothing_is_left()
        # The end of a bot that had no time to end anything; nobody got the second answer.
        assert ann.count("the second") == 0

    scene.model.pause = 0
    async with scene.bot("--no-chat") as run, scene.person() as ann:
        await ann.until_answered("the second one")
        await ann.write("the third")
        await ann.until_answered("the third (after 2 messages)")
        assert ann.count("the second one") == 1
        await stopped(run)


async def test_a_backup_of_a_running_bot_becomes_another_bot(scene: BotScene) -> None:
    file = scene.directory / "backup.tgz"
    async with scene.bot(*scene.new_bot()) as run, scene.person() as ann:
        await ann.write("remember me")
        await ann.until_answered("remember me")
        taken = await command("bot", "--data", str(scene.data), "backup", str(file))
        assert taken[0] == 0, taken[1]
        assert f"backup in {file}" in taken[1]
        assert file.stat().st_mode & 0o777 == 0o600
        # It goes on by itself.
        await ann.write("still here?")
        await ann.until_answered("still here? (after 1 messages)")
        await stopped(run)

    refused = await command("bot", "--data", str(scene.data), "restore", str(file))
    assert refused[0] == 1
    assert "has data" in refused[1]

    copy = BotScene(scene.directory / "copy", scene.model)
    copy.directory.mkdir(mode=0o711)
    restored = await command("bot", "--data", str(copy.data), "restore", str(file))
    assert restored[0] == 0, restored[1]
    async with copy.bot("--no-chat") as run, copy.person() as ann:
        await ann.write("and now?")
        await ann.until_answered("and now? (after 1 messages)")
        await stopped(run)


async def test_a_second_bot_of_the_same_name_and_newer_data_are_refused(scene: BotScene) -> None:
    async with scene.bot(*scene.new_bot()) as run:
        second = await command("bot", "--data", str(scene.data))
        assert (second[0], "already runs" in second[1]) == (1, True), second[1]
        await stopped(run)

    about = scene.data / "about.json"
    known = json.loads(about.read_text("utf-8"))
    about.write_text(json.dumps({**known, "format": 99}), "utf-8")
    code, text = await command("bot", "--data", str(scene.data))
    assert code == 1
    assert "newer release" in text
    assert "Traceback" not in text


async def test_the_same_bot_runs_on_servers_that_run_elsewhere(scene: BotScene) -> None:
    async with (
        open_nats(scene.directory / "nats") as nats,
        open_postgres(scene.directory / "postgres") as postgres,
    ):
        described = {
            "model": {"name": "openai:fake", "base_url": scene.model.url},
            "servers": {"nats": nats.url, "postgres": postgres.url},
        }
        bot_toml = scene.directory / "bot.toml"
        bot_toml.write_text(toml_text(described), "utf-8")
        async with scene.bot("--config", str(bot_toml), "--no-chat") as run, scene.person() as ann:
            assert {"router", "worker", "console"} == {*parts_of(run)}
            await ann.write("far away")
            await ann.until_answered("You said: far away")
            await stopped(run)
        assert not (scene.data / "postgres").exists()


async def test_a_model_without_a_key_is_reported_at_the_start(
    scene: BotScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    code, text = await command(
        "bot", "--data", str(scene.data), "--model", "openai:gpt-5", "--no-chat"
    )
    assert code == 1
    assert "OPENAI_API_KEY" in text
    assert "Traceback" not in text


async def test_a_person_is_exported_and_erased_with_the_configuration_of_the_bot(
    scene: BotScene,
) -> None:
    async with scene.bot(*scene.new_bot()) as run, scene.person() as ann:
        await ann.write("remember the lake")
        await ann.until_answered("You said: remember the lake")
        whom = "terminal/bot/ann", "--config", str(scene.data / "chatlane.toml")
        exported = await command("people", "export", *whom)
        assert exported[0] == 0, exported[1]
        assert "remember the lake" in exported[1]
        assert '"record":"end"' in exported[1]
        erased = await command("people", "erase", *whom, "--yes")
        assert erased[0] == 0, erased[1]
        exported = await command("people", "export", *whom)
        assert "remember the lake" not in exported[1]
        await stopped(run)
