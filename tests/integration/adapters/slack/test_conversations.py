"""The adapter of Slack with a router and an agent; events come as requests."""

from collections.abc import AsyncIterator

import asyncpg
import httpx
import pytest

from tests.support.eventually import eventually
from tests.support.platforms.answering import LONG
from tests.support.platforms.slack_app import SlackApp, open_slack_app
from tests.support.servers.backends import RunningPostgres, RunningServer, delete_streams
from tests.support.servers.databases import open_database
from tests.support.service.receipts import until_known

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]


@pytest.fixture(scope="module")
async def app(
    shared_nats: RunningServer,
    postgres_server: RunningPostgres,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[SlackApp]:
    """Run everything once for the tests of this module."""
    await delete_streams(shared_nats.url)
    async with open_database(postgres_server.url, template_database) as name:
        directory, dsn = tmp_path_factory.mktemp("slack"), postgres_server.dsn(name)
        async with open_slack_app(directory, shared_nats.url, dsn, uses_socket=False) as opened:
            yield opened
        assert opened.adapter.exit_code == 0


async def test_a_direct_message_is_answered_in_its_conversation(app: SlackApp) -> None:
    channel = app.new_channel("im")
    app.slack.write(app.workspace, channel, "hello")
    await eventually(lambda: channel.answers_shown() == ["heard hello"])


async def test_the_home_tab_shows_what_the_settings_say(app: SlackApp) -> None:
    channel = app.new_channel("im")
    event = {"type": "app_home_opened", "user": "U7", "channel": channel.id, "tab": "home"}
    app.slack.tell(app.workspace, channel, **event)
    shown = ["I answer *questions*.", "Write /new to begin again."]
    await eventually(lambda: app.workspace.homes.get("U7") == shown)


async def test_a_mention_is_answered_once_in_its_thread(app: SlackApp) -> None:
    channel = app.new_channel()
    asked = app.slack.write(app.workspace, channel, app.mention("hello"))
    await eventually(lambda: channel.answers_shown(asked.ts) == ["heard hello"])
    app.slack.write(app.workspace, channel, "and you?", thread_ts=asked.ts)
    await eventually(lambda: len(channel.answers_shown(asked.ts)) == 2)
    assert channel.answers_shown(asked.ts)[1] == "heard and you?"
    assert channel.answers_shown() == []


async def test_a_thread_below_an_answer_continues_its_conversation(app: SlackApp) -> None:
    channel = app.new_channel("im")
    app.slack.write(app.workspace, channel, "hello")
    await eventually(lambda: channel.answers_shown() == ["heard hello"])
    answer = list(channel.messages.values())[-1]
    await until_known(app.service.dsn, answer.ts)
    app.slack.write(app.workspace, channel, "and now?", thread_ts=answer.ts)
    await eventually(lambda: channel.answers_shown(answer.ts) == ["heard and now?"])
    sessions = "SELECT count(DISTINCT session_id) FROM messages WHERE source->'chat'->>'id' = $1"
    assert await fetch(app, sessions, channel.id) == 1


async def test_what_people_say_to_each_other_is_not_answered(app: SlackApp) -> None:
    channel = app.new_channel()
    root = app.slack.write(app.workspace, channel, "lunch?")
    app.slack.write(app.workspace, channel, "yes", thread_ts=root.ts)
    asked = app.slack.write(app.workspace, channel, app.mention("hello"))
    await eventually(lambda: channel.answers_shown(asked.ts) == ["heard hello"])
    assert "lunch?" not in app.agent.given
    assert "yes" not in app.agent.given


async def test_two_workspaces_are_apart(app: SlackApp) -> None:
    first = app.new_channel("im")
    second = app.other.channel(first.id, "im")
    app.slack.write(app.workspace, first, "from the first")
    app.slack.write(app.other, second, "from the second")
    await eventually(lambda: first.answers_shown() == ["heard from the first"])
    await eventually(lambda: second.answers_shown() == ["heard from the second"])


async def test_a_repeated_event_is_answered_once(app: SlackApp) -> None:
    channel = app.new_channel("im")
    app.slack.deliveries.duplicates = 1
    app.slack.write(app.workspace, channel, "hello")
    await eventually(lambda: app.slack.deliveries.duplicates == 0)
    app.slack.write(app.workspace, channel, "bye")
    await eventually(lambda: "bye" in "".join(channel.answers_shown()))
    assert "".join(channel.answers_shown()).count("hello") == 1


async def test_an_edit_changes_what_the_agent_reads(app: SlackApp) -> None:
    channel = app.new_channel("im")
    app.agent.may_end.clear()
    root = app.slack.start_thread(app.workspace, channel)
    app.slack.write(app.workspace, channel, "write", thread_ts=root)
    await eventually(lambda: channel.answers_shown(root))
    waiting = app.slack.write(app.workspace, channel, "helo", thread_ts=root)
    app.slack.unfurl(app.workspace, channel, waiting)
    app.slack.rewrite(app.workspace, channel, waiting, "hello edited")
    gone = app.slack.write(app.workspace, channel, "secret", thread_ts=root)
    app.slack.remove(app.workspace, channel, gone)
    await eventually(lambda: app.slack.deliveries.waiting == 0)
    app.agent.may_end.set()
    await eventually(lambda: channel.answers_shown(root)[-1] == "heard hello edited")
    assert "helo" not in app.agent.given
    assert "secret" not in "".join(app.agent.given)


async def test_an_answer_is_streamed_with_a_status_and_ends_right(app: SlackApp) -> None:
    channel = app.new_channel()
    app.agent.may_end.clear()
    asked = app.slack.write(app.workspace, channel, app.mention("write"))
    await eventually(lambda: channel.answers_shown(asked.ts) == ["Once upon "])
    [streamed] = [it for it in channel.messages.values() if it.bot_id is not None]
    assert streamed.is_streaming
    await eventually(lambda: (asked.ts, "processing") in channel.statuses)
    app.agent.may_end.set()
    await eventually(lambda: channel.answers_shown(asked.ts) == ["Once upon a time"])
    await eventually(lambda: not streamed.is_streaming)
    await eventually(lambda: channel.statuses[-1] == (asked.ts, "active"))


@pytest.mark.parametrize("is_agent", [True, False])
async def test_a_draft_whose_answer_got_lost_becomes_the_answer(
    app: SlackApp,
    is_agent: bool,  # noqa: FBT001
) -> None:
    workspace = app.workspace if is_agent else app.other
    channel = app.new_channel(workspace=workspace)
    channel.lost_answers = 1
    app.agent.may_end.clear()
    asked = app.slack.write(workspace, channel, f"<@{workspace.bot_user}> write")
    await eventually(lambda: channel.lost_answers == 0)
    app.agent.may_end.set()
    await eventually(lambda: "Once upon a time" in channel.answers_shown(asked.ts))
    assert channel.answers_shown(asked.ts) == ["Once upon a time"]


async def test_without_agents_an_answer_is_shown_by_edits(app: SlackApp) -> None:
    channel = app.new_channel(workspace=app.other)
    app.agent.may_end.clear()
    text = f"<@{app.other.bot_user}> write"
    asked = app.slack.write(app.other, channel, text)
    await eventually(lambda: channel.answers_shown(asked.ts) == ["Once upon "])
    assert not any(it.is_streaming for it in channel.messages.values())
    app.agent.may_end.set()
    await eventually(lambda: channel.answers_shown(asked.ts) == ["Once upon a time"])


async def test_a_draft_without_an_answer_disappears(app: SlackApp) -> None:
    channel = app.new_channel()
    app.agent.may_end.clear()
    asked = app.slack.write(app.workspace, channel, app.mention("drop"))
    await eventually(lambda: channel.answers_shown(asked.ts) == ["Once upon "])
    app.agent.may_end.set()
    await eventually(lambda: channel.answers_shown(asked.ts) == [])


async def test_the_stop_button_ends_the_turn(app: SlackApp) -> None:
    channel = app.new_channel()
    app.agent.may_end.clear()
    asked = app.slack.write(app.workspace, channel, app.mention("write"))
    await eventually(lambda: channel.answers_shown(asked.ts) == ["Once upon "])
    app.slack.stop(app.workspace, channel, asked.ts)
    await eventually(lambda: any("topped" in it for it in channel.answers_shown(asked.ts)))
    await eventually(lambda: channel.statuses[-1] == (asked.ts, "active"))
    app.agent.may_end.set()


async def test_slash_commands_are_commands_and_messages(app: SlackApp) -> None:
    channel = app.new_channel("im")
    app.slack.command(app.workspace, channel, "/status", "")
    await eventually(channel.answers_shown)
    assert "heard" not in channel.answers_shown()[0]
    app.slack.command(app.workspace, channel, "/joke", "please")
    await eventually(lambda: channel.answers_shown()[1:] == ["heard /joke please"])


async def test_a_command_from_a_foreign_conversation_is_answered_to_the_person(
    app: SlackApp,
) -> None:
    channel = app.new_channel()
    channel.refusal = "channel_not_found"
    app.slack.command(app.workspace, channel, "/joke", f"in {channel.id}")
    expected = f"heard /joke in {channel.id}"
    await eventually(lambda: expected in [reply["text"] for reply in app.slack.replies])


async def test_a_pressed_button_is_answered(app: SlackApp) -> None:
    channel = app.new_channel()
    asked = app.slack.write(app.workspace, channel, app.mention("choose"))
    await eventually(lambda: channel.answers_shown(asked.ts) == ["Which?"])
    card = list(channel.messages.values())[-1]
    app.slack.press(app.workspace, channel, card, "Blue")
    await eventually(lambda: len(channel.answers_shown(asked.ts)) == 2)
    assert "blue" in channel.answers_shown(asked.ts)[1].lower()


async def test_a_question_loses_its_buttons_with_its_answer(app: SlackApp) -> None:
    channel = app.new_channel("im")
    app.slack.write(app.workspace, channel, "ask")
    await eventually(lambda: channel.answers_shown() == ["Sure?"])
    card = list(channel.messages.values())[-1]
    app.slack.press(app.workspace, channel, card, "Yes")
    await eventually(lambda: channel.answers_shown() == ["Sure?", "you said Yes"])
    await eventually(lambda: card.buttons == [])


async def test_files_go_both_ways(app: SlackApp) -> None:
    channel = app.new_channel("im")
    file = app.slack.upload("notes.txt", "text/plain", b"hello")
    app.slack.write(app.workspace, channel, "show", files=[file])
    await eventually(lambda: channel.answers_shown() == ["a photo"])
    shown = list(channel.messages.values())[-1]
    images = [block["image_url"] for block in shown.blocks if block["type"] == "image"]
    assert images == ["https://files.test/1.png"]
    async with httpx.AsyncClient() as client:
        found = await client.get(app.agent.files[-1] or "")
    assert found.content == b"hello"


async def test_markdown_is_shown_as_markdown(app: SlackApp) -> None:
    channel = app.new_channel("im")
    app.slack.write(app.workspace, channel, "table")
    await eventually(lambda: channel.answers_shown() == ["| a |\n|---|\n| 1 |"])
    assert list(channel.messages.values())[-1].blocks[0]["type"] == "markdown"


async def test_a_long_answer_comes_in_pieces(app: SlackApp) -> None:
    channel = app.new_channel("im")
    app.slack.write(app.workspace, channel, "tell")
    await eventually(lambda: " ".join(channel.answers_shown()).split() == LONG.split())
    assert len(channel.answers_shown()) == 3


async def test_a_reaction_to_an_answer_reaches_its_conversation(app: SlackApp) -> None:
    channel = app.new_channel()
    asked = app.slack.write(app.workspace, channel, app.mention("hello"))
    await eventually(lambda: channel.answers_shown(asked.ts) == ["heard hello"])
    answer = list(channel.messages.values())[-1]
    app.slack.react(app.workspace, channel, answer, "tada", removed=False)
    query = "SELECT count(*) FROM messages WHERE content LIKE '%tada%'"

    async def is_kept() -> bool:
        return bool(await fetch(app, query))

    await eventually(is_kept)


async def fetch(app: SlackApp, query: str, *arguments: str) -> object:
    """Return the first value of a query."""
    connection = await asyncpg.connect(app.service.dsn)
    try:
        return await connection.fetchval(query, *arguments)
    finally:
        await connection.close()


async def test_a_limited_channel_waits_and_no_other(app: SlackApp) -> None:
    channel, other = app.new_channel("im"), app.new_channel("im")
    channel.limit(2)
    app.slack.write(app.workspace, channel, "hello")
    await eventually(lambda: channel.posts == 1)
    app.slack.write(app.workspace, other, "hello")
    await eventually(lambda: other.answers_shown() == ["heard hello"])
    assert channel.answers_shown() == []
    await eventually(lambda: channel.answers_shown() == ["heard hello"])
    assert channel.posts <= 3, "Slack is not asked again meanwhile"


async def test_an_archived_channel_holds_nobody_up(app: SlackApp) -> None:
    channel, other = app.new_channel("im"), app.new_channel("im")
    channel.refusal = "is_archived"
    app.slack.write(app.workspace, channel, "hello")
    app.slack.write(app.workspace, other, "hello")
    await eventually(lambda: other.answers_shown() == ["heard hello"])
    query = "SELECT count(*) FROM deliveries WHERE state = 'failed' AND failure = 'gone'"

    async def is_given_up() -> bool:
        return bool(await fetch(app, query))

    await eventually(is_given_up)


async def test_an_answer_that_got_lost_is_not_sent_again(app: SlackApp) -> None:
    channel = app.new_channel()
    channel.lost_answers = 1
    asked = app.slack.write(app.workspace, channel, app.mention("hello"))
    await eventually(lambda: channel.lost_answers == 0)
    app.slack.write(app.workspace, channel, "again", thread_ts=asked.ts)
    await eventually(lambda: len(channel.answers_shown(asked.ts)) == 2)
    assert channel.answers_shown(asked.ts) == ["heard hello", "heard again"]
    assert len(channel.posted) == len(set(channel.posted))


async def test_a_revoked_token_stops_only_its_workspace(app: SlackApp) -> None:
    channel, other = app.new_channel("im", app.other), app.new_channel("im")
    app.other.revoked = "token_revoked"
    app.slack.write(app.other, channel, "hello")
    app.slack.write(app.workspace, other, "hello")
    await eventually(lambda: other.answers_shown() == ["heard hello"])
    assert channel.answers_shown() == []
    await eventually(lambda: app.adapter.events("account_refused"))
    app.other.revoked = None
