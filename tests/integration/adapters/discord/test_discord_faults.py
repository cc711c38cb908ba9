"""The adapter for Discord while connections drop, calls are refused and processes end."""

import asyncpg
import pytest

from chatlane_devkit.platforms.discord import Channel
from tests.integration.adapters.discord.conftest import World
from tests.support.eventually import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]


@pytest.fixture(autouse=True)
async def _connected(world: World) -> None:
    """Begin with a connection: the test before may have ended it."""
    await world.until_connected()


async def test_a_dropped_connection_is_resumed(world: World) -> None:
    dm, person = world.dm()
    resumed, identified = world.server.gateway.resumed, world.server.gateway.identified
    world.server.gateway.drop()
    world.write(dm, person, "hello")
    await world.until_said(dm, "heard hello")
    assert world.server.gateway.resumed > resumed
    assert world.server.gateway.identified == identified


async def test_discord_may_ask_to_reconnect(world: World) -> None:
    dm, person = world.dm()
    resumed = world.server.gateway.resumed
    world.server.gateway.ask_to_reconnect()
    await eventually(lambda: world.server.gateway.resumed > resumed)
    world.write(dm, person, "hello")
    await world.until_said(dm, "heard hello")


@pytest.mark.slow
async def test_after_a_gap_that_is_too_long_messages_are_read_over_rest(world: World) -> None:
    """Messages of the gap come in their order, before those that follow, and none comes twice."""
    dm, person = world.dm()
    channel, other = world.channel()
    thread = world.server.world.thread(channel, "a thread", other)
    for place, who in ((dm, person), (thread, other)):
        world.write(place, who, "before", to_bot=True)
        await world.until_said(place, "heard before")
    identified = world.server.gateway.identified
    world.server.gateway.forget_sessions()
    for number in range(3):
        world.write(dm, person, f"in the gap {number}")
    world.write(thread, other, "in the gap", to_bot=True)
    await eventually(lambda: world.server.gateway.identified > identified)
    world.write(dm, person, "after")
    world.write(thread, other, "after", to_bot=True)
    await eventually(lambda: has_said_last(dm, "after") and has_said_last(thread, "after"))
    gap = [f"in the gap {number}" for number in range(3)]
    assert heard(dm) == ["before", *gap, "after"]
    assert heard(thread) == ["before", "in the gap", "after"]


@pytest.mark.slow
async def test_a_killed_adapter_goes_on_with_all_events_of_the_session(world: World) -> None:
    """Also those that the REST API does not tell again: edits and reactions."""
    dm, person = world.dm()
    first = world.write(dm, person, "hello")
    await world.until_said(dm, "heard hello")
    answer = list(dm.messages.values())[-1]
    identified = world.server.gateway.identified
    await world.stage.adapter.kill()
    world.server.world.rewrite(dm, first, "hello edited")
    world.server.world.react(dm, answer, person, "👍")
    world.write(dm, person, "recall")
    world.stage.adapter.start()
    await world.until_said(dm, "heard hello", "heard recall")
    assert world.agent.recalled == ["hello edited", "heard hello", "👍"]
    assert world.server.gateway.identified == identified


async def test_a_limited_channel_waits_and_the_others_do_not(world: World) -> None:
    dm, person = world.dm()
    other, somebody = world.dm()
    world.server.limit(3, dm)
    world.write(dm, person, "hello")
    await eventually(lambda: dm.called_at)
    world.write(other, somebody, "hello")
    await world.until_said(other, "heard hello")
    assert dm.said == []
    await world.until_said(dm, "heard hello")
    # The refused call, perhaps a second one that was on its way, and the one that succeeds.
    assert len(dm.called_at) <= 3


async def test_a_limited_bot_waits_as_a_whole(world: World) -> None:
    dm, person = world.dm()
    world.server.limit(2)
    world.write(dm, person, "hello")
    await world.until_said(dm, "heard hello")
    assert world.server.faults.limited_calls <= 4


