"""Add unusual events to the scenario: copies, edits, messages of bots, invalid events."""

import base64
import hashlib
import json
from typing import Final

from chatlane_devkit.scenario.chats import Chat, Person, timestamp
from chatlane_devkit.scenario.event_builder import Entry, EventBuilder, Line
from chatlane_devkit.scenario.scenes import DISCORD_BLOCKS, HOUR, next_settle

# The declared ids of our own accounts; their messages must never start a turn.
OWN_IDS: Final = {"telegram": "600100200", "discord": "600100200300400500"}

_COPIED_ENVELOPES: Final = 12
_COPIED_MESSAGES: Final = 25
_REPLAYED: Final = 8


def add_copies(diary: EventBuilder) -> None:
    """Add copies of messages: the same envelope twice, or the same message in a new envelope."""
    messages = [entry for entry in diary.entries if _has_message_id(entry)]
    chosen = diary.chance.shuffled(messages)[: _COPIED_ENVELOPES + _COPIED_MESSAGES]
    for number, entry in enumerate(chosen):
        is_same_envelope = number < _COPIED_ENVELOPES
        delay = diary.chance.between(0.2, 3) if is_same_envelope else diary.chance.between(0.3, 240)
        _copy(diary, entry, entry.at + delay, is_same_envelope=is_same_envelope)


def add_replay(diary: EventBuilder, room_label: str, at: float) -> None:
    """Publish the last messages of a chat again, as an adapter does that lost its position."""
    messages = [
        entry
        for entry in sorted(diary.entries, key=lambda entry: entry.at)
        # A timer has no message number, so no platform could send it again.
        if entry.line.get("talk") == room_label and entry.at < at and "message_id" in entry.event
    ]
    for number, entry in enumerate(messages[-_REPLAYED:]):
        _copy(diary, entry, at + number / 10, is_same_envelope=False)


def _has_message_id(entry: Entry) -> bool:
    """Return whether a copy is recognised by message id, and not only by its envelope id."""
    return entry.line.get("expect") == "accepted" and "message_id" in entry.event


def _copy(diary: EventBuilder, entry: Entry, at: float, *, is_same_envelope: bool) -> None:
    event = dict(entry.event)
    if not is_same_envelope:
        event |= {"id": diary.chance.hexadecimal(24), "at": timestamp(at)}
    line: Line = {"event": event, "expect": "duplicate"}
    diary.add(Entry(at, line, entry.room, entry.person))


def add_edits(diary: EventBuilder) -> None:
    """Add edits, deletions and reactions, which are stored but start nothing.

    The first two come when all is answered: a message that is still pending would reach the agent
    in its edited form, or not at all.
    """
    messages = [
        entry
        for entry in diary.entries
        if entry.line.get("expect") == "accepted" and "text" in entry.event
    ]
    kinds = ("edit",) * 4 + ("delete",) * 3 + ("reaction",) * 6
    for kind, entry in zip(kinds, diary.chance.shuffled(messages), strict=False):
        if entry.room is None:
            continue
        fields: dict[str, object] = {"kind": kind, "message_id": entry.event.get("message_id")}
        fields |= _of_kind(diary, kind, str(entry.event["text"]))
        delay = diary.chance.between(5, 200)
        at = entry.at if kind == "reaction" else next_settle(entry.at)
        diary.happen(at + delay, entry.room, entry.person, **fields)


def _of_kind(diary: EventBuilder, kind: str, text: str) -> dict[str, object]:
    if kind == "edit":
        return {"version": "2", "text": f"{text} (edited)"}
    if kind == "reaction":
        return {"event_id": diary.chance.hexadecimal(10), "text": diary.chance.pick("👍❤😂🎉")}
    return {"event_id": diary.chance.hexadecimal(10)}


def add_other_senders(diary: EventBuilder, person: Person) -> None:
    """Add a service event, our own echo, another bot, and two timers that do reach the agent."""
    family = _first_room(diary, "telegram/family")
    diary.happen(9.4 * HOUR, family, person, kind="service", text=f"{person.name} joined")
    for hour, label in ((9.8, "telegram/family"), (10.3, "discord/off-topic")):
        room = _first_room(diary, label)
        entry = diary.happen(hour * HOUR, room, person, text="#1 heard: something we said")
        sender = {"id": OWN_IDS[room.platform], "name": "assistant", "is_bot": True}
        entry.event["sender"] = sender
    other_bot = {"id": "433221100998877665", "name": "DiceBot", "is_bot": True}
    dice = diary.happen(10.4 * HOUR, _first_room(diary, "discord/off-topic"), None, text="🎲 4")
    dice.event["sender"] = other_bot
    for hour, text in ((11.9, "Timer: take the bread out"), (17.6, "Reminder: water the basil")):
        room = _first_room(diary, "telegram/ann")
        timer = diary.say(hour * HOUR, room, None, text, kind="system")
        del timer.event["message_id"]


