"""A bot of Telegram, against the emulator: the adapter, a router and an agent."""

import pytest
from aiohttp import ClientSession

from chatlane_client import NoReply
from tests.integration.adapters.telegram.conftest import LONG, World
from tests.support.eventually import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.timeout(120)]


async def test_a_message_is_answered(world: World) -> None:
    chat = world.new_chat()
    world.write(chat, "hello")
    await eventually(lambda: chat.said == ["heard hello"])
    [answer] = chat.from_bot
    assert answer["reply_to_message"]["text"] == "hello"
    menu = {it["command"] for it in world.telegram.world.commands}
    assert {"new", "stop", "help"} <= menu


async def test_markdown_becomes_entities(world: World) -> None:
    chat = world.new_chat()
    world.write(chat, "format")
    await eventually(lambda: len(chat.said) == 1)
    [answer] = chat.from_bot
    assert answer["text"] == "bold 🙂 link\n\nprint(1)"
    kinds = {it["type"]: (it["offset"], it["length"]) for it in answer["entities"]}
    assert kinds == {"bold": (0, 4), "text_link": (8, 4), "pre": (14, 8)}


async def test_topics_are_conversations_of_their_own(world: World) -> None:
    people = world.telegram.people
    forum, ann = people.group("Forum", is_forum=True), people.person("Ann").id
    topics = [people.open_topic(forum.id, name, ann) for name in ("one", "two")]
    for topic in topics:
        world.write(forum, f"/help {topic}", ann, topic=topic)
    await eventually(lambda: len(forum.said) == 2)
    assert [it["message_thread_id"] for it in forum.from_bot] == topics


async def test_what_a_group_says_is_context_until_the_bot_is_asked(world: World) -> None:
    group, ann = world.telegram.people.group("Team"), world.telegram.people.person("Ann").id
    world.write(group, "the code word is fig", ann)
    await eventually(world.is_confirmed)
    assert group.said == []
    world.write(group, "@chatlane_test_bot the word?", ann)
    await eventually(lambda: len(group.said) == 1)
    history = await world.agent.turns[-1].history()
    assert any(row.observed and row.content == "the code word is fig" for row in history)


async def test_an_edit_changes_what_the_agent_reads(world: World) -> None:
    chat = world.new_chat()
    world.agent.may_end.clear()
    world.write(chat, "write")
    await eventually(lambda: chat.drafts)
    waiting = world.write(chat, "helo")
    world.telegram.people.edit(chat.id, waiting["message_id"], "hello edited")
    await eventually(world.is_confirmed)
    world.agent.may_end.set()
    await eventually(lambda: chat.said[-1:] == ["heard hello edited"])
    assert "helo" not in world.agent.heard


async def test_an_answer_is_shown_as_a_draft_while_it_is_written(world: World) -> None:
    chat = world.new_chat()
    world.agent.may_end.clear()
    world.write(chat, "write")
    await eventually(lambda: any(texts[-1] == "Once upon" for texts in chat.drafts.values()))
    assert len(chat.drafts) == 1
    assert ("typing", None) in chat.actions
    assert chat.said == []
    world.agent.may_end.set()
    await eventually(lambda: chat.said == ["Once upon a time"])
    assert chat.texts == ["Once upon a time"]


async def test_in_a_group_a_draft_is_a_message_that_is_edited(world: World) -> None:
    group, ann = world.telegram.people.group("Team"), world.telegram.people.person("Ann").id
    world.agent.may_end.clear()
    world.write(group, "@chatlane_test_bot write", ann)
    await eventually(lambda: group.said == ["Once upon"])
    world.agent.may_end.set()
    await eventually(lambda: group.said == ["Once upon a time"])


async def test_a_draft_whose_answer_got_lost_is_counted_and_shown_again_where_it_can_be(
    world: World,
) -> None:
    """A native draft has an id of the bot; a message has one of Telegram."""
    chat = world.new_chat()
    group, ann = world.telegram.people.group("Team"), world.telegram.people.person("Ann").id
    world.agent.may_end.clear()
    world.telegram.faults.lose_answers("sendMessageDraft", chat_id=chat.id)
    world.write(chat, "write")
    await eventually(lambda: any(texts[-1] == "Once upon" for texts in chat.drafts.values()))
    assert len(chat.drafts) == 1
    world.telegram.faults.lose_answers("sendMessage", chat_id=group.id)
    world.write(group, "@chatlane_test_bot write", ann)
    await world.stage.adapter.until_logged("draft_may_be_left")
    world.agent.may_end.set()
    await eventually(lambda: chat.said == ["Once upon a time"])
    await eventually(lambda: group.said[-1] == "Once upon a time")
    [stray] = group.said[:-1]
    assert "Once upon".startswith(stray or "?")


async def test_a_draft_without_an_answer_disappears(world: World) -> None:
    group, ann = world.telegram.people.group("Team"), world.telegram.people.person("Ann").id
    world.agent.may_end.clear()
    world.agent.outcome = NoReply()
    world.write(group, "@chatlane_test_bot write", ann)
    await eventually(lambda: group.said == ["Once upon"])
    world.agent.may_end.set()
    await eventually(lambda: group.said == [])
    world.agent.outcome = "Once upon a time"


