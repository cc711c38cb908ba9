"""The Matrix adapter on a real homeserver, with a real router: what people see in their rooms."""

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest
from aiohttp import ClientSession

from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.integration.adapters.matrix.conftest import World

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

_PIXEL: Final = bytes.fromhex("89504e470d0a1a0a")


async def until_said(world: "World", room: str, *texts: str) -> None:
    """Wait until the bot has said this in a room, and nothing else."""

    async def has_said() -> bool:
        said = await world.said(room)
        assert said == list(texts)
        return True

    await eventually(has_said)


async def test_a_message_is_answered_in_its_room(world: "World") -> None:
    room = await world.open_chat()
    await world.ann.say(room, "hello")
    await until_said(world, room, "heard hello")
    chat = world.agent.turns[-1].source.chat
    assert chat is not None
    assert (chat.id, chat.kind) == (room, "dm")


async def test_messages_from_before_the_bot_joined_are_answered(world: "World") -> None:
    room = await world.ann.open_room(world.bot.user_id, is_direct=True)
    await world.ann.say(room, "are you there")
    await until_said(world, room, "heard are you there")


async def test_in_a_room_of_several_people_the_bot_answers_who_mentions_it(world: "World") -> None:
    room = await world.open_chat(world.bob, name="kitchen")
    await world.ann.say(room, "the soup is hot")
    mention = {"m.mentions": {"user_ids": [world.bot.user_id]}}
    await world.ann.say(room, "what is hot", **mention)
    await until_said(world, room, "heard what is hot")
    turn = world.agent.turns[-1]
    chat = turn.source.chat
    assert chat is not None
    assert (chat.kind, chat.name) == ("room", "kitchen")
    assert "the soup is hot" in str(world.agent.history)


async def test_an_answer_stays_in_the_thread_of_its_message(world: "World") -> None:
    room = await world.open_chat()
    root = await world.ann.say(room, "the beginning")
    await until_said(world, room, "heard the beginning")
    relation = {
        "rel_type": "m.thread",
        "event_id": root,
        "is_falling_back": True,
        "m.in_reply_to": {"event_id": root},
    }
    await world.ann.say(room, "in the thread", **{"m.relates_to": relation})
    await until_said(world, room, "heard the beginning", "heard in the thread")
    shown = (await world.ann.messages(room, world.bot.user_id))[-1]
    assert shown["m.relates_to"]["rel_type"] == "m.thread"
    assert shown["m.relates_to"]["event_id"] == root


async def test_a_reply_brings_the_message_that_it_answers(world: "World") -> None:
    room = await world.open_chat()
    question = await world.ann.say(room, "the first")
    await until_said(world, room, "heard the first")
    answer = (await world.ann.messages(room, world.bot.user_id))[-1]
    assert answer["m.relates_to"]["m.in_reply_to"]["event_id"] == question
    relation = {"m.in_reply_to": {"event_id": answer["event_id"]}}
    fallback = f"> <{world.bot.user_id}> heard the first\n\nwhy"
    await world.ann.say(room, fallback, **{"m.relates_to": relation})
    await until_said(world, room, "heard the first", "heard why about heard the first")


async def test_an_edit_changes_what_the_agent_reads(world: "World") -> None:
    room = await world.open_chat()
    world.agent.may_end.clear()
    await world.ann.say(room, "please write")
    await until_said(world, room, "Once upon")
    waiting = await world.ann.say(room, "helo")
    await world.ann.edit(room, waiting, "hello edited")
    # What came after the edit is stored, so the edit is.
    await world.ann.react(room, waiting, "👍")
    await eventually(lambda: has_read(world, waiting))
    world.agent.may_end.set()
    await until_said(world, room, "Once upon a time", "heard hello edited")


async def has_read(world: "World", event_id: str) -> bool:
    """Return whether the edit of a waiting message was decided."""
    text = await world.waiting_text(event_id)
    return text is not None and "edited" in text


async def test_an_edit_by_somebody_else_changes_nothing(world: "World") -> None:
    room = await world.open_chat(world.bob)
    mention = {"m.mentions": {"user_ids": [world.bot.user_id]}}
    first = await world.ann.say(room, "my words", **mention)
    await until_said(world, room, "heard my words")
    await world.bob.edit(room, first, "other words")
    await world.ann.say(room, "next", **mention)
    await until_said(world, room, "heard my words", "heard next")
    assert "other words" not in str(world.agent.history)


async def test_a_redacted_message_leaves_the_conversation(world: "World") -> None:
    room = await world.open_chat()
    secret = await world.ann.say(room, "my secret")
    await until_said(world, room, "heard my secret")
    await world.ann.redact(room, secret)
    await world.ann.say(room, "what do you know")
    await until_said(world, room, "heard my secret", "heard what do you know")
    assert sum("my secret" in row for row in world.agent.history) == 1, "the answer only"


async def test_a_reaction_is_seen_by_the_agent(world: "World") -> None:
    room = await world.open_chat()
    await world.ann.say(room, "hello")
    await until_said(world, room, "heard hello")
    answer = (await world.ann.messages(room, world.bot.user_id))[-1]
    reaction = await world.ann.react(room, answer["event_id"], "🎉")
    await world.ann.say(room, "well")
    await until_said(world, room, "heard hello", "heard well")
    assert "🎉" in str(world.agent.history)
    await world.ann.redact(room, reaction)
    await world.ann.say(room, "and now")
    await until_said(world, room, "heard hello", "heard well", "heard and now")
    reactions = [row for row in world.agent.history if "🎉" in row]
    assert len(reactions) == 2, "added, and taken back"


