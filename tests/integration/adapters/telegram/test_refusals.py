"""What Telegram refuses: only the chat, topic, person or account that it concerns waits."""

import pytest

from tests.integration.adapters.telegram.conftest import World
from tests.support.eventually import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.timeout(120)]


async def test_a_flood_wait_of_an_hour_holds_up_one_chat(world: World) -> None:
    chat, other = world.new_chat(), world.new_chat()
    world.telegram.faults.limit(3600, chat_id=chat.id)
    world.write(chat, "hello")
    await eventually(lambda: chat.called_at)
    world.write(other, "hello")
    await eventually(lambda: other.said == ["heard hello"])
    assert chat.said == []
    assert len(chat.called_at) <= 2, "Telegram is not asked again meanwhile"


async def test_a_limited_chat_is_answered_once_its_time_is_over(world: World) -> None:
    chat = world.new_chat()
    world.telegram.faults.limit(2, chat_id=chat.id)
    world.write(chat, "hello")
    await eventually(lambda: chat.said == ["heard hello"])
    assert chat.texts == ["heard hello"]


async def test_a_person_who_blocks_the_bot_holds_up_nobody(world: World) -> None:
    chat, other = world.new_chat(), world.new_chat()
    world.agent.may_end.clear()
    world.write(chat, "write")
    await eventually(lambda: chat.drafts)
    world.telegram.people.block(chat.id)
    world.agent.may_end.set()
    world.write(other, "hello")
    await eventually(lambda: other.said == ["heard hello"])
    world.write(chat, "here again")
    await eventually(lambda: "heard here again" in chat.said)


async def test_a_deleted_topic_holds_up_no_other(world: World) -> None:
    people = world.telegram.people
    forum, ann = people.group("Forum", is_forum=True), people.person("Ann").id
    gone, stays = (people.open_topic(forum.id, name, ann) for name in ("one", "two"))
    world.agent.may_end.clear()
    world.write(forum, "@chatlane_test_bot write", ann, topic=gone)
    await eventually(lambda: forum.said == ["Once upon"])
    people.delete_topic(forum.id, gone)
    world.agent.may_end.set()
    world.write(forum, "/help", ann, topic=stays)
    await eventually(lambda: any(it["message_thread_id"] == stays for it in forum.from_bot))


async def test_an_answer_follows_its_group_to_the_supergroup(world: World) -> None:
    people = world.telegram.people
    group, ann = people.group("Team", kind="group"), people.person("Ann").id
    world.agent.may_end.clear()
    world.write(group, "@chatlane_test_bot write", ann)
    await eventually(lambda: group.said == ["Once upon"])
    new = people.migrate(group.id)
    world.agent.may_end.set()
    await eventually(lambda: "Once upon a time" in new.said)
    world.write(new, "@chatlane_test_bot and now", ann)
    await eventually(lambda: len(new.said) == 2)
    history = await world.agent.turns[-1].history()
    assert any("Once upon a time" in (row.content or "") for row in history)


async def test_a_call_whose_answer_got_lost_is_made_again(world: World) -> None:
    chat = world.new_chat()
    world.telegram.faults.lose_answers("sendMessage", chat_id=chat.id)
    world.write(chat, "hello")
    # Telegram has no idempotency key: the answer is there once or twice.
    await eventually(lambda: chat.texts == ["heard hello"] * 2)


async def test_a_server_that_is_away_is_asked_again(world: World) -> None:
    chat = world.new_chat()
    world.telegram.faults.refuse("sendMessage", times=2, chat_id=chat.id)
    world.telegram.faults.refuse("getUpdates", times=2)
    world.write(chat, "hello")
    await eventually(lambda: chat.said == ["heard hello"])
    assert chat.texts == ["heard hello"]


async def test_bad_entities_cost_the_look_and_not_the_answer(world: World) -> None:
    chat = world.new_chat()
    world.telegram.faults.refuse(
        "sendMessage", 400, "Bad Request: can't parse entities: x", chat_id=chat.id
    )
    world.write(chat, "format")
    await eventually(lambda: chat.said == ["bold 🙂 link\n\nprint(1)"])
    assert [it["type"] for it in chat.from_bot[0].get("entities", [])] == []


@pytest.mark.slow
async def test_a_revoked_token_lets_the_account_wait(world: World) -> None:
    """The process goes on and asks rarely; the log names the reason once."""
    calls = world.telegram.world.updates.polls
    world.telegram.faults.is_revoked = True
    try:
        # The poll in hand was accepted before.
        world.write(world.new_chat(), "hello")
        await world.stage.adapter.until_logged("account_refused")
        assert world.telegram.world.updates.polls <= calls + 3
        assert world.stage.adapter.is_running
    finally:
        world.telegram.faults.is_revoked = False
        # A minute is too long for a test.
        await world.stage.adapter.kill()
        world.stage.adapter.start()
    chat = world.new_chat()
    world.write(chat, "are you there")
    await eventually(lambda: chat.said == ["heard are you there"])
    log = world.stage.adapter.log_path.read_text("utf-8")
    assert world.telegram.token not in log
    assert "are you there" not in log
