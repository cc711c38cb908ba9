"""The adapter for Discord in chats: a real router, and Discord on real sockets."""

import pytest

from tests.integration.adapters.discord.conftest import LONG, World
from tests.support.eventually import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


async def test_a_direct_message_is_answered(world: World) -> None:
    dm, person = world.dm()
    world.write(dm, person, "hello")
    await world.until_said(dm, "heard hello")
    [answer] = [it for it in dm.messages.values() if it["author"]["bot"]]
    assert answer["message_reference"]["message_id"] == next(iter(dm.messages))


async def test_only_a_mention_is_answered_in_a_guild_and_the_rest_is_read(world: World) -> None:
    channel, person = world.channel()
    world.write(channel, person, "we meet at noon")
    world.write(channel, person, "recall when", to_bot=True)
    await world.until_said(channel, "heard recall when")
    assert world.agent.recalled == ["we meet at noon"]


async def test_a_reply_to_the_bot_is_for_the_bot(world: World) -> None:
    channel, person = world.channel()
    world.write(channel, person, "hello", to_bot=True)
    await world.until_said(channel, "heard hello")
    answer = list(channel.messages.values())[-1]
    world.write(channel, person, "why", reply_to=answer["id"])
    await world.until_said(channel, "heard hello", "heard why about heard hello")


async def test_threads_and_posts_are_conversations(world: World) -> None:
    server = world.server.world
    forum = server.channel(world.guild, "forum", kind=15)
    channel, person = world.channel()
    threads = [server.thread(channel, "a thread", person), server.thread(forum, "a post", person)]
    for thread in threads:
        world.write(thread, person, f"hello {thread.name}", to_bot=True)
    for thread in threads:
        await world.until_said(thread, f"heard hello {thread.name}")


async def test_edits_and_deletions_change_what_the_agent_reads(world: World) -> None:
    dm, person = world.dm()
    world.agent.may_end.clear()
    world.write(dm, person, "think")
    await eventually(lambda: world.agent.has_heard("think"))
    helo, gone = world.write(dm, person, "helo"), world.write(dm, person, "never mind")
    world.server.world.rewrite(dm, helo, "hello edited")
    world.server.world.remove(dm, gone)
    await world.until_stored()
    world.agent.may_end.set()
    await eventually(lambda: dm.said[-1:] == ["heard hello edited"])


async def test_a_reaction_is_read_with_the_next_message(world: World) -> None:
    dm, person = world.dm()
    world.write(dm, person, "hello")
    await world.until_said(dm, "heard hello")
    answer = list(dm.messages.values())[-1]
    for removed in (False, True, False):
        world.server.world.react(dm, answer, person, "👍", removed=removed)
    world.write(dm, person, "recall")
    await world.until_said(dm, "heard hello", "heard recall")
    assert world.agent.recalled == ["hello", "heard hello", "👍", "👍", "👍"]


async def test_a_file_comes_by_reference_and_a_file_is_uploaded(world: World) -> None:
    dm, person = world.dm()
    file = {"id": "1", "filename": "a.png", "size": 5, "url": "https://cdn.test/a.png?ex=1"}
    world.write(dm, person, "", attachments=[{**file, "content_type": "image/png"}])
    await world.until_said(dm, "heard 1 files")
    [lost] = world.agent.turns[-1].messages[-1].attachments
    assert (lost.url, lost.key) == ("https://cdn.test/a.png?ex=1", None), "it cannot be fetched"
    async with world.serving_file(b"red") as url:
        world.write(dm, person, "look", attachments=[{**file, "url": url}])
        await world.until_said(dm, "heard 1 files", "heard look")
        [kept] = world.agent.turns[-1].messages[-1].attachments
        assert kept.key is not None
        world.agent.file_url = kept.url or ""
        world.write(dm, person, "show")
        await world.until_said(dm, "heard 1 files", "heard look", "a photo")
    assert world.server.uploads[-1] == ("red.png", b"red")


async def test_a_pressed_button_is_answered(world: World) -> None:
    dm, person = world.dm()
    world.write(dm, person, "choose")
    await world.until_said(dm, "Which?")
    card = list(dm.messages.values())[-1]
    press = world.server.world.press(dm, card, person, "Blue")
    await eventually(lambda: len(dm.said) == 2)
    assert "blue" in dm.said[-1].lower()
    assert (press.callback, press.acknowledged_after is not None) == (6, True)


async def test_a_question_loses_its_buttons_with_its_answer(world: World) -> None:
    dm, person = world.dm()
    world.write(dm, person, "ask")
    await world.until_said(dm, "Sure?")
    card = list(dm.messages.values())[-1]
    world.server.world.press(dm, card, person, "Yes")
    await world.until_said(dm, "Sure?", "you said Yes")
    await eventually(lambda: card["components"] == [])


async def test_a_slash_command_is_acknowledged_and_answered_in_its_place(world: World) -> None:
    channel, person = world.channel()
    world.write(channel, person, "hello", to_bot=True)
    await world.until_said(channel, "heard hello")
    command = world.server.world.slash(channel, person, "title", "Our plans")
    await eventually(lambda: command.original is not None)
    await eventually(lambda: "Our plans" in channel.messages[command.original or ""]["content"])
    assert command.callback == 5
    assert (command.acknowledged_after or 3) < 3
    assert len(channel.said) == 2


async def test_an_answer_is_shown_while_it_is_written(world: World) -> None:
    dm, person = world.dm()
    world.agent.may_end.clear()
    world.write(dm, person, "write")
    await world.until_said(dm, "Once upon")
    await eventually(lambda: dm.typing > 0)
    world.agent.may_end.set()
    await world.until_said(dm, "Once upon a time")


async def test_a_draft_whose_answer_got_lost_becomes_the_answer(world: World) -> None:
    dm, person = world.dm()
    world.agent.may_end.clear()
    faults = world.server.faults
    faults.lost_answers = 1
    world.write(dm, person, "write")
    await eventually(lambda: faults.lost_answers == 0)
    world.agent.may_end.set()
    await world.until_said(dm, "Once upon a time")


async def test_a_long_answer_comes_in_pieces_within_the_rate_of_a_channel(world: World) -> None:
    dm, person = world.dm()
    world.write(dm, person, "long")
    await eventually(lambda: " ".join(" ".join(dm.said).split()) == LONG)
    assert max(map(len, dm.said)) <= 2000
    assert dm.limited_calls == 0


async def test_markdown_becomes_that_of_discord(world: World) -> None:
    dm, person = world.dm()
    world.write(dm, person, "format")
    await eventually(lambda: len(dm.said) == 1)
    assert dm.said[0].startswith("**bold** and [a link](https://example.org)\n\n```\n")


async def test_nothing_that_people_write_reaches_the_log(world: World) -> None:
    dm, person = world.dm()
    world.write(dm, person, "a secret word")
    await world.until_said(dm, "heard a secret word")
    log = world.log()
    assert "secret" not in log
    assert world.server.token not in log
