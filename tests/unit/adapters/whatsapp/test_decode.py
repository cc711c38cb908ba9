"""What requests of WhatsApp Cloud become; shapes as in its documentation."""

from datetime import UTC, datetime
from typing import Any

import pytest

from chatlane_adapters.whatsapp.decode import event_of, items_of
from chatlane_schemas import InboundEvent, Kind, new_envelope_id
from chatlane_schemas.content.elements import Press

NUMBER = "1"
API = "https://graph.test/v1"


def make(**fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
    return InboundEvent(
        id=new_envelope_id(), at=datetime.now(UTC), platform="whatsapp", account="a", **fields
    )


def decoded(*, number_id: str = NUMBER, **value: Any) -> list[InboundEvent]:  # noqa: ANN401
    contact = {"wa_id": "49", "user_id": "DE.7", "profile": {"name": "Ann"}}
    whole = {"metadata": {"phone_number_id": number_id}, "contacts": [contact], **value}
    payload = {"entry": [{"id": "w", "changes": [{"field": "messages", "value": whole}]}]}
    events = (event_of(make, item, API) for item in items_of(payload, NUMBER))
    return [event for event in events if event is not None]


def message(**fields: object) -> InboundEvent:
    given = {"from": "49", "id": "wamid.1", "timestamp": "1700000000", **fields}
    [found] = decoded(messages=[given])
    return found


def test_a_text_names_its_author() -> None:
    event = message(type="text", text={"body": "hi"}, context={"id": "wamid.0"})
    assert (event.text, event.message_id, event.reply_to) == ("hi", "wamid.1", "wamid.0")
    assert event.sender is not None
    assert (event.sender.id, event.sender.alt_id, event.sender.name) == ("49", "DE.7", "Ann")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"type": "interactive", "interactive": {"button_reply": {"id": "y", "title": "Yes"}}},
            {"kind": Kind.MESSAGE, "text": "Yes", "press": Press(value="y", label="Yes")},
        ),
        (
            {"type": "button", "button": {"payload": "p", "text": "Go"}},
            {"kind": Kind.MESSAGE, "press": Press(value="p", label="Go")},
        ),
        (
            {"type": "reaction", "reaction": {"message_id": "wamid.0", "emoji": "👍"}},
            {"kind": Kind.REACTION, "message_id": "wamid.0", "event_id": "wamid.1", "text": "👍"},
        ),
        (
            {"type": "reaction", "reaction": {"message_id": "wamid.0"}},
            {"kind": Kind.REACTION, "removed": True},
        ),
        (
            {
                "type": "edit",
                "edit": {
                    "original_message_id": "wamid.0",
                    "message": {"type": "text", "text": {"body": "new"}},
                },
            },
            {"kind": Kind.EDIT, "message_id": "wamid.0", "text": "new"},
        ),
        (
            {"type": "revoke", "revoke": {"original_message_id": "wamid.0"}},
            {"kind": Kind.DELETE, "message_id": "wamid.0"},
        ),
        (
            {"type": "system", "system": {"type": "user_changed_number", "wa_id": "50"}},
            {"kind": Kind.MIGRATION, "migrate_to": "50"},
        ),
        ({"type": "order", "order": {}}, {"kind": Kind.MESSAGE, "text": "[order]"}),
    ],
)
def test_a_message_becomes_an_event(fields: dict[str, object], expected: dict[str, object]) -> None:
    event = message(**fields)
    assert {name: getattr(event, name) for name in expected} == expected


def test_a_file_is_asked_for_by_its_id() -> None:
    audio = {"id": "77", "mime_type": "audio/ogg; codecs=opus", "voice": True}
    [file] = message(type="audio", audio=audio).attachments
    assert (file.url, file.media_type, file.kind) == (f"{API}/77", "audio/ogg", "voice")


def test_a_place_and_a_contact_are_shown() -> None:
    event = message(type="location", location={"latitude": 1.0, "longitude": 2.0, "name": "Home"})
    assert event.location is not None
    assert event.location.name == "Home"
    card = {"name": {"formatted_name": "Bo"}, "phones": [{"phone": "+50", "wa_id": "50"}]}
    [contact] = message(type="contacts", contacts=[card]).contacts or ()
    assert (contact.name, contact.phone, contact.id) == ("Bo", "+50", "50")


def test_a_failure_is_told_in_words() -> None:
    failed = {"id": "wamid.5", "status": "failed", "recipient_id": "49"}
    [event] = decoded(statuses=[{**failed, "errors": [{"code": 131047, "title": "x"}]}])
    assert (event.kind, event.service) == (Kind.SERVICE, "delivery_failed")
    assert "24 hours" in (event.text or "")


def test_other_states_are_counted() -> None:
    read = {"id": "wamid.5", "status": "read", "recipient_id": "49"}
    [event] = decoded(statuses=[read])
    assert (event.kind, event.service, event.event_id) == (Kind.SERVICE, None, "wamid.5-read")


def test_what_is_of_another_number_is_dropped() -> None:
    given = {"from": "49", "id": "w", "timestamp": "1", "type": "text", "text": {"body": "x"}}
    assert decoded(number_id="2", messages=[given]) == []
    assert decoded(messages=[{**given, "type": "unsupported"}]) == []
