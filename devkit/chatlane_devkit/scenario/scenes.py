"""The scenes of the scenario: people, places and times on the four platforms."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from chatlane_devkit.scenario.chats import Chat, Person
from chatlane_devkit.scenario.event_builder import Entry, EventBuilder
from chatlane_devkit.scenario.phrases import Chance, Kind

HOUR: Final = 3600.0

# Discord's conversations end after seconds of silence in the demo, so all of them are in these two
# blocks: messages until the break, silence while the feed pauses, messages after it.
DISCORD_BLOCKS: Final = ((10.0, 10.75, 11.5), (19.0, 19.75, 20.5))

# Time at which the group moves to its new id.
MOVE_AT: Final = 12.4 * HOUR


# Times at which the player waits until all is answered.
SETTLES: Final = (
    *(hour * HOUR for hour in DISCORD_BLOCKS[0]),
    # A chat that moved is known under its new id only after the router has read the move.
    MOVE_AT + 0.01,
    *(hour * HOUR for hour in DISCORD_BLOCKS[1]),
    23.9 * HOUR,
)


def next_settle(at: float) -> float:
    """Return the time at which all messages up to a time are answered."""
    return next(settle for settle in SETTLES if settle > at)


def telegram_chats(diary: EventBuilder, people: Sequence[Person]) -> None:
    """Add people alone with the assistant, each two or three times in the day."""
    for person in people:
        chat = {"id": person.ids["telegram"], "kind": "dm", "name": person.name}
        label = f"telegram/{person.name.lower()}"
        room = Chat(label, "telegram", "assistant", chat, is_shared=True)
        for start in _moments(diary.chance, 2 + diary.chance.below(2), (6.5, 22.8)):
            diary.sitting(room, [person], start, "chat", scripts=1 + diary.chance.below(3))


def telegram_commands(diary: EventBuilder, person: Person) -> None:
    """Add commands of a user: a title and a new session; a repeated command has no effect.

    They are at the time of a settle, so that all is answered when the conversation ends.
    """
    chat = {"id": person.ids["telegram"], "kind": "dm", "name": person.name}
    room = _direct(person, "telegram", "assistant", chat)
    start = DISCORD_BLOCKS[0][0] * HOUR
    diary.say(start - HOUR, room, person, "Which bread keeps longest?")
    diary.tell(start + 2, room, person, "/title Bread", "This conversation is called “Bread”.")
    anew = "New conversation started. The previous one is kept."
    again = diary.tell(start + 3, room, person, "/new@assistant_bot", anew, begins=True)
    diary.say(start + 4, room, person, "How do I get wax out of linen?")
    event = again.event | {"id": diary.chance.hexadecimal(24)}
    diary.add(Entry(start + 60, {"event": event, "expect": "duplicate"}, room, person))
    diary.happen(start + 90, room, person, text="/new@dice_bot")
    diary.say(start + 95, room, person, "/etc/fstab: which column is the file system?")


def telegram_photos(diary: EventBuilder, person: Person) -> None:
    """Add an album, and then a photo that its adapter uploads slowly.

    The question about the photo arrives before the photo, and has to wait for it.
    """
    chat = {"id": person.ids["telegram"], "kind": "dm", "name": person.name}
    room = _direct(person, "telegram", "assistant", chat)
    start = 11.0 * HOUR
    for number, text in enumerate(("Three from the allotment", None, None)):
        photo = _photo(diary, f"allotment-{number + 1}.jpg")
        diary.say(start + number, room, person, text, album_id="13779", attachments=[photo])
    slow = diary.say(start + 60, room, person, "And this?", awaits_files=True)
    slow.line["hears"] = "And this? [beetle.jpg]"
    diary.say(start + 61, room, person, "Is that beetle after my beans?")
    brought = {"message_id": slow.event["message_id"], "attachments": [_photo(diary, "beetle.jpg")]}
    diary.happen(start + 64, room, person, kind="attachments", **brought)


def _photo(diary: EventBuilder, name: str) -> dict[str, object]:
    url = f"https://files.example/{diary.chance.hexadecimal(12)}/{name}"
    return {"url": url, "media_type": "image/jpeg", "name": name}


def telegram_groups(diary: EventBuilder, people: Sequence[Person]) -> None:
    """Add groups in which each person has a separate conversation."""
    names: list[tuple[str, int, Kind]] = [
        ("family", 4, "group"),
        ("choir", 5, "group"),
        ("stairwell", 6, "group"),
    ]
    rest = list(people)
    for name, size, kind in names:
        members, rest = rest[:size], rest[size:]
        chat = {"id": -int(diary.chance.digits(8)), "kind": "group", "name": name.title()}
        room = Chat(f"telegram/{name}", "telegram", "assistant", chat, is_shared=False)
        for start in _moments(diary.chance, 4, (7, 22)):
            diary.sitting(room, members, start, kind, scripts=2)


def telegram_forum(diary: EventBuilder, people: Sequence[Person]) -> None:
    """Add a forum: each topic is one shared conversation; General is not a topic."""
    chat_id = -int("100" + diary.chance.digits(10))
    chat = {"id": chat_id, "kind": "forum", "name": "Makers of Mill Street", "is_forum": True}
    for topic, name in ((4, "woodwork"), (11, "electronics"), (27, "swap-shop")):
        label = f"telegram/makers/{name}"
        room = Chat(label, "telegram", "assistant", chat, is_shared=True, thread_id=topic)
        for start in _moments(diary.chance, 3, (8, 22)):
            diary.sitting(room, people, start, "group", scripts=2)
    general: tuple[str | int | None, ...] = (None, "1", 0, "")
    room = Chat("telegram/makers", "telegram", "assistant", chat, is_shared=False)
    for start, thread_id in zip(_moments(diary.chance, 4, (8, 21)), general, strict=True):
        room.thread_id = thread_id
        diary.sitting(room, people[:2], start, "group")


def telegram_move(diary: EventBuilder, people: Sequence[Person]) -> None:
    """Add a group that becomes a supergroup with another id and new message numbers."""
    old = {"id": -4_518_220, "kind": "group", "name": "Allotment 12"}
    new = {"id": -1_002_471_330_456, "kind": "supergroup", "name": "Allotment 12"}
    room = Chat("telegram/allotment", "telegram", "assistant", old, is_shared=False)
    for start in (9.1 * HOUR, 11.6 * HOUR):
        diary.sitting(room, people, start, "group", scripts=2, seconds_between=40)
    diary.happen(MOVE_AT, room, None, kind="migration", migrate_to=new["id"])
    moved = Chat("telegram/allotment", "telegram", "assistant", new, is_shared=False, last_number=1)
    for start in (13.2 * HOUR, 18.1 * HOUR):
        diary.sitting(moved, people, start, "group", scripts=2)


def telegram_channel(diary: EventBuilder) -> None:
    """Add a channel with posts without sender: one conversation for the chat."""
    chat = {"id": -1_001_889_340_217, "kind": "channel", "name": "Village noticeboard"}
    room = Chat("telegram/noticeboard", "telegram", "assistant", chat, is_shared=True)
    posts = ("Water is off on Mill Street from 10 to 12", "Found: one red glove, left hand 🧤")
    for start, text in zip(_moments(diary.chance, 2, (8, 17)), posts, strict=True):
        diary.say(start, room, None, text)


def discord(diary: EventBuilder, people: Sequence[Person]) -> None:
    """Add a guild with two channels and a thread, and some direct messages, in blocks."""
    for start, pause, end in DISCORD_BLOCKS:
        for room, members, kind in _discord_rooms(people):
            for since, until in ((start, pause), (pause, end)):
                _fill(diary, room, members, kind, (since * HOUR + 20, until * HOUR - 420))


def _discord_rooms(people: Sequence[Person]) -> Iterator[tuple[Chat, Sequence[Person], Kind]]:
    guild = "811203344556677889"
    for number, name in enumerate(("raid-planning", "off-topic"), 1):
        chat = {"id": f"90210334455667788{number}", "kind": "channel"}
        label = f"discord/{name}"
        room = Chat(label, "discord", "guild_bot", chat, is_shared=False, scope=guild)
        yield room, people[number * 3 : number * 3 + 3], "group"
    chat = {"id": "902103344556677990", "kind": "thread", "parent_id": "902103344556677881"}
    thread = Chat("discord/raid-planning/loot", "discord", "guild_bot", chat, is_shared=True)
    thread.thread_id, thread.scope = "902103344556677990", guild
    yield thread, people[3:6], "group"
    for person in people[6:12]:
        chat = {"id": f"77{person.ids['discord']}"[:18], "kind": "dm"}
        yield _direct(person, "discord", "guild_bot", chat), [person], "chat"


def _fill(
    diary: EventBuilder,
    room: Chat,
    people: Sequence[Person],
    kind: Kind,
    span: tuple[float, float],
) -> None:
    """Add dialogues within a span of the day and leave out those that would end after it."""
    since, until = span
    room.last_number = room.last_number or 1 + diary.chance.below(4_000)
    kept = len(diary.entries)
    diary.sitting(room, people, since + diary.chance.between(0, 240), kind, scripts=2)
    diary.entries[kept:] = [entry for entry in diary.entries[kept:] if entry.at < until]


def slack(diary: EventBuilder, people: Sequence[Person]) -> None:
    """Add two workspaces with the same channel id, threads, direct messages and a note-taker."""
    for scope, members in (("T0ACME", people[:6]), ("T0OTHER", people[6:10])):
        chat = {"id": "C09GENERAL", "kind": "channel", "name": "general"}
        label = f"slack/{scope.lower()}/general"
        channel = Chat(label, "slack", "workbot", chat, is_shared=False, scope=scope)
        for start in _moments(diary.chance, 4, (8, 18)):
            diary.sitting(channel, members, start, "work", scripts=2, seconds_between=50)
            _slack_thread(diary, channel, members)
        for person in members[:4]:
            chat = {"id": f"D0{scope[-4:]}{person.ids['slack']}", "kind": "dm"}
            room = _direct(person, "slack", "workbot", chat, scope)
            for start in _moments(diary.chance, 2, (8.5, 17.5)):
                diary.sitting(room, [person], start, "work", scripts=2)
    _slack_notes(diary, people)


def _slack_thread(diary: EventBuilder, channel: Chat, people: Sequence[Person]) -> None:
    """Continue in a thread under the channel's last message."""
    root = diary.entries[-1]
    thread_id = root.event["message_id"]
    label = f"{channel.label}/{thread_id}"
    room = Chat(label, "slack", "workbot", channel.chat, is_shared=True, scope=channel.scope)
    room.thread_id = str(thread_id)
    diary.sitting(room, people[:3], root.at + 30, "work", seconds_between=45)


