"""The emulator of the Bot API, as two independent libraries see it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientSession, web

from chatlane_devkit.platforms.telegram import TelegramServer, open_telegram_server
from tests.support.eventually import eventually
from tests.unit.adapters.telegram.bot_clients import (
    ALL_UPDATES,
    Aiogram,
    BotClient,
    Failed,
    PythonTelegramBot,
)

PNG = b"\x89PNG picture"


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with open_telegram_server() as its:
        yield its


@pytest.fixture(params=[Aiogram, PythonTelegramBot])
async def bot(request: pytest.FixtureRequest, server: TelegramServer) -> AsyncIterator[BotClient]:
    client: BotClient = request.param(server)
    yield client
    await client.close()


async def updates(bot: BotClient, offset: int = 0, **more: Any) -> list[dict[str, Any]]:  # noqa: ANN401
    found: list[dict[str, Any]] = await bot.do("get_updates", offset=offset, timeout=0, **more)
    return found


async def test_it_says_who_the_bot_is(bot: BotClient) -> None:
    me = await bot.do("get_me")
    assert (me["username"], me["is_bot"]) == ("chatlane_test_bot", True)


async def test_an_update_comes_until_its_offset_confirms_it(
    server: TelegramServer, bot: BotClient
) -> None:
    chat = server.people.private_chat("Ann")
    server.people.write(chat.id, "hello /new")
    [update] = await updates(bot)
    assert update["message"]["text"] == "hello /new"
    assert update["message"]["entities"][0]["type"] == "bot_command"
    assert await updates(bot) == [update]
    assert await updates(bot, update["update_id"] + 1) == []
    server.people.write(chat.id, "again")
    [later] = await updates(bot, update["update_id"] + 1)
    assert later["message"]["text"] == "again"


async def test_a_long_poll_returns_with_the_first_update(
    server: TelegramServer, bot: BotClient
) -> None:
    chat = server.people.private_chat("Ann")
    waiting = asyncio.create_task(bot.do("get_updates", timeout=5))
    await eventually(lambda: server.world.updates.polls == 1)
    server.people.write(chat.id, "hello")
    [update] = await waiting
    assert update["message"]["from"]["first_name"] == "Ann"


async def test_a_second_poller_ends_the_call_of_the_first(
    server: TelegramServer, bot: BotClient
) -> None:
    first = asyncio.create_task(bot.do("get_updates", timeout=5))
    await eventually(lambda: server.world.updates.polls == 1)
    assert await updates(bot) == []
    with pytest.raises(Failed) as failed:
        await first
    assert failed.value.kind == "Conflict"


async def test_a_text_with_entities_is_shown_with_them(
    server: TelegramServer, bot: BotClient
) -> None:
    chat = server.people.private_chat("Ann")
    entities = [
        bot.entity(type="bold", offset=3, length=4),
        bot.entity(type="text_link", offset=3, length=4, url="https://e.test/"),
    ]
    sent = await bot.do("send_message", chat_id=chat.id, text="🙂 bold", entities=entities)
    assert [it["type"] for it in sent["entities"]] == ["bold", "text_link"]
    assert chat.said == ["🙂 bold"]


@pytest.mark.parametrize(("offset", "length"), [(0, 8), (1, 3), (-1, 2), (6, 4)])
async def test_an_entity_that_does_not_fit_is_refused(
    server: TelegramServer, bot: BotClient, offset: int, length: int
) -> None:
    chat = server.people.private_chat("Ann")
    entity = bot.entity(type="bold", offset=offset, length=length)
    with pytest.raises(Failed, match="can't parse entities") as failed:
        await bot.do("send_message", chat_id=chat.id, text="🙂 bold", entities=[entity])
    assert failed.value.kind == "BadRequest"
    assert chat.said == []


async def test_html_becomes_entities(server: TelegramServer, bot: BotClient) -> None:
    chat = server.people.private_chat("Ann")
    sent = await bot.do(
        "send_message", chat_id=chat.id, text="a <b>🙂 b</b> &amp; c", parse_mode="HTML"
    )
    assert (sent["text"], sent["entities"][0]["length"]) == ("a 🙂 b & c", 4)
    with pytest.raises(Failed, match="end tag"):
        await bot.do("send_message", chat_id=chat.id, text="<b>x", parse_mode="HTML")


@pytest.mark.parametrize(
    ("text", "reason"), [("", "message text is empty"), ("🙂" * 2049, "message is too long")]
)
async def test_an_empty_or_long_text_is_refused(
    server: TelegramServer, bot: BotClient, text: str, reason: str
) -> None:
    chat = server.people.private_chat("Ann")
    with pytest.raises(Failed, match=reason):
        await bot.do("send_message", chat_id=chat.id, text=text)


async def test_files_go_both_ways(server: TelegramServer, bot: BotClient) -> None:
    chat = server.people.private_chat("Ann")
    server.people.document(chat.id, text="the plan")
    [update] = await updates(bot)
    assert await bot.download(update["message"]["document"]["file_id"]) == b"the plan"
    sent = await bot.do(
        "send_photo", chat_id=chat.id, photo=bot.upload(PNG, "a.png"), caption="look"
    )
    assert await bot.download(sent["photo"][-1]["file_id"]) == PNG
    voice = await bot.do("send_voice", chat_id=chat.id, voice="https://e.test/v.oga")
    again = await bot.do("send_voice", chat_id=chat.id, voice=voice["voice"]["file_id"])
    assert again["voice"]["file_id"] == voice["voice"]["file_id"]
    document = bot.upload(b"x", "x.bin")
    sent = await bot.do("send_document", chat_id=chat.id, document=document)
    assert sent["document"]["file_name"] == "x.bin"


async def test_an_album_is_a_group_of_messages(server: TelegramServer, bot: BotClient) -> None:
    chat = server.people.private_chat("Ann")
    server.people.album(chat.id, 3, "three")
    received = [it["message"] for it in await updates(bot)]
    assert len({it["media_group_id"] for it in received}) == 1
    assert [it.get("caption") for it in received] == ["three", None, None]
    sent = await bot.do("send_media_group", chat_id=chat.id, media=bot.photos([PNG, PNG], "two"))
    assert len(sent) == 2
    assert sent[0]["media_group_id"] == sent[1]["media_group_id"]
    with pytest.raises(Failed):
        await bot.do("send_media_group", chat_id=chat.id, media=bot.photos([PNG], "one"))


async def test_a_message_is_edited_and_deleted(server: TelegramServer, bot: BotClient) -> None:
    chat = server.people.private_chat("Ann")
    sent = await bot.do("send_message", chat_id=chat.id, text="helo")
    its = {"chat_id": chat.id, "message_id": sent["message_id"]}
    await bot.do("edit_message_text", **its, text="hello")
    assert chat.said == ["hello"]
    with pytest.raises(Failed, match="message is not modified"):
        await bot.do("edit_message_text", **its, text="hello")
    await bot.do("edit_message_reply_markup", **its, reply_markup=bot.keyboard("Yes", "y"))
    assert "reply_markup" in chat.messages[sent["message_id"]]
    await bot.do("delete_message", **its)
    assert chat.said == []
    with pytest.raises(Failed, match="message to delete not found"):
        await bot.do("delete_message", **its)
    theirs = server.people.write(chat.id, "mine")
    with pytest.raises(Failed, match="can't be edited"):
        await bot.do(
            "edit_message_text", chat_id=chat.id, message_id=theirs["message_id"], text="yours"
        )


async def test_a_pressed_button_is_a_query_that_the_bot_answers(
    server: TelegramServer, bot: BotClient
) -> None:
    chat = server.people.private_chat("Ann")
    sent = await bot.do(
        "send_message", chat_id=chat.id, text="Sure?", reply_markup=bot.keyboard("Yes", "y")
    )
    query_id = server.people.press(chat.id, sent["message_id"], "Yes")
    [update] = await updates(bot)
    assert update["callback_query"]["data"] == "y"
    assert server.world.presses[query_id] is None
    await bot.do("answer_callback_query", callback_query_id=query_id, text="ok")
    assert server.world.presses[query_id] == {"text": "ok"}
    with pytest.raises(Failed, match="button_data_invalid"):
        await bot.do(
            "send_message", chat_id=chat.id, text="x", reply_markup=bot.keyboard("x", "x" * 65)
        )


async def test_a_bot_gets_reactions_only_if_it_asks_for_them(
    server: TelegramServer, bot: BotClient
) -> None:
    chat = server.people.private_chat("Ann")
    sent = await bot.do("send_message", chat_id=chat.id, text="hello")
    server.people.react(chat.id, sent["message_id"], ["👍"])
    assert await updates(bot) == []
    await updates(bot, allowed_updates=ALL_UPDATES)
    server.people.react(chat.id, sent["message_id"], ["🔥"])
    [update] = await updates(bot)
    reaction = update["message_reaction"]
    assert reaction["old_reaction"][0]["emoji"] == "👍"
    assert reaction["new_reaction"][0]["emoji"] == "🔥"
    await bot.do(
        "set_message_reaction",
        chat_id=chat.id,
        message_id=sent["message_id"],
        reaction=[bot.emoji("👀")],
    )


async def test_privacy_mode_hides_what_is_not_meant_for_the_bot(
    server: TelegramServer, bot: BotClient
) -> None:
    group = server.people.group("Team")
    ann = server.people.person("Ann").id
    sent = await bot.do("send_message", chat_id=group.id, text="hello")
    for text in ("not for you", "@chatlane_test_bot hello", "/new", "/new@other_bot"):
        server.people.write(group.id, text, ann)
    server.people.write(group.id, "a reply", ann, reply_to=sent["message_id"])
    seen = [it["message"]["text"] for it in await updates(bot)]
    assert seen == ["@chatlane_test_bot hello", "/new", "a reply"]


async def test_topics_of_a_forum(server: TelegramServer, bot: BotClient) -> None:
    forum = server.people.group("Forum", is_forum=True)
    ann = server.people.person("Ann").id
    topic = server.people.open_topic(forum.id, "Plans", ann)
    server.people.write(forum.id, "/new", ann, topic=topic)
    received = [it["message"] for it in await updates(bot)]
    assert received[0]["forum_topic_created"]["name"] == "Plans"
    assert (received[1]["message_thread_id"], received[1]["is_topic_message"]) == (topic, True)
    sent = await bot.do("send_message", chat_id=forum.id, text="a", message_thread_id=topic)
    assert sent["message_thread_id"] == topic
    made = await bot.do("create_forum_topic", chat_id=forum.id, name="More")
    await bot.do("close_forum_topic", chat_id=forum.id, message_thread_id=made["message_thread_id"])
    with pytest.raises(Failed, match="topic_closed"):
        await bot.do(
            "send_message",
            chat_id=forum.id,
            text="a",
            message_thread_id=made["message_thread_id"],
        )
    server.people.delete_topic(forum.id, topic)
    with pytest.raises(Failed, match="message thread not found"):
        await bot.do("send_message", chat_id=forum.id, text="a", message_thread_id=topic)


async def test_replies_polls_drafts_commands_and_actions(
    server: TelegramServer, bot: BotClient
) -> None:
    chat = server.people.private_chat("Ann")
    theirs = server.people.write(chat.id, "question")
    reply = bot.reply(theirs["message_id"])
    sent = await bot.do("send_message", chat_id=chat.id, text="answer", reply_parameters=reply)
    assert sent["reply_to_message"]["text"] == "question"
    with pytest.raises(Failed, match="message to be replied not found"):
        await bot.do("send_message", chat_id=chat.id, text="x", reply_parameters=bot.reply(999))
    await bot.do(
        "send_message", chat_id=chat.id, text="x", reply_parameters=bot.reply(999, anyway=True)
    )
    await bot.do("send_message_draft", chat_id=chat.id, draft_id=5, text="thin")
    assert chat.drafts == {5: ["thin"]}
    poll = await bot.do("send_poll", chat_id=chat.id, question="When?", options=["now", "later"])
    server.people.vote(chat.id, poll["message_id"], [1])
    votes = [it for it in await updates(bot) if "poll_answer" in it]
    assert votes[0]["poll_answer"]["option_ids"] == [1]
    await bot.do("set_my_commands", commands=[bot.command("new", "Start again")])
    assert (await bot.do("get_my_commands"))[0]["command"] == "new"
    await bot.do("send_chat_action", chat_id=chat.id, action="typing")
    assert chat.actions == [("typing", None)]


async def test_stickers_places_contacts_and_polls_of_people(
    server: TelegramServer, bot: BotClient
) -> None:
    chat = server.people.private_chat("Ann")
    server.people.sticker(chat.id, "🎉")
    server.people.voice(chat.id)
    server.people.location(chat.id, 52.5, 13.4)
    server.people.contact(chat.id, "+4930", "Bo")
    server.people.poll(chat.id, "When?", ["now", "later"])
    received = [it["message"] for it in await updates(bot)]
    kinds = ("sticker", "voice", "location", "contact", "poll")
    assert [kind for kind, it in zip(kinds, received, strict=True) if kind in it] == list(kinds)


async def test_business_chats(server: TelegramServer, bot: BotClient) -> None:
    owner = server.people.person("Olga")
    connection = server.people.connect_business(owner.id)
    chat = server.people.business_chat(connection, "Customer")
    message = server.people.write(chat.id, "hello")
    server.people.write(chat.id, "I am here", owner.id)
    server.people.delete(chat.id, message["message_id"])
    received = await updates(bot)
    assert received[0]["business_connection"]["id"] == connection
    assert received[1]["business_message"]["business_connection_id"] == connection
    assert received[2]["business_message"]["from"]["first_name"] == "Olga"
    assert received[3]["deleted_business_messages"]["message_ids"] == [message["message_id"]]
    await bot.do("send_message", chat_id=chat.id, text="welcome", business_connection_id=connection)
    assert chat.said == ["welcome"]
    with pytest.raises(Failed):
        await bot.do("send_message", chat_id=chat.id, text="welcome")


async def test_channels_have_posts(server: TelegramServer, bot: BotClient) -> None:
    channel = server.people.channel("News", "news_channel")
    post = server.people.write(channel.id, "first")
    server.people.edit(channel.id, post["message_id"], "first!")
    received = await updates(bot)
    assert received[0]["channel_post"]["sender_chat"]["title"] == "News"
    assert received[1]["edited_channel_post"]["text"] == "first!"
    await bot.do("send_message", chat_id="@news_channel", text="second")
    assert channel.said == ["second"]


async def test_a_blocked_a_removed_and_a_deactivated_bot(
    server: TelegramServer, bot: BotClient
) -> None:
    ann, bo = server.people.private_chat("Ann"), server.people.private_chat("Bo")
    group = server.people.group("Team")
    server.people.block(ann.id)
    server.people.block(bo.id, is_deactivated=True)
    server.people.remove_bot(group.id, ann.id)
    for chat, reason in ((ann, "blocked"), (bo, "deactivated"), (group, "kicked")):
        with pytest.raises(Failed, match=reason) as failed:
            await bot.do("send_message", chat_id=chat.id, text="hello")
        assert failed.value.kind == "Forbidden"
    kinds = [set(it) - {"update_id"} for it in await updates(bot)]
    assert kinds == [{"my_chat_member"}, {"my_chat_member"}]
    server.people.write(ann.id, "here again")
    await bot.do("send_message", chat_id=ann.id, text="hello")
    with pytest.raises(Failed, match="chat not found"):
        await bot.do("send_message", chat_id=5, text="hello")


async def test_a_group_that_became_a_supergroup(server: TelegramServer, bot: BotClient) -> None:
    group = server.people.group("Team", kind="group")
    new = server.people.migrate(group.id)
    with pytest.raises(Failed) as failed:
        await bot.do("send_message", chat_id=group.id, text="hello")
    assert failed.value.migrate_to == new.id
    received = [it["message"] for it in await updates(bot)]
    assert received[0]["migrate_to_chat_id"] == new.id
    assert received[1]["migrate_from_chat_id"] == group.id


async def test_a_flood_wait_names_the_seconds(server: TelegramServer, bot: BotClient) -> None:
    ann, bo = server.people.private_chat("Ann"), server.people.private_chat("Bo")
    server.faults.limit(30, chat_id=ann.id)
    with pytest.raises(Failed) as failed:
        await bot.do("send_message", chat_id=ann.id, text="hello")
    assert failed.value.retry_after == 30
    await bot.do("send_message", chat_id=bo.id, text="hello")
    server.faults.limit(30)
    with pytest.raises(Failed):
        await bot.do("send_message", chat_id=bo.id, text="hello")
    assert await updates(bot) == []


async def test_a_lost_answer_leaves_a_message_behind(
    server: TelegramServer, bot: BotClient
) -> None:
    chat = server.people.private_chat("Ann")
    server.faults.lose_answers("send*")
    with pytest.raises(Failed) as failed:
        await bot.do("send_message", chat_id=chat.id, text="hello")
    assert failed.value.kind == "Network"
    assert chat.said == ["hello"]


async def test_refused_calls_and_a_revoked_token(server: TelegramServer, bot: BotClient) -> None:
    chat = server.people.private_chat("Ann")
    server.faults.refuse("sendMessage")
    with pytest.raises(Failed) as failed:
        await bot.do("send_message", chat_id=chat.id, text="hello")
    assert failed.value.kind == "Server"
    server.faults.is_revoked = True
    with pytest.raises(Failed) as failed:
        await bot.do("get_updates")
    assert failed.value.kind == "Unauthorized"


async def test_an_update_may_come_twice(server: TelegramServer, bot: BotClient) -> None:
    chat = server.people.private_chat("Ann")
    server.people.write(chat.id, "hello")
    [update] = await updates(bot)
    await updates(bot, update["update_id"] + 1)
    server.people.write(chat.id, "more")
    server.world.updates.repeat(2)
    again = await updates(bot, update["update_id"] + 1)
    assert [it["message"]["text"] for it in again] == ["hello", "more", "more"]


async def test_a_webhook_gets_each_update_until_it_accepts_it(
    server: TelegramServer, bot: BotClient
) -> None:
    received: list[tuple[str, str]] = []

    async def receive(request: web.Request) -> web.Response:
        update = await request.json()
        secret = request.headers["X-Telegram-Bot-Api-Secret-Token"]
        received.append((secret, update["message"]["text"]))
        return web.Response(status=503 if len(received) == 1 else 200)

    application = web.Application()
    application.router.add_post("/hook", receive)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    chat = server.people.private_chat("Ann")
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
        await bot.do("set_webhook", url=url, secret_token="s3cret")  # noqa: S106
        server.people.write(chat.id, "one")
        server.people.write(chat.id, "two")
        await eventually(lambda: server.world.updates.waiting == 0)
        assert received == [("s3cret", "one"), ("s3cret", "one"), ("s3cret", "two")]
        with pytest.raises(Failed) as failed:
            await updates(bot)
        assert failed.value.kind == "Conflict"
        await bot.do("delete_webhook")
        assert await updates(bot) == []
    finally:
        await runner.cleanup()


async def test_the_control_side_over_http(server: TelegramServer, bot: BotClient) -> None:
    async with ClientSession(f"{server.url}/") as http:
        async with http.post("_control/people/private_chat", json={"name": "Ann"}) as answer:
            chat = await answer.json()
        body = {"chat_id": chat["id"], "text": "hello"}
        async with http.post("_control/people/write", json=body) as answer:
            assert (await answer.json())["text"] == "hello"
        await bot.do("send_message", chat_id=chat["id"], text="answer")
        async with http.get("_control/changes?after=1") as answer:
            assert [it["what"] for it in await answer.json()] == ["sent"]
        async with http.get(f"_control/chats/{chat['id']}") as answer:
            assert (await answer.json())["said"] == ["answer"]
        async with http.post("_control/people/fly", json={}) as answer:
            assert answer.status == 404
