"""What is played where accounts have identities, and how cues are told and answered."""

import asyncio
import json
import sys
from datetime import timedelta
from io import StringIO

import pytest
from rich.console import Console

from chatlane_devkit.cluster.external_run import CUE, Outside, OutsideError, playable
from chatlane_devkit.demo.console import ConsoleOutput
from chatlane_devkit.scenario.feed import Publication, read_feed
from chatlane_devkit.scenario.scenario_generator import SCENARIO_FILE
from chatlane_servers.conditions import until

ACCOUNTS = [
    ("telegram", "assistant"),
    ("discord", "guild_bot"),
    ("slack", "workbot"),
    ("whatsapp", "phone"),
]


def test_only_what_an_account_that_exists_publishes_is_played() -> None:
    steps = read_feed(SCENARIO_FILE)
    # Steps are what they are by identity: publications cannot be hashed.
    kept = {id(its) for its in playable(steps, ACCOUNTS)}
    left_out = [its for its in steps if id(its) not in kept]
    assert [
        its.subject.split(".")[4]
        for its in left_out
        if isinstance(its, Publication) and its.subject is not None
    ] == ["ghost"]
    assert playable(steps, [*ACCOUNTS, ("telegram", "ghost")]) == steps


@pytest.fixture
def told() -> StringIO:
    return StringIO()


@pytest.fixture
def outside(told: StringIO) -> Outside:
    return Outside(ConsoleOutput(Console(file=told, width=80)))


async def heard(outside: Outside, *said: dict[str, str]) -> None:
    reader = asyncio.StreamReader()
    for its in said:
        reader.feed_data(json.dumps(its).encode() + b"\n")
    reader.feed_eof()
    await outside._hear(reader)


async def test_a_cue_is_over_when_it_is_said_so_and_its_span_is_kept(
    outside: Outside, told: StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    happening = asyncio.create_task(outside.happen("nats"))
    printed = ""

    async def is_printed() -> bool:
        nonlocal printed
        sys.stdout.flush()
        printed += capsys.readouterr().out
        return printed == f"{CUE}nats\n"

    await until(is_printed, timedelta(seconds=5))
    await heard(outside, {"tell": "killed nats-2"}, {"done": "nats"})
    await happening
    assert "killed nats-2" in told.getvalue()
    (began_at, ended_at) = outside.spans["nats"]
    assert began_at <= ended_at


async def test_a_cue_that_could_not_be_followed_raises_why(outside: Outside) -> None:
    happening = asyncio.create_task(outside.happen("postgres"))
    await asyncio.sleep(0)
    await heard(outside, {"failed": "postgres", "why": "the standby does not follow"})
    with pytest.raises(OutsideError, match=r"^postgres: the standby does not follow$"):
        await happening
    assert outside.spans == {}