def _slack_notes(diary: EventBuilder, people: Sequence[Person]) -> None:
    """Add channels and people that write to the note-taker, the agent behind a plain subscriber."""
    for name in ("decisions", "incidents", "front-desk"):
        chat = {"id": f"C0{name.upper()}", "kind": "channel", "name": name}
        room = Chat(f"slack/notes/{name}", "slack", "workbot", chat, is_shared=False)
        room.scope, room.profile, room.agent = "T0ACME", "notes", "notes"
        for start in _moments(diary.chance, 4, (8, 18)):
            diary.sitting(room, people[:3], start, "note", scripts=2, seconds_between=60)


def whatsapp(diary: EventBuilder, people: Sequence[Person]) -> None:
    """Add direct messages, and a group in which one person has two ids."""
    for person in people[1:]:
        chat = {"id": person.ids["whatsapp"], "kind": "dm", "name": person.name}
        room = _direct(person, "whatsapp", "phone", chat)
        for start in _moments(diary.chance, 2, (7, 22.5)):
            diary.sitting(room, [person], start, "chat", scripts=1 + diary.chance.below(2))
    _two_ids(diary, people[0])
    group = {"id": "120363041234567890@g.us", "kind": "group", "name": "Five-a-side"}
    room = Chat("whatsapp/five-a-side", "whatsapp", "phone", group, is_shared=False)
    for start in _moments(diary.chance, 3, (12, 22)):
        diary.sitting(room, people[1:6], start, "group", scripts=2)