async def test_the_stop_button_of_a_draft_stops_the_answer(world: World) -> None:
    chat = world.new_chat()
    world.agent.may_end.clear()
    world.write(chat, "write")
    await eventually(lambda: chat.drafts)
    world.telegram.people.stop_draft(chat.id, next(iter(chat.drafts)))
    await eventually(lambda: chat.said)
    world.agent.may_end.set()


async def test_files_go_both_ways(world: World) -> None:
    chat, people = world.new_chat(), world.telegram.people
    people.voice(chat.id, caption="listen")
    await eventually(lambda: chat.said == ["heard listen"])
    people.document(chat.id)
    await eventually(lambda: chat.said[1:] == ["heard file"])
    [plan] = world.agent.turns[-1].messages[-1].attachments
    assert (plan.name, plan.size_bytes) == ("plan.txt", 8)
    async with ClientSession() as http, http.get(plan.url or "") as answer:
        assert await answer.read() == b"the plan"
    people.sticker(chat.id, "🎉")
    await eventually(lambda: chat.said[2:] == ["heard sticker"])
    world.write(chat, "show")
    await eventually(lambda: chat.said[3:] == ["a photo"])
    assert "photo" in chat.from_bot[-1]


async def test_a_voice_message_becomes_words(world: World) -> None:
    chat = world.new_chat()
    world.telegram.people.voice(chat.id)
    await eventually(lambda: chat.said)
    [message] = world.agent.turns[-1].messages
    [file] = message.attachments
    assert message.text == str(file.size_bytes)
    assert (file.kind, file.duration_ms) == ("voice", 3000)
    assert chat.said == [f"heard {file.size_bytes}"]


async def test_a_file_that_telegram_does_not_give_out_is_missing(world: World) -> None:
    chat = world.new_chat()
    world.telegram.people.document(chat.id, size=21 * 2**20, caption="look")
    await eventually(lambda: chat.said == ["heard look"])
    [message] = world.agent.turns[-1].messages
    assert message.files_missing


async def test_an_album_is_a_single_message_for_the_agent(world: World) -> None:
    chat = world.new_chat()
    world.telegram.people.album(chat.id, 3)
    await eventually(lambda: chat.said == ["heard photo photo photo"])


async def test_a_reply_brings_the_message_that_it_answers(world: World) -> None:
    chat = world.new_chat()
    world.write(chat, "the first")
    await eventually(lambda: chat.said == ["heard the first"])
    world.write(chat, "why", reply_to=chat.from_bot[-1]["message_id"])
    await eventually(lambda: chat.said[1:] == ["heard why about heard the first"])


async def test_a_pressed_button_is_answered(world: World) -> None:
    chat = world.new_chat()
    world.write(chat, "choose")
    await eventually(lambda: chat.said == ["Which?"])
    query_id = world.telegram.people.press(chat.id, chat.from_bot[-1]["message_id"], "Blue")
    await eventually(lambda: len(chat.said) == 2)
    pressed = world.agent.turns[-1].messages[-1].press
    assert pressed is not None
    assert pressed.value == "blue"
    await eventually(lambda: world.telegram.world.presses[query_id] is not None)


async def test_a_question_loses_its_buttons_with_its_answer(world: World) -> None:
    chat = world.new_chat()
    world.write(chat, "ask")
    await eventually(lambda: chat.said == ["Sure?"])
    card = chat.from_bot[-1]
    world.telegram.people.press(chat.id, card["message_id"], "Yes")
    await eventually(lambda: chat.said == ["Sure?", "you said Yes"])
    await eventually(lambda: "reply_markup" not in card)


async def test_a_reaction_is_read_with_the_next_turn(world: World) -> None:
    chat = world.new_chat()
    world.write(chat, "the first")
    await eventually(lambda: chat.said == ["heard the first"])
    world.telegram.people.react(chat.id, chat.from_bot[-1]["message_id"], ["🔥"])
    await eventually(world.is_confirmed)
    world.write(chat, "and now")
    await eventually(lambda: len(chat.said) == 2)
    history = await world.agent.turns[-1].history()
    assert any(row.kind == "reaction" and row.content == "🔥" for row in history)


async def test_a_long_answer_comes_in_pieces(world: World) -> None:
    chat = world.new_chat()
    world.write(chat, "tell")
    await eventually(lambda: "".join("".join(map(str, chat.said)).split()) == "".join(LONG.split()))
    assert len(chat.said) == 3
    assert [("reply_to_message" in it) for it in chat.from_bot] == [True, False, False]


async def test_business_chats(world: World) -> None:
    people = world.telegram.people
    owner = people.person("Olga").id
    connection = people.connect_business(owner)
    chat = people.business_chat(connection, "Customer")
    world.write(chat, "hello")
    await eventually(lambda: chat.said == ["heard hello"])
    turns = len(world.agent.turns)
    world.write(chat, "I am here myself", owner)
    await eventually(world.is_confirmed)
    assert len(world.agent.turns) == turns


async def test_updates_that_come_twice_are_answered_once(world: World) -> None:
    chat = world.new_chat()
    world.write(chat, "hello")
    await eventually(lambda: chat.said == ["heard hello"])
    world.telegram.world.updates.repeat(5)
    world.write(chat, "and again")
    await eventually(lambda: chat.said == ["heard hello", "heard and again"])
    assert world.agent.heard.count("hello") >= 1