def _first_room(diary: EventBuilder, label: str) -> Chat:
    return next(entry.room for entry in diary.entries if entry.room and entry.room.label == label)


def add_unusual_events(diary: EventBuilder) -> None:
    """Add texts that no database can store unchanged; the router cleans them and starts a turn."""
    base = _plain_event(diary, 71_000_001, "odd one")
    odd: list[tuple[str, str]] = [
        ("caf\ud83d half an emoji", "caf\ufffd half an emoji"),
        ("zero\x00byte", "zero\ufffdbyte"),
    ]
    for number, (text, expected) in enumerate(odd):
        event = base | {"id": diary.chance.hexadecimal(24), "message_id": 5 + number, "text": text}
        line: Line = {"subject": _subject(event), "body": json.dumps(event), "expect": "accepted"}
        line |= {"talk": "telegram/odd one", "agent": "main", "hears": expected}
        diary.add(Entry(9.2 * HOUR + 300 * number, line))


def add_invalid_events(diary: EventBuilder) -> None:
    """Add events that become dead letters, one for each kind of error."""
    block = (DISCORD_BLOCKS[1][2] - DISCORD_BLOCKS[0][0]) * HOUR
    invalid = [*_undecodable(diary), *_unplaceable(diary)]
    for number, line in enumerate(invalid):
        at = 8.2 * HOUR + number * block / len(invalid) + diary.chance.between(0, 300)
        diary.add(Entry(at, line))


def _undecodable(diary: EventBuilder) -> list[Line]:
    event = _plain_event(diary, 72_000_001, "clumsy")
    subject = _subject(event)
    text = json.dumps(event)
    deep = f'{text[:-1]}, "attachments": {"[" * 40}{"]" * 40}}}'
    many = json.dumps(event | {"text": "la"})
    return [
        _dead("not_json", subject, body="hello? is this thing on?"),
        _dead("not_json", subject, body=text[: len(text) // 2]),
        _dead("not_json", subject, body=""),
        _dead("not_json", subject, raw=base64.b64encode(b'{"v": 1, "text": "\xff"}').decode()),
        _dead("unknown_version", subject, body=json.dumps(event | {"v": 2})),
        _dead("too_deep", subject, body=deep),
        _dead("oversized", subject, body=many, pad_bytes=300_000),
        _dead("invalid", subject, body=json.dumps(event | {"sent_at": "yesterday evening"})),
        _dead("invalid", subject, body=json.dumps(event | {"kind": "wave"})),
        _dead("bad_id", subject, body=json.dumps(event | {"sender": {"id": "\ud83d"}})),
        _dead("bad_id", subject, body=json.dumps(event | {"message_id": "9\x00"})),
        _dead("bad_id", subject, body=json.dumps(event | {"thread_id": "t" * 300})),
    ]


def _unplaceable(diary: EventBuilder) -> list[Line]:
    event = _plain_event(diary, 72_000_002, "lost")
    nobody = {key: value for key, value in event.items() if key not in {"chat", "sender"}}
    elsewhere = event | {"chat": {"id": 72_000_003}}
    ghost = event | {"account": "ghost"}
    phone = event | {"platform": "whatsapp", "account": "phone", "profile": "notes"}
    subject = _subject(event)
    return [
        _dead("no_conversation", _subject(nobody), body=json.dumps(nobody)),
        _dead("subject_mismatch", subject, body=json.dumps(elsewhere)),
        _dead("subject_mismatch", subject, body=json.dumps(ghost)),
        _dead("unknown_account", _subject(ghost), body=json.dumps(ghost)),
        _dead("unknown_profile", subject, body=json.dumps(event | {"profile": "pirate"})),
        _dead("profile_forbidden", _subject(phone), body=json.dumps(phone)),
    ]


def _dead(reason: str, subject: str, **how: object) -> Line:
    return {"subject": subject, **how, "expect": f"dead:{reason}"}


def _plain_event(diary: EventBuilder, chat_id: int, name: str) -> dict[str, object]:
    return {
        "v": 1,
        "id": diary.chance.hexadecimal(24),
        "at": timestamp(9 * HOUR),
        "message_id": 4,
        "platform": "telegram",
        "account": "assistant",
        "chat": {"id": chat_id},
        "sender": {"id": chat_id, "name": name},
        "text": "?",
    }


def _subject(event: dict[str, object]) -> str:
    """Return the subject of an event, computed here instead of by the code under test."""
    chat = event.get("chat")
    digest = "none"
    if isinstance(chat, dict):
        digest = hashlib.sha256(str(chat["id"]).encode()).hexdigest()[:16]
    return f"chat.v1.inbound.{event['platform']}.{event['account']}.{digest}"