def _two_ids(diary: EventBuilder, person: Person) -> None:
    """Add one person who writes from a number, then with a hidden LID, then from a laptop."""
    number = str(person.ids["whatsapp"])
    hidden = f"{diary.chance.digits(15)}@lid"
    laptop = number.replace("@", ":12@")
    label = f"whatsapp/{person.name.lower()}"
    forms: tuple[tuple[float, str, list[str]], ...] = (
        (8.0, number, []),
        (13.0, hidden, [number]),
        (16.2, laptop, []),
        (21.0, hidden, []),
    )
    for hour, form, aliases in forms:
        chat = {"id": form, "kind": "dm", "name": person.name}
        sender: dict[str, object] = {"id": form, "name": person.name}
        if aliases:
            sender["aliases"] = aliases
        room = Chat(label, "whatsapp", "phone", chat, is_shared=True)
        start = len(diary.entries)
        diary.sitting(room, [person], hour * HOUR, "chat", scripts=2)
        _speak_as(diary.entries[start:], sender)


def _speak_as(entries: Sequence[Entry], sender: dict[str, object]) -> None:
    for entry in entries:
        entry.event["sender"] = sender


def _direct(
    person: Person,
    platform: str,
    account: str,
    chat: Mapping[str, object],
    scope: str | None = None,
) -> Chat:
    """Return the chat in which a person is alone with the assistant."""
    parts = (platform, scope.lower() if scope else "", person.name.lower())
    label = "/".join(part for part in parts if part)
    return Chat(label, platform, account, chat, is_shared=True, scope=scope)


def _moments(chance: Chance, count: int, hours: tuple[float, float]) -> list[float]:
    """Return `count` times, spread over a part of the day."""
    first, last = hours
    width = (last - first) / count
    return [
        (first + (number + chance.between(0.05, 0.85)) * width) * HOUR for number in range(count)
    ]