async def test_markdown_is_shown_as_html(world: "World") -> None:
    room = await world.open_chat()
    await world.ann.say(room, "format")
    await eventually(lambda: world.said(room))
    shown = (await world.ann.messages(room, world.bot.user_id))[-1]
    assert shown["format"] == "org.matrix.custom.html"
    assert "<strong>bold</strong>" in shown["formatted_body"]
    assert "<td>1</td>" in shown["formatted_body"]
    assert "bold and a link" in shown["body"]


async def test_buttons_are_numbered_lines_and_a_number_presses(world: "World") -> None:
    room = await world.open_chat()
    await world.ann.say(room, "choose")
    await until_said(world, room, "Which?\n\n1. Red\n2. Blue")


async def test_a_long_answer_comes_in_pieces(world: "World") -> None:
    room = await world.open_chat()
    await world.ann.say(room, "long")

    async def is_whole() -> bool:
        return "word-02999" in " ".join(await world.said(room))

    await eventually(is_whole)
    said = await world.said(room)
    words = " ".join(said).split()
    assert len(said) > 1
    assert [int(word.removeprefix("word-")) for word in words] == list(range(3000))


async def test_an_answer_is_shown_while_it_is_written(world: "World") -> None:
    room = await world.open_chat()
    world.agent.may_end.clear()
    await world.ann.say(room, "write")
    await until_said(world, room, "Once upon")
    world.agent.may_end.set()
    await until_said(world, room, "Once upon a time")


async def test_a_draft_whose_answer_got_lost_becomes_the_answer(world: "World") -> None:
    room = await world.open_chat()
    world.agent.may_end.clear()
    world.gate.lost_answers[room] = 1
    await world.ann.say(room, "write")
    await eventually(lambda: not world.gate.lost_answers[room])
    world.agent.may_end.set()
    await until_said(world, room, "Once upon a time")


async def test_a_draft_that_a_killed_process_did_not_report_becomes_the_answer(
    world: "World",
) -> None:
    """If another attempt at the turn begins; it writes something else."""
    room, other = await world.open_chat(), await world.open_chat()
    world.agent.may_end.clear()
    world.gate.unanswered.add(room)
    await world.ann.say(room, "try")
    await until_said(world, room, "Once upon")
    await world.stage.adapter.kill()
    world.gate.answer_again(room)
    world.stage.adapter.start()
    await world.ann.say(other, "hello")
    await until_said(world, other, "heard hello")
    world.agent.may_fail.set()
    await until_said(world, room, "There was")
    world.agent.may_end.set()
    await until_said(world, room, "There was a time")


async def test_an_answer_whose_draft_was_redacted_is_shown(world: "World") -> None:
    room = await world.open_chat()
    world.agent.may_end.clear()
    await world.ann.say(room, "write")
    await until_said(world, room, "Once upon")
    (draft,) = await world.ann.messages(room, world.bot.user_id)
    await world.ann.redact(room, draft["event_id"])
    await eventually(lambda: has_said_nothing(world, room))
    world.agent.may_end.set()
    await until_said(world, room, "Once upon a time")


async def has_said_nothing(world: "World", room: str) -> bool:
    return await world.said(room) == []


async def test_files_go_both_ways(world: "World") -> None:
    room = await world.open_chat()
    uri = await world.ann.upload(_PIXEL, "image/png")
    content = {
        "msgtype": "m.image",
        "body": "red.png",
        "url": uri,
        "info": {"mimetype": "image/png"},
    }
    await world.ann.send(room, content)
    await until_said(world, room, "heard red.png")
    file = world.agent.turns[-1].messages[-1].attachments[0]
    assert (file.media_type, file.kind) == ("image/png", "photo")
    async with ClientSession() as http, http.get(file.url or "") as kept:
        assert await kept.read() == _PIXEL
    async with world.serving_file(_PIXEL):
        await world.ann.say(room, "show")
        await until_said(world, room, "heard red.png", "a picture", "red.png")
    shown = (await world.ann.messages(room, world.bot.user_id))[-1]
    assert shown["msgtype"] == "m.image"
    assert await world.ann.download(shown["url"]) == _PIXEL


async def test_a_room_that_removed_the_bot_holds_up_no_other(world: "World") -> None:
    room, other = await world.open_chat(preset="private_chat"), await world.open_chat()
    world.agent.may_end.clear()
    await world.ann.say(room, "write")
    await until_said(world, room, "Once upon")
    await world.ann.kick(room, world.bot.user_id)
    world.agent.may_end.set()
    await world.ann.say(other, "hello")
    await until_said(world, other, "heard hello")


@pytest.mark.slow
async def test_a_long_absence_is_read_in_order(world: "World") -> None:
    """The homeserver leaves out what does not fit into a sync; the adapter asks for it."""
    room = await world.open_chat()
    await world.ann.say(room, "nothing")
    await eventually(lambda: world.has_heard("nothing"))
    await world.stage.adapter.kill()
    texts = [f"message {number:03}" for number in range(120)]
    for text in texts:
        await world.ann.say(room, text)
    world.stage.adapter.start()

    async def is_answered() -> bool:
        return texts[-1] in "\n".join(await world.said(room))

    await eventually(is_answered)
    heard = "\n".join(await world.said(room)).replace("heard ", "").split("\n")
    assert heard == texts
    assert all(earlier < later for earlier, later in pairwise(heard))
