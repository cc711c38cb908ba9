"""Updates of Telegram as events: shapes of the Bot API, with data of our own."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest
from aiogram.types import Update, User

from chatlane_adapters.telegram.decode import ALLOWED_UPDATES, Decoder
from chatlane_schemas import InboundEvent, new_envelope_id

Json = dict[str, Any]
ME: Final = User(id=99, is_bot=True, first_name="Bot", username="our_bot")
ANN: Final = {"id": 7, "is_bot": False, "first_name": "Ann", "last_name": "Lee"}
BOT: Final = {"id": 99, "is_bot": True, "first_name": "Bot", "username": "our_bot"}
ANONYMOUS: Final = {"id": 1087968824, "is_bot": True, "first_name": "Group"}
DM: Final = {"id": 7, "type": "private", "first_name": "Ann", "last_name": "Lee"}
GROUP: Final = {"id": -50, "type": "group", "title": "Team"}
SUPER: Final = {"id": -1001, "type": "supergroup", "title": "Team"}
FORUM: Final = {"id": -1002, "type": "supergroup", "title": "Forum", "is_forum": True}
CHANNEL: Final = {"id": -1003, "type": "channel", "title": "News"}
FILE: Final[dict[str, Any]] = {"file_id": "f1", "file_unique_id": "u1", "file_size": 10}


def event(**fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
    return InboundEvent(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        platform="telegram",
        account="assistant",
        **fields,
    )


DECODER: Final = Decoder(ME, event)


def decode(kind: str, content: Json, decoder: Decoder = DECODER) -> list[Json]:
    """Return the events of an update, without what all of them have."""
    update = Update.model_validate({"update_id": 1000, kind: content})
    hidden = {"id", "at", "platform", "account"}
    return [
        it.model_dump(mode="json", exclude=hidden, exclude_none=True, exclude_defaults=True)
        for it in decoder.events(update)
    ]


def message(chat: Json = DM, author: Json | None = ANN, **content: Any) -> Json:  # noqa: ANN401
    shown: Json = {"message_id": 5, "date": 1767225600, "chat": chat, **content}
    return shown if author is None else {**shown, "from": author}


def decoded(content: Json, kind: str = "message") -> Json:
    [only] = decode(kind, content)
    return only


def command(text: str) -> Json:
    length = len(text.split(maxsplit=1)[0])
    return {"text": text, "entities": [{"type": "bot_command", "offset": 0, "length": length}]}


def mention(text: str, name: str) -> Json:
    place = {"offset": text.index(name), "length": len(name)}
    return {"text": text, "entities": [{"type": "mention", **place}]}


def test_a_message_of_a_person() -> None:
    assert decoded(message(text="hello")) == {
        "message_id": "5",
        "chat": {"id": "7", "name": "Ann Lee"},
        "sender": {"id": "7", "name": "Ann Lee"},
        "sent_at": "2026-01-01T00:00:00Z",
        "text": "hello",
    }


def test_the_same_update_is_the_same_event_again() -> None:
    assert decoded(message(text="hello")) == decoded(message(text="hello"))


@pytest.mark.parametrize(
    ("chat", "expected"),
    [
        (GROUP, {"id": "-50", "kind": "group", "name": "Team", "is_forum": False}),
        (SUPER, {"id": "-1001", "kind": "supergroup", "name": "Team", "is_forum": False}),
        (FORUM, {"id": "-1002", "kind": "forum", "name": "Forum", "is_forum": True}),
    ],
)
def test_kinds_of_chats(chat: Json, expected: Json) -> None:
    assert decoded(message(chat, text="a"))["chat"] == expected


def test_a_topic_is_a_thread_and_the_message_that_opened_it_is_not_answered() -> None:
    opened = message(FORUM, forum_topic_created={"name": "Plans", "icon_color": 1})
    opened |= {"message_id": 3, "message_thread_id": 3, "is_topic_message": True}
    its = {"message_thread_id": 3, "is_topic_message": True, "reply_to_message": opened}
    found = decoded(message(FORUM, ANN, text="a", **its))
    assert found["thread_id"] == "3"
    assert "reply_to" not in found
    assert decoded(opened)["service"] == "topic_created"
    assert decoded(opened)["text"] == "Plans"


def test_a_chain_of_replies_outside_of_a_forum_is_no_thread() -> None:
    found = decoded(message(SUPER, text="a", message_thread_id=41))
    assert "thread_id" not in found


def test_a_topic_of_a_private_chat() -> None:
    found = decoded(message(text="a", message_thread_id=9, is_topic_message=True))
    assert (found["thread_id"], found["chat"]["is_forum"]) == ("9", True)


@pytest.mark.parametrize(
    ("content", "is_meant"),
    [
        ({"text": "hello"}, False),
        (mention("hi @our_bot", "@our_bot"), True),
        (mention("🙂 @OUR_bot", "@OUR_bot") | {"text": "🙂@OUR_bot"}, True),
        (mention("hi @other_bot", "@other_bot"), False),
        (command("/new"), True),
        (command("/new@our_bot"), True),
        (command("/new@other_bot"), False),
        ({"text": "yes", "reply_to_message": message(GROUP, BOT, text="Sure?")}, True),
        ({"text": "yes", "reply_to_message": message(GROUP, ANN, text="Sure?")}, False),
        (
            {
                "text": "Bot",
                "entities": [{"type": "text_mention", "offset": 0, "length": 3, "user": BOT}],
            },
            True,
        ),
        (
            {
                "caption": "@our_bot look",
                "caption_entities": [{"type": "mention", "offset": 0, "length": 8}],
                "photo": [{**FILE, "width": 1, "height": 1}],
            },
            True,
        ),
    ],
)
def test_what_is_meant_for_the_bot_in_a_group(content: Json, *, is_meant: bool) -> None:
    assert decoded(message(GROUP, **content)).get("observed", False) is not is_meant
    everything = Decoder(ME, event, answers_all=True)
    [found] = decode("message", message(GROUP, **content), everything)
    assert "observed" not in found
    assert "observed" not in decoded(message(DM, **content))


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("/new@our_bot", "/new"),
        ("/new@Our_Bot Plans\nand more", "/new Plans\nand more"),
        ("/new@other_bot", "/new@other_bot"),
        ("/new@our_bot_too", "/new@our_bot_too"),
        ("/new", "/new"),
        ("write /new@our_bot", "write /new@our_bot"),
        ("@Our_Bot /new Plans", "/new Plans"),
        ("@our_bot: /new@our_bot\nand more", "/new\nand more"),
        ("@our_bot /new@other_bot", "@our_bot /new@other_bot"),
        ("@other_bot /new", "@other_bot /new"),
        ("@our_bot hello", "@our_bot hello"),
    ],
)
def test_a_command_for_the_bot_does_not_name_it(written: str, text: str) -> None:
    assert decoded(message(GROUP, text=written))["text"] == text
    assert decoded(message(GROUP, text=written, edit_date=9), "edited_message")["text"] == text


def test_an_anonymous_admin_and_a_channel_are_no_bots() -> None:
    admin = decoded(message(SUPER, ANONYMOUS, text="ship it", sender_chat=SUPER))
    assert admin["sender"] == {
        "id": "1087968824",
        "is_bot": True,
        "name": "Team",
        "sender_chat_id": "-1001",
    }
    post = decoded(message(CHANNEL, None, text="news", sender_chat=CHANNEL), "channel_post")
    assert post["sender"] == {"name": "News", "sender_chat_id": "-1003"}
    assert (post["chat"]["kind"], post["observed"]) == ("channel", True)


def test_a_reply_with_a_quote() -> None:
    replied = message(text="the long text") | {"message_id": 3}
    found = decoded(message(text="why", reply_to_message=replied))
    assert found["reply_to"] == "3"
    assert found["quote"] == {"text": "the long text", "sender_id": "7", "sender_name": "Ann Lee"}
    quote = {"text": "long", "position": 4}
    found = decoded(message(text="why", reply_to_message=replied, quote=quote))
    assert found["quote"]["text"] == "long"
    ours = message(DM, BOT, text="an answer")
    assert decoded(message(text="why", reply_to_message=ours))["quote"]["is_ours"] is True


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ({"type": "user", "sender_user": ANN}, {"sender_id": "7", "sender_name": "Ann Lee"}),
        ({"type": "hidden_user", "sender_user_name": "X"}, {"sender_name": "X"}),
        ({"type": "chat", "sender_chat": GROUP}, {"sender_id": "-50", "sender_name": "Team"}),
        (
            {"type": "channel", "chat": CHANNEL, "message_id": 4},
            {"sender_id": "-1003", "sender_name": "News"},
        ),
    ],
)
def test_where_a_message_was_forwarded_from(origin: Json, expected: Json) -> None:
    found = decoded(message(text="a", forward_origin={**origin, "date": 1767225600}))
    assert found["forward"] == {**expected, "sent_at": "2026-01-01T00:00:00Z"}


SIZE: Final = {"width": 4, "height": 4}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            {"photo": [{**FILE, **SIZE, "file_id": "small"}, {**FILE, "width": 8, "height": 8}]},
            {"key": "telegram:f1", "kind": "photo", "media_type": "image/jpeg", "size_bytes": 10},
        ),
        (
            {"voice": {**FILE, "duration": 3, "mime_type": "audio/ogg"}},
            {
                "key": "telegram:f1",
                "kind": "voice",
                "media_type": "audio/ogg",
                "size_bytes": 10,
                "duration_ms": 3000,
            },
        ),
        (
            {"document": {**FILE, "file_name": "a.pdf", "mime_type": "application/pdf"}},
            {
                "key": "telegram:f1",
                "kind": "file",
                "media_type": "application/pdf",
                "size_bytes": 10,
                "name": "a.pdf",
            },
        ),
        (
            {"animation": {**FILE, **SIZE, "duration": 1}, "document": FILE},
            {
                "key": "telegram:f1",
                "kind": "animation",
                "media_type": "video/mp4",
                "size_bytes": 10,
                "duration_ms": 1000,
            },
        ),
        (
            {"video": {**FILE, **SIZE, "duration": 1}},
            {
                "key": "telegram:f1",
                "kind": "video",
                "media_type": "video/mp4",
                "size_bytes": 10,
                "duration_ms": 1000,
            },
        ),
        (
            {"video_note": {**FILE, "length": 4, "duration": 1}},
            {
                "key": "telegram:f1",
                "kind": "video_note",
                "media_type": "video/mp4",
                "size_bytes": 10,
                "duration_ms": 1000,
            },
        ),
        (
            {"audio": {**FILE, "duration": 2}},
            {
                "key": "telegram:f1",
                "kind": "audio",
                "media_type": "audio/mpeg",
                "size_bytes": 10,
                "duration_ms": 2000,
            },
        ),
    ],
)
def test_files(content: Json, expected: Json) -> None:
    found = decoded(message(caption="look", **content))
    assert found["attachments"] == [expected]
    assert found["text"] == "look"


def test_photos_of_an_album_share_its_id() -> None:
    photo = [{**FILE, **SIZE}]
    assert decoded(message(photo=photo, media_group_id="a1"))["album_id"] == "a1"


def test_a_sticker() -> None:
    kind = {"type": "regular", "is_animated": False, "is_video": False}
    sticker = {**FILE, **SIZE, **kind, "emoji": "🎉", "set_name": "Party"}
    found = decoded(message(sticker=sticker))
    assert found["sticker"] == {"emoji": "🎉", "name": "Party"}
    assert found["attachments"][0]["media_type"] == "image/webp"


PLACE: Final = {"latitude": 52.5, "longitude": 13.4}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"location": PLACE}, {"location": PLACE}),
        (
            {
                "location": PLACE,
                "venue": {"location": PLACE, "title": "Cafe", "address": "Street 1"},
            },
            {"location": {**PLACE, "name": "Cafe", "address": "Street 1"}},
        ),
        (
            {"contact": {"phone_number": "+49", "first_name": "Bo", "user_id": 8}},
            {"contacts": [{"name": "Bo", "phone": "+49", "id": "8"}]},
        ),
        ({"dice": {"emoji": "🎲", "value": 4}}, {"text": "🎲 4"}),
        (
            {"web_app_data": {"data": "x=1", "button_text": "Open"}},
            {"press": {"value": "x=1", "label": "Open"}},
        ),
        (
            {
                "text": "see 🙂 here",
                "entities": [
                    {"type": "text_link", "offset": 7, "length": 4, "url": "https://e.test"}
                ],
            },
            {"text": "see 🙂 [here](https://e.test)"},
        ),
    ],
)
def test_other_content(content: Json, expected: Json) -> None:
    found = decoded(message(**content))
    assert {name: found[name] for name in expected} == expected


def test_a_poll() -> None:
    options = [{"persistent_id": it, "text": it, "voter_count": 0} for it in ("now", "later")]
    poll = {"id": "p1", "question": "When?", "options": options, "total_voter_count": 0}
    flags = ("is_closed", "is_anonymous", "allows_multiple_answers", "allows_revoting")
    poll |= {"type": "regular", "members_only": False, **dict.fromkeys(flags, False)}
    expected = {"id": "p1", "question": "When?", "options": ["now", "later"]}
    assert decoded(message(poll=poll))["poll"] == expected


def test_an_edit_names_its_version_and_two_edits_of_a_second_differ() -> None:
    content = message(text="hello!", edit_date=1767225660)
    found = decoded(content, "edited_message")
    assert (found["kind"], found["version"], found["text"]) == ("edit", "1767225660", "hello!")
    assert (found["message_id"], found["event_id"]) == ("5", "1000")
    assert "counts_as_new" not in found


def test_an_edit_that_mentions_the_bot_counts_as_a_message() -> None:
    content = message(GROUP, **mention("@our_bot hi", "@our_bot"), edit_date=1767225660)
    assert decoded(content, "edited_message")["counts_as_new"] is True


def test_a_live_location_moves() -> None:
    content = message(location=PLACE, edit_date=1767225660)
    assert decoded(content, "edited_message")["location"] == PLACE


def test_a_pressed_button() -> None:
    card = message(DM, BOT, text="Sure?")
    card["reply_markup"] = {"inline_keyboard": [[{"text": "Yes", "callback_data": "y"}]]}
    query = {"id": "q1", "from": ANN, "chat_instance": "1", "data": "y", "message": card}
    assert decoded(query, "callback_query") == {
        "kind": "action",
        "message_id": "5",
        "event_id": "q1",
        "chat": {"id": "7", "name": "Ann Lee"},
        "sender": {"id": "7", "name": "Ann Lee"},
        "press": {"value": "y", "label": "Yes"},
    }
    old = {"chat": DM, "message_id": 5, "date": 0}
    found = decoded({**query, "message": old}, "callback_query")
    assert found["press"] == {"value": "y"}


def test_reactions_that_come_and_go() -> None:
    thumb, fire = ({"type": "emoji", "emoji": it} for it in ("👍", "🔥"))
    custom = {"type": "custom_emoji", "custom_emoji_id": "77"}
    change = {"chat": DM, "message_id": 5, "user": ANN, "date": 1767225600}
    change |= {"old_reaction": [thumb], "new_reaction": [fire, custom]}
    gone, new, other = decode("message_reaction", change)
    assert (gone["text"], gone["removed"], gone["event_id"]) == ("👍", True, "1000")
    assert (new["text"], new["event_id"]) == ("🔥", "1000.1")
    assert (other["text"], other["event_id"]) == ("custom:77", "1000.2")
    assert "removed" not in new


@pytest.mark.parametrize(
    ("content", "service", "text"),
    [
        ({"new_chat_members": [ANN]}, "joined", "Ann Lee"),
        ({"left_chat_member": ANN}, "left", "Ann Lee"),
        ({"new_chat_title": "New"}, "title_changed", "New"),
        ({"pinned_message": message(GROUP, text="rules")}, "pinned", "rules"),
        ({"delete_chat_photo": True}, "photo_removed", None),
        ({"video_chat_started": {}}, "video_chat_started", None),
    ],
)
def test_changes_of_a_chat(content: Json, service: str, text: str | None) -> None:
    found = decoded(message(GROUP, **content))
    assert (found["kind"], found["service"], found.get("text")) == ("service", service, text)
    assert found["event_id"] == "1000"


def test_a_group_that_became_a_supergroup() -> None:
    found = decoded(message(GROUP, ANONYMOUS, migrate_to_chat_id=-1001))
    assert found == {
        "kind": "migration",
        "chat": {"id": "-50", "kind": "group"},
        "event_id": "migrated:-1001",
        "migrate_to": "-1001",
    }
    assert decode("message", message(SUPER, ANONYMOUS, migrate_from_chat_id=-50)) == []


@pytest.mark.parametrize(
    ("chat", "status", "service"),
    [
        (DM, "kicked", "blocked"),
        (DM, "member", "unblocked"),
        (GROUP, "left", "bot_removed"),
        (GROUP, "member", "bot_changed"),
    ],
)
def test_what_becomes_of_the_bot(chat: Json, status: str, service: str) -> None:
    old, new = ({"status": it, "user": BOT, "until_date": 0} for it in ("member", status))
    change = {"chat": chat, "from": ANN, "date": 1767225600}
    change |= {"old_chat_member": old, "new_chat_member": new}
    assert decoded(change, "my_chat_member")["service"] == service


def test_business_chats() -> None:
    customer = decoded(message(text="hi", business_connection_id="b1"), "business_message")
    assert customer["scope"] == "b1"
    assert "is_staff" not in customer["sender"]
    owner = {"id": 8, "is_bot": False, "first_name": "Olga"}
    staff = decoded(message(DM, owner, text="hi", business_connection_id="b1"), "business_message")
    assert staff["sender"] == {"id": "8", "name": "Olga", "is_staff": True}
    ours = message(DM, owner, text="hi", business_connection_id="b1", sender_business_bot=BOT)
    assert decode("business_message", ours) == []
    deletion = {"business_connection_id": "b1", "chat": DM, "message_ids": [3, 4]}
    found = decode("deleted_business_messages", deletion)
    assert [(it["kind"], it["message_id"], it["scope"]) for it in found] == [
        ("delete", "3", "b1"),
        ("delete", "4", "b1"),
    ]


def test_a_message_in_the_inbox_of_a_channel_is_a_thread_of_its_person() -> None:
    inbox = {"id": -1009, "type": "supergroup", "title": "News", "is_direct_messages": True}
    found = decoded(message(inbox, text="a", direct_messages_topic={"topic_id": 12}))
    assert found["thread_id"] == "direct:12"


def test_a_stopped_draft_is_the_command_that_stops() -> None:
    found = decoded({"chat": DM, "draft_id": 3}, "stopped_message_generation")
    assert (found["text"], found["event_id"]) == ("/stop", "1000")


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("edited_message", message(new_chat_title="New", edit_date=1767225660)),
        ("message", message(DM, BOT, text="our own")),
        (
            "callback_query",
            {"id": "q", "from": ANN, "chat_instance": "1", "inline_message_id": "i"},
        ),
        ("inline_query", {"id": "q", "from": ANN, "query": "x", "offset": ""}),
        ("poll_answer", {"poll_id": "p", "option_ids": [], "option_persistent_ids": []}),
    ],
)
def test_what_is_dropped(kind: str, content: Json) -> None:
    assert decode(kind, content) == []


def test_every_update_that_is_asked_for_is_one_of_the_library() -> None:
    assert set(ALLOWED_UPDATES) <= set(Update.model_fields)
