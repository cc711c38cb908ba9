"""What events, commands and presses of Slack become; shapes as in its documentation."""

from datetime import UTC, datetime
from typing import Any

import pytest

from chatlane_adapters.slack.decode import Bot, Decoded, Decoder
from chatlane_schemas import InboundEvent, Kind, new_envelope_id
from chatlane_schemas.content.elements import Press

TS = "1700000000.000100"
LATER = "1700000009.000900"
MENTION = "<@UBOT> hi"


def make(**fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
    return InboundEvent(
        id=new_envelope_id(), at=datetime.now(UTC), platform="slack", account="app", **fields
    )


DECODER = Decoder(make, Bot("T1", "UBOT", "BBOT"))


def message(**changes: object) -> dict[str, Any]:
    return {
        "type": "message",
        "channel": "C1",
        "channel_type": "channel",
        "user": "U1",
        "text": "hi",
        "ts": TS,
        "event_ts": TS,
        **changes,
    }


def decoded(event: dict[str, Any]) -> Decoded:
    found = DECODER.event(event)
    assert found is not None
    return found


def said(**fields: object) -> dict[str, object]:
    """Return the fields of a message as people see it, without place and time."""
    return {"type": "message", "user": "U1", "ts": TS, "text": "hi", **fields}


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param(
            message(),
            {
                "kind": Kind.MESSAGE,
                "scope": "T1",
                "message_id": TS,
                "thread_id": TS,
                "text": "hi",
                "reply_to": None,
            },
            id="a message of a channel begins a thread",
        ),
        pytest.param(message(thread_ts="1.0"), {"thread_id": "1.0"}, id="a reply in a thread"),
        pytest.param(
            message(channel="D1", channel_type="im"),
            {"thread_id": None},
            id="a direct message has no thread",
        ),
        pytest.param(
            message(channel="D1", channel_type="im", thread_ts="1.0"),
            {"thread_id": "1.0"},
            id="a thread with the agent",
        ),
        pytest.param(
            {**message(text="<@UBOT>  /new now"), "type": "app_mention"},
            {"text": "/new now", "thread_id": TS},
            id="a mention at the begin is left out",
        ),
        pytest.param(
            message(text="ask <@UBOT> or <@U2|ann>, see <#C2|general> &amp; <https://a.b|this>"),
            {"text": "ask <@UBOT> or <@U2>, see #general & this (https://a.b)"},
            id="links and mentions",
        ),
        pytest.param(
            message(text="<!here> <!subteam^S1|@team> <mailto:a@b.c|a@b.c> 1 &lt; 2"),
            {"text": "@here @team a@b.c 1 < 2"},
            id="groups and entities",
        ),
        pytest.param(
            message(subtype="thread_broadcast", thread_ts="1.0"),
            {"kind": Kind.MESSAGE, "thread_id": "1.0"},
            id="a reply that is shown in the channel as well",
        ),
        pytest.param(
            message(
                subtype="message_changed",
                message=said(text="hello", edited={"user": "U1", "ts": LATER}),
                previous_message=said(),
                event_ts=LATER,
            ),
            {
                "kind": Kind.EDIT,
                "message_id": TS,
                "text": "hello",
                "version": LATER,
                "event_id": LATER,
                "counts_as_new": None,
            },
            id="an edit",
        ),
        pytest.param(
            message(
                subtype="message_changed",
                message=said(text=MENTION, edited={"user": "U1", "ts": LATER}),
                previous_message=said(),
            ),
            {"kind": Kind.EDIT, "text": "hi", "counts_as_new": True},
            id="an edit that mentions the bot for the first time",
        ),
        pytest.param(
            message(
                subtype="message_deleted",
                deleted_ts=TS,
                previous_message=said(thread_ts="1.0"),
                event_ts=LATER,
            ),
            {"kind": Kind.DELETE, "message_id": TS, "thread_id": "1.0", "event_id": LATER},
            id="a deletion",
        ),
        pytest.param(
            message(
                subtype="message_changed",
                message={"subtype": "tombstone", "user": "USLACKBOT", "ts": TS, "text": "gone"},
                previous_message=said(),
            ),
            {"kind": Kind.DELETE, "message_id": TS},
            id="a deleted message that has replies",
        ),
        pytest.param(
            message(subtype="channel_join", inviter="U2"),
            {"kind": Kind.SERVICE, "service": "joined", "event_id": TS, "message_id": None},
            id="a person who joins",
        ),
        pytest.param(
            message(subtype="channel_topic", topic="lunch"),
            {"kind": Kind.SERVICE, "service": "topic_changed", "text": "lunch"},
            id="a new topic",
        ),
        pytest.param(
            {
                "type": "reaction_added",
                "user": "U1",
                "reaction": "tada",
                "item_user": "UBOT",
                "item": {"type": "message", "channel": "C1", "ts": TS},
                "event_ts": LATER,
            },
            {"kind": Kind.REACTION, "message_id": TS, "event_id": LATER, "text": ":tada:"},
            id="a reaction",
        ),
        pytest.param(
            {
                "type": "reaction_removed",
                "user": "U1",
                "reaction": "tada",
                "item_user": "UBOT",
                "item": {"type": "message", "channel": "C1", "ts": TS},
                "event_ts": LATER,
            },
            {"kind": Kind.REACTION, "removed": True},
            id="a reaction that is taken back",
        ),
        pytest.param(
            {
                "type": "agent_session_stopped",
                "channel": "C1",
                "thread_ts": "1.0",
                "user": "U1",
                "streaming_message_ts": [],
                "event_ts": LATER,
            },
            {"kind": Kind.MESSAGE, "text": "/stop", "thread_id": "1.0", "event_id": LATER},
            id="the stop button",
        ),
        pytest.param(
            {
                "type": "assistant_thread_started",
                "assistant_thread": {
                    "user_id": "U1",
                    "channel_id": "D1",
                    "thread_ts": "1.0",
                    "context": {},
                },
                "event_ts": LATER,
            },
            {"kind": Kind.SERVICE, "thread_id": "1.0", "service": None},
            id="a new thread with the agent",
        ),
        pytest.param(
            {
                "type": "app_home_opened",
                "user": "U1",
                "channel": "D1",
                "tab": "home",
                "event_ts": LATER,
            },
            {"kind": Kind.SERVICE, "event_id": LATER, "service": None},
            id="the opened home of the app",
        ),
        pytest.param(
            {
                "type": "channel_id_changed",
                "old_channel_id": "G1",
                "new_channel_id": "C9",
                "event_ts": LATER,
            },
            {"kind": Kind.MIGRATION, "migrate_to": "C9"},
            id="a channel with another id",
        ),
    ],
)
def test_an_event_becomes_an_event(event: dict[str, Any], expected: dict[str, object]) -> None:
    found = decoded(event).event
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(message(user="UBOT", bot_id="BBOT"), id="our message"),
        pytest.param(message(subtype="bot_message", bot_id="BBOT"), id="ours with another name"),
        pytest.param(
            message(
                subtype="message_changed",
                message=said(attachments=[{"title": "a page"}]),
                previous_message=said(),
            ),
            id="the preview of a link",
        ),
        pytest.param(
            message(
                subtype="message_changed",
                message={**said(user="UBOT"), "edited": {"ts": LATER}},
                previous_message=said(user="UBOT"),
            ),
            id="our edit",
        ),
        pytest.param(
            message(subtype="message_deleted", deleted_ts=TS, previous_message=said(user="UBOT")),
            id="our message that is deleted",
        ),
        pytest.param(message(subtype="message_replied"), id="a counted reply"),
        pytest.param(message(subtype="assistant_app_thread"), id="the root of an agent's thread"),
        pytest.param({"type": "member_joined_channel", "event_ts": TS}, id="said by a message"),
        pytest.param({"type": "link_shared", "event_ts": TS}, id="a link"),
        pytest.param(
            {
                "type": "reaction_added",
                "user": "U1",
                "reaction": "tada",
                "item": {"type": "file", "file": "F1"},
                "event_ts": TS,
            },
            id="a reaction to a file",
        ),
    ],
)
def test_an_event_without_use_is_dropped(event: dict[str, Any]) -> None:
    assert DECODER.event(event) is None


