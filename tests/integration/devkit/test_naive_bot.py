"""The bot that the demo compares with: it answers, and loses, repeats and forgets when it is killed."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from chatlane_devkit.demo.bot_platform import BotPlatform, open_bot_platform
from chatlane_devkit.scenario.feed import Publication, parse_step
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

AT_ONCE = timedelta(milliseconds=1)
NEVER = timedelta(hours=1)


def said(number: int, *, envelope: str | None = None, expect: str = "accepted") -> Publication:
    event = {
        "id": envelope or f"e{number}",
        "platform": "telegram",
        "account": "bot",
        "message_id": number,
        "chat": {"id": 7, "kind": "dm"},
        "sender": {"id": 7},
        "text": "hello",
    }
    line = {"event": event, "expect": expect, "talk": "ann", "agent": "main"}
    step = parse_step(number, line)
    assert isinstance(step, Publication)
    return step


def has_answered(platform: BotPlatform, count: int) -> Callable[[], bool]:
    return lambda: len(platform.answers) >= count


async def test_it_answers_each_message_and_answers_a_repeat_again(tmp_path: Path) -> None:
    async with open_bot_platform(tmp_path, AT_ONCE) as platform:
        platform.write(said(1))
        platform.write(said(2))
        platform.write(said(2, envelope="again", expect="duplicate"))
        # The same envelope is a repeated publish of an adapter, and edits need no answer.
        platform.write(said(1))
        platform.write(said(3, expect="kept"))
        await platform.until_quiet()
    outcome = platform.outcome()
    assert (outcome.messages, outcome.lost, outcome.doubled) == (2, 0, 1)
    assert outcome.forgotten == 0


async def test_a_kill_loses_what_it_has_fetched(tmp_path: Path) -> None:
    async with open_bot_platform(tmp_path, NEVER) as platform:
        platform.write(said(1))
        await eventually(lambda: platform.confirmed == 1)
        await platform.kill_bot()
        await platform.until_quiet()
    outcome = platform.outcome()
    assert (outcome.messages, outcome.lost, outcome.kills) == (1, 1, 1)


async def test_a_kill_forgets_the_conversation_and_keeps_what_it_has_not_fetched(
    tmp_path: Path,
) -> None:
    async with open_bot_platform(tmp_path, AT_ONCE) as platform:
        platform.write(said(1))
        await eventually(has_answered(platform, 1))
        await platform.kill_bot()
        platform.write(said(2))
        await eventually(has_answered(platform, 2))
    outcome = platform.outcome()
    assert (outcome.lost, outcome.forgotten) == (0, 1)
