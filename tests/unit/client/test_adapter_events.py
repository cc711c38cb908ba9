"""Events about messages that were published before."""

import json

from chatlane_client import deleted, edited, reacted, thread_opened
from chatlane_schemas import InboundEvent, OutboundMessage
from chatlane_schemas.codec import decode, encode

FILE = {"url": "https://files.example/1.png", "media_type": "image/png"}


def message(**fields: object) -> InboundEvent:
    body = {
        "v": 1,
        "id": "e1",
        "at": "2026-03-01T12:00:00Z",
        "message_id": "5",
        "platform": "slack",
        "account": "bot",
        "scope": "T1",
        "chat": {"id": "C1", "kind": "channel"},
        "thread_id": "4",
        "sender": {"id": "U1"},
        "text": "hello",
        "reply_to": "3",
    }
    return InboundEvent.model_validate_json(json.dumps(body | fields))


def said(event: InboundEvent) -> dict[str, object]:
    """Return what arrives of an event, without what is new each time."""
    whole = decode(InboundEvent, encode(event)).model_dump(mode="json", exclude_none=True)
    return {name: value for name, value in whole.items() if name not in {"id", "at"}}


ADDRESS = {
    "v": 1,
    "message_id": "5",
    "platform": "slack",
    "account": "bot",
    "scope": "T1",
    "chat": {"id": "C1", "kind": "channel"},
    "thread_id": "4",
    "sender": {"id": "U1", "is_bot": False, "is_staff": False, "aliases": []},
}


def test_an_edit_brings_what_the_message_is_now() -> None:
    now = message(text="hello!", attachments=[FILE])
    assert said(edited(now, version=7, event_id="1.5", counts_as_new=True)) == ADDRESS | {
        "kind": "edit",
        "text": "hello!",
        "attachments": [FILE],
        "version": "7",
        "event_id": "1.5",
        "counts_as_new": True,
    }


def test_a_delete_says_where_and_nothing_else() -> None:
    event = deleted(message(attachments=[FILE]))
    assert said(event) == ADDRESS | {"kind": "delete", "attachments": []}


def test_a_reaction_says_which() -> None:
    event = reacted(message(), "+1", event_id="r1")
    expected = {"kind": "reaction", "text": "+1", "event_id": "r1", "attachments": []}
    assert said(event) == ADDRESS | expected


def test_a_thread_that_was_opened_is_told_with_what_was_answered() -> None:
    answer = OutboundMessage.model_validate_json(
        json.dumps(
            {
                "v": 1,
                "id": "a1",
                "at": "2026-03-01T12:00:00Z",
                "session_id": "0195e6a0-4c00-8000-9b5e-2f0c6f1d0a01",
                "out_seq": 1,
                "agent": "main",
                "target": {
                    name: ADDRESS[name] for name in ADDRESS if name not in {"v", "thread_id"}
                },
                "reply_to": "5",
            }
        )
    )
    expected = {"kind": "service", "thread_id": "9.5", "reply_to": "5", "attachments": []}
    address = {name: value for name, value in ADDRESS.items() if name != "message_id"}
    assert said(thread_opened(answer, "9.5")) == address | expected


def test_every_event_is_one_of_its_own() -> None:
    assert edited(message()).id != edited(message()).id