@pytest.mark.parametrize(
    ("event", "is_addressed"),
    [
        (message(), False),
        (message(text=MENTION), True),
        (message(text="<@UBOTANIST> hi"), False),
        (message(channel="D1", channel_type="im"), True),
        (message(channel_type="mpim"), False),
    ],
)
def test_a_message_is_for_the_bot_if_it_says_so(
    event: dict[str, Any],
    is_addressed: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    assert decoded(event).is_addressed == is_addressed


def test_a_file_is_a_reference() -> None:
    file = {
        "id": "F1",
        "name": "voice.m4a",
        "mimetype": "audio/mp4",
        "subtype": "slack_audio",
        "size": 12,
        "duration_ms": 3000,
        "mode": "hosted",
        "url_private": "https://files.slack.com/F1",
        "url_private_download": "https://files.slack.com/F1/download",
    }
    hidden = {"id": "F2", "mode": "hidden_by_limit"}
    [found] = decoded(message(subtype="file_share", files=[file, hidden])).event.attachments
    expected = {
        "url": "https://files.slack.com/F1/download",
        "media_type": "audio/mp4",
        "name": "voice.m4a",
        "size_bytes": 12,
        "duration_ms": 3000,
        "kind": "voice",
    }
    assert {name: getattr(found, name) for name in expected} == expected


def test_a_shared_message_is_a_quote() -> None:
    shared = {"is_share": True, "author_id": "U2", "author_name": "Ann", "text": "a &amp; b"}
    quote = decoded(message(attachments=[shared])).event.quote
    assert quote is not None
    assert (quote.text, quote.sender_id, quote.sender_name) == ("a & b", "U2", "Ann")


def test_another_bot_is_a_bot_with_its_words_from_blocks() -> None:
    block = {"type": "section", "text": {"type": "mrkdwn", "text": "build failed"}}
    event = message(subtype="bot_message", bot_id="B2", username="CI", text="", blocks=[block])
    del event["user"]
    found = decoded(event).event
    assert found.sender is not None
    assert (found.sender.id, found.sender.name, found.sender.is_bot) == ("B2", "CI", True)
    assert found.text == "build failed"


def test_a_command_is_as_typed_or_a_message() -> None:
    form = {
        "command": "/ask",
        "text": "why",
        "user_id": "U1",
        "user_name": "ann",
        "channel_id": "C1",
        "team_id": "T1",
        "trigger_id": "1.2.abc",
        "response_url": "https://hooks.slack.com/commands/1",
    }
    typed = DECODER.command(form, is_message=False).event
    assert (typed.text, typed.event_id, typed.message_id) == ("/ask why", "1.2.abc", None)
    assert typed.return_address is not None
    assert typed.return_address.value == form["response_url"]
    assert DECODER.command(form, is_message=True).event.text == "why"


def press(**action: object) -> dict[str, Any]:
    return {
        "type": "block_actions",
        "user": {"id": "U1", "username": "ann", "team_id": "T1"},
        "team": {"id": "T1"},
        "channel": {"id": "C1"},
        "container": {"type": "message", "message_ts": TS},
        "message": {"ts": TS, "thread_ts": "1.0"},
        "actions": [{"action_id": "a", "action_ts": LATER, **action}],
    }


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (
            {"type": "button", "text": {"type": "plain_text", "text": "Yes"}, "value": "y"},
            Press(id="a", value="y", label="Yes"),
        ),
        (
            {
                "type": "static_select",
                "selected_option": {"text": {"type": "plain_text", "text": "Red"}, "value": "r"},
            },
            Press(id="a", value="r", label="Red"),
        ),
        ({"type": "users_select", "selected_user": "U5"}, Press(id="a", value="U5")),
    ],
)
def test_a_press_names_its_message(action: dict[str, object], expected: Press) -> None:
    [found] = DECODER.presses(press(**action))
    event = found.event
    assert (event.kind, event.message_id, event.thread_id) == (Kind.ACTION, TS, "1.0")
    assert (event.event_id, event.press) == (LATER, expected)


def test_a_button_that_opens_a_page_is_no_press() -> None:
    assert DECODER.presses(press(action_id="chatlane-url-0", type="button")) == []


@pytest.mark.parametrize("kind", ["view_submission", "shortcut", "message_action"])
def test_what_belongs_to_no_message_is_no_press(kind: str) -> None:
    assert DECODER.presses({**press(), "type": kind}) == []