async def test_a_person_who_takes_no_messages_holds_nobody_up(world: World) -> None:
    dm, person = world.dm()
    dm.refusal = (403, 50007)
    world.write(dm, person, "hello")
    await eventually(lambda: has_given_up(world))
    dm.refusal = None
    world.write(dm, person, "here again")
    await world.until_said(dm, "heard here again")


async def has_given_up(world: World) -> bool:
    """Return whether a message is recorded as refused by its person."""
    connection = await asyncpg.connect(world.dsn)
    try:
        query = "SELECT count(*) FROM deliveries WHERE failure = 'blocked'"
        return bool(await connection.fetchval(query))
    finally:
        await connection.close()


async def test_a_call_whose_answer_is_lost_with_the_process_is_made_once(world: World) -> None:
    dm, person = world.dm()
    dm.stops_after = 0
    world.write(dm, person, "hello")
    await eventually(lambda: dm.texts == ["heard hello"])
    await world.stage.adapter.kill()
    dm.stops_after = None
    dm.answers.set()
    world.stage.adapter.start()
    world.write(dm, person, "again")
    await world.until_said(dm, "heard hello", "heard again")
    assert dm.texts == ["heard hello", "heard again"]


async def test_a_draft_that_a_killed_process_did_not_report_becomes_the_answer(
    world: World,
) -> None:
    """If another attempt at the turn begins; it writes something else."""
    dm, person = world.dm()
    world.agent.may_end.clear()
    dm.stops_after = 0
    world.write(dm, person, "try")
    await world.until_said(dm, "Once upon")
    await world.stage.adapter.kill()
    dm.stops_after = None
    dm.answers.set()
    world.stage.adapter.start()
    other, somebody = world.dm()
    world.write(other, somebody, "hello")
    await world.until_said(other, "heard hello")
    world.agent.may_fail.set()
    await world.until_said(dm, "There was")
    world.agent.may_end.set()
    await world.until_said(dm, "There was a time")
    assert len(dm.messages) == 2


async def test_a_failing_api_is_called_again(world: World) -> None:
    dm, person = world.dm()
    world.server.faults.failing = 3
    world.write(dm, person, "hello")
    await world.until_said(dm, "heard hello")


@pytest.mark.slow
async def test_a_revoked_token_lets_the_account_wait(world: World) -> None:
    """The process stays, says so, and goes on once it runs with a valid token."""
    dm, person = world.dm()
    world.write(dm, person, "hello")
    await world.until_said(dm, "heard hello")
    token = world.server.token
    await world.server.revoke()
    waits = await world.stage.adapter.until_logged("account_refused")
    assert waits["credential"] == "token"
    world.stage.adapter.require_running()
    world.write(dm, person, "are you there")
    world.server.token = token
    await world.stage.adapter.stop()
    assert world.stage.adapter.exit_code == 0
    world.stage.adapter.start()
    await world.until_said(dm, "heard hello", "heard are you there")
    assert token not in world.log()


@pytest.mark.slow
async def test_a_second_process_takes_over_where_the_first_ends(world: World) -> None:
    dm, person = world.dm()
    other = world.stage.another_adapter("second-adapter")
    other.start()
    try:
        await other.until_logged("adapter_started")
        world.write(dm, person, "hello")
        await world.until_said(dm, "heard hello")
        identified = world.server.gateway.identified
        await world.stage.adapter.kill()
        world.write(dm, person, "are you there")
        await world.until_said(dm, "heard hello", "heard are you there")
        assert world.server.gateway.identified == identified
    finally:
        await other.stop()
        world.stage.adapter.start()
        await world.until_connected()


def heard(channel: Channel) -> list[str]:
    """Return what the agent was told in a chat, in order: a turn may answer several messages."""
    return "\n".join(channel.said).replace("heard ", "").splitlines()


def has_said_last(channel: Channel, words: str) -> bool:
    return bool(channel.said) and channel.said[-1].endswith(words)
